/** Which rank called and completed which collective: a row per collective, a cell per rank. */
import { Card, useWidth } from "../parts/basics";
import { tip, untip } from "../parts/tip";
import { Time } from "../parts/quantity";
import { go } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import { cells, STATES, type State } from "./states";
import { useMemo } from "preact/hooks";

const text = strings("hangs");
const LEFT = 320,
  ROW = 22,
  RIGHT = 72,
  NUMBERED = 13; // pixels of a cell that has room for the number of its rank

export function Progress({ ranks, pending }: { ranks: Table; pending: Table }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const numbers = useMemo(() => Array.from(ranks.num("rank")), [ranks]);
  const causes = useMemo(
    () => new Set(numbers.filter((_, row) => ranks.str("role")[row] === "cause")),
    [ranks, numbers],
  );
  const rows = useMemo(() => cells(pending, numbers), [pending, numbers]);
  const inner = Math.max(80, width - LEFT - RIGHT - 24);
  const cell = Math.min(26, inner / numbers.length);
  const numbered = cell >= NUMBERED;
  const state = (row: number, event: MouseEvent) => {
    const from = (event.currentTarget as Element).getBoundingClientRect();
    const at = Math.min(numbers.length - 1, Math.max(0, Math.floor((event.clientX - from.left) / cell)));
    const of = rows[row].find((run) => at >= run.from && at < run.to)?.state;
    if (!of) return untip();
    tip(
      event,
      <>
        <b>{fill(t.rankNumber, { rank: String(numbers[at]) })}</b>
        <div>{t[of]}</div>
      </>,
    );
  };
  const open = (event: MouseEvent) => {
    const from = (event.currentTarget as Element).getBoundingClientRect();
    const at = Math.floor((event.clientX - from.left) / cell);
    if (at >= 0 && at < numbers.length) go({ params: { rank: String(numbers[at]) } });
  };
  return (
    <Card title={t.progress} note={t.progressNote}>
      <div class="hang-legend">
        {STATES.map((name) => (
          <span key={name}>
            <i class={`hang-${name}`} />
            {t[name]}
          </span>
        ))}
      </div>
      <div ref={box} class="hang-rows" role="table" aria-label={t.progress}>
        {numbered && (
          <div class="hang-row hang-head" style={{ gridTemplateColumns: `${LEFT}px 1fr ${RIGHT}px` }}>
            <span class="label">{t.collective}</span>
            <svg width={cell * numbers.length} height={ROW}>
              {numbers.map((rank, at) => (
                <text key={rank} x={(at + 0.5) * cell} y={15} class={causes.has(rank) ? "cause" : ""}>
                  {rank}
                </text>
              ))}
            </svg>
            <span class="label">{t.firstCall}</span>
          </div>
        )}
        {rows.map((runs, row) => {
          const group = [pending.str("description")[row], pending.str("group")[row]].filter(Boolean).join(" ");
          const name = `${pending.str("operation")[row]} ${pending.num("number")[row]}`;
          return (
            <div
              key={row}
              class="hang-row"
              role="row"
              style={{ gridTemplateColumns: `${LEFT}px 1fr ${RIGHT}px` }}
              aria-label={`${name} ${group}: ${summary(runs, numbers, t)}`}
            >
              <span class="hang-name" title={[name, group, pending.str("line")[row]].filter(Boolean).join("\n")}>
                <b class="mono">{name}</b>
                <span>{group}</span>
              </span>
              <svg
                width={cell * numbers.length}
                height={ROW}
                onMouseMove={(event) => state(row, event)}
                onMouseLeave={untip}
                onClick={open}
              >
                {runs.map((run) => (
                  <Cells key={run.from} run={run} cell={cell} />
                ))}
              </svg>
              <Time ns={pending.num("first_ns")[row]} />
            </div>
          );
        })}
      </div>
    </Card>
  );
}

/** Ranks side by side in one state: a rectangle each where they are wide enough to tell apart, else one for all. */
function Cells({ run, cell }: { run: { from: number; to: number; state: State }; cell: number }) {
  const apart = cell >= 5 ? run.to - run.from : 1;
  const wide = ((run.to - run.from) * cell) / apart;
  return (
    <>
      {Array.from({ length: apart }, (_, at) => (
        <rect
          key={at}
          class={`hang-${run.state}`}
          x={run.from * cell + at * wide}
          y={2}
          width={Math.max(1, wide - (cell >= 5 ? 2 : 0))}
          height={ROW - 4}
          rx={cell >= 5 ? 2 : 0}
        />
      ))}
    </>
  );
}

/** "9, 14: not called" */
function summary(
  runs: { from: number; to: number; state: State }[],
  numbers: number[],
  t: Record<State, string>,
): string {
  return runs
    .filter((run) => run.state !== "called")
    .map((run) => `${numbers.slice(run.from, run.to).join(", ")}: ${t[run.state]}`)
    .join("; ");
}
