/** Sums over a range. */
import { source } from "../source";
import { Table } from "../table";
import type { Timeline } from "./model";
import type { Area } from "./scene";

/** Of each group in ns: busy_ns, idle_ns, unrecorded_ns, and of a device by kind of work, such as kernel_ns. */
export interface Sums {
  table: Table;
  groups: ({ group: number; busy_ns: number; idle_ns: number; unrecorded_ns: number } & Record<string, number>)[];
}

/** The sums, and the activity of each group. */
export async function sums(of: Timeline, area: Area, by: "name" | "lane" | "kind"): Promise<Sums> {
  // Hidden and folded tracks do not count.
  const layout = of.layout.peek();
  const shown = [...layout.pinned, ...layout.lanes]
    .map((box) => box.lane)
    .filter((lane) => lane.kind === "spans")
    .map((lane) => lane.id);
  const some =
    area.lanes ??
    (shown.length < of.header.lanes.filter((lane) => lane.kind === "spans").length && shown.length ? shown : null);
  const lanes = some ? `&lanes=${some.join(",")}` : "";
  const answer = await source().raw(
    of.run,
    `timeline/area?t0=${Math.round(area.t0)}&t1=${Math.max(Math.round(area.t0) + 1, Math.round(area.t1))}${lanes}&by=${by}`,
  );
  if (source().isReport) {
    const { columns, groups } = (await answer.json()) as { columns: Record<string, number[]>; groups: Sums["groups"] };
    return { table: Table.of(columns), groups };
  }
  const groups = JSON.parse(answer.headers.get("X-Stepscope-Area") ?? "[]") as Sums["groups"];
  return { table: Table.decode(await answer.arrayBuffer(), 0n), groups };
}
