// page: {"order": 160, "group": "tools", "icon": "live", "en": "Live", "zh": "实时", "alone": true}
import "./live.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { forget, info, useAnswer } from "../data";
import { Card, Chip, CopyButton, Count, Empty, Loading, Spark, Tile, Tiles, Time, Trouble, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { quantile } from "../parts/plots";
import { Series, type Line } from "../parts/series";
import { framework } from "../shell";
import { source, type Run } from "../source";
import { link, param, place } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    step: "Step {step} took {last}; the median of the last {count} is {median}.", begun: "Recording for {time}; no step has ended yet.", waiting: "Waiting for what the job has written…", ended: "The recording has ended.", endedSteps: "The recording has ended after {count} [step|steps].", open: "Open the finished run", notLive: "{name} is not being recorded now.",
    none: "Nothing is being recorded now.", some: "{count} run is being recorded now.", many: "{count} runs are being recorded now.", how: "Start a job under stepscope, and it appears here:", record: "How to see something here",
    pause: "Pause", go: "Go on", paused: "paused · {count} new", live: "live", over: "ended", rank: "rank {rank} of {world}", pid: "process {pid}", lost: "the connection is lost; trying again", written: "what the job has written arrives about every second",
    figures: "Figures", lastStep: "Last step", lastTime: "Its time", median: "Median", rate: "Pace", perSecond: "steps/s", recent: "over the last {count}", since: "Recorded", steps: "Steps so far", leftOut: "{count} earlier ones not shown", samples: "Counters", counted: "{count} [sample|samples]",
    stepTime: "Step time", stepNote: "each step as it ends; the median dashed", noSteps: "No step has ended yet", noStepsHow: "steps come from the optimizer, Profiler.step() or StepTraceAnnotation",
    queues: "Queues", cpu: "CPU of the machine", process: "CPU of the processes", memory: "Memory", gpu: "GPU", counters: "All counters", what: "counter|counters", name: "Counter", now: "Now", low: "Lowest", high: "Highest", trend: "Trend", unit: "Unit", rankName: "Rank", count: "Samples",
    notices: "The recorder says", pipeline: "Input pipeline", stepOf: "Rank {rank}", noCounters: "No counters yet",
  },
  zh: {
    step: "迭代 {step} 耗时 {last}；最近 {count} 个的中位数为 {median}。", begun: "已记录 {time}；尚无迭代结束。", waiting: "正在等待作业写出的内容…", ended: "记录已结束。", endedSteps: "记录已结束，共 {count} 个迭代。", open: "打开已结束的训练", notLive: "{name} 现在没有在记录。",
    none: "现在没有正在记录的训练。", some: "{count} 个训练正在记录。", many: "{count} 个训练正在记录。", how: "用 stepscope 启动作业，它就会出现在这里：", record: "如何在这里看到内容",
    pause: "暂停", go: "继续", paused: "已暂停 · {count} 条新数据", live: "进行中", over: "已结束", rank: "rank {rank}，共 {world}", pid: "进程 {pid}", lost: "连接已断开；正在重试", written: "作业写出的内容大约每秒到达一次",
    figures: "指标", lastStep: "最近迭代", lastTime: "其耗时", median: "中位数", rate: "速度", perSecond: "迭代/s", recent: "最近 {count} 个", since: "已记录", steps: "迭代数", leftOut: "更早的 {count} 个未显示", samples: "计数器", counted: "{count} 个样本",
    stepTime: "迭代时间", stepNote: "每个迭代结束时；虚线为中位数", noSteps: "尚无迭代结束", noStepsHow: "迭代来自优化器、Profiler.step() 或 StepTraceAnnotation",
    queues: "队列", cpu: "整机 CPU", process: "进程 CPU", memory: "内存", gpu: "GPU", counters: "全部计数器", what: "个计数器", name: "计数器", now: "当前", low: "最低", high: "最高", trend: "走势", unit: "单位", rankName: "Rank", count: "样本数",
    notices: "记录器提示", pipeline: "输入流水线", stepOf: "Rank {rank}", noCounters: "还没有计数器",
  },
});

type Words = ReturnType<typeof text>;

/** One event: what each rank has written since the one before. */
interface News {
  now_ns: string;
  ranks: {
    rank: number | null;
    world_size: number | null;
    pid: number | null;
    program: string | null;
    framework: string | null;
    origin_ns: string;
    steps: { step: number[]; start_ns: number[]; dur_ns: number[] };
    steps_left_out: number;
    counters: { name: string; unit: string; at_ns: number[]; value: (number | null)[]; left_out: number }[];
    notices: string[];
  }[];
}

interface Counter {
  name: string;
  unit: string;
  at: number[];
  value: number[];
  seen: number;
}

/** What has come in so far, of one rank. Moments are ns since the recording of the first rank began. */
interface Rank {
  rank: number;
  world: number | null;
  pid: number | null;
  program: string;
  framework: string;
  step: number[];
  start: number[];
  dur: number[];
  before: number;
  counters: Map<string, Counter>;
  notices: string[];
}

const STEPS = 4000;
const SAMPLES = 3000;
const RECENT = 100;

class Recording {
  ranks = new Map<number, Rank>();
  origin: bigint | null = null;
  now = 0;
  samples = 0;

  /** Add what is new. After a broken connection the server tells everything again: what is known already is passed over. */
  hear(news: News): void {
    for (const one of news.ranks) {
      const began = BigInt(one.origin_ns);
      this.origin ??= began;
      const shift = Number(began - this.origin);
      const number = one.rank ?? 0;
      const rank: Rank = this.ranks.get(number) ?? { rank: number, world: one.world_size, pid: one.pid, program: one.program ?? "", framework: one.framework ?? "", step: [], start: [], dur: [], before: 0, counters: new Map(), notices: [] };
      this.ranks.set(number, rank);
      rank.notices = one.notices;
      rank.framework = one.framework || rank.framework;
      if (!rank.step.length) rank.before = one.steps_left_out;
      const last = rank.start.at(-1) ?? -Infinity;
      one.steps.start_ns.forEach((start, at) => {
        if (start + shift <= last) return;
        rank.step.push(one.steps.step[at]);
        rank.start.push(start + shift);
        rank.dur.push(one.steps.dur_ns[at]);
      });
      const over = rank.step.length - STEPS;
      if (over > 0) {
        for (const column of [rank.step, rank.start, rank.dur]) column.splice(0, over);
        rank.before += over;
      }
      for (const told of one.counters) {
        const key = `${told.name}\n${told.unit}`;
        const counter: Counter = rank.counters.get(key) ?? { name: told.name, unit: told.unit, at: [], value: [], seen: 0 };
        rank.counters.set(key, counter);
        const since = counter.at.at(-1) ?? -Infinity;
        told.at_ns.forEach((at, index) => {
          if (at + shift <= since) return;
          counter.at.push(at + shift);
          counter.value.push(told.value[index] ?? NaN);
          counter.seen += 1;
          this.samples += 1;
        });
        if (counter.at.length > SAMPLES) {
          counter.value.splice(0, counter.at.length - SAMPLES);
          counter.at.splice(0, counter.at.length - SAMPLES);
        }
      }
    }
    if (this.origin !== null) this.now = Number(BigInt(news.now_ns) - this.origin);
  }
}

export default function Live() {
  const run = place.value.run;
  return run === null ? <Overall /> : <Following key={run} run={run} />;
}

/** Without a run: what is being recorded. */
function Overall() {
  const t = text();
  const [list, setList] = useState<Run[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const load = () => source().runs().then((runs) => setList(runs.filter((run) => run.state === "live")), setError);
    void load();
    return source().listen("api/events", (event) => event === "runs" && void load());
  }, []);
  if (error) return <Trouble error={error} />;
  if (!list) return <Loading />;
  return (
    <>
      <Verdict>{list.length ? <Say of={list.length === 1 ? t.some : t.many} count={<b>{list.length}</b>} /> : t.none}</Verdict>
      {list.length ? (
        <Card title={t.live}><ul class="live-list">{list.map((run) => <li key={run.id}><span class="live-dot on" /> <a href={link({ run: run.id, page: "live" })}>{run.name}</a> <span class="d3 small">{run.path}</span></li>)}</ul></Card>
      ) : (
        <How />
      )}
    </>
  );
}

function How() {
  const t = text();
  const command = "stepscope run train.py";
  return <Card title={t.record}><p class="d2">{t.how}</p><div class="codeline"><pre class="code">{command}</pre><CopyButton value={command} /></div></Card>;
}

function Following({ run }: { run: string }) {
  const t = text();
  const recording = useRef(new Recording());
  const [version, setVersion] = useState(0);
  const [pending, setPending] = useState(0);
  const [paused, setPaused] = useState(false);
  const [over, setOver] = useState(false);
  const still = useRef(false);
  const runs = useAnswer<Run[]>("\nruns", () => source().runs());
  useEffect(() => {
    const close = source().listen(`api/runs/${encodeURIComponent(run)}/live`, (event, data) => {
      if (event === "state") {
        recording.current.hear(data as News);
        if (still.current) setPending((count) => count + 1);
        else setVersion((count) => count + 1);
      } else if (event === "finished") {
        close(); // or the browser would ask again
        forget(run); // what was read while it was recorded is not the whole
        forget("");
        setOver(true);
        setVersion((count) => count + 1);
      }
    });
    return close;
  }, [run]);
  const toggle = () => {
    still.current = !paused;
    setPaused(!paused);
    setPending(0);
    if (paused) setVersion((count) => count + 1);
  };
  const now = recording.current;
  const name = runs.data?.find((one) => one.id === run)?.name ?? info.value?.name ?? run;
  if (over && now.ranks.size === 0) {
    return (
      <>
        <Verdict><Say of={t.notLive} name={<b>{name}</b>} /></Verdict>
        <p><a class="btn pri" href={link({ run, page: "overview" })}>{t.open}</a></p>
        <How />
      </>
    );
  }
  return <Shown key={run} t={t} run={run} now={now} version={version} paused={paused} pending={pending} over={over} toggle={toggle} />;
}

interface ShownProps {
  t: Words;
  run: string;
  now: Recording;
  version: number;
  paused: boolean;
  pending: number;
  over: boolean;
  toggle: () => void;
}

function Shown({ t, run, now, version, paused, pending, over, toggle }: ShownProps) {
  const ranks = [...now.ranks.values()].sort((a, b) => a.rank - b.rank);
  const said = Number(param("rank") ?? NaN);
  const rank = now.ranks.get(said) ?? ranks[0];
  // A picture of the moment: nothing of it changes while the page is paused.
  const seen = useMemo(() => (rank ? snapshot(rank, ranks, now) : null), [version, rank?.rank]);
  const button = over ? null : <button class="btn sm" aria-pressed={paused} onClick={toggle}>{paused ? t.go : t.pause}</button>;
  const state = over ? <Chip><i class="live-dot off" />{t.over}</Chip> : paused ? <Chip tone="warn">{fill(t.paused, { count: pending })}</Chip> : <Chip tone="good"><i class="live-dot on" />{t.live}</Chip>;
  if (!rank || !seen) return <><Verdict>{t.waiting}</Verdict><p>{state} {button}</p><Loading rows={6} /></>;
  const { steps, last, median, pace, recent } = seen;
  const facts = [state, button, rank.program, framework(rank), ranks.length > 1 || rank.world ? fill(t.rank, { rank: rank.rank, world: rank.world ?? ranks.length }) : null, rank.pid !== null && fill(t.pid, { pid: rank.pid }), !over && t.written];
  return (
    <>
      <Verdict facts={facts}>
        {over ? <>{steps ? <Say of={t.endedSteps} count={<b><Count of={steps} /></b>} /> : t.ended} <a href={link({ run, page: "overview" })}>{t.open}</a></> : last >= 0 ? <Say of={t.step} step={<b>{seen.step[last]}</b>} last={<b><Time ns={seen.dur[last]} /></b>} count={<b>{recent}</b>} median={<b><Time ns={median} /></b>} /> : <Say of={t.begun} time={<b><Time ns={seen.now} /></b>} />}
      </Verdict>
      <Tiles label={t.figures}>
        <Tile label={t.lastStep}>{last >= 0 ? seen.step[last] : units.MISSING}</Tile>
        <Tile label={t.lastTime} spark={seen.dur.slice(-60)}><Time ns={last >= 0 ? seen.dur[last] : NaN} why={t.noSteps} /></Tile>
        <Tile label={t.median} context={fill(t.recent, { count: recent })}><Time ns={median} why={t.noSteps} /></Tile>
        <Tile label={t.rate} context={fill(t.recent, { count: recent })}><span title={String(pace)}>{units.count(pace).value}<span class="u">{units.THIN}{t.perSecond}</span></span></Tile>
        <Tile label={t.steps} context={seen.before ? fill(t.leftOut, { count: units.count(seen.before).value }) : undefined}><Count of={steps} /></Tile>
        <Tile label={t.since}><Time ns={seen.now} /></Tile>
        <Tile label={t.samples} context={fill(t.counted, { count: units.count(seen.samples).value })}><Count of={seen.counters.length} /></Tile>
      </Tiles>
      <Card title={t.stepTime} note={t.stepNote}>
        {last >= 1 ? <Series group={`live-${run}`} x={seen.x} lines={seen.lines} as="time" height={170} levels={[{ at: median, label: units.text(units.time(median)) }]} label={t.stepTime} /> : <Empty title={t.noSteps}>{t.noStepsHow}</Empty>}
      </Card>
      {seen.notices.length > 0 && <Card title={t.notices}><ul class="live-notes">{seen.notices.map((notice) => <li key={notice}>{notice}</li>)}</ul></Card>}
      <div class="live-charts">
        {seen.charts.map((chart) => (
          <Card key={chart.key} title={t[chart.title]} note={chart.lines.map((line) => line.label).join(", ")}>
            <Series group={`live-${run}`} x={chart.x} lines={chart.lines} as={chart.as} height={120} label={t[chart.title]} />
          </Card>
        ))}
      </div>
      <Counters t={t} counters={seen.counters} />
    </>
  );
}

interface LiveChart {
  key: string;
  title: "queues" | "cpu" | "process" | "memory" | "gpu";
  x: Float64Array;
  lines: Line[];
  as: units.Quantity;
}

const GROUPS: [title: LiveChart["title"], test: RegExp][] = [
  ["queues", /^queue /],
  ["gpu", /^(utilization|power) gpu /],
  ["cpu", /^cpu (user|system|io)$/],
  ["process", /^(process|data worker) \d+ cpu /],
  ["memory", /^(allocated|reserved) |^memory used|^process \d+ memory$/],
];
const COLORS = ["--kind-compute", "--kind-host", "--op-norm", "--op-index", "--kind-copy", "--op-optim"];
const QUANTITY: Record<string, units.Quantity> = { bytes: "bytes", "bytes/s": "rate", ns: "time", share: "share" };

function quantity(unit: string): units.Quantity {
  return QUANTITY[unit] ?? "count";
}

function snapshot(rank: Rank, ranks: Rank[], now: Recording) {
  const recent = rank.dur.slice(-RECENT);
  const sorted = Float64Array.from(recent).sort();
  const first = rank.start.length - recent.length;
  const last = rank.step.length - 1;
  const span = last >= 0 ? rank.start[last] + rank.dur[last] - rank.start[first] : NaN;
  const shown = ranks.slice(0, COLORS.length).filter((one) => one.start.length);
  const joined = together(shown.map((one) => ({ at: one.start, value: one.dur })));
  const counters = [...rank.counters.values()].map((one) => ({ ...one, at: one.at.slice(), value: one.value.slice() }));
  const charts: LiveChart[] = [];
  for (const [title, test] of GROUPS) {
    const mine = counters.filter((one) => test.test(one.name) && one.at.length > 1);
    for (const unit of new Set(mine.map((one) => one.unit))) {
      // The busiest first, where there are more than can be told apart.
      const own = mine.filter((one) => one.unit === unit).sort((a, b) => b.value[b.value.length - 1] - a.value[a.value.length - 1]).slice(0, COLORS.length);
      const { x, values } = together(own);
      charts.push({ key: `${title} ${unit}`, title, x, as: quantity(unit), lines: own.map((one, at) => ({ label: one.name, values: values[at], color: COLORS[at], sparse: true, area: own.length === 1 })) });
    }
  }
  return {
    step: rank.step.slice(), dur: rank.dur.slice(), last, steps: rank.before + rank.step.length, before: rank.before, recent: recent.length, median: quantile(sorted, 0.5), pace: recent.length / (span / 1e9),
    now: now.now, samples: now.samples, notices: rank.notices, counters, charts,
    x: joined.x, lines: shown.map((one, at) => ({ label: fill(text().stepOf, { rank: one.rank }), values: joined.values[at], color: COLORS[at], sparse: true })),
  };
}

/** Several samplings on one axis; NaN where one has no sample. */
function together(parts: { at: number[]; value: number[] }[]): { x: Float64Array; values: Float64Array[] } {
  const x = Float64Array.from(new Set(parts.flatMap((part) => part.at))).sort();
  const place = new Map(Array.from(x, (at, index) => [at, index]));
  const values = parts.map((part) => {
    const column = new Float64Array(x.length).fill(NaN);
    part.at.forEach((at, index) => (column[place.get(at)!] = part.value[index]));
    return column;
  });
  return { x, values };
}

function Counters({ t, counters }: { t: Words; counters: Counter[] }) {
  const table = useMemo(
    () =>
      Table.of({
        name: counters.map((one) => one.name),
        now: counters.map((one) => one.value.at(-1) ?? NaN),
        low: counters.map((one) => Math.min(...one.value.filter(Number.isFinite))),
        high: counters.map((one) => Math.max(...one.value.filter(Number.isFinite))),
        unit: counters.map((one) => one.unit),
        count: counters.map((one) => one.seen),
        at: counters.map((_, at) => at),
      }),
    [counters],
  );
  const value = (key: string) => (of: Table, row: number) => {
    const as = quantity(of.str("unit")[row] ?? "");
    return <span title={units.exact(of.num(key)[row], as)}>{units.text(units.write(of.num(key)[row], as))}</span>;
  };
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name" },
    { key: "at", label: t.trend, width: "96px", show: (of, row) => <Spark values={counters[of.num("at")[row]].value.slice(-120)} width={80} /> },
    { key: "now", label: t.now, show: value("now") },
    { key: "low", label: t.low, show: value("low") },
    { key: "high", label: t.high, show: value("high") },
    { key: "unit", label: t.unit, as: "text", width: "90px" },
    { key: "count", label: t.count, width: "90px" },
  ];
  return (
    <Card title={t.counters} flush>
      {counters.length ? <Grid id="counters" table={table} columns={columns} search={["name", "unit"]} sort="name" what={t.what} label={t.counters} /> : <Empty title={t.noCounters} height={60} />}
    </Card>
  );
}
