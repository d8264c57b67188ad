// page: {"order": 20, "group": "performance", "icon": "overview", "en": "Overview", "zh": "概览"}
import "./overview.css";
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { color } from "../colors";
import { counting, info, rank, useTable, type Asked } from "../data";
import { deviceWord, finding, onDevice, type Finding } from "../finding";
import { Await, Bytes, Card, Chip, Empty, InlineBar, Legend, Loading, Quantity, Segmented, Share, Swatch, Tile, Tiles, Time, Trouble, useWidth, Verdict } from "../parts/basics";
import { Ring, StageBar, wideOf, type Stage } from "../parts/plots";
import { tip, untip } from "../parts/tip";
import { framework, useStepNumbers } from "../shell";
import { source, type Info } from "../source";
import { go, link, param, type Change } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    step: "A step takes {step}.",
    stepHost: "A step takes {step} on the CPU.",
    whole: "The recording marks no steps and covers {step}.",
    onlyStep: "Step {number} takes {step}.",
    launch: "The {device} works for {busy} of it and waits {lost} for the host to launch work.",
    input: "The {device} works for {busy} of it and waits {lost} for input data.",
    communication: "For {lost} of it data moves between ranks with no computation to hide it; the {device} is busy for {busy}.",
    sync: "The {device} works for {busy} of it and waits {lost} after the host had waited for it.",
    latency: "The {device} works for {busy} of it and loses {lost} between launch and start of its work.",
    idle: "The {device} works for {busy} of it and stands idle for {lost}.",
    used: "The {device} works for {busy} of it: little time is lost.",
    host: "Operators run for {busy} of it; nothing ran on a device.",
    hostInput: "For {lost} of it the training waits for input data; operators run for {busy}.",
    hostCommunication: "For {lost} of it data moves between devices or ranks with no operator to hide it.",
    unknown: "What of it is work is not known: this recording has no operators and no kernels.",
    none: "This recording has no steps and nothing that could stand for one.", noneData: "This recording has no steps: it shows how data is prepared.", noneCpu: "This recording has no steps: it shows the use of the CPU.", toData: "Data preparation", toCpu: "CPU",
    device: "device",
    medianOf: "Median of {count} steps, {low} to {high}", outFact: "step {step} ({time}) left out as warm-up", oneStep: "One step", marker: "marked by the profiler", given: "marked by --step-name", inferred: "inferred from annotations", wholeHow: "no markers",
    rankOf: "rank {rank} of {count}", problem: "1 problem while reading", problems: "{count} problems while reading", noProblems: "no problems while reading",
    where: "Where the step goes", theMedian: "step {step}, the median step", nearMedian: "step {step}, nearest to the median", theStep: "step {step}", theWhole: "the whole recording",
    shareView: "Share", order: "In order", tableView: "Table", view: "View",
    compute: "Compute", operators: "Operators", copy: "Copy", wait: "Input wait", comm: "Communication", idleKind: "Idle", host_: "Host", part: "Part", time: "Time", share: "Share",
    cause_host: "idle, host-bound", cause_launch: "idle, launch latency", cause_sync: "idle, sync", cause_comm: "idle, host communicates", cause_unknown: "idle, cause unknown", noOperator: "no operator runs",
    stage_data: "Data wait", stage_copy: "Input copy", stage_forward: "Forward", stage_backward: "Backward", stage_both: "Forward and backward", stage_optimizer: "Optimizer", stage_comm: "Communication", stage_other: "Other",
    figures: "Figures", stepTime: "Step time", throughput: "Throughput", perStep: "steps/s", samples: "{rate} samples/s", noBatch: "at the median step", noMarks: "no steps are marked", busy: "Device busy", busyHost: "Operators run", use: "Model FLOP use",
    inputWait: "Input wait", exposed: "Exposed comm.", peak: "Peak memory", idleFor: "{time} idle in {step}", idleHost: "none runs for {time}", ofPeak: "{rate}; peak: {source}", noPeak: "{rate}; peak of {chip} unknown", noChip: "{rate}; chip not recorded",
    noShapes: "record with --shapes", noFlops: "no FLOPs in these operators", notBottleneck: "not a bottleneck", bottleneck: "the training waits", noLoader: "no loader recorded", oneRank: "one rank, nothing to send", noTransfers: "no transfers recorded",
    hidden: "of the steps", noMemory: "record with --memory", ofMemory: "{share} of {all}", noWork: "no operators recorded", firstStep: "first step {time}",
    stepsTitle: "Steps", stepsNote: "work solid, waiting hatched; click to look at one", stepTrace: "Step trace", barOf: "a bar is the longest of {count} steps", stepName: "Step {step}", moreSteps: "{count} more steps", medianLine: "median",
    preparation: "Data preparation", queues: "Queues", keepsUp: "keeps up", waits: "waits", slow: "too slow", noData: "Nothing of the input is recorded", noDataHow: "stepscope run --data records loaders and queues",
    queueOnly: "When the training asked for data, {empty} of {all} times no batch was ready.", notKnown: "Whether the loop waited for its batches was not recorded.", oneBatch: "1 batch", oneGap: "1 gap",
    readyAlways: "Batches were ready when asked for: the loop waited {wait} per step.", notReady: "The loop waited {wait} per step for its batches, {share} of the step.",
    loader: "Loader", queue: "Queue", loop: "Training loop", batches: "{count} batches", ready: "{depth} of {capacity} ready", readyOnly: "{depth} ready", notRecorded: "not recorded", emptyTimes: "The queue was empty {count} of {all} times.", neverEmpty: "The queue was never empty.", waited: "{time} waited",
    types: "Operator types", typesNote: "{device} time of {steps}", bar: "Bar", pie: "Pie", operatorsPage: "Operators", more: "{count} more types", noTypes: "No operators are recorded", noTypesHow: "this recording says nothing of operators", kernelsPage: "Totals by name", stepsCount: "{count} steps", stepCount: "1 step", recording: "the recording",
    why: "Why the {device} waits", whyNote: "idle time in steps, by cause", gapsCount: "{count} gaps", longest: "longest {time}",
    why_host: "the host launches too late", why_launch: "launched, not started yet", why_data: "the host waits for input", why_sync: "the host waited for the device", why_comm: "the host waits for other ranks", why_unknown: "no launch recorded",
    activity: "Device activity", activityHost: "Operator activity", activityNote: "busy share per {bucket}, with allocated memory below; one crosshair", activityNoMemory: "busy share per {bucket}", timeline: "Timeline", noActivity: "Nothing here is known to be work", noActivityHow: "no kernel and no operator in this recording", noWorkHow: "This recording has no kernels and no operators: {totals} has its ranges, and the timeline shows them in order.",
    reserved: "reserved {bytes}", allocated: "Allocated", reservedWord: "Reserved", at: "At", peakLabel: "peak {bytes}", deviceNumber: "{device} {number}", openHere: "Enter or click opens the timeline there; drag for a range",
  },
  zh: {
    step: "一个迭代耗时 {step}。",
    stepHost: "一个迭代在 CPU 上耗时 {step}。",
    whole: "该记录没有迭代标记，总时长 {step}。",
    onlyStep: "迭代 {number} 耗时 {step}。",
    launch: "{device} 工作占 {busy}，有 {lost} 的时间在等待主机下发任务。",
    input: "{device} 工作占 {busy}，有 {lost} 的时间在等待输入数据。",
    communication: "其中 {lost} 是没有被计算掩盖的 rank 间通信；{device} 忙碌占 {busy}。",
    sync: "{device} 工作占 {busy}，主机同步等待之后又让它空闲了 {lost}。",
    latency: "{device} 工作占 {busy}，有 {lost} 损失在任务下发到启动之间。",
    idle: "{device} 工作占 {busy}，空闲 {lost}。",
    used: "{device} 工作占 {busy}：损失的时间很少。",
    host: "其中 {busy} 的时间有算子在运行；没有设备侧任务。",
    hostInput: "其中 {lost} 的时间训练在等待输入数据；算子运行占 {busy}。",
    hostCommunication: "其中 {lost} 是没有被算子掩盖的设备或 rank 间通信。",
    unknown: "其中哪些是计算无从得知：该记录没有算子，也没有内核。",
    none: "该记录没有迭代，也没有可以当作迭代的内容。", noneData: "该记录没有迭代，只显示数据准备的情况。", noneCpu: "该记录没有迭代，只显示 CPU 的使用。", toData: "数据准备", toCpu: "CPU",
    device: "设备",
    medianOf: "{count} 个迭代的中位数，{low} 到 {high}", outFact: "迭代 {step}（{time}）作为预热不计入", oneStep: "一个迭代", marker: "由 profiler 标记", given: "由 --step-name 标记", inferred: "由标注推断", wholeHow: "没有标记",
    rankOf: "rank {rank}，共 {count} 个", problem: "读取时发现 1 个问题", problems: "读取时发现 {count} 个问题", noProblems: "读取没有问题",
    where: "迭代时间去向", theMedian: "迭代 {step}，中位迭代", nearMedian: "迭代 {step}，最接近中位数", theStep: "迭代 {step}", theWhole: "整个记录",
    shareView: "占比", order: "按时间", tableView: "表格", view: "视图",
    compute: "计算", operators: "算子", copy: "拷贝", wait: "等待输入", comm: "通信", idleKind: "空闲", host_: "主机", part: "部分", time: "时间", share: "占比",
    cause_host: "空闲，等主机下发", cause_launch: "空闲，启动延迟", cause_sync: "空闲，同步", cause_comm: "空闲，主机通信", cause_unknown: "空闲，原因未知", noOperator: "没有算子运行",
    stage_data: "等待数据", stage_copy: "输入拷贝", stage_forward: "前向", stage_backward: "反向", stage_both: "前向和反向", stage_optimizer: "优化器", stage_comm: "通信", stage_other: "其他",
    figures: "指标", stepTime: "迭代时间", throughput: "吞吐", perStep: "迭代/s", samples: "{rate} 样本/s", noBatch: "按中位迭代", noMarks: "没有标记迭代", busy: "设备忙碌", busyHost: "算子运行", use: "模型算力利用率",
    inputWait: "等待输入", exposed: "未掩盖通信", peak: "内存峰值", idleFor: "{step} 中空闲 {time}", idleHost: "{time} 没有算子运行", ofPeak: "{rate}；峰值：{source}", noPeak: "{rate}；{chip} 峰值未知", noChip: "{rate}；未记录芯片",
    noShapes: "用 --shapes 记录", noFlops: "这些算子没有 FLOPs", notBottleneck: "不是瓶颈", bottleneck: "训练在等待", noLoader: "没有记录数据加载", oneRank: "单 rank，无需通信", noTransfers: "没有记录通信",
    hidden: "占迭代时间", noMemory: "用 --memory 记录", ofMemory: "{all} 的 {share}", noWork: "没有记录算子", firstStep: "首个迭代 {time}",
    stepsTitle: "迭代", stepsNote: "实心为工作，斜线为等待；点击查看", stepTrace: "迭代轨迹", barOf: "每柱为 {count} 个迭代中最长者", stepName: "迭代 {step}", moreSteps: "另外 {count} 个迭代", medianLine: "中位数",
    preparation: "数据准备", queues: "队列", keepsUp: "跟得上", waits: "有等待", slow: "太慢", noData: "没有记录输入数据", noDataHow: "stepscope run --data 会记录加载器和队列",
    queueOnly: "训练取数 {all} 次，其中 {empty} 次没有就绪的批次。", notKnown: "没有记录训练循环是否等待批次。", oneBatch: "1 个批次", oneGap: "1 段空闲",
    readyAlways: "取数据时批次已就绪：每个迭代等待 {wait}。", notReady: "每个迭代等待批次 {wait}，占迭代的 {share}。",
    loader: "加载器", queue: "队列", loop: "训练循环", batches: "{count} 个批次", ready: "{capacity} 中 {depth} 就绪", readyOnly: "{depth} 就绪", notRecorded: "未记录", emptyTimes: "{all} 次中队列 {count} 次为空。", neverEmpty: "队列从未为空。", waited: "等待 {time}",
    types: "算子类型", typesNote: "{steps}的 {device} 时间", bar: "条形", pie: "饼图", operatorsPage: "算子", more: "另外 {count} 种类型", noTypes: "没有记录算子", noTypesHow: "该记录没有算子信息", kernelsPage: "按名称汇总", stepsCount: "{count} 个迭代", stepCount: "1 个迭代", recording: "整个记录",
    why: "{device} 为何等待", whyNote: "迭代内空闲时间，按原因", gapsCount: "{count} 段空闲", longest: "最长 {time}",
    why_host: "主机下发太晚", why_launch: "已下发，尚未启动", why_data: "主机在等待输入", why_sync: "主机等待过设备", why_comm: "主机在等待其他 rank", why_unknown: "没有下发记录",
    activity: "设备活动", activityHost: "算子活动", activityNote: "每 {bucket} 的忙碌占比，下方为已分配内存；共用十字线", activityNoMemory: "每 {bucket} 的忙碌占比", timeline: "时间线", noActivity: "这里没有已知的工作", noActivityHow: "该记录没有内核，也没有算子", noWorkHow: "该记录没有内核，也没有算子：{totals}列出其中的范围，时间线按先后显示。",
    reserved: "预留 {bytes}", allocated: "已分配", reservedWord: "预留", at: "时刻", peakLabel: "峰值 {bytes}", deviceNumber: "{device} {number}", openHere: "回车或点击打开时间线；拖动选择范围",
  },
});

type Words = ReturnType<typeof text>;

export default function Overview() {
  const now = info.value!;
  const overview = useTable("overview", counting());
  const overlap = useTable("overlap");
  const device = onDevice(now);
  const causes = useTable("gap_causes", counting(), { skip: !device });
  if (overview.error) return <Trouble error={overview.error} />;
  if (!overview.data) return <Loading rows={12} />;
  const chosen = pickedStep(overview.data, overlap.data);
  const found = finding(overview.data, 0, causes.data, device);
  return (
    <div class={`ov ${overview.waiting || overlap.waiting || causes.waiting ? "stale" : ""}`}>
      <Sentence now={now} overview={overview.data} found={device && !causes.data && !causes.error ? null : found} chosen={chosen} />
      {overview.data.rows > 0 && (
        <>
          <StepPicture now={now} overlap={overlap} chosen={chosen} />
          <FigureTiles now={now} overview={overview.data} overlap={overlap.data} />
        </>
      )}
      <div class="ov-cols">
        <div class="col">
          {overview.data.rows > 0 && <StepsCard overview={overview.data} overlap={overlap} chosen={chosen} />}
          {device && <WhyCard now={now} causes={causes} />}
          <Preparation now={now} overview={overview.data} />
        </div>
        <OperatorTypes overview={overview.data} />
      </div>
      <Activity now={now} />
    </div>
  );
}

interface Chosen {
  step: number;
  row: number;
  how: "median" | "near" | "chosen" | "whole";
}

/** The step in the address; else the median one, or the one nearest to the median. */
function pickedStep(overview: Table, overlap: Table | null): Chosen | null {
  if (!overlap || !overlap.rows || !overview.rows) return null;
  const [steps, totals] = [overlap.num("step"), overlap.num("total_ns")];
  const said = param("sel") === undefined ? -1 : steps.indexOf(Number(param("sel")));
  if (said >= 0) return { step: steps[said], row: said, how: "chosen" };
  const median = overview.num("step_ns")[0];
  let row = 0;
  for (let at = 1; at < overlap.rows; at++) if (Math.abs(totals[at] - median) < Math.abs(totals[row] - median)) row = at;
  const how = overview.str("steps_how")[0] === "whole" ? "whole" : overlap.rows === 1 ? "chosen" : totals[row] === median ? "median" : "near";
  return { step: steps[row], row, how };
}

function Sentence({ now, overview, found, chosen }: { now: Info; overview: Table; found: Finding | null; chosen: Chosen | null }) {
  const t = text();
  const facts = useFacts(now, overview);
  if (!found) return <Verdict facts={facts}>…</Verdict>;
  const word = deviceWord(now) ?? t.device;
  const row = overview.rows ? 0 : -1;
  if (row < 0) {
    const data = (now.tables.pipeline ?? 0) > 0;
    const cpu = Object.keys(now.counters).some((name) => name.startsWith("cpu"));
    const to = [data && <a href={link({ page: "data" })}>{t.toData}</a>, cpu && <a href={link({ page: "cpu" })}>{t.toCpu}</a>];
    return <Verdict facts={[...to, ...facts]}>{data ? t.noneData : cpu ? t.noneCpu : t.none}</Verdict>;
  }
  const whole = overview.str("steps_how")[0] === "whole";
  const host = found.case.startsWith("host") && !whole;
  const first = whole ? t.whole : overview.num("steps")[0] === 1 ? t.onlyStep : host ? t.stepHost : t.step;
  const busy = overview.num("busy_share")[0];
  return (
    <Verdict facts={facts}>
      <Say of={first} step={<b><Time ns={overview.num("step_ns")[0]} /></b>} number={<b>{chosen?.step ?? "–"}</b>} />{" "}
      <Say of={t[found.case]} device={word} busy={<b><Share of={busy} /></b>} lost={<b><Share of={found.share} /></b>} />
    </Verdict>
  );
}

function useFacts(now: Info, overview: Table): ComponentChildren[] {
  const t = text();
  const firstStep = useStepNumbers()?.[0] ?? "–";
  const said: ComponentChildren[] = [];
  if (overview.rows) {
    const count = overview.num("steps")[0];
    const how = overview.str("steps_how")[0] ?? "";
    const words = how.split(", ").map((one) => ({ marker: t.marker, given: t.given, inferred: t.inferred, whole: t.wholeHow })[one] ?? one).join(", ");
    if (count > 1) said.push(<Say of={t.medianOf} count={units.count(count).value} low={<Time ns={overview.num("min_ns")[0]} />} high={<Time ns={overview.num("max_ns")[0]} />} />);
    else said.push(t.oneStep);
    if (overview.num("left_out")[0] === 1) said.push(<a href={link({ page: "steps", params: { sel: firstStep } })}>{fill(t.outFact, { step: firstStep, time: units.text(units.time(overview.num("first_step_ns")[0])) })}</a>);
    said.push(words);
  }
  if (now.ranks.length > 1) said.push(fill(t.rankOf, { rank: rank() ?? "–", count: now.ranks.length }));
  said.push(framework(now));
  said.push([...new Set(now.devices.filter((one) => one.rank === rank()).map((one) => one.name))].join(", "));
  said.push(now.problem_count ? <a href={link({ page: "files" })}>{now.problem_count === 1 ? t.problem : fill(t.problems, { count: units.count(now.problem_count).value })}</a> : t.noProblems);
  return said;
}

// ---- Where the step goes

interface Piece extends Stage {
  said: string;
  /** The page with its rows. */
  to?: Change;
}

const CAUSE_WORDS: Record<string, "cause_host" | "cause_launch" | "cause_sync" | "cause_comm" | "wait"> = {
  "host-bound": "cause_host", "launch latency": "cause_launch", sync: "cause_sync", communication: "cause_comm", "data wait": "wait",
};

function pieces(t: Words, now: Info, overlap: Table, chosen: Chosen, causes: Table | null): Piece[] {
  const value = (name: string) => overlap.num(name)[chosen.row];
  const device = onDevice(now);
  const work = device ? t.compute : t.operators;
  const all: Piece[] = [
    { name: work, said: work.toLowerCase(), ns: value("computing_ns"), color: "var(--kind-compute)", to: { page: device ? "kernels" : "operators" } },
    { name: t.copy, said: t.copy.toLowerCase(), ns: value("copy_ns"), color: "var(--kind-copy)", to: { page: "kernels", params: { tab: "copies" } } },
    { name: t.comm, said: t.comm.toLowerCase(), ns: value("exposed_ns"), color: "var(--kind-communication)", to: { page: "communication" } },
  ];
  const own = causes?.where((row) => causes.num("step")[row] === chosen.step) ?? [];
  const idle = own.reduce((sum, row) => sum + causes!.num("total_ns")[row], 0);
  // Where the causes explain the step's idle time exactly (one device), each has its piece; else the idle time is one.
  if (device && causes && idle === value("free_ns")) {
    const parts = own.map((row) => ({ cause: causes.str("cause")[row] ?? "", ns: causes.num("total_ns")[row] }));
    parts.sort((a, b) => Number(b.cause === "data wait") - Number(a.cause === "data wait"));
    for (const { cause, ns } of parts) {
      const name = t[CAUSE_WORDS[cause] ?? "cause_unknown"];
      all.push(cause === "data wait" ? { name, said: name.toLowerCase(), ns, color: "var(--kind-wait)", dark: true, to: { page: "data" } } : { name, said: name, ns, hatch: true, to: { page: "advice" } });
    }
  } else if (value("free_ns") > 0) {
    const name = device ? t.idleKind : t.noOperator;
    all.push({ name, said: name.toLowerCase(), ns: value("free_ns"), hatch: true });
  }
  return all.filter((piece) => piece.ns > 0);
}

function StepPicture({ now, overlap, chosen }: { now: Info; overlap: Asked<Table>; chosen: Chosen | null }) {
  const t = text();
  const device = onDevice(now);
  const causes = useTable("gap_causes", { per_step: 1 }, { skip: !device });
  const stages = useTable("step_stages");
  const steps = useTable("step_trace", { columns: "rank,step,start_ns,end_ns,total_ns" });
  const at = chosen && steps.data ? steps.data.num("step").indexOf(chosen.step) : -1;
  const view = (param("view") ?? "share") as "share" | "order" | "table";
  const note = chosen && fill({ median: t.theMedian, near: t.nearMedian, chosen: t.theStep, whole: t.theWhole }[chosen.how], { step: chosen.step });
  const kinds = [
    { label: device ? t.compute : t.operators, color: "var(--kind-compute)" },
    { label: t.copy, color: "var(--kind-copy)" },
    { label: t.wait, color: "var(--kind-wait)" },
    { label: t.comm, color: "var(--kind-communication)" },
    { label: t.idleKind, hatch: true },
  ];
  const tools = (
    <>
      <Legend of={kinds} />
      {at >= 0 && <a href={link({ page: "timeline", params: { t0: Math.round(steps.data!.num("start_ns")[at]), t1: Math.round(steps.data!.num("end_ns")[at]) } })}>{t.timeline}</a>}
      <Segmented label={t.view} value={view} onChange={(id) => go({ params: { view: id === "share" ? null : id } }, true)} choices={[{ id: "share", label: t.shareView }, { id: "order", label: t.order, off: source().still }, { id: "table", label: t.tableView }]} />
    </>
  );
  return (
    <Card title={t.where} note={note} tools={overlap.data?.rows === 0 ? undefined : tools}>
      <Await of={overlap} rows={3}>
        {(data) => {
          if (!chosen) return <HostOnly />;
          const total = data.num("total_ns")[chosen.row];
          const parts = pieces(t, now, data, chosen, causes.data);
          const host = stageRows(t, stages.data, chosen.step);
          if (view === "table") return <StepTable parts={parts} host={host} total={total} now={now} />;
          const summary = parts.map((piece) => `${piece.name} ${units.text(units.time(piece.ns))} (${units.text(units.share(piece.ns / total))})`).join(", ");
          return (
            <div class="ov-step">
              <span class="who">{device ? (deviceWord(now) ?? t.device) : "CPU"}</span>
              {view === "share" ? (
                <StageBar
                  height={32}
                  total={total}
                  label={summary}
                  stages={parts}
                />
              ) : (
                <InOrder step={chosen.step} total={total} label={summary} />
              )}
              <span class="who low">{t.host_}</span>
              <HostStages rows={host} total={total} order={view === "order"} />
              <span />
              <Axis total={total} />
            </div>
          );
        }}
      </Await>
    </Card>
  );
}

interface HostStage {
  name: string;
  start: number;
  ns: number;
  kind: string;
}

const STAGES: Record<string, "stage_data" | "stage_copy" | "stage_forward" | "stage_backward" | "stage_both" | "stage_optimizer" | "stage_comm" | "stage_other"> = {
  "data wait": "stage_data", "input copy": "stage_copy", forward: "stage_forward", backward: "stage_backward", "forward and backward": "stage_both", optimizer: "stage_optimizer", communication: "stage_comm", other: "stage_other",
};

/** The host's stages of one step in the order in which they began; "other" is what is left and stands last. */
function stageRows(t: Words, stages: Table | null, step: number): HostStage[] {
  if (!stages) return [];
  const rows = stages.where((row) => stages.num("step")[row] === step && stages.num("dur_ns")[row] > 0);
  const first = Math.min(...rows.map((row) => stages.num("start_ns")[row]));
  const found = rows.map((row) => {
    const stage = stages.str("stage")[row] ?? "";
    const word = STAGES[stage];
    return { name: word ? t[word] : stage, start: stages.num("start_ns")[row] - first, ns: stages.num("dur_ns")[row], kind: stage === "data wait" ? "wait" : stage };
  });
  return found.sort((a, b) => Number(a.kind === "other") - Number(b.kind === "other") || a.start - b.start);
}

function HostStages({ rows, total, order }: { rows: HostStage[]; total: number; order: boolean }) {
  const [box, width] = useWidth<HTMLDivElement>();
  let from = 0;
  const shown = order ? rows.filter((row) => row.kind !== "other") : rows;
  const label = rows.map((row) => `${row.name} ${units.text(units.time(row.ns))}`).join(", ");
  return (
    <div class="ov-stages" ref={box} role="img" aria-label={label}>
      {shown.map((row, at) => {
        const start = order ? row.start : from;
        from += row.ns;
        // A stage that happens several times in a step (zero_grad and step) would run into the next one: it ends there.
        const next = order && at + 1 < shown.length ? shown[at + 1].start - row.start : Infinity;
        const length = Math.min(row.ns, next, total - start);
        const wide = wideOf(`${row.name} ${units.text(units.time(row.ns))}`) + 8 < (length / total) * width;
        return (
          <span
            key={row.name}
            class={row.kind}
            style={{ left: `${(start / total) * 100}%`, width: `calc(${(length / total) * 100}% - 1px)`, paddingLeft: wide ? undefined : "0" }}
            onPointerMove={(event) => tip(event, <><b>{row.name}</b> {units.text(units.time(row.ns))} · {units.text(units.share(row.ns / total))}</>)}
            onPointerLeave={untip}
          >
            {wide && <>{row.name} <span class="d3">{units.text(units.time(row.ns))}</span></>}
          </span>
        );
      })}
    </div>
  );
}

function Axis({ total }: { total: number }) {
  const unit = units.timeUnit(total);
  const marks = units.ticks(0, units.timeIn(total, unit), 7).filter((at) => at < units.timeIn(total, unit) * 0.985);
  return (
    <div class="ov-axis" aria-hidden="true">
      {marks.map((at) => <span key={at} style={{ left: `${(at / units.timeIn(total, unit)) * 100}%` }}>{at === 0 ? `0 ${unit}` : +at.toPrecision(6)}</span>)}
    </div>
  );
}

/** Without known work there is only the host's account of the step. */
function HostOnly() {
  const t = text();
  return <Empty title={t.noActivity} height={72}><Say of={t.noWorkHow} totals={<a href={link({ page: "operators" })}>{t.kernelsPage}</a>} /></Empty>;
}

function InOrder({ step, total, label }: { step: number; total: number; label: string }) {
  const activity = useTable("activity", { step, buckets: 400 }, { allSteps: true });
  return (
    <Await of={activity} rows={1}>
      {(data) => <Columns data={data} rows={data.where((row) => equal(data.num("device")[row], data.num("device")[0]))} height={32} from={data.num("at_ns")[0]} to={data.num("at_ns")[0] + total} label={label} />}
    </Await>
  );
}

function equal(a: number, b: number): boolean {
  return a === b || (Number.isNaN(a) && Number.isNaN(b));
}

const PARTS = [["computing_share", "--kind-compute"], ["exposed_share", "--kind-communication"], ["copy_share", "--kind-copy"]] as const;

/** Stacked columns of busy shares, one path per kind. */
function columns(data: Table, rows: number[], x: (ns: number) => number, top: number, height: number): { color: string; path: string }[] {
  const under = new Float64Array(rows.length);
  const [at, wide] = [data.num("at_ns"), data.num("bucket_ns")];
  return PARTS.map(([name, token]) => {
    const share = data.num(name);
    let path = "";
    rows.forEach((row, index) => {
      const part = share[row];
      if (!(part > 0)) return;
      const left = x(at[row]);
      const right = x(at[row] + wide[row]);
      const high = part * height;
      const base = top + height - under[index] * height;
      path += `M${left.toFixed(2)} ${base.toFixed(2)}h${(right - left).toFixed(2)}v${(-high).toFixed(2)}h${(left - right).toFixed(2)}z`;
      under[index] += part;
    });
    return { color: `var(${token})`, path };
  });
}

function Columns({ data, rows, height, from, to, label }: { data: Table; rows: number[]; height: number; from: number; to: number; label: string }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const x = (ns: number) => Math.min(1, (ns - from) / (to - from)) * width;
  return (
    <div ref={box} class="ov-order hatch" style={{ height: `${height}px` }}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          {columns(data, rows, x, 0, height).map(({ color, path }) => <path key={color} d={path} fill={color} shape-rendering="crispEdges" />)}
        </svg>
      )}
    </div>
  );
}

function StepTable({ parts, host, total, now }: { parts: Piece[]; host: HostStage[]; total: number; now: Info }) {
  const t = text();
  const word = onDevice(now) ? (deviceWord(now) ?? t.device) : "CPU";
  return (
    <table>
      <thead><tr><th>{t.part}</th><th /><th>{t.time}</th><th>{t.share}</th></tr></thead>
      <tbody>
        {parts.map((piece) => <tr key={piece.name}><td><Swatch color={piece.color} hatch={piece.hatch} /> {piece.to ? <a href={link(piece.to)}>{piece.name}</a> : piece.name}</td><td class="d3">{word}</td><td><Time ns={piece.ns} /></td><td><Share of={piece.ns / total} /></td></tr>)}
        {host.map((row) => <tr key={row.name}><td>{row.name}</td><td class="d3">{t.host_}</td><td><Time ns={row.ns} /></td><td><Share of={row.ns / total} /></td></tr>)}
      </tbody>
    </table>
  );
}

// ---- Figures

/** Samples in a batch, where whoever recorded said so: Profiler.add_metadata("batch_size", "8"). */
function batch(now: Info): number {
  const metadata = now.extra.metadata as Record<string, unknown> | undefined;
  const said = Number(metadata?.batch_size);
  return said > 0 ? said : NaN;
}

function FigureTiles({ now, overview, overlap }: { now: Info; overview: Table; overlap: Table | null }) {
  const t = text();
  const value = (name: string) => overview.num(name)[0];
  const device = onDevice(now);
  const flops = useTable("flops", { columns: "rank,peak_source", limit: 1 }, { skip: !Number.isFinite(value("flops_per_s")) });
  const totals = overlap?.num("total_ns");
  const idle = overlap?.num("free_ns");
  const busies = totals && idle && Array.from(totals, (total, row) => 1 - idle[row] / total);
  const step = value("step_ns");
  const rate = 1e9 / step;
  const samples = batch(now);
  const chip = overview.str("device")[0];
  const used = units.text(units.flopsRate(value("flops_per_s")));
  const source = flops.data?.str("peak_source")[0];
  const useWhy = Number.isFinite(value("utilization"))
    ? fill(t.ofPeak, { rate: used, source: source ?? "…" })
    : Number.isFinite(value("flops_per_s")) ? (chip ? fill(t.noPeak, { rate: used, chip }) : fill(t.noChip, { rate: used })) : (now.kinds.op ?? 0) > 0 && !now.options.record_shapes ? t.noShapes : t.noFlops;
  const waits = Number.isFinite(value("input_wait_share"));
  const transfers = (now.kinds.communication ?? 0) > 0;
  const capacity = Math.max(...now.devices.filter((one) => one.rank === rank()).map((one) => Number(one.memory_bytes) || 0), 0);
  const first = value("first_step_ns");
  const whole = overview.str("steps_how")[0] === "whole";
  return (
    <Tiles label={t.figures}>
      <Tile label={t.stepTime} spark={totals} to={{ page: "steps" }} context={value("steps") > 1 ? <span title={fill(t.firstStep, { time: units.text(units.time(first)) })}><Time ns={value("min_ns")} /> – <Time ns={value("max_ns")} /></span> : undefined}>
        <Time ns={step} />
      </Tile>
      <Tile label={t.throughput} spark={totals && Array.from(totals, (total) => 1 / total)} to={{ page: "steps" }} context={whole ? t.noMarks : Number.isFinite(samples) ? fill(t.samples, { rate: units.text(units.short(rate * samples)) }) : t.noBatch}>
        {whole ? <Quantity value={NaN} as="count" why={t.noMarks} /> : <span class="q" title={`${rate}`}>{units.short(rate).value}<span class="u">{units.THIN}{units.short(rate).unit} {t.perStep}</span></span>}
      </Tile>
      <Tile label={device ? t.busy : t.busyHost} spark={busies} to={{ page: device ? "kernels" : "operators" }} tone={device && value("busy_share") < 0.8 ? "bad" : undefined} context={Number.isFinite(value("busy_share")) ? fill(device ? t.idleFor : t.idleHost, { time: units.text(units.share(1 - value("busy_share"))), step: value("steps") === 1 ? t.stepCount : fill(t.stepsCount, { count: units.count(value("steps")).value }) }) : t.noWork}>
        <Share of={value("busy_share")} why={t.noWork} />
      </Tile>
      <Tile label={t.use} to={{ page: "flops" }} context={<span title={useWhy}>{useWhy}</span>}>
        <Share of={value("utilization")} why={useWhy} />
      </Tile>
      <Tile label={t.inputWait} to={{ page: "data" }} tone={!waits ? undefined : value("input_wait_share") < 0.05 ? "good" : "bad"} context={!waits ? t.noLoader : value("input_wait_share") < 0.05 ? t.notBottleneck : t.bottleneck}>
        <Share of={waits ? value("input_wait_share") : NaN} why={t.noLoader} />
      </Tile>
      <Tile label={t.exposed} to={{ page: "communication" }} tone={transfers && value("exposed_communication_share") >= 0.05 ? "bad" : undefined} context={transfers ? t.hidden : (now.world_size ?? now.ranks.length) > 1 ? t.noTransfers : t.oneRank}>
        <Share of={transfers ? value("exposed_communication_share") : NaN} why={t.noTransfers} />
      </Tile>
      <Tile label={t.peak} to={{ page: "memory" }} context={!Number.isFinite(value("peak_memory_bytes")) ? t.noMemory : capacity > 0 && device ? fill(t.ofMemory, { share: units.text(units.share(value("peak_memory_bytes") / capacity)), all: units.text(units.bytes(capacity)) }) : undefined}>
        <Bytes of={value("peak_memory_bytes")} why={t.noMemory} />
      </Tile>
    </Tiles>
  );
}

// ---- Steps

const STACK = [["computing_ns", "var(--kind-compute)"], ["copy_ns", "var(--kind-copy)"], ["exposed_ns", "var(--kind-communication)"]] as const;

function StepsCard({ overview, overlap, chosen }: { overview: Table; overlap: Asked<Table>; chosen: Chosen | null }) {
  const t = text();
  const trace = useTable("step_trace", { columns: "rank,step,start_ns,end_ns,total_ns" });
  const many = (overlap.data?.rows || trace.data?.rows || 0) > 10;
  return (
    <Card title={t.stepsTitle} note={t.stepsNote} tools={<a href={link({ page: "steps" })}>{t.stepTrace}</a>}>
      <Await of={overlap} rows={4}>
        {(data) => (data.rows === 0 ? <Await of={trace}>{(rows) => <PlainSteps rows={rows} />}</Await> : many ? <StepBars data={data} chosen={chosen} median={overview.num("step_ns")[0]} /> : <StepRows data={data} chosen={chosen} />)}
      </Await>
    </Card>
  );
}

const PLAIN = 10;

/** Steps of a recording that knows no work: their lengths are all there is. */
function PlainSteps({ rows }: { rows: Table }) {
  const t = text();
  const totals = rows.num("total_ns");
  const most = Math.max(...totals);
  return (
    <>
      {Array.from(totals.slice(0, PLAIN), (total, at) => (
        <a key={at} class="ov-steprow" href={link({ page: "steps", params: { sel: rows.num("step")[at] } })}>
          <span class="no">{fill(t.stepName, { step: rows.num("step")[at] })}</span>
          <span class="track" style={{ width: `${(total / most) * 100}%` }}><span class="bar"><i style={{ width: "100%", background: "var(--kind-host)" }} /></span></span>
          <span class="r"><Time ns={total} /></span>
        </a>
      ))}
      {rows.rows > PLAIN && <a class="small" href={link({ page: "steps" })}>{fill(t.moreSteps, { count: units.count(rows.rows - PLAIN).value })}</a>}
    </>
  );
}

function StepRows({ data, chosen }: { data: Table; chosen: Chosen | null }) {
  const t = text();
  const [steps, totals, free] = [data.num("step"), data.num("total_ns"), data.num("free_ns")];
  const most = Math.max(...totals);
  return (
    <>
      {Array.from(steps, (step, row) => (
        <button key={step} class={`ov-steprow ${chosen?.row === row ? "on" : ""}`} aria-pressed={chosen?.row === row} onClick={() => go({ params: { sel: step } })}>
          <span class="no">{fill(t.stepName, { step })}</span>
          <span class="track" style={{ width: `${(totals[row] / most) * 100}%` }}>
            <span class="bar">
              {STACK.map(([name, fillColor]) => data.num(name)[row] > 0 && <i key={name} style={{ width: `${(data.num(name)[row] / totals[row]) * 100}%`, background: fillColor, padding: "0" }} />)}
              {free[row] > 0 && <i class="hatch" style={{ width: `${(free[row] / totals[row]) * 100}%`, padding: "0" }} />}
            </span>
          </span>
          <span class="r"><Time ns={totals[row]} /></span>
        </button>
      ))}
    </>
  );
}

/** One stacked bar per step from zero; where there are more than fit, each bar is the longest of several. */
function StepBars({ data, chosen, median }: { data: Table; chosen: Chosen | null; median: number }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const height = 132, left = 44, right = 8, top = 12, bottom = 18;
  const inner = Math.max(1, width - left - right);
  const [steps, totals] = [data.num("step"), data.num("total_ns")];
  const each = Math.max(1, Math.ceil(data.rows / Math.max(1, Math.floor(inner / 3))));
  const shown = useMemo(() => {
    const rows: number[] = [];
    for (let from = 0; from < data.rows; from += each) {
      let most = from;
      for (let row = from; row < Math.min(data.rows, from + each); row++) if (totals[row] > totals[most]) most = row;
      rows.push(most);
    }
    return rows;
  }, [data, each]);
  const most = Math.max(...shown.map((row) => totals[row]));
  const wide = inner / shown.length;
  const gap = wide > 4 ? 1 : 0;
  const y = (ns: number) => top + (1 - ns / most) * (height - top - bottom);
  const at = (event: { clientX: number }) => {
    const from = box.current!.getBoundingClientRect().left + left;
    const bar = Math.floor((event.clientX - from) / wide);
    return bar >= 0 && bar < shown.length ? shown[bar] : -1;
  };
  const unit = units.timeUnit(most);
  const path = (names: string[], name: string) =>
    shown.map((row, bar) => {
      const under = names.reduce((sum, one) => sum + data.num(one)[row], 0);
      const own = data.num(name)[row];
      return own > 0 ? `M${(left + bar * wide).toFixed(1)} ${y(under).toFixed(1)}H${(left + (bar + 1) * wide - gap).toFixed(1)}V${y(under + own).toFixed(1)}H${(left + bar * wide).toFixed(1)}z` : "";
    }).join("");
  const names = STACK.map(([name]) => name as string);
  const marked = chosen ? shown.findIndex((_, bar) => chosen.row >= bar * each && chosen.row < (bar + 1) * each) : -1;
  const move = (by: number) => {
    const to = Math.max(0, Math.min(data.rows - 1, (chosen?.row ?? 0) + by));
    go({ params: { sel: steps[to] } }, true);
  };
  return (
    <div
      ref={box}
      class="plot click"
      tabIndex={0}
      role="slider"
      aria-label={t.stepsTitle}
      aria-valuemin={steps[0]}
      aria-valuemax={steps[steps.length - 1]}
      aria-valuenow={chosen?.step}
      aria-valuetext={chosen ? `${fill(t.stepName, { step: chosen.step })}: ${units.text(units.time(totals[chosen.row]))}` : undefined}
      onKeyDown={(event) => { const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key]; if (by) { move(by); event.preventDefault(); } }}
      onClick={(event) => { const row = at(event); if (row >= 0) go({ params: { sel: steps[row] } }); }}
      onPointerMove={(event) => {
        const row = at(event);
        if (row < 0) return untip();
        tip(event, <><b>{fill(t.stepName, { step: steps[row] })}</b> {units.text(units.time(totals[row]))}<dl>{STACK.map(([name, fillColor]) => data.num(name)[row] > 0 && [<dt><Swatch color={fillColor} /></dt>, <dd>{units.text(units.time(data.num(name)[row]))}</dd>])}<dt><Swatch hatch /></dt><dd>{units.text(units.time(data.num("free_ns")[row]))}</dd></dl></>);
      }}
      onPointerLeave={untip}
    >
      {width > 0 && (
        <svg width={width} height={height} aria-hidden="true">
          <defs>
            <pattern id="ov-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="var(--sunken)" /><rect width="1.5" height="6" fill="var(--kind-idle)" /></pattern>
          </defs>
          {units.ticks(0, units.timeIn(most, unit), 3).map((tick) => { const line = y(tick * (most / units.timeIn(most, unit))); return <g key={tick}><line class="gl" x1={left} x2={width - right} y1={line} y2={line} /><text class="axis" x={left - 6} y={line + 4} text-anchor="end">{+tick.toPrecision(6)}{tick === 0 ? ` ${unit}` : ""}</text></g>; })}
          {STACK.map(([name, fillColor], at) => <path key={name} d={path(names.slice(0, at), name)} fill={fillColor} />)}
          <path d={path(names, "free_ns")} fill={wide >= 5 ? "url(#ov-hatch)" : "var(--kind-idle)"} fill-opacity={wide >= 5 ? 1 : 0.6} />
          <line class="ru" x1={left} x2={width - right} y1={y(median)} y2={y(median)} stroke="var(--text-2)" />
          <text class="axis" x={width - right} y={y(median) - 4} text-anchor="end" paint-order="stroke" stroke="var(--surface)" stroke-width="3">{t.medianLine} {units.text(units.time(median))}</text>
          {marked >= 0 && <rect x={left + marked * wide - 1} y={top - 2} width={Math.max(4, wide - gap + 2)} height={height - bottom - top + 3} fill="none" stroke="var(--accent)" stroke-width="1.5" />}
          <text class="axis" x={left} y={height - 4}>{steps[0]}</text>
          <text class="axis" x={width - right} y={height - 4} text-anchor="end">{steps[steps.length - 1]}</text>
          {each > 1 && <text class="axis" x={(left + width - right) / 2} y={height - 4} text-anchor="middle">{fill(t.barOf, { count: each })}</text>}
        </svg>
      )}
    </div>
  );
}

// ---- Why the device waits: the facts, until there is advice

const WHY: Record<string, "why_host" | "why_launch" | "why_data" | "why_sync" | "why_comm" | "why_unknown"> = {
  "host-bound": "why_host", "launch latency": "why_launch", "data wait": "why_data", sync: "why_sync", communication: "why_comm", unknown: "why_unknown",
};

/** A number of gaps, as a link to them: the longest first, each with its place on the timeline. A report cannot be asked. */
function gapLink(cause: string, device: number, said: string): ComponentChildren {
  if (source().still) return said;
  const where = [`cause = '${cause}'`, rank() !== null && `rank = ${rank()}`, Number.isFinite(device) && `device = ${device}`].filter(Boolean).join(" and ");
  return <a href={link({ page: "query", params: { sql: `select start_ns, dur_ns, step, host_activity, next_kernel, share_of_step from gaps\nwhere ${where}\norder by dur_ns desc` } })}>{said}</a>;
}

function WhyCard({ now, causes }: { now: Info; causes: Asked<Table> }) {
  const t = text();
  if (causes.data && causes.data.rows === 0) return null;
  return (
    <Card title={fill(t.why, { device: deviceWord(now) ?? t.device })} note={t.whyNote}>
      <Await of={causes} rows={3}>
        {(data) => {
          const devices = new Set(data.num("device")).size;
          const most = Math.max(...data.num("total_ns"));
          return (
            <table>
              <tbody>
                {data.where((row) => row < 12).map((row) => {
                  const cause = data.str("cause")[row] ?? "";
                  return (
                    <tr key={row}>
                      <td title={fill(t.longest, { time: units.text(units.time(data.num("max_ns")[row])) })}>{t[WHY[cause] ?? "why_unknown"]}{devices > 1 && <span class="d3"> · {data.num("device")[row]}</span>}</td>
                      <td class="d3 wide">{gapLink(cause, data.num("device")[row], data.num("gaps")[row] === 1 ? t.oneGap : fill(t.gapsCount, { count: units.count(data.num("gaps")[row]).value }))}</td>
                      <td class="ov-why"><InlineBar share={data.num("total_ns")[row] / most} color={cause === "data wait" ? "var(--kind-wait)" : cause === "communication" ? "var(--kind-communication)" : "var(--text-3)"} /></td>
                      <td><Time ns={data.num("total_ns")[row]} /></td>
                      <td class="b"><Share of={data.num("share")[row]} /></td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          );
        }}
      </Await>
    </Card>
  );
}

// ---- Data preparation

function Preparation({ now, overview }: { now: Info; overview: Table }) {
  const t = text();
  const queues = useTable("data_queues", { per_step: 0 });
  const share = overview.rows ? overview.num("input_wait_share")[0] : NaN;
  const recorded = (now.kinds.data ?? 0) > 0 || (now.tables.pipeline ?? 0) > 0 || (queues.data?.rows ?? 0) > 0;
  const slow = share >= 0.05;
  const chip = recorded && Number.isFinite(share) ? <Chip tone={slow ? (share >= 0.2 ? "bad" : "warn") : "good"}>{slow ? (share >= 0.2 ? t.slow : t.waits) : t.keepsUp}</Chip> : undefined;
  return (
    <Card title={t.preparation} tools={<>{chip}<a href={link({ page: "data" })}>{t.queues}</a></>}>
      <Await of={queues} rows={3}>
        {(data) => {
          if (!recorded) return <Empty title={t.noData} height={84}><code class="mono">{t.noDataHow}</code></Empty>;
          const wait = (overview.num("step_ns")[0] ?? NaN) * share;
          const queue = data.rows ? 0 : -1;
          const [depth, capacity, empty, batches] = ["depth", "capacity", "empty", "batches"].map((name) => (queue < 0 ? NaN : data.num(name)[queue]));
          return (
            <>
              <p class="d2 small"><Say of={Number.isFinite(share) ? (slow ? t.notReady : t.readyAlways) : empty >= 0 ? t.queueOnly : t.notKnown} empty={<b>{units.count(empty).value}</b>} all={units.count(batches).value} wait={<b><Time ns={wait} /></b>} share={<b><Share of={share} /></b>} /></p>
              <div class="ov-flow">
                <div>{queue >= 0 ? data.str("queue")[queue] : t.loader}<b>{queue >= 0 ? (batches === 1 ? t.oneBatch : fill(t.batches, { count: units.count(batches).value })) : now.framework === "pytorch" ? "DataLoader" : t.notRecorded}</b></div>
                <span>→</span>
                <div class={Number.isFinite(depth) ? "" : "off"}>{t.queue}<b>{!Number.isFinite(depth) ? t.notRecorded : Number.isFinite(capacity) ? fill(t.ready, { depth: units.count(depth).value, capacity }) : fill(t.readyOnly, { depth: units.count(depth).value })}</b></div>
                <span>→</span>
                <div>{t.loop}<b>{queue >= 0 ? fill(t.waited, { time: units.text(units.time(data.num("wait_ns")[queue])) }) : <Share of={share} />}</b></div>
              </div>
              {Number.isFinite(share) && Number.isFinite(empty) && <p class="d3 small">{empty ? fill(t.emptyTimes, { count: units.count(empty).value, all: units.count(batches).value }) : t.neverEmpty}</p>}
            </>
          );
        }}
      </Await>
    </Card>
  );
}

// ---- Operator types

const TOP = 10;

function OperatorTypes({ overview }: { overview: Table }) {
  const t = text();
  const types = useTable("operator_types");
  const view = (param("types") ?? "bar") as "bar" | "pie";
  const steps = overview.rows ? overview.num("steps")[0] + overview.num("left_out")[0] : 0;
  const whole = !overview.rows || overview.str("steps_how")[0] === "whole";
  const tools = (
    <>
      <Segmented label={t.view} value={view} onChange={(id) => go({ params: { types: id === "bar" ? null : id } }, true)} choices={[{ id: "bar", label: t.bar }, { id: "pie", label: t.pie }]} />
      <a href={link({ page: "operators" })}>{t.operatorsPage}</a>
    </>
  );
  const device = types.data?.str("device").find((one) => one !== "cpu") ?? types.data?.str("device")[0] ?? "";
  const word = { gpu: "GPU", cpu: "CPU", aicore: "AI Core", aicpu: "AI CPU", hostcpu: "CPU" }[device ?? ""] ?? device ?? "";
  const span = whole ? t.recording : steps === 1 ? t.stepCount : fill(t.stepsCount, { count: units.count(steps).value });
  return (
    <Card class="ov-types" title={t.types} note={types.data?.rows ? fill(t.typesNote, { device: word, steps: span }) : undefined} tools={tools}>
      <Await of={types} rows={11}>
        {(data) => {
          if (!data.rows) return <Empty title={t.noTypes} height={200}>{t.noTypesHow} · <a href={link({ page: "operators" })}>{t.kernelsPage}</a></Empty>;
          const [name, self, share] = [data.str("type"), data.num("self_ns"), data.num("share")];
          const rows = data.where((row) => data.str("device")[row] === device).sort((a, b) => self[b] - self[a]);
          const top = rows.slice(0, rows.length > TOP + 1 ? TOP : rows.length);
          const rest = rows.slice(top.length);
          const restTime = rest.reduce((sum, row) => sum + self[row], 0);
          const restShare = rest.reduce((sum, row) => sum + share[row], 0);
          const more = fill(t.more, { count: rest.length });
          const most = Math.max(self[top[0]], restTime);
          const unit = units.timeUnit(self[top[0]]);
          const list = (bars: boolean) => (
            <div class="ov-list" style={{ maxHeight: `${(top.length + Number(rest.length > 0)) * 34}px` }}>
              {top.map((row) => (
                <a key={row} class="ov-rank" href={link({ page: "operators", params: { sel: JSON.stringify([name[row]]) } })}>
                  <span class="mono cut" title={name[row] ?? ""}>{!bars && <><Swatch color={color(name[row] ?? "")} /> </>}{name[row]}</span>
                  {bars ? <InlineBar share={self[row] / most} color={color(name[row] ?? "", true)} /> : <span />}
                  <span class="r"><Time ns={self[row]} unit={unit} /></span>
                  <span class="r d2"><Share of={share[row]} /></span>
                </a>
              ))}
              {rest.length > 0 && (
                <a class="ov-rank" href={link({ page: "operators" })}>
                  <span class="d2">{!bars && <><Swatch color="var(--border-strong)" /> </>}{more}</span>
                  {bars ? <InlineBar share={restTime / most} color="var(--border-strong)" /> : <span />}
                  <span class="r"><Time ns={restTime} unit={unit} /></span>
                  <span class="r d2"><Share of={restShare} /></span>
                </a>
              )}
            </div>
          );
          if (view === "bar") return list(true);
          const total = units.time(rows.reduce((sum, row) => sum + self[row], 0));
          const slices = [...top.map((row) => ({ name: name[row] ?? "–", value: self[row], color: color(name[row] ?? "") })), ...(rest.length ? [{ name: more, value: restTime, color: "var(--border-strong)" }] : [])];
          return <div class="ov-pie"><Ring slices={slices} total={total.value} unit={total.unit} size={200} label={t.types} onPick={(picked) => go({ page: "operators", params: { sel: picked === more ? null : JSON.stringify([picked]) } })} />{list(false)}</div>;
        }}
      </Await>
    </Card>
  );
}

// ---- Device activity

function Activity({ now }: { now: Info }) {
  const t = text();
  const activity = useTable("activity");
  const steps = useTable("step_trace", { columns: "rank,step,start_ns,end_ns,total_ns" });
  const bucket = activity.data?.rows ? units.text(units.time(activity.data.num("bucket_ns")[0])) : "…";
  const memory = activity.data ? !activity.data.blank("allocated_bytes") : true;
  return (
    <Card title={onDevice(now) ? t.activity : t.activityHost} note={activity.data?.rows === 0 ? undefined : fill(memory ? t.activityNote : t.activityNoMemory, { bucket })} tools={<a href={link({ page: "timeline" })}>{t.timeline}</a>}>
      <Await of={activity} rows={8}>
        {(data) => (data.rows ? <ActivityPlot now={now} data={data} steps={steps.data} /> : <Empty title={t.noActivity}>{t.noActivityHow}</Empty>)}
      </Await>
    </Card>
  );
}

function ActivityPlot({ now, data, steps }: { now: Info; data: Table; steps: Table | null }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const [cursor, setCursor] = useState<number | null>(null);
  const drag = useRef<number | null>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  const devices = useMemo(() => [...new Set(Array.from(data.num("device"), String))], [data]);
  const lanes = devices.slice(0, 8).map((device) => data.where((row) => String(data.num("device")[row]) === device));
  const [at, wide, busy, allocated, reserved] = [data.num("at_ns"), data.num("bucket_ns"), data.num("busy_share"), data.num("allocated_bytes"), data.num("reserved_bytes")];
  const left = 56, right = 10, top = 20;
  const tall = lanes.length > 1 ? 44 : 84;
  const lower = lanes.length > 1 ? 0 : data.blank("allocated_bytes") ? 0 : 104;
  const height = top + lanes.length * (tall + 8) + (lower ? lower + 12 : 0) + 18;
  const first = lanes[0];
  const [from, to] = [at[first[0]], at[first[first.length - 1]] + wide[first[0]]];
  const inner = Math.max(1, width - left - right);
  const x = (ns: number) => left + ((ns - from) / (to - from)) * inner;
  const when = (event: { clientX: number }) => {
    const share = (event.clientX - box.current!.getBoundingClientRect().left - left) / inner;
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  };
  const indexAt = (ns: number) => Math.max(0, Math.min(first.length - 1, Math.floor((ns - from) / wide[first[0]])));
  const open = (t0: number, t1: number) => go({ page: "timeline", params: { t0: Math.round(t0), t1: Math.round(t1) } });
  const unit = units.timeUnit(to - from);
  // As on the other pages, since the recording began.
  const marks = units.ticks(units.timeIn(from, unit), units.timeIn(to, unit), Math.max(3, Math.floor(inner / 180)));
  const scale = (to - from) / units.timeIn(to - from, unit);
  const rules = steps ? Array.from(steps.num("start_ns"), (start, row) => ({ x: x(start), name: fill(t.stepName, { step: steps.num("step")[row] }) })).filter((rule) => rule.x >= left - 1) : [];
  let free = -Infinity;
  const most = Math.max(0, ...first.map((row) => allocated[row]).filter(Number.isFinite));
  const held = Math.max(0, ...first.map((row) => reserved[row]).filter(Number.isFinite));
  const memoryTop = top + lanes.length * (tall + 8) + 8;
  // What is reserved many times over would leave the curve a line at the bottom: it is said, not drawn.
  const far = held > 8 * most && most > 0;
  const ceiling = (far ? most * 1.25 : Math.max(most, held) * 1.08) || 1;
  const y = (bytes: number) => memoryTop + (1 - bytes / ceiling) * lower;
  const peak = first.find((row) => allocated[row] === most);
  const curve = first.filter((row) => Number.isFinite(allocated[row]));
  const line = curve.map((row, index) => `${index ? "L" : "M"}${x(at[row]).toFixed(1)} ${y(allocated[row]).toFixed(1)}H${x(at[row] + wide[row]).toFixed(1)}`).join("");
  const tell = (event: { clientX: number; clientY: number }, index: number) => {
    const row = first[index];
    tip(event, (
      <dl>
        <dt>{t.at}</dt><dd>{units.text(units.time(at[row]))}</dd>
        {lanes.map((rows, lane) => [<dt key={`t${lane}`}>{lanes.length > 1 ? fill(t.deviceNumber, { device: deviceWord(now) ?? t.device, number: devices[lane] }) : onDevice(now) ? t.busy : t.busyHost}</dt>, <dd key={`d${lane}`}><b>{units.text(units.share(busy[rows[index]]))}</b></dd>])}
        {lower > 0 && [<dt key="ta">{t.allocated}</dt>, <dd key="da">{units.text(units.bytes(allocated[row]))}</dd>]}
        {lower > 0 && Number.isFinite(reserved[row]) && [<dt key="tr">{t.reservedWord}</dt>, <dd key="dr">{units.text(units.bytes(reserved[row]))}</dd>]}
      </dl>
    ));
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25 }[event.key];
    if (by) {
      const next = Math.max(0, Math.min(first.length - 1, (cursor ?? -1) + by));
      setCursor(next);
      const place = box.current!.getBoundingClientRect();
      tell({ clientX: place.left + x(at[first[next]]), clientY: place.top + top }, next);
    } else if (event.key === "Enter" && cursor !== null) open(at[first[cursor]], at[first[cursor]] + wide[first[cursor]]);
    else if (event.key === "Escape") { setCursor(null); untip(); }
    else return;
    event.preventDefault();
  };
  return (
    <div
      ref={box}
      class="ov-activity click"
      style={{ height: `${height}px` }}
      tabIndex={0}
      role="application"
      aria-label={`${onDevice(now) ? t.activity : t.activityHost}. ${t.openHere}`}
      onKeyDown={keys}
      onBlur={() => { setCursor(null); untip(); }}
      onPointerDown={(event) => { drag.current = when(event); box.current!.setPointerCapture(event.pointerId); }}
      onPointerMove={(event) => {
        const moment = when(event);
        setCursor(indexAt(moment));
        tell(event, indexAt(moment));
        if (drag.current !== null && Math.abs(x(moment) - x(drag.current)) > 4) setRange([Math.min(drag.current, moment), Math.max(drag.current, moment)]);
      }}
      onPointerUp={(event) => {
        const row = first[indexAt(when(event))];
        if (range) open(range[0], range[1]);
        else if (drag.current !== null) open(at[row], at[row] + wide[row]);
        drag.current = null;
        setRange(null);
        untip();
      }}
      onPointerLeave={() => { if (drag.current === null) { setCursor(null); untip(); } }}
    >
      {width > 0 && (
        <svg width={width} height={height} aria-hidden="true">
          {lanes.map((rows, lane) => {
            const base = top + lane * (tall + 8);
            return (
              <g key={lane}>
                <line class="gl" x1={left} x2={width - right} y1={base} y2={base} />
                <line class="ax" x1={left} x2={width - right} y1={base + tall + 0.5} y2={base + tall + 0.5} />
                <text class="axis" x={left - 6} y={base + 4} text-anchor="end">{lanes.length > 1 ? fill(t.deviceNumber, { device: deviceWord(now) ?? "", number: devices[lane] }) : "100 %"}</text>
                {lanes.length === 1 && <text class="axis" x={left - 6} y={base + tall + 2} text-anchor="end">0</text>}
                {columns(data, rows, x, base, tall).map(({ color, path }) => <path key={color} d={path} fill={color} />)}
              </g>
            );
          })}
          {lower > 0 && (
            <g>
              {units.ticks(0, ceiling, 3).map((tick) => <g key={tick}><line class="gl" x1={left} x2={width - right} y1={y(tick)} y2={y(tick)} /><text class="axis" x={left - 6} y={y(tick) + 4} text-anchor="end">{tick === 0 ? "0" : units.text(units.bytes(tick)).replace(/\.0+(?=\D)/, "")}</text></g>)}
              {curve.length > 0 && <path d={`${line}V${y(0)}H${x(at[curve[0]]).toFixed(1)}z`} fill="var(--kind-compute)" fill-opacity=".12" />}
              <path class="ln" d={line} stroke="var(--kind-compute)" />
              {held > 0 && !far && <line class="ru" x1={left} x2={width - right} y1={y(held)} y2={y(held)} stroke="var(--text-2)" />}
              {held > 0 && <text class="axis" x={width - right} y={(far ? memoryTop + 8 : y(held)) - 4} text-anchor="end">{fill(t.reserved, { bytes: units.text(units.bytes(held)) })}{far && " ↑"}</text>}
              {peak !== undefined && <text x={Math.min(x(at[peak]) + 12, width - 100)} y={Math.min(y(most) + 11, memoryTop + lower - 4)} font-size="11" font-weight="600" fill="var(--text)" paint-order="stroke" stroke="var(--surface)" stroke-width="3">{fill(t.peakLabel, { bytes: units.text(units.bytes(most)) })}</text>}
            </g>
          )}
          {rules.map((rule, index) => {
            const clear = rule.x > free && rule.x + wideOf(rule.name) < width;
            if (clear) free = rule.x + rule.name.length * 7 + 8;
            return rules.length > 80 && !clear ? null : <g key={index}><line x1={rule.x} x2={rule.x} y1={clear ? 8 : top} y2={height - 18} stroke="var(--border-strong)" stroke-opacity={clear ? 1 : 0.5} />{clear && <text class="axis" x={rule.x + 4} y={14}>{rule.name}</text>}</g>;
          })}
          {marks.map((mark, index) => <text key={mark} class="axis" x={x(mark * scale)} y={height - 4} text-anchor={index === 0 ? "start" : "middle"}>{+mark.toPrecision(9)}{index === 0 && ` ${unit}`}</text>)}
          {range && <rect class="ov-select" x={x(range[0])} width={x(range[1]) - x(range[0])} y={top} height={height - top - 18} />}
          {cursor !== null && <line x1={x(at[first[cursor]] + wide[first[0]] / 2)} x2={x(at[first[cursor]] + wide[first[0]] / 2)} y1={top} y2={height - 18} stroke="var(--text-3)" stroke-dasharray="3 3" />}
        </svg>
      )}
    </div>
  );
}
