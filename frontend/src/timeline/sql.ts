/** The view or the selection as SQL. */
import type { Info } from "../source";
import type { Timeline } from "./model";

/** A time of the page as a timestamp of the tables. */
export function absolute(now: Info, ns: number): string {
  return String(BigInt(now.origin_ns) + BigInt(Math.round(ns)));
}

/** Spans of the selected or visible range; of the selected tracks, or else of the track of the selected span. */
export function spansSql(of: Timeline, now: Info): string {
  const area = of.area.value;
  const event = of.selected.value;
  const { t0, t1 } = area ?? of.sight.seen.value;
  const chosen = area?.lanes ?? (event && !area ? [event.lane] : []);
  const lanes = chosen.map((id) => of.lane(id)).filter((lane) => lane && lane.kind === "spans" && lane.track !== null);
  const rank = lanes.length ? of.rankOf(lanes[0]!.id) : null;
  const where = [
    ...(rank === null ? [] : [`rank = ${rank}`]),
    ...(lanes.length ? [`track in (${lanes.map((lane) => lane!.track).join(", ")})`] : []),
    `start_ns < ${absolute(now, t1)}`,
    `start_ns + dur_ns > ${absolute(now, t0)}`,
  ];
  return `select rank, track, kind, name, start_ns, dur_ns, self_ns, depth, step, scope, span\nfrom spans\nwhere ${where.join("\n  and ")}\norder by start_ns, depth\nlimit 10000`;
}
