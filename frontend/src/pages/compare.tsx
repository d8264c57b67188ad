// page: {"order": 130, "group": "tools", "icon": "compare"}
import "./compare.css";
import { useMemo } from "preact/hooks";
import { color } from "../colors";
import { warmupParams, info, useFetched, useTable, type Fetched } from "../data";
import { Await, Card, Chip, Empty, Loading, Segmented, Trouble, Verdict } from "../parts/basics";
import { Quantity } from "../parts/quantity";
import { Grid } from "../parts/grid";
import { type Column } from "../parts/grid_rows";
import { framework } from "../shell/framework";
import { source, type Info, type Run } from "../source";
import { listed } from "../place";
import { go, link, param, place } from "../state";
import { Table } from "../table";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";

const text = strings("compare");

type Words = ReturnType<typeof text>;

export default function Compare() {
  const now = info.value!;
  const other = param("with");
  return other ? <Comparison now={now} other={other} /> : <Choose now={now} />;
}

function Choose({ now }: { now: Info }) {
  const t = text();
  const runs = useFetched<Run[]>("\nruns", () => source().runs());
  return (
    <>
      <Verdict>
        <Sentence template={t.choose} a={<b>{now.name}</b>} />
      </Verdict>
      <Card title={t.chooseTitle}>
        <Await of={runs}>
          {(list) => {
            const others = list.filter((run) => run.id !== listed(now.id) && run.state === "finished");
            if (!others.length) return <Empty title={t.noOther}>{t.noOtherHow}</Empty>;
            return (
              <ul class="cmp-list">
                {others.map((run) => (
                  <li key={run.id}>
                    <a href={link({ params: { with: run.id } })}>{run.name}</a> <span class="d3 small">{run.path}</span>
                  </li>
                ))}
              </ul>
            );
          }}
        </Await>
      </Card>
    </>
  );
}

/** An analysis of the other run: its first rank and the steps that its pages show. */
function useOther(other: Fetched<Info>, name: string, counted = false): Fetched<Table> {
  const run = other.data?.id ?? null;
  const steps = other.data?.part?.join(":");
  const part = {
    rank: other.data?.ranks[0],
    steps,
    ...(counted && { warmup: steps || param("warmup") === "keep" ? 0 : null }),
  };
  return useFetched(run === null ? null : `${run}\n${name}\n${JSON.stringify(part)}`, () =>
    source().table(run!, name, part),
  );
}

function Comparison({ now, other }: { now: Info; other: string }) {
  const t = text();
  const theirs = useFetched(`${other}\ninfo`, () => source().info(other));
  const [a, b] = [useTable("overview", warmupParams()), useOther(theirs, "overview", true)];
  const [typesA, typesB] = [useTable("operator_types"), useOther(theirs, "operator_types")];
  const error = theirs.error ?? a.error ?? b.error;
  if (error)
    return (
      <>
        <Trouble error={error} />
        <Choose now={now} />
      </>
    );
  if (!theirs.data || !a.data || !b.data) return <Loading rows={12} />;
  const [stepA, stepB] = [first(a.data, "step_ns"), first(b.data, "step_ns")];
  const known = Number.isFinite(stepA) && Number.isFinite(stepB);
  const equal = known && units.text(units.time(stepA)) === units.text(units.time(stepB));
  const sentence = !known ? t.noSteps : equal ? t.same : stepB < stepA ? t.faster : t.slower;
  return (
    <>
      <Verdict facts={[t.plain, t.later]}>
        <Sentence
          template={sentence}
          a={<b>{now.name}</b>}
          b={<b>{theirs.data.name}</b>}
          before={
            <b>
              <Quantity value={stepA} as="time" />
            </b>
          }
          after={
            <b>
              <Quantity value={stepB} as="time" />
            </b>
          }
          by={
            <b>
              <Quantity value={Math.abs(stepB / stepA - 1)} as="share" />
            </b>
          }
        />
      </Verdict>
      <Card
        title={t.figures}
        tools={
          <>
            <a href={link({ run: other, page: "compare", params: { with: place.value.run } })}>{t.swap}</a>
            <a href={link({ params: { with: null } })}>{t.other}</a>
          </>
        }
        flush
      >
        <Figures t={t} now={now} then={theirs.data} a={a.data} b={b.data} />
      </Card>
      {typesA.error || typesB.error ? (
        <Trouble error={(typesA.error ?? typesB.error)!} />
      ) : typesA.data && typesB.data ? (
        <Types
          now={now}
          then={theirs.data}
          a={typesA.data}
          b={typesB.data}
          steps={[a.data, b.data].map((one) => first(one, "steps") + first(one, "left_out")) as [number, number]}
        />
      ) : (
        <Loading />
      )}
    </>
  );
}

function first(table: Table, name: string): number {
  return table.rows ? table.num(name)[0] : NaN;
}

/** Figures of `overview`; `good` is the direction that is better. */
const FIGURES: [
  label:
    | "step"
    | "p90"
    | "min"
    | "max"
    | "steps"
    | "compute"
    | "communication"
    | "copy"
    | "idle"
    | "input"
    | "exposed"
    | "rate"
    | "use"
    | "peak"
    | "bare"
    | "bareIdle",
  column: string,
  as: units.Quantity,
  good: -1 | 0 | 1,
][] = [
  ["step", "step_ns", "time", -1],
  ["bare", "unprofiled_step_ns", "time", -1],
  ["p90", "p90_ns", "time", -1],
  ["min", "min_ns", "time", -1],
  ["max", "max_ns", "time", -1],
  ["steps", "steps", "count", 0],
  ["compute", "compute_share", "share", 1],
  ["communication", "communication_share", "share", -1],
  ["copy", "copy_share", "share", -1],
  ["idle", "idle_share", "share", -1],
  ["bareIdle", "idle_unprofiled_share", "share", -1],
  ["input", "input_wait_share", "share", -1],
  ["exposed", "exposed_communication_share", "share", -1],
  ["rate", "flops_per_s", "flopsRate", 1],
  ["use", "utilization", "share", 1],
  ["peak", "peak_memory_bytes", "bytes", -1],
];

function Figures({ t, now, then, a, b }: { t: Words; now: Info; then: Info; a: Table; b: Table }) {
  const word = (table: Table, name: string) => (table.rows ? table.str(name)[0] : null) ?? units.MISSING;
  return (
    <table class="cmp">
      <thead>
        <tr>
          <th>{t.figure}</th>
          <th>
            <span class="cut">{now.name}</span>
          </th>
          <th>
            <a class="cut" href={link({ run: then.id, page: "overview" })}>
              {then.name}
            </a>
          </th>
          <th>{t.change}</th>
        </tr>
      </thead>
      <tbody>
        <tr>
          <td>{t.framework}</td>
          <td>{framework(now)}</td>
          <td>{framework(then)}</td>
          <td />
        </tr>
        <tr>
          <td>{t.device}</td>
          <td>{word(a, "device")}</td>
          <td>{word(b, "device")}</td>
          <td />
        </tr>
        <tr>
          <td>{t.rank}</td>
          <td>{word(a, "rank")}</td>
          <td>{word(b, "rank")}</td>
          <td />
        </tr>
        {FIGURES.map(([label, column, as, good]) => {
          const [before, after] = [first(a, column), first(b, column)];
          return (
            <tr key={column}>
              <td>{t[label]}</td>
              <td>
                <Quantity value={before} as={as} />
              </td>
              <td>
                <Quantity value={after} as={as} />
              </td>
              <td>
                <Delta t={t} before={before} after={after} as={as} good={good} />
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** ▲ 2.7 ms (2.3 %): red only if worse. Shares change by percentage points. */
function Delta({
  t,
  before,
  after,
  as,
  good,
}: {
  t: Words;
  before: number;
  after: number;
  as: units.Quantity;
  good: -1 | 0 | 1;
}) {
  const by = after - before;
  if (!Number.isFinite(by)) return <span class="d3">{units.MISSING}</span>;
  if (by === 0) return <span class="d3">=</span>;
  // A change below 1 % is not distinguishable from noise without a test.
  const small = as === "share" ? Math.abs(by) < 0.005 : Math.abs(by) < Math.abs(before) * 0.01;
  const tone = good === 0 || small ? "d2" : Math.sign(by) === good ? "good" : "bad";
  // A share that grows from 10 % to 15 % grows by 5 percentage points.
  const size =
    as === "share"
      ? fill(t.points, { points: units.text(units.share(Math.abs(by))).replace(/\s*%$/, "") })
      : units.text(units.write(Math.abs(by), as));
  return (
    <span class={tone} title={units.exact(by, as)}>
      {by > 0 ? "▲" : "▼"} {size}
      {as !== "share" && before !== 0 && ` (${units.text(units.share(Math.abs(by / before)))})`}
      {tone !== "d2" && <span class="sr">{tone === "good" ? t.better : t.worse}</span>}
    </span>
  );
}

function Types({ now, then, a, b, steps }: { now: Info; then: Info; a: Table; b: Table; steps: [number, number] }) {
  const t = text();
  const devices = [...new Set([...a.str("device"), ...b.str("device")])].filter((one): one is string => one !== null);
  const device = param("device") ?? devices.find((one) => one !== "cpu") ?? devices[0];
  const table = useMemo(() => matched(a, b, device, steps, t, now.name, then.name), [a, b, device, t]);
  if (!devices.length)
    return (
      <Card title={t.types}>
        <Empty title={t.noTypes} />
      </Card>
    );
  const columns: Column[] = [
    { key: "type", label: t.type, as: "name", color: (of, row) => color(of.str("type")[row] ?? "", true) },
    { key: "a_ns", label: fill(t.inA, { name: now.name }) },
    { key: "b_ns", label: fill(t.inB, { name: then.name }) },
    {
      key: "change_ns",
      label: t.change,
      show: (of, row) => (
        <Delta t={t} before={of.num("a_ns")[row] || 0} after={of.num("b_ns")[row] || 0} as="time" good={-1} />
      ),
      width: "minmax(140px, 1.4fr)",
    },
    { key: "a_calls", label: fill(t.callsA, { name: now.name }) },
    { key: "b_calls", label: fill(t.callsB, { name: then.name }) },
    { key: "a_total_ns", label: fill(t.totalA, { name: now.name }), hide: true },
    { key: "b_total_ns", label: fill(t.totalB, { name: then.name }), hide: true },
    {
      key: "where",
      label: t.state,
      show: (of, row) => {
        const where = of.str("where")[row];
        return where === t.both ? <span class="d3">{where}</span> : <Chip tone="acc">{where}</Chip>;
      },
      width: "minmax(110px, 1fr)",
    },
  ];
  return (
    <Card
      title={t.types}
      note={fill(t.typesNote, { device: device ?? "" })}
      tools={
        devices.length > 1 && (
          <Segmented
            label={t.deviceChoice}
            value={device}
            choices={devices.map((id) => ({ id, label: id }))}
            onChange={(id) => go({ params: { device: id } }, true)}
          />
        )
      }
      flush
    >
      <Grid
        id="types"
        table={table}
        columns={columns}
        search={["type", "where"]}
        sort="-size_ns"
        what={t.what}
        label={t.types}
      />
    </Card>
  );
}

/** One row per type of either run. */
function matched(
  a: Table,
  b: Table,
  device: string,
  steps: [number, number],
  t: Words,
  nameA: string,
  nameB: string,
): Table {
  const rows = (table: Table) =>
    new Map(
      table.where((row) => table.str("device")[row] === device).map((row) => [table.str("type")[row] ?? "", row]),
    );
  const [inA, inB] = [rows(a), rows(b)];
  const names = [...new Set([...inA.keys(), ...inB.keys()])];
  const value = (table: Table, at: Map<string, number>, column: string, name: string) =>
    at.has(name) ? table.num(column)[at.get(name)!] : NaN;
  const per = (total: number, count: number) => (count > 0 ? total / count : total);
  const before = names.map((name) => per(value(a, inA, "self_ns", name), steps[0]));
  const after = names.map((name) => per(value(b, inB, "self_ns", name), steps[1]));
  const change = names.map((_, at) => (after[at] || 0) - (before[at] || 0));
  return Table.of({
    type: names,
    a_ns: before,
    b_ns: after,
    change_ns: change,
    size_ns: change.map(Math.abs),
    a_calls: names.map((name) => value(a, inA, "calls", name)),
    b_calls: names.map((name) => value(b, inB, "calls", name)),
    a_total_ns: names.map((name) => value(a, inA, "self_ns", name)),
    b_total_ns: names.map((name) => value(b, inB, "self_ns", name)),
    where: names.map((name) =>
      inA.has(name) && inB.has(name)
        ? t.both
        : inA.has(name)
          ? fill(t.onlyA, { name: nameA })
          : fill(t.onlyB, { name: nameB }),
    ),
  });
}
