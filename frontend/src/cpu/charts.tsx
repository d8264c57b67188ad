/** CPU samples over time. */
import { Card, Empty, Legend } from "../parts/basics";
import { Series } from "../parts/series";
import type { Band, Line, Range } from "../parts/series_marks";
import { selectRange } from "../time_range";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import { mean, RangeChip, processLabel } from "./usage";
import { useMemo } from "preact/hooks";

const text = strings("cpu");

const SHOWN = 8;

const COLORS = [
  "--kind-host",
  "--op-matmul",
  "--op-attention",
  "--op-norm",
  "--op-reduce",
  "--op-cast",
  "--op-optim",
  "--op-index",
];

/** Lines of several names on one axis: every timestamp at which one of them was sampled. */
function alignSeries(
  table: Table,
  rows: number[],
  column: string,
  names: string[],
): { x: Float64Array; lines: Float64Array[] } {
  const at = table.num("at_ns");
  const value = table.num(column);
  const name = table.str("name");
  const known = rows.filter((row) => !Number.isNaN(value[row]) && names.includes(name[row]!));
  // A sample covers the time before it: the first sample of a name, the time since the name first appeared.
  const firsts = names.flatMap((item) => {
    const [first, row] = [rows.find((row) => name[row] === item), known.find((row) => name[row] === item)];
    return first !== undefined && row !== undefined && first !== row ? [[first, row]] : [];
  });
  const x = Float64Array.from(new Set([...firsts.map(([first]) => at[first]), ...known.map((row) => at[row])])).sort();
  const place = new Map(Array.from(x, (moment, index) => [moment, index]));
  const lines = names.map(() => new Float64Array(x.length).fill(NaN));
  for (const [first, row] of firsts) lines[names.indexOf(name[row]!)][place.get(at[first])!] = value[row];
  for (const row of known) lines[names.indexOf(name[row]!)][place.get(at[row])!] = value[row];
  return { x, lines };
}

export function Charts({
  table,
  use,
  brief,
  bands,
  range,
}: {
  table: Table;
  use: Table | null;
  /** The samples are too short to measure the load. */
  brief: boolean;
  bands: Band[];
  range: Range | null;
}) {
  const t = text();
  const of = table.str("of");
  const parts = useMemo(() => {
    const rows = (kind: string) => table.where((row) => of[row] === kind);
    const machine = rows("machine");
    const shared = machine.filter((row) => !Number.isNaN(table.num("user_share")[row]));
    const only = (rows: number[], column: string) => Float64Array.from(rows, (row) => table.num(column)[row]);
    // A sample covers the time before it: the first one, the time since the first sample of all.
    const before = (rows: number[], column: string) => {
      const from = rows.length && rows[0] !== machine[0] ? [column === "at_ns" ? machine[0] : rows[0]] : [];
      return only([...from, ...rows], column);
    };
    const queued = machine.filter((row) => !Number.isNaN(table.num("run_queue")[row]));
    const switched = machine.filter((row) => !Number.isNaN(table.num("context_switches_per_s")[row]));
    return {
      shares: {
        x: before(shared, "at_ns"),
        ...Object.fromEntries(
          ["user", "system", "io", "steal", "idle"].map((name) => [name, before(shared, `${name}_share`)]),
        ),
      } as Record<string, Float64Array>,
      queue: { x: only(queued, "at_ns"), y: only(queued, "run_queue") },
      switches: { x: before(switched, "at_ns"), y: before(switched, "context_switches_per_s") },
      process: rows("process"),
      operator: rows("operator"),
    };
  }, [table]);
  const busiest = (kind: string) =>
    use
      ? use
          .where((row) => use.str("of")[row] === kind)
          .sort((a, b) => mean(use, b) - mean(use, a))
          .map((row) => use.str("name")[row]!)
      : [];
  const processes = useMemo(() => busiest("process"), [use]);
  const operators = useMemo(() => busiest("operator"), [use]);
  const process = useMemo(
    () => alignSeries(table, parts.process, "busy_cores", processes.slice(0, SHOWN)),
    [table, parts, processes],
  );
  const user = useMemo(
    () => alignSeries(table, parts.operator, "user_share", operators.slice(0, SHOWN)),
    [table, parts, operators],
  );
  const cores = use ? use.num("cores")[0] : NaN;
  // One time axis for all lines.
  const ends = useMemo(() => {
    const all = [parts.shares.x, parts.queue.x, process.x, user.x].filter((x) => x.length);
    return all.length
      ? ([Math.min(...all.map((x) => x[0])), Math.max(...all.map((x) => x[x.length - 1]))] as Range)
      : null;
  }, [parts, process, user]);
  const common = { group: "cpu", bands, range: range ?? ends, onRange: selectRange };
  const some = (names: string[]) =>
    names.length > SHOWN ? ` · ${fill(t.top, { some: SHOWN, all: names.length })}` : "";
  const named = (names: string[], lines: Float64Array[]): Line[] =>
    lines.map((values, at) => ({
      label: processLabel(names[at]),
      values,
      color: COLORS[at],
      sparse: true,
      stepped: "before" as const,
    }));
  const kinds: [string, string, string][] = [
    ["user", t.user, "--kind-host"],
    ["system", t.system, "--op-attention"],
    ["io", t.io_, "--kind-wait"],
    ["steal", t.steal, "--kind-communication"],
    ["idle", t.idle, "--kind-idle"],
  ];
  const there = kinds.filter(
    ([name]) => ["user", "system", "idle"].includes(name) || parts.shares[name].some((value) => value > 0),
  );
  const shares = useMemo(
    () =>
      there.map(([name, label, color]) => ({ label, color, values: parts.shares[name], stepped: "before" as const })),
    [parts, t],
  );
  return (
    <div class="stack">
      <Card
        title={t.machine}
        tools={
          <>
            <RangeChip range={range} />
            <Legend
              of={there.map(([, label, color]) => ({ label, color: `var(${color})`, hatch: color === "--kind-idle" }))}
            />
          </>
        }
      >
        {brief ? (
          <Empty title={t.tooShortTitle} height={84}>
            {t.tooShort}
          </Empty>
        ) : (
          parts.shares.x.length > 0 && (
            <Series
              {...common}
              x={parts.shares.x}
              lines={shares}
              stacked
              as="share"
              top={1}
              height={150}
              bandLabels
              label={`${t.machine}: ${t.machineNote}`}
            />
          )
        )}
        {parts.queue.x.length > 0 && (
          <>
            <h3 class="sub">
              {t.queue}{" "}
              <span class="d3">
                {t.queueNote}
                {Number.isFinite(cores) && ` · ${fill(t.cores, { count: cores })}`}
              </span>
            </h3>
            <Series
              {...common}
              x={parts.queue.x}
              lines={[{ label: t.queue, values: parts.queue.y, color: "--op-attention", area: true, stepped: true }]}
              as="count"
              levels={Number.isFinite(cores) ? [{ at: cores, label: fill(t.cores, { count: cores }) }] : []}
              height={84}
              label={t.queue}
            />
          </>
        )}
        {parts.switches.x.length > 0 && (
          <>
            <h3 class="sub">
              {t.switches} <span class="d3">{t.switchesNote}</span>
            </h3>
            <Series
              {...common}
              x={parts.switches.x}
              lines={[
                { label: t.switches, values: parts.switches.y, color: "--op-index", area: true, stepped: "before" },
              ]}
              as="count"
              height={84}
              label={t.switches}
            />
          </>
        )}
      </Card>
      {process.x.length > 0 && (
        <Card title={t.process} note={t.processNote + some(processes)}>
          <Legend
            of={process.lines.map((_, at) => ({ label: processLabel(processes[at]), color: `var(${COLORS[at]})` }))}
          />
          <Series
            {...common}
            x={process.x}
            lines={named(processes, process.lines)}
            as="count"
            height={130}
            label={t.process}
          />
        </Card>
      )}
      {user.x.length > 0 && (
        <Card title={t.operator} note={t.operatorNote + some(operators)}>
          <Legend of={user.lines.map((_, at) => ({ label: operators[at], color: `var(${COLORS[at]})` }))} />
          <Series
            {...common}
            x={user.x}
            lines={named(operators, user.lines)}
            as="share"
            height={130}
            label={t.operator}
          />
        </Card>
      )}
    </div>
  );
}
