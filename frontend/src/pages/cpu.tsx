// page: {"order": 90, "group": "resources", "icon": "cpu", "en": "CPU", "zh": "CPU", "needs": ["cpu", "process"]}
import { useMemo } from "preact/hooks";
import { info, useTable } from "../data";
import { Await, Card, Chip, Empty, Legend, Segmented, Time, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { Series, type Band, type Line, type Range } from "../parts/series";
import { absolute, choose, chosen, stepBands } from "../range";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    calm: "The machine is {busy} busy: {used} of {cores} [core|cores] on average. The busiest process, {process}, keeps {own} [core|cores] busy.",
    calmAlone: "The machine is {busy} busy: {used} of {cores} [core|cores] on average.",
    full: "The machine is {busy} busy: {used} of its {cores} [core works|cores work] on average. More workers would only compete for them.",
    crowded: "Up to {queue} processes want to run on {cores} [core|cores] at once, while the machine is {busy} busy on average.",
    io: "The machine waits for disks {io} of the time; its {cores} [core is|cores are] {busy} busy.",
    processes: "The processes of this recording keep {used} [core|cores] busy on average; of the machine as a whole nothing was sampled.",
    operators: "Operators of the input pipeline were sampled; the busiest, {process}, takes {own} of the machine.",
    brief: "The samples cover {time}, too short to tell how busy the machine is: Linux counts its use in ticks of 10 ms.",
    samples: "{count} [sample|samples] of the machine", sample: "1 sample of the machine", covered: "{time} of samples", workers: "{count} [data worker|data workers]", range: "samples from {from} to {to}",
    none: "This recording has no samples of the CPU",
    how: "stepscope takes them itself, once a second: record with {run}, or more often with {python}. For operators of a MindData pipeline add {data}. Traces of other profilers have none.",
    machine: "Machine", machineNote: "share of all cores", user: "user", system: "system", io_: "waiting for disks", steal: "taken by other machines", idle: "idle",
    queue: "Run queue", queueNote: "processes that run or could", cores: "{count} [core|cores]", switches: "Context switches", switchesNote: "per second, whole machine",
    process: "Processes", processNote: "cores busy: user and system", operator: "Input pipeline", operatorNote: "share of all cores, by operator",
    top: "the busiest {some} of {all}; the table has all",
    use: "Use by process and operator", useNote: "means over time, and the largest values", useRange: "means over the chosen range",
    who: "Name", kind: "Kind", busy: "Cores busy", most: "At most", threads: "Threads", memory: "Memory, at most", contextSwitches: "Switches per s", runQueue: "Run queue", sampled: "Samples", time: "Time covered",
    every: "Samples", summary: "Summary", view: "View", at: "At", share: "User", sys: "System", timeline: "Show on the timeline", all: "All of the time", hint: "Drag over a chart to choose a range; double-click for all of it.",
    machine_: "machine", process_: "process", operator_: "operator", interval: "Interval", processName: "process", workerName: "data worker", childName: "child", tooShort: "less than two ticks of 10 ms", tooShortTitle: "Too short to tell how busy the machine is",
  },
  zh: {
    calm: "整机繁忙 {busy}：平均使用 {cores} 个核中的 {used} 个。最忙的进程 {process} 占用 {own} 个核。",
    calmAlone: "整机繁忙 {busy}：平均使用 {cores} 个核中的 {used} 个。",
    full: "整机繁忙 {busy}：{cores} 个核平均有 {used} 个在工作。增加工作进程只会争抢核。",
    crowded: "最多有 {queue} 个进程同时争用 {cores} 个核，而整机平均繁忙 {busy}。",
    io: "整机有 {io} 的时间在等待磁盘；{cores} 个核繁忙 {busy}。",
    processes: "本次记录的进程平均占用 {used} 个核；没有整机的采样。",
    operators: "采样了数据管道的算子；最忙的 {process} 占用整机的 {own}。",
    brief: "采样只覆盖 {time}，太短而无法判断整机的繁忙程度：Linux 以 10 ms 为单位计算使用时间。",
    samples: "整机 {count} 个采样", sample: "整机 1 个采样", covered: "采样覆盖 {time}", workers: "{count} 个数据工作进程", range: "采样范围 {from} 至 {to}",
    none: "本次记录没有 CPU 采样",
    how: "stepscope 每秒自行采样一次：用 {run} 记录，或用 {python} 提高频率。MindData 管道的算子需加 {data}。其他性能工具的 trace 中没有这些数据。",
    machine: "整机", machineNote: "占全部核的比例", user: "用户态", system: "内核态", io_: "等待磁盘", steal: "被其他虚拟机占用", idle: "空闲",
    queue: "运行队列", queueNote: "正在或等待运行的进程数", cores: "{count} 个核", switches: "上下文切换", switchesNote: "整机，每秒次数",
    process: "进程", processNote: "忙碌的核数：用户态与内核态", operator: "数据管道", operatorNote: "各算子占全部核的比例",
    top: "{all} 个中最忙的 {some} 个；表中列出全部",
    use: "各进程与算子的使用", useNote: "按时间平均，以及最大值", useRange: "所选范围内的平均值",
    who: "名称", kind: "类别", busy: "忙碌核数", most: "最大", threads: "线程", memory: "内存（最大）", contextSwitches: "每秒切换", runQueue: "运行队列", sampled: "采样数", time: "覆盖时间",
    every: "采样", summary: "汇总", view: "视图", at: "时刻", share: "用户态", sys: "内核态", timeline: "在时间线上显示", all: "全部时间", hint: "在图上拖动以选择范围；双击恢复全部。",
    machine_: "整机", process_: "进程", operator_: "算子", interval: "间隔", processName: "进程", workerName: "数据工作进程", childName: "子进程", tooShort: "不足两个 10 ms 的计时单位", tooShortTitle: "时间太短，无法判断整机的繁忙程度",
  },
});

const SHOWN = 8;
const COLORS = ["--kind-host", "--op-matmul", "--op-attention", "--op-norm", "--op-reduce", "--op-cast", "--op-optim", "--op-index"];

export default function Cpu() {
  const t = text();
  const run = info.value!;
  const samples = useTable("cpu");
  const range = chosen();
  const ends = range ? { start_ns: absolute(range[0]), end_ns: absolute(range[1]) } : {};
  const use = useTable("cpu_use", ends);
  const whole = useTable("cpu_use");
  const steps = useTable("tables/steps", { columns: "step,start_ns,end_ns" });
  const bands = useMemo(() => stepBands(steps.data), [steps.data]);
  if (samples.data?.rows === 0) {
    return (
      <>
        <Verdict>{t.none}</Verdict>
        <Card title={t.machine}>
          <Empty title={t.none} height={220}>
            <Say of={t.how} run={<code class="mono">stepscope run train.py</code>} python={<code class="mono">Profiler(host_interval_ms=100)</code>} data={<code class="mono">--data</code>} />
          </Empty>
        </Card>
      </>
    );
  }
  return (
    <>
      <Verdict facts={facts(use.data, run.state === "live", range)}>{use.data ? <Sentence use={use.data} /> : t.machine}</Verdict>
      <Await of={samples} rows={12}>{(table) => <Charts table={table} use={whole.data} bands={bands} range={range} />}</Await>
      <Uses use={use} samples={samples} range={range} />
    </>
  );
}

function Sentence({ use }: { use: Table }) {
  const t = text();
  const of = use.str("of");
  const machine = of.indexOf("machine");
  const value = (name: string, row: number) => use.num(name)[row];
  const share = (part: number) => <b title={units.exact(part, "share")}>{units.text(units.share(part))}</b>;
  const number = (count: number) => <b title={units.exact(count, "count")}>{units.count(count).value}</b>;
  const busiest = (kind: string) => use.where((row) => of[row] === kind).sort((a, b) => (value("busy_cores", b) || value("user_share", b)) - (value("busy_cores", a) || value("user_share", a)))[0];
  const process = busiest("process");
  // Whoever records is busy: nothing at all is what a clock that has not ticked says.
  if (brief(use)) return <Say of={t.brief} time={<b title={units.exact(value("covered_ns", machine), "time")}>{units.text(units.time(value("covered_ns", machine)))}</b>} />;
  if (machine < 0 || Number.isNaN(value("user_share", machine))) {
    const processes = use.where((row) => of[row] === "process" && !Number.isNaN(value("busy_cores", row)));
    if (processes.length) return <Say of={t.processes} used={number(processes.reduce((sum, row) => sum + value("busy_cores", row), 0))} />;
    const operator = busiest("operator");
    if (operator !== undefined) return <Say of={t.operators} process={<b>{use.str("name")[operator]}</b>} own={share(value("user_share", operator) + value("system_share", operator))} />;
    return <>{t.machine}</>;
  }
  const cores = value("cores", machine);
  const both = value("user_share", machine) + value("system_share", machine);
  const busy = Number.isNaN(both) ? value("busy_cores", machine) / cores : both;
  const all = {
    busy: share(busy), used: number(value("busy_cores", machine)), cores: number(cores), io: share(value("io_share", machine)), queue: number(value("max_run_queue", machine)),
    process: process === undefined ? "" : <b>{spoken(use.str("name")[process])}</b>, own: process === undefined ? "" : number(value("busy_cores", process)),
  };
  const verdict = use.str("verdict")[machine];
  if (verdict === "full") return <Say of={t.full} {...all} />;
  if (verdict === "waits for disks") return <Say of={t.io} {...all} />;
  if (verdict === "crowded") return <Say of={t.crowded} {...all} />;
  return <Say of={process !== undefined && !Number.isNaN(value("busy_cores", process)) ? t.calm : t.calmAlone} {...all} />;
}

/** "process 461", in the reader's language; an operator's name is its own. */
function spoken(name: string | null): string {
  const t = text();
  const [, what, number] = /^(machine|process|data worker|child)( \d+)?$/.exec(name ?? "") ?? [];
  return what ? { machine: t.machine_, process: t.processName, "data worker": t.workerName, child: t.childName }[what] + (number ?? "") : (name ?? "");
}

/** Whether the machine was sampled for so short a time that its clock says nothing. */
function brief(use: Table): boolean {
  const machine = use.str("of").indexOf("machine");
  const [user, system, cores] = ["user_share", "system_share", "busy_cores"].map((name) => use.num(name)[machine]);
  return machine >= 0 && use.num("samples")[machine] > 0 && !(user + system > 0 || cores > 0);
}

function facts(use: Table | null, _live: boolean, range: Range | null) {
  const t = text();
  if (!use) return [];
  const of = use.str("of");
  const machine = of.indexOf("machine");
  const workers = use.where((row) => use.str("name")[row]?.startsWith("data worker") ?? false).length;
  const time = (ns: number) => units.text(units.time(ns));
  return [
    machine >= 0 && fill(use.num("samples")[machine] === 1 ? t.sample : t.samples, { count: units.count(use.num("samples")[machine]).value }),
    machine >= 0 && fill(t.covered, { time: time(use.num("covered_ns")[machine]) }),
    workers > 0 && fill(t.workers, { count: workers }),
    range && fill(t.range, { from: time(range[0]), to: time(range[1]) }),
  ];
}

/** Lines of several names on one axis: every moment at which one of them was sampled. */
function together(table: Table, rows: number[], column: string, names: string[]): { x: Float64Array; lines: Float64Array[] } {
  const at = table.num("at_ns");
  const value = table.num(column);
  const name = table.str("name");
  const known = rows.filter((row) => !Number.isNaN(value[row]) && names.includes(name[row]!));
  // A sample is about the time before it: the first of a name, about the time since that name was first seen.
  const firsts = names.flatMap((one) => {
    const [first, row] = [rows.find((row) => name[row] === one), known.find((row) => name[row] === one)];
    return first !== undefined && row !== undefined && first !== row ? [[first, row]] : [];
  });
  const x = Float64Array.from(new Set([...firsts.map(([first]) => at[first]), ...known.map((row) => at[row])])).sort();
  const place = new Map(Array.from(x, (moment, index) => [moment, index]));
  const lines = names.map(() => new Float64Array(x.length).fill(NaN));
  for (const [first, row] of firsts) lines[names.indexOf(name[row]!)][place.get(at[first])!] = value[row];
  for (const row of known) lines[names.indexOf(name[row]!)][place.get(at[row])!] = value[row];
  return { x, lines };
}

function Charts({ table, use, bands, range }: { table: Table; use: Table | null; bands: Band[]; range: Range | null }) {
  const t = text();
  const of = table.str("of");
  const parts = useMemo(() => {
    const rows = (kind: string) => table.where((row) => of[row] === kind);
    const machine = rows("machine");
    const shared = machine.filter((row) => !Number.isNaN(table.num("user_share")[row]));
    const only = (rows: number[], column: string) => Float64Array.from(rows, (row) => table.num(column)[row]);
    // A sample is about the time before it: the first, about the time since the first of all.
    const before = (rows: number[], column: string) => {
      const from = rows.length && rows[0] !== machine[0] ? [column === "at_ns" ? machine[0] : rows[0]] : [];
      return only([...from, ...rows], column);
    };
    const queued = machine.filter((row) => !Number.isNaN(table.num("run_queue")[row]));
    const switched = machine.filter((row) => !Number.isNaN(table.num("context_switches_per_s")[row]));
    return {
      shares: { x: before(shared, "at_ns"), ...Object.fromEntries(["user", "system", "io", "steal", "idle"].map((name) => [name, before(shared, `${name}_share`)])) } as Record<string, Float64Array>,
      queue: { x: only(queued, "at_ns"), y: only(queued, "run_queue") },
      switches: { x: before(switched, "at_ns"), y: before(switched, "context_switches_per_s") },
      process: rows("process"),
      operator: rows("operator"),
    };
  }, [table]);
  const busiest = (kind: string) => (use ? use.where((row) => use.str("of")[row] === kind).sort((a, b) => mean(use, b) - mean(use, a)).map((row) => use.str("name")[row]!) : []);
  const processes = useMemo(() => busiest("process"), [use]);
  const operators = useMemo(() => busiest("operator"), [use]);
  const process = useMemo(() => together(table, parts.process, "busy_cores", processes.slice(0, SHOWN)), [table, parts, processes]);
  const user = useMemo(() => together(table, parts.operator, "user_share", operators.slice(0, SHOWN)), [table, parts, operators]);
  const cores = use ? use.num("cores")[0] : NaN;
  // One time axis for all of them, whenever each was sampled.
  const ends = useMemo(() => {
    const all = [parts.shares.x, parts.queue.x, process.x, user.x].filter((x) => x.length);
    return all.length ? ([Math.min(...all.map((x) => x[0])), Math.max(...all.map((x) => x[x.length - 1]))] as Range) : null;
  }, [parts, process, user]);
  const common = { group: "cpu", bands, range: range ?? ends, onRange: choose };
  const some = (names: string[]) => (names.length > SHOWN ? ` · ${fill(t.top, { some: SHOWN, all: names.length })}` : "");
  const named = (names: string[], lines: Float64Array[]): Line[] => lines.map((values, at) => ({ label: spoken(names[at]), values, color: COLORS[at], sparse: true, stepped: "before" as const }));
  const kinds: [string, string, string][] = [["user", t.user, "--kind-host"], ["system", t.system, "--op-attention"], ["io", t.io_, "--kind-wait"], ["steal", t.steal, "--kind-communication"], ["idle", t.idle, "--kind-idle"]];
  const there = kinds.filter(([name]) => ["user", "system", "idle"].includes(name) || parts.shares[name].some((value) => value > 0));
  const shares = useMemo(() => there.map(([name, label, color]) => ({ label, color, values: parts.shares[name], stepped: "before" as const })), [parts, t]);
  return (
    <div class="stack">
      <Card title={t.machine} tools={<><RangeChip range={range} /><Legend of={there.map(([, label, color]) => ({ label, color: `var(${color})`, hatch: color === "--kind-idle" }))} /></>}>
        {use && brief(use) ? <Empty title={t.tooShortTitle} height={84}>{t.tooShort}</Empty> : parts.shares.x.length > 0 && <Series {...common} x={parts.shares.x} lines={shares} stacked as="share" top={1} height={150} bandLabels label={`${t.machine}: ${t.machineNote}`} />}
        {parts.queue.x.length > 0 && (
          <>
            <h3 class="sub">{t.queue} <span class="d3">{t.queueNote}{Number.isFinite(cores) && ` · ${fill(t.cores, { count: cores })}`}</span></h3>
            <Series {...common} x={parts.queue.x} lines={[{ label: t.queue, values: parts.queue.y, color: "--op-attention", area: true, stepped: true }]} as="count" levels={Number.isFinite(cores) ? [{ at: cores, label: fill(t.cores, { count: cores }) }] : []} height={84} label={t.queue} />
          </>
        )}
        {parts.switches.x.length > 0 && (
          <>
            <h3 class="sub">{t.switches} <span class="d3">{t.switchesNote}</span></h3>
            <Series {...common} x={parts.switches.x} lines={[{ label: t.switches, values: parts.switches.y, color: "--op-index", area: true, stepped: "before" }]} as="count" height={84} label={t.switches} />
          </>
        )}
      </Card>
      {process.x.length > 0 && (
        <Card title={t.process} note={t.processNote + some(processes)}>
          <Legend of={process.lines.map((_, at) => ({ label: spoken(processes[at]), color: `var(${COLORS[at]})` }))} />
          <Series {...common} x={process.x} lines={named(processes, process.lines)} as="count" height={130} label={t.process} />
        </Card>
      )}
      {user.x.length > 0 && (
        <Card title={t.operator} note={t.operatorNote + some(operators)}>
          <Legend of={user.lines.map((_, at) => ({ label: operators[at], color: `var(${COLORS[at]})` }))} />
          <Series {...common} x={user.x} lines={named(operators, user.lines)} as="share" height={130} label={t.operator} />
        </Card>
      )}
    </div>
  );
}

function mean(use: Table, row: number): number {
  return use.num("busy_cores")[row] || use.num("user_share")[row] || 0;
}

function RangeChip({ range }: { range: Range | null }) {
  const t = text();
  if (!range) return <span class="d3 small wide">{t.hint}</span>;
  return (
    <>
      <a class="small" href={link({ page: "timeline", params: { t0: Math.round(range[0]), t1: Math.round(range[1]) } })}>{t.timeline}</a>
      <Chip tone="acc" onRemove={() => choose(null)} title={t.all}><Time ns={range[0]} /> – <Time ns={range[1]} /></Chip>
    </>
  );
}

function Uses({ use, samples, range }: { use: ReturnType<typeof useTable>; samples: ReturnType<typeof useTable>; range: Range | null }) {
  const t = text();
  const view = param("view") === "samples" ? "samples" : "summary";
  const within = useMemo(() => {
    if (!samples.data || !range) return samples.data;
    const at = samples.data.num("at_ns");
    return samples.data.pick(samples.data.where((row) => at[row] >= range[0] && at[row] <= range[1]));
  }, [samples.data, range?.[0], range?.[1]]);
  const who: Column[] = [
    { key: "name", label: t.who, width: "minmax(150px, 1.6fr)", as: "text", show: (table, row) => <span class="name" title={table.str("name")[row] ?? ""}>{spoken(table.str("name")[row])}</span> },
    { key: "of", label: t.kind, width: "90px", as: "text", show: (table, row) => t[`${table.str("of")[row]}_` as "machine_"] },
  ];
  const columns: Column[] = [
    ...who,
    { key: "busy_cores", label: t.busy, bar: true, color: () => "var(--kind-host)", why: t.tooShort }, { key: "max_busy_cores", label: t.most, why: t.tooShort }, { key: "user_share", label: t.share, why: t.tooShort }, { key: "system_share", label: t.sys, why: t.tooShort },
    { key: "io_share", label: t.io_, hide: true }, { key: "idle_share", label: t.idle, hide: true }, { key: "steal_share", label: t.steal, hide: true },
    { key: "context_switches_per_s", label: t.contextSwitches }, { key: "max_run_queue", label: t.runQueue, hide: true }, { key: "max_threads", label: t.threads }, { key: "max_memory_bytes", label: t.memory },
    { key: "samples", label: t.sampled }, { key: "covered_ns", label: t.time },
  ];
  const every: Column[] = [
    ...who,
    { key: "at_ns", label: t.at, show: (table, row) => <a href={link({ page: "timeline", params: span(table, row) })}><Time ns={table.num("at_ns")[row]} /></a> }, { key: "interval_ns", label: t.interval },
    { key: "busy_cores", label: t.busy }, { key: "user_share", label: t.share }, { key: "system_share", label: t.sys }, { key: "io_share", label: t.io_ }, { key: "idle_share", label: t.idle },
    { key: "context_switches_per_s", label: t.contextSwitches }, { key: "run_queue", label: t.runQueue }, { key: "threads", label: t.threads }, { key: "memory_bytes", label: t.memory },
  ];
  const tools = <Segmented label={t.view} value={view} onChange={(id) => go({ params: { view: id === "samples" ? id : null } }, true)} choices={[{ id: "summary", label: t.summary }, { id: "samples", label: t.every }]} />;
  return (
    <Card title={t.use} note={range ? t.useRange : t.useNote} tools={<RangeChip range={range} />} flush>
      {view === "summary" ? (
        <Await of={use}>{(data) => <Grid id="use" table={data} columns={columns} sort="-busy_cores" search={["name"]} tools={tools} onOpen={(of, row) => go({ params: { view: "samples", "samples.find": of.str("name")[row] === "machine" ? "/^machine$/" : of.str("name")[row] } })} label={t.use} />}</Await>
      ) : (
        within && <Grid id="samples" table={within} columns={every} search={["name", "of"]} what={t.every} tools={tools} label={t.every} />
      )}
    </Card>
  );
}

/** The time that a sample is about. */
function span(table: Table, row: number): { t0: number; t1: number } {
  const at = table.num("at_ns")[row];
  const before = table.num("interval_ns")[row];
  return { t0: at - (Number.isNaN(before) ? 1e6 : before), t1: at };
}
