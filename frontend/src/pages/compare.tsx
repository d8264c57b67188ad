// page: {"order": 130, "group": "tools", "icon": "compare", "en": "Compare", "zh": "对比"}
import "./compare.css";
import { useMemo } from "preact/hooks";
import { color } from "../colors";
import { counting, info, useAnswer, useTable, type Asked } from "../data";
import { Await, Card, Chip, Empty, Loading, Quantity, Segmented, Trouble, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { framework } from "../shell";
import { source, type Info, type Run } from "../source";
import { go, link, listed, param, place } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    faster: "A step of {b} takes {after}, {by} less than one of {a} ({before}).", slower: "A step of {b} takes {after}, {by} more than one of {a} ({before}).", same: "A step takes {after} in both.", noSteps: "Two runs side by side; one of them has no steps to compare.",
    choose: "Choose a run to put beside {a}.", chooseTitle: "Compare with", noOther: "There is no other run here", noOtherHow: "start stepscope view on a folder with several runs, or drop a file on the list of runs", other: "Another run", swap: "Swap",
    figures: "Figures", figure: "Figure", change: "Change", step: "Step time, median", bare: "Step time, unprofiled", bareIdle: "Device: idle, unprofiled", p90: "Step time, 90th percentile", min: "Shortest step", max: "Longest step", steps: "Steps", compute: "Device: compute", communication: "Device: communication", copy: "Device: copy", idle: "Device: idle", points: "{points} percentage points", input: "Input wait", exposed: "Exposed communication", peak: "Peak memory", rate: "FLOP/s in steps", use: "Model FLOP use", framework: "Framework", device: "Device", rank: "Rank",
    types: "Operator types", typesNote: "matched by name on {device}; time per step is the total by the steps", type: "Type", inA: "{name}, per step", inB: "{name}, per step", callsA: "Calls, {name}", callsB: "Calls, {name}", totalA: "Total, {name}", totalB: "Total, {name}", state: "In", both: "both", onlyA: "only {name}", onlyB: "only {name}", what: "type|types", noTypes: "Neither run has operators",
    deviceChoice: "Device", later: "Matched steps, significance, and a gate for CI come with the analysis compare.", worse: "worse", better: "better", plain: "figures of the first recorded rank of each run",
  },
  zh: {
    faster: "{b} 的迭代耗时 {after}，比 {a}（{before}）少 {by}。", slower: "{b} 的迭代耗时 {after}，比 {a}（{before}）多 {by}。", same: "两者的迭代都耗时 {after}。", noSteps: "两个训练并列；其中一个没有可对比的迭代。",
    choose: "选择一个训练与 {a} 对比。", chooseTitle: "对比对象", noOther: "这里没有其他训练", noOtherHow: "对包含多个训练的文件夹运行 stepscope view，或把文件拖到训练列表", other: "其他训练", swap: "交换",
    figures: "指标", figure: "指标", change: "变化", step: "迭代时间，中位数", bare: "迭代时间，未记录时", bareIdle: "设备：空闲，未记录时", p90: "迭代时间，90 分位", min: "最短迭代", max: "最长迭代", steps: "迭代数", compute: "设备：计算", communication: "设备：通信", copy: "设备：拷贝", idle: "设备：空闲", points: "{points} 个百分点", input: "等待输入", exposed: "未掩盖通信", peak: "内存峰值", rate: "迭代内 FLOP/s", use: "模型算力利用率", framework: "框架", device: "设备", rank: "Rank",
    types: "算子类型", typesNote: "按名称匹配，{device}；每迭代时间为总时间除以迭代数", type: "类型", inA: "{name}，每迭代", inB: "{name}，每迭代", callsA: "次数，{name}", callsB: "次数，{name}", totalA: "总时间，{name}", totalB: "总时间，{name}", state: "存在于", both: "两者", onlyA: "仅 {name}", onlyB: "仅 {name}", what: "种类型", noTypes: "两个训练都没有算子",
    deviceChoice: "设备", later: "迭代匹配、显著性和 CI 门禁将随 compare 分析提供。", worse: "变差", better: "变好", plain: "各训练首个记录 rank 的指标",
  },
});

type Words = ReturnType<typeof text>;

export default function Compare() {
  const now = info.value!;
  const other = param("with");
  return other ? <Beside now={now} other={other} /> : <Choose now={now} />;
}

function Choose({ now }: { now: Info }) {
  const t = text();
  const runs = useAnswer<Run[]>("\nruns", () => source().runs());
  return (
    <>
      <Verdict><Say of={t.choose} a={<b>{now.name}</b>} /></Verdict>
      <Card title={t.chooseTitle}>
        <Await of={runs}>
          {(list) => {
            const others = list.filter((run) => run.id !== listed(now.id) && run.state === "finished");
            if (!others.length) return <Empty title={t.noOther}>{t.noOtherHow}</Empty>;
            return <ul class="cmp-list">{others.map((run) => <li key={run.id}><a href={link({ params: { with: run.id } })}>{run.name}</a> <span class="d3 small">{run.path}</span></li>)}</ul>;
          }}
        </Await>
      </Card>
    </>
  );
}

/** An analysis of the other run, of its first rank and of what its pages show. */
function useOther(other: Asked<Info>, name: string, counted = false): Asked<Table> {
  const run = other.data?.id ?? null;
  const steps = other.data?.part?.join(":");
  const part = { rank: other.data?.ranks[0], steps, ...(counted && { warmup: steps || param("warmup") === "keep" ? 0 : null }) };
  return useAnswer(run === null ? null : `${run}\n${name}\n${JSON.stringify(part)}`, () => source().table(run!, name, part));
}

function Beside({ now, other }: { now: Info; other: string }) {
  const t = text();
  const theirs = useAnswer(`${other}\ninfo`, () => source().info(other));
  const [a, b] = [useTable("overview", counting()), useOther(theirs, "overview", true)];
  const [typesA, typesB] = [useTable("operator_types"), useOther(theirs, "operator_types")];
  const error = theirs.error ?? a.error ?? b.error;
  if (error) return <><Trouble error={error} /><Choose now={now} /></>;
  if (!theirs.data || !a.data || !b.data) return <Loading rows={12} />;
  const [stepA, stepB] = [first(a.data, "step_ns"), first(b.data, "step_ns")];
  const known = Number.isFinite(stepA) && Number.isFinite(stepB);
  const equal = known && units.text(units.time(stepA)) === units.text(units.time(stepB));
  const sentence = !known ? t.noSteps : equal ? t.same : stepB < stepA ? t.faster : t.slower;
  return (
    <>
      <Verdict facts={[t.plain, t.later]}>
        <Say of={sentence} a={<b>{now.name}</b>} b={<b>{theirs.data.name}</b>} before={<b><Quantity value={stepA} as="time" /></b>} after={<b><Quantity value={stepB} as="time" /></b>} by={<b><Quantity value={Math.abs(stepB / stepA - 1)} as="share" /></b>} />
      </Verdict>
      <Card title={t.figures} tools={<><a href={link({ run: other, page: "compare", params: { with: place.value.run } })}>{t.swap}</a><a href={link({ params: { with: null } })}>{t.other}</a></>} flush>
        <Figures t={t} now={now} then={theirs.data} a={a.data} b={b.data} />
      </Card>
      {typesA.error || typesB.error ? <Trouble error={(typesA.error ?? typesB.error)!} /> : typesA.data && typesB.data ? <Types now={now} then={theirs.data} a={typesA.data} b={typesB.data} steps={[a.data, b.data].map((one) => first(one, "steps") + first(one, "left_out")) as [number, number]} /> : <Loading />}
    </>
  );
}

function first(table: Table, name: string): number {
  return table.rows ? table.num(name)[0] : NaN;
}

/** Figures of `overview`; `good` says which way is better. */
const FIGURES: [label: "step" | "p90" | "min" | "max" | "steps" | "compute" | "communication" | "copy" | "idle" | "input" | "exposed" | "rate" | "use" | "peak" | "bare" | "bareIdle", column: string, as: units.Quantity, good: -1 | 0 | 1][] = [
  ["step", "step_ns", "time", -1], ["bare", "unprofiled_step_ns", "time", -1], ["p90", "p90_ns", "time", -1], ["min", "min_ns", "time", -1], ["max", "max_ns", "time", -1], ["steps", "steps", "count", 0],
  ["compute", "compute_share", "share", 1], ["communication", "communication_share", "share", -1], ["copy", "copy_share", "share", -1], ["idle", "idle_share", "share", -1], ["bareIdle", "idle_unprofiled_share", "share", -1], ["input", "input_wait_share", "share", -1], ["exposed", "exposed_communication_share", "share", -1],
  ["rate", "flops_per_s", "flopsRate", 1], ["use", "utilization", "share", 1], ["peak", "peak_memory_bytes", "bytes", -1],
];

function Figures({ t, now, then, a, b }: { t: Words; now: Info; then: Info; a: Table; b: Table }) {
  const word = (table: Table, name: string) => (table.rows ? table.str(name)[0] : null) ?? units.MISSING;
  return (
    <table class="cmp">
      <thead><tr><th>{t.figure}</th><th><span class="cut">{now.name}</span></th><th><a class="cut" href={link({ run: then.id, page: "overview" })}>{then.name}</a></th><th>{t.change}</th></tr></thead>
      <tbody>
        <tr><td>{t.framework}</td><td>{framework(now)}</td><td>{framework(then)}</td><td /></tr>
        <tr><td>{t.device}</td><td>{word(a, "device")}</td><td>{word(b, "device")}</td><td /></tr>
        <tr><td>{t.rank}</td><td>{word(a, "rank")}</td><td>{word(b, "rank")}</td><td /></tr>
        {FIGURES.map(([label, column, as, good]) => {
          const [before, after] = [first(a, column), first(b, column)];
          return <tr key={column}><td>{t[label]}</td><td><Quantity value={before} as={as} /></td><td><Quantity value={after} as={as} /></td><td><Delta t={t} before={before} after={after} as={as} good={good} /></td></tr>;
        })}
      </tbody>
    </table>
  );
}

/** ▲ 2.7 ms (2.3 %): red only where it is worse; shares change by points, which have no share of their own. */
function Delta({ t, before, after, as, good }: { t: Words; before: number; after: number; as: units.Quantity; good: -1 | 0 | 1 }) {
  const by = after - before;
  if (!Number.isFinite(by)) return <span class="d3">{units.MISSING}</span>;
  if (by === 0) return <span class="d3">=</span>;
  // Below one in a hundred nobody can tell it from noise without a test.
  const small = as === "share" ? Math.abs(by) < 0.005 : Math.abs(by) < Math.abs(before) * 0.01;
  const tone = good === 0 || small ? "d2" : Math.sign(by) === good ? "good" : "bad";
  // A share of 10 % that becomes 15 % has grown by 5 percentage points, which is no share of anything.
  const size = as === "share" ? fill(t.points, { points: units.text(units.share(Math.abs(by))).replace(/\s*%$/, "") }) : units.text(units.write(Math.abs(by), as));
  return (
    <span class={tone} title={units.exact(by, as)}>
      {by > 0 ? "▲" : "▼"} {size}{as !== "share" && before !== 0 && ` (${units.text(units.share(Math.abs(by / before)))})`}
      {tone !== "d2" && <span class="sr">{tone === "good" ? t.better : t.worse}</span>}
    </span>
  );
}

function Types({ now, then, a, b, steps }: { now: Info; then: Info; a: Table; b: Table; steps: [number, number] }) {
  const t = text();
  const devices = [...new Set([...a.str("device"), ...b.str("device")])].filter((one): one is string => one !== null);
  const device = param("device") ?? devices.find((one) => one !== "cpu") ?? devices[0];
  const table = useMemo(() => matched(a, b, device, steps, t, now.name, then.name), [a, b, device, t]);
  if (!devices.length) return <Card title={t.types}><Empty title={t.noTypes} /></Card>;
  const columns: Column[] = [
    { key: "type", label: t.type, as: "name", color: (of, row) => color(of.str("type")[row] ?? "", true) },
    { key: "a_ns", label: fill(t.inA, { name: now.name }) },
    { key: "b_ns", label: fill(t.inB, { name: then.name }) },
    { key: "change_ns", label: t.change, show: (of, row) => <Delta t={t} before={of.num("a_ns")[row] || 0} after={of.num("b_ns")[row] || 0} as="time" good={-1} />, width: "minmax(140px, 1.4fr)" },
    { key: "a_calls", label: fill(t.callsA, { name: now.name }) },
    { key: "b_calls", label: fill(t.callsB, { name: then.name }) },
    { key: "a_total_ns", label: fill(t.totalA, { name: now.name }), hide: true },
    { key: "b_total_ns", label: fill(t.totalB, { name: then.name }), hide: true },
    { key: "where", label: t.state, show: (of, row) => { const where = of.str("where")[row]; return where === t.both ? <span class="d3">{where}</span> : <Chip tone="acc">{where}</Chip>; }, width: "minmax(110px, 1fr)" },
  ];
  return (
    <Card
      title={t.types}
      note={fill(t.typesNote, { device: device ?? "" })}
      tools={devices.length > 1 && <Segmented label={t.deviceChoice} value={device} choices={devices.map((id) => ({ id, label: id }))} onChange={(id) => go({ params: { device: id } }, true)} />}
      flush
    >
      <Grid id="types" table={table} columns={columns} search={["type", "where"]} sort="-size_ns" what={t.what} label={t.types} />
    </Card>
  );
}

/** One row per type of either run. */
function matched(a: Table, b: Table, device: string, steps: [number, number], t: Words, nameA: string, nameB: string): Table {
  const rows = (table: Table) => new Map(table.where((row) => table.str("device")[row] === device).map((row) => [table.str("type")[row] ?? "", row]));
  const [inA, inB] = [rows(a), rows(b)];
  const names = [...new Set([...inA.keys(), ...inB.keys()])];
  const value = (table: Table, at: Map<string, number>, column: string, name: string) => (at.has(name) ? table.num(column)[at.get(name)!] : NaN);
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
    where: names.map((name) => (inA.has(name) && inB.has(name) ? t.both : inA.has(name) ? fill(t.onlyA, { name: nameA }) : fill(t.onlyB, { name: nameB }))),
  });
}
