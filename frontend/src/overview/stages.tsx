/** Stages of the host in a step: data wait, forward, backward, optimizer. */
import { useWidth } from "../parts/basics";
import { textWidth } from "../parts/stage_bar";
import { tip, untip } from "../parts/tip";
import type { Table } from "../table";
import * as units from "../units";
import type { Strings } from "../strings";

export interface HostStage {
  name: string;
  start: number;
  ns: number;
  kind: string;
}

const STAGES: Record<
  string,
  | "stage_data"
  | "stage_copy"
  | "stage_forward"
  | "stage_backward"
  | "stage_both"
  | "stage_optimizer"
  | "stage_comm"
  | "stage_other"
> = {
  "data wait": "stage_data",
  "input copy": "stage_copy",
  forward: "stage_forward",
  backward: "stage_backward",
  "forward and backward": "stage_both",
  optimizer: "stage_optimizer",
  communication: "stage_comm",
  other: "stage_other",
};

/** The stages of one step in order of their start; "other" is the rest and comes last. */
export function stageRows(t: Strings["overview"], stages: Table | null, step: number): HostStage[] {
  if (!stages) return [];
  const rows = stages.where((row) => stages.num("step")[row] === step && stages.num("dur_ns")[row] > 0);
  const first = Math.min(...rows.map((row) => stages.num("start_ns")[row]));
  const result = rows.map((row) => {
    const stage = stages.str("stage")[row] ?? "";
    const word = STAGES[stage];
    return {
      name: word ? t[word] : stage,
      start: stages.num("start_ns")[row] - first,
      ns: stages.num("dur_ns")[row],
      kind: stage === "data wait" ? "wait" : stage,
    };
  });
  return result.sort((a, b) => Number(a.kind === "other") - Number(b.kind === "other") || a.start - b.start);
}

export function HostStages({
  rows,
  total,
  scale,
  order,
}: {
  rows: HostStage[];
  total: number;
  scale: number;
  order: boolean;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  let from = 0;
  const shown = order ? rows.filter((row) => row.kind !== "other") : rows;
  const label = rows.map((row) => `${row.name} ${units.text(units.time(row.ns))}`).join(", ");
  return (
    <div class="ov-stages" ref={box} role="img" aria-label={label}>
      {shown.map((row, at) => {
        const start = order ? row.start : from;
        from += row.ns;
        // A stage that occurs several times in a step (zero_grad and step) would overlap the next one: it is cut there.
        const next = order && at + 1 < shown.length ? shown[at + 1].start - row.start : Infinity;
        const length = Math.min(row.ns, next, total - start);
        const wide = textWidth(`${row.name} ${units.text(units.time(row.ns))}`) + 8 < (length / scale) * width;
        return (
          <span
            key={row.name}
            class={row.kind}
            style={{
              left: `${(start / scale) * 100}%`,
              width: `calc(${(length / scale) * 100}% - 1px)`,
              paddingLeft: wide ? undefined : "0",
            }}
            onPointerMove={(event) =>
              tip(
                event,
                <>
                  <b>{row.name}</b> {units.text(units.time(row.ns))} · {units.text(units.share(row.ns / total))}
                </>,
              )
            }
            onPointerLeave={untip}
          >
            {wide && (
              <>
                {row.name} <span class="d3">{units.text(units.time(row.ns))}</span>
              </>
            )}
          </span>
        );
      })}
    </div>
  );
}
