// page: {"order": 30, "group": "performance", "icon": "steps", "en": "Step trace", "zh": "迭代轨迹", "needs": ["steps"]}
/** One step, or the average one: its stages and transfers in order; and every step, with how far they differ. */
import { useMemo, useState } from "preact/hooks";
import { counting, everyStep, info, ranged, useTable } from "../data";
import { Await, Card, Chip, Empty, Legend, Loading, Segmented, Share, Swatch, Time, Trouble, useWidth, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { Menu } from "../parts/menu";
import { Histogram, StepBars, StepLine, wideOf, type Part } from "../parts/plots";
import { tip, untip } from "../parts/tip";
import { PageLink } from "../reachable";
import { source } from "../source";
import { go, link, param } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./steps.css";

const text = texts({
  en: {
    many: "Steps take {p50}; the slowest 1 % take {p99} or more. {stage} {share} of the step.",
    few: "Steps take {p50}, between {min} and {max}. {stage} {share} of the step.",
    waiting: "Steps take {p50}, and {share} of each passes before the forward pass starts.",
    tailing: "Steps take {p50}. {share} of their time is tail: transfers run {exposed} a step with nothing to hide them.",
    skewed: "Steps take {p50} at the median but {mean} on average: a few are far slower, up to {max}.",
    whole: "Steps take {p50}; the slowest 1 % take {p99} or more. They are not divided: the recording does not show where the forward pass starts.",
    wholeFew: "Steps take {p50}, between {min} and {max}. They are not divided: the recording does not show where the forward pass starts.",
    alone: "The one step that was recorded took {p50}.",
    wholeRun: "No steps were marked: the whole recording, {p50}, counts as one.",
    stepOver: "Step {step} took {total}, {delta} over the median. Most of that is in {stage}: {part} more.",
    stepUnder: "Step {step} took {total}, {delta} under the median.",
    stepSame: "Step {step} took {total}, as the median does. {stage} {share} of it.",
    stepTail: "Step {step} took {total}, {delta} over the median. {share} of it is tail: transfers run {exposed} with nothing to hide them.",
    stepOut: "Step {step} took {total}: {times} times the median. It is the first, and left out of the figures.",
    stepWhole: "Step {step} took {total}; the median is {p50}.",
    isFpBp: "Forward and backward are", isTail: "The tail is", isInterval: "The interval before the forward pass is",
    inInterval: "the interval", inFpBp: "forward and backward", inTail: "the tail",
    counted: "{count} [step|steps]", countedOne: "1 step", outOne: "step {step} ({total}) left out as warm-up", keep: "count it", leave: "leave it out", kept: "the first step counts too",
    clockHost: "host clock", clockDevice: "device clock", clockSource: "times as recorded", ranged: "steps {range} only", allSteps: "all steps",
    average: "Average", one: "One step", which: "Average or one step", earlier: "Earlier step", later: "Later step", step: "Step", of: "of {count}",
    fpAt: "Forward starts at", bpAt: "Backward ends at", unknown: "not found", recorded: "as recorded", auto: "Found automatically", search: "Operator, range or kernel",
    found: "found by {how}", and: ", ", found_given: "name", found_given_kernel: "kernel's name", found_range: "ranges", found_module: "modules", found_first_op: "the first operator", found_autograd: "autograd", found_last_op: "the last operator", found_none: "nothing", chosen: "chosen here", more: "{count} more: type to narrow", none: "Nothing in this step has such a name.", firstStart: "first starts at", lastEnd: "last ends at",
    marker: "Step marker", asRecorded: "as recorded", inferredSteps: "annotations", givenSteps: "chosen", noMarker: "none", recordedMarker: "As recorded", markerSearch: "Annotation, function, operator or kernel",
    markerTitle: "{name}: {regular} of the intervals are alike; steps would cover {covered} of the recording", times: "{count} [time|times]", everyInterval: "every", markerEnter: "Enter takes this name.", nothingRepeats: "Nothing repeats in this recording.",
    kind_annotation: "annotation", kind_function: "function", kind_operator: "operator", kind_kernel: "kernel",
    clock: "Clock", host: "Host", device: "Device",
    every: "Every step", everyNote: "click to choose one, drag to keep a range", bandNote: "each column is several steps: the slowest tinted, the fastest solid",
    fpBp: "Forward and backward", tail: "Tail", interval: "Interval", undivided: "Not divided", total: "Step", gap: "Between steps", median: "median",
    order: "Step {step}, in order", orderAverage: "The average step, in order", orderNote: "{count}: outlined is the share that computation hides, solid the exposed share",
    orderNone: "no transfers between ranks", exposed: "exposed {time}", open: "Open in timeline", stages: "Stages",
    forwardStarts: "forward starts", backwardEnds: "backward ends", forwardEnds: "last operator ends", lastEnds: "last transfer ends", stepEnds: "step ends",
    hiddenShort: "hidden", exposedShort: "exposed", beyond: "after the step", moreStreams: "{count} [more stream|more streams]", fewerStreams: "Fewer streams",
    intervalHead: "Step interval", intervalNote: "before the forward pass: waiting for data", fpBpNote: "the network itself", tailHead: "Step tail", tailNote: "aggregation and update",
    against: "against median {p50}", ofStep: "{share} of step", average1: "on average; median {p50}", toData: "Data preparation", toOperators: "Operators", toCommunication: "Communication",
    distribution: "Distribution", histogram: "Histogram", cumulative: "Cumulative", shown: "What is shown", how: "How it is shown",
    stage: "Stage", starts: "Starts", ends: "Ends", takes: "Takes", mean: "Mean", share: "Share", slowest: "Slowest", fastest: "Fastest",
    stagesTitle: "Stages", stagesOf: "when each starts and ends, from the start of the step",
    transfers: "Transfers", transfersOf: "of step {step}", transfersAverage: "mean over the steps that have each", stream: "Stream", name: "Name", bytes: "Bytes", hidden: "Hidden", exposedHead: "Exposed",
    table: "All steps", steps: "step|steps", transfersCount: "{count} [transfer|transfers]", transferOne: "1 transfer", whatTransfers: "transfer|transfers", start: "Start", fpOp: "Forward starts at", bpOp: "Backward ends at", marked: "Marked", foundBy: "Found by", timeline: "Timeline", clockHead: "Clock", show: "Show",
    noSteps: "No steps were found", noStepsHow: "Call profiler.step() at the end of each, or let stepscope run find them.",
    noStep: "There is no step {step} here.", backToAverage: "Show the average",
    undividedHow: "Choose the operator that starts the forward pass above, and the one that ends the backward pass.",
    among: "slowest of {count} [step|steps] here",
  },
  zh: {
    many: "每个迭代耗时 {p50}；最慢的 1 % 达到 {p99} 或更长。{stage}占迭代的 {share}。",
    few: "每个迭代耗时 {p50}，介于 {min} 与 {max} 之间。{stage}占迭代的 {share}。",
    waiting: "每个迭代耗时 {p50}，其中 {share} 在前向计算开始之前就已过去。",
    tailing: "每个迭代耗时 {p50}。其中 {share} 是拖尾：每个迭代有 {exposed} 的通信没有被计算掩盖。",
    skewed: "迭代耗时的中位数是 {p50}，平均却是 {mean}：少数迭代慢得多，最慢 {max}。",
    whole: "每个迭代耗时 {p50}；最慢的 1 % 达到 {p99} 或更长。无法分段：记录中看不出前向计算从哪里开始。",
    wholeFew: "每个迭代耗时 {p50}，介于 {min} 与 {max} 之间。无法分段：记录中看不出前向计算从哪里开始。",
    alone: "只记录了一个迭代，耗时 {p50}。",
    wholeRun: "没有标记迭代：整个记录（{p50}）算作一个。",
    stepOver: "迭代 {step} 耗时 {total}，比中位数多 {delta}。主要差在{stage}：多出 {part}。",
    stepUnder: "迭代 {step} 耗时 {total}，比中位数少 {delta}。",
    stepSame: "迭代 {step} 耗时 {total}，与中位数相同。{stage}占 {share}。",
    stepTail: "迭代 {step} 耗时 {total}，比中位数多 {delta}。其中 {share} 是拖尾：通信有 {exposed} 没有被计算掩盖。",
    stepOut: "迭代 {step} 耗时 {total}，是中位数的 {times} 倍。它是第一个迭代，不计入各项数值。",
    stepWhole: "迭代 {step} 耗时 {total}；中位数为 {p50}。",
    isFpBp: "前向与反向", isTail: "拖尾", isInterval: "前向之前的间隔",
    inInterval: "间隔", inFpBp: "前向与反向", inTail: "拖尾",
    counted: "{count} 个迭代", countedOne: "1 个迭代", outOne: "迭代 {step}（{total}）作为预热不计入", keep: "计入", leave: "不计入", kept: "第一个迭代也计入",
    clockHost: "主机时钟", clockDevice: "设备时钟", clockSource: "按记录的时间", ranged: "仅迭代 {range}", allSteps: "全部迭代",
    average: "平均", one: "单个迭代", which: "平均或单个迭代", earlier: "前一个迭代", later: "后一个迭代", step: "迭代", of: "共 {count}",
    fpAt: "前向起始于", bpAt: "反向结束于", unknown: "未找到", recorded: "按记录", auto: "自动查找", search: "算子、范围或内核",
    found: "依据：{how}", and: "、", found_given: "名称", found_given_kernel: "内核名称", found_range: "范围", found_module: "模块", found_first_op: "首个算子", found_autograd: "autograd", found_last_op: "最后一个算子", found_none: "无", chosen: "在此选定", more: "还有 {count} 个：输入以缩小范围", none: "此迭代中没有这样的名称。", firstStart: "首次开始于", lastEnd: "最后结束于",
    marker: "迭代标记", asRecorded: "按记录", inferredSteps: "标注", givenSteps: "已选定", noMarker: "无", recordedMarker: "按记录", markerSearch: "标注、函数、算子或内核",
    markerTitle: "{name}：{regular} 的间隔相近；迭代将覆盖记录的 {covered}", times: "{count} 次", everyInterval: "每", markerEnter: "按回车使用此名称。", nothingRepeats: "该记录中没有重复的内容。",
    kind_annotation: "标注", kind_function: "函数", kind_operator: "算子", kind_kernel: "内核",
    clock: "时钟", host: "主机", device: "设备",
    every: "每个迭代", everyNote: "点击选择一个，拖动保留一个范围", bandNote: "每列是多个迭代：最慢的为浅色，最快的为实色",
    fpBp: "前向与反向", tail: "拖尾", interval: "间隔", undivided: "未分段", total: "迭代", gap: "迭代之间", median: "中位数",
    order: "迭代 {step} 的先后顺序", orderAverage: "平均迭代的先后顺序", orderNote: "{count}：描边部分被计算掩盖，实色部分未被掩盖",
    orderNone: "没有卡间通信", exposed: "未掩盖 {time}", open: "在时间线中打开", stages: "阶段",
    forwardStarts: "前向开始", backwardEnds: "反向结束", forwardEnds: "最后一个算子结束", lastEnds: "最后一次通信结束", stepEnds: "迭代结束",
    hiddenShort: "被掩盖", exposedShort: "未掩盖", beyond: "迭代之后", moreStreams: "还有 {count} 个流", fewerStreams: "收起",
    intervalHead: "迭代间隔", intervalNote: "前向之前：等待数据", fpBpNote: "网络本身", tailHead: "迭代拖尾", tailNote: "梯度聚合与更新",
    against: "相对中位数 {p50}", ofStep: "占迭代 {share}", average1: "平均值；中位数 {p50}", toData: "数据准备", toOperators: "算子", toCommunication: "通信",
    distribution: "分布", histogram: "直方图", cumulative: "累积", shown: "显示内容", how: "显示方式",
    stage: "阶段", starts: "开始", ends: "结束", takes: "耗时", mean: "平均", share: "占比", slowest: "最慢", fastest: "最快",
    stagesTitle: "阶段", stagesOf: "各阶段的开始与结束，从迭代开始算起",
    transfers: "通信", transfersOf: "迭代 {step}", transfersAverage: "对含有它的迭代取平均", stream: "流", name: "名称", bytes: "字节", hidden: "被掩盖", exposedHead: "未掩盖",
    table: "全部迭代", steps: "个迭代", transfersCount: "{count} 次通信", transferOne: "1 次通信", whatTransfers: "次通信", start: "开始", fpOp: "前向起始算子", bpOp: "反向结束算子", marked: "标记方式", foundBy: "查找依据", timeline: "时间线", clockHead: "时钟", show: "查看",
    noSteps: "没有找到迭代", noStepsHow: "在每个迭代结束时调用 profiler.step()，或用 stepscope run 自动识别。",
    noStep: "这里没有迭代 {step}。", backToAverage: "显示平均",
    undividedHow: "请在上方选择前向计算的起始算子和反向计算的结束算子。",
    among: "此处 {count} 个迭代中最慢的",
  },
});

const PARTS = [
  { key: "fp_bp_ns", stage: "forward and backward", color: "var(--kind-compute)", word: "fpBp", is: "isFpBp", in: "inFpBp" },
  { key: "tail_ns", stage: "tail", color: "var(--kind-communication)", word: "tail", is: "isTail", in: "inTail" },
  { key: "interval_ns", stage: "interval", color: "var(--kind-wait)", word: "interval", is: "isInterval", in: "inInterval" },
] as const;
const MARKS = ["p50", "p90", "p99"] as const;

export default function Steps() {
  const t = text();
  const given = { fp_start: param("fp_start"), bp_end: param("bp_end"), clock: param("clock") };
  const trace = useTable("step_trace", given);
  const times = useTable("step_times", { ...given, ...counting() });
  if (info.value && info.value.steps.length === 0) {
    return (
      <>
        <Verdict>{t.noSteps}</Verdict>
        <Empty title={t.noSteps} height={200}>{t.noStepsHow}</Empty>
      </>
    );
  }
  // A name that nothing has: say so, with the way back still there.
  const error = trace.error ?? times.error;
  if (error) return <><Trouble error={error} /><Controls table={trace.data} at={null} found="" /></>;
  if (!trace.data || !times.data) return <Loading rows={12} />;
  return <div class={`stack ${trace.waiting || times.waiting ? "stale" : "fresh"}`} aria-busy={trace.waiting}><Whole trace={trace.data} times={times.data} /></div>;
}

/** The figures of one stage, as `step_times` has them. */
type Figures = Record<"steps" | "left_out" | "mean_ns" | "min_ns" | "p50_ns" | "p90_ns" | "p99_ns" | "max_ns" | "share", number>;

function figures(times: Table): Map<string, Figures> {
  const names = ["steps", "left_out", "mean_ns", "min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns", "share"] as const;
  return new Map(times.str("stage").map((stage, row) => [stage ?? "", Object.fromEntries(names.map((name) => [name, times.num(name)[row]])) as Figures]));
}

function Whole({ trace, times }: { trace: Table; times: Table }) {
  const t = text();
  const steps = trace.num("step");
  const total = trace.num("total_ns");
  const of = useMemo(() => figures(times), [times]);
  const step = of.get("step");
  const wanted = param("sel");
  const selected = wanted === undefined ? null : steps.indexOf(Number(wanted));
  const at = selected === null || selected < 0 ? null : selected;
  const [hovered, setHovered] = useState<number | null>(null);
  const leftOut = useMemo(() => new Set(Array.from({ length: Math.max(0, steps.length - (step?.steps ?? steps.length)) }, (_, first) => first)), [steps, step]);
  const divided = !trace.blank("fp_bp_ns");
  const parts = useMemo(() => {
    const found: Part[] = PARTS.map((part) => ({ label: t[part.word], color: part.color, values: trace.num(part.key) }));
    const bare = total.map((value, row) => (Number.isFinite(trace.num("fp_bp_ns")[row]) ? NaN : value));
    if (bare.some(Number.isFinite)) found.push({ label: t.undivided, color: "var(--op-other)", values: bare });
    return found.filter((part) => Array.from(part.values).some(Number.isFinite));
  }, [trace, t]);
  const clock = param("clock");
  const reduces = useTable("reduces", {}, { skip: !(info.value?.kinds.communication) });
  const overlap = useTable("overlap", {}, { skip: at === null || !(info.value?.kinds.communication) });
  const means = useTable("reduces_per_step", { ...counting(), clock }, { skip: at !== null || !(info.value?.kinds.communication) });
  const transfers = useMemo(() => (at === null ? averaged(means.data) : ofStep(reduces.data, trace, at)), [at, means.data, reduces.data, trace]);
  const pick = (place: number | null) => go({ params: { sel: place === null ? null : steps[place] } });
  const exposed = at === null ? (of.get("exposed communication")?.mean_ns ?? 0) : exposedIn(overlap.data, steps[at]);
  const say = (place: number, among: number) => (
    <>
      <b>{t.step} {units.count(steps[place]).value}</b> {among > 1 && <span class="d3">{fill(t.among, { count: among })}</span>}
      <dl>
        <dt>{t.total}</dt><dd><Time ns={total[place]} /></dd>
        {PARTS.map((part) => Number.isFinite(trace.num(part.key)[place]) && [<dt key={part.key}>{t[part.word]}</dt>, <dd key={`${part.key}v`}><Time ns={trace.num(part.key)[place]} /></dd>])}
      </dl>
    </>
  );
  const shared = { steps, leftOut, selected: at, hovered, onHover: setHovered, onPick: pick, say };
  const range = ranged();
  return (
    <>
      <Verdict
        facts={[
          step && (step.steps === 1 ? t.countedOne : fill(t.counted, { count: units.count(step.steps).value })),
          leftOut.size > 0 && <>{fill(t.outOne, { step: Array.from(leftOut, (place) => steps[place]).join(", "), total: units.text(units.time(total[0])) })} <button class="aslink" onClick={() => go({ params: { warmup: "keep" } })}>{t.keep}</button></>,
          param("warmup") === "keep" && <>{t.kept} <button class="aslink" onClick={() => go({ params: { warmup: null } })}>{t.leave}</button></>,
          trace.str("how")[0] === "whole" && t.noStepsHow,
          range && <>{fill(t.ranged, { range: range.replace(":", "–") })} <button class="aslink" onClick={() => go({ params: { steps: everyStep() } })}>{t.allSteps}</button></>,
          { host: t.clockHost, device: t.clockDevice, source: t.clockSource }[trace.str("clock")[0] ?? ""],
        ]}
      >
        <Sentence trace={trace} of={of} at={at} leftOut={leftOut} exposed={exposed} />
      </Verdict>
      <Controls table={trace} at={at} found={found(trace, at)} />
      {selected !== null && selected < 0 && <Empty title={fill(t.noStep, { step: wanted ?? "" })} height={60}><a href={link({ params: { sel: null } })}>{t.backToAverage}</a></Empty>}
      <Card title={t.every} note={steps.length > 600 ? `${t.everyNote}; ${t.bandNote}` : t.everyNote} tools={<Legend of={parts.map((part) => ({ label: part.label, color: part.color }))} />} flush>
        <StepBars {...shared} parts={parts} total={total} median={step?.p50_ns} onRange={(first, last) => go({ params: { steps: `${steps[first]}:${steps[last]}` } })} label={t.every} />
      </Card>
      <InOrder trace={trace} of={of} at={at} transfers={transfers} exposed={exposed} />
      {divided ? (
        <div class="three">
          <Stage {...shared} trace={trace} of={of} which={2} head={t.intervalHead} note={t.intervalNote} to={{ page: "data", label: t.toData }} />
          <Stage {...shared} trace={trace} of={of} which={0} head={t.fpBp} note={t.fpBpNote} to={{ page: "operators", label: t.toOperators }} />
          <Stage {...shared} trace={trace} of={of} which={1} head={t.tailHead} note={t.tailNote} to={{ page: "communication", label: t.toCommunication }} />
        </div>
      ) : (
        <Empty title={t.undivided} height={60}>{t.undividedHow}</Empty>
      )}
      <div class="two wide">
        <Distribution trace={trace} of={of} at={at} leftOut={leftOut} />
        <Card title={t.stagesTitle} note={t.stagesOf} flush><StageTable trace={trace} of={of} at={at} /></Card>
      </div>
      {transfers.length > 0 && <TransferTable transfers={transfers} note={at === null ? t.transfersAverage : fill(t.transfersOf, { step: steps[at] })} />}
      <AllSteps trace={trace} selected={at === null ? null : String(steps[at])} />
    </>
  );
}

/** What a tired person can act on, by what is the case. */
function Sentence({ trace, of, at, leftOut, exposed }: { trace: Table; of: Map<string, Figures>; at: number | null; leftOut: Set<number>; exposed: number }) {
  const t = text();
  const step = of.get("step");
  if (!step) return <>{t.noSteps}</>;
  const time = (ns: number) => <b><Time ns={ns} /></b>;
  const share = (part: number) => <b><Share of={part} /></b>;
  if (at === null) {
    const known = PARTS.map((part) => ({ part, share: of.get(part.stage)?.share ?? NaN })).filter((one) => Number.isFinite(one.share));
    const largest = known.sort((a, b) => b.share - a.share)[0];
    const common = { p50: time(step.p50_ns), p99: time(step.p99_ns), min: time(step.min_ns), max: time(step.max_ns) };
    if (step.steps === 1) return <Say of={trace.str("how")[0] === "whole" ? t.wholeRun : t.alone} {...common} />;
    if (!largest) return <Say of={step.steps < 20 ? t.wholeFew : t.whole} {...common} />;
    const [interval, tail] = [of.get("interval")?.share ?? 0, of.get("tail")?.share ?? 0];
    if (step.mean_ns > 1.25 * step.p50_ns) return <Say of={t.skewed} {...common} mean={time(step.mean_ns)} />;
    if (interval > 0.25) return <Say of={t.waiting} {...common} share={share(interval)} />;
    if (tail > 0.25 && exposed > 0.05 * step.mean_ns) return <Say of={t.tailing} {...common} share={share(tail)} exposed={time(exposed)} />;
    return <Say of={step.steps < 20 ? t.few : t.many} {...common} stage={t[largest.part.is]} share={share(largest.share)} />;
  }
  const total = trace.num("total_ns")[at];
  const delta = total - step.p50_ns;
  const parts = PARTS.map((part) => ({ part, own: trace.num(part.key)[at], over: trace.num(part.key)[at] - (of.get(part.stage)?.p50_ns ?? NaN) })).filter((one) => Number.isFinite(one.own));
  const common = { step: <b>{units.count(trace.num("step")[at]).value}</b>, total: time(total), delta: time(Math.abs(delta)), p50: time(step.p50_ns) };
  if (leftOut.has(at)) return <Say of={t.stepOut} {...common} times={<b>{(total / step.p50_ns).toFixed(1)}</b>} />;
  if (!parts.length) return <Say of={t.stepWhole} {...common} />;
  const tail = trace.num("tail_ns")[at] / total;
  if (delta > 0 && tail > 0.25 && exposed > 0.05 * total) return <Say of={t.stepTail} {...common} share={share(tail)} exposed={time(exposed)} />;
  if (Math.abs(delta) < 0.005 * step.p50_ns) {
    const largest = parts.sort((a, b) => b.own - a.own)[0];
    return <Say of={t.stepSame} {...common} stage={t[largest.part.is]} share={share(largest.own / total)} />;
  }
  const worst = parts.sort((a, b) => b.over - a.over)[0];
  return delta > 0 ? <Say of={t.stepOver} {...common} stage={t[worst.part.in]} part={time(worst.over)} /> : <Say of={t.stepUnder} {...common} />;
}

/** How forward start and backward end were found, in the analysis' own words. */
function found(trace: Table, at: number | null): string {
  const words = trace.str("found");
  return words[at ?? words.length - 1] ?? "";
}

function Controls({ table, at, found: how }: { table: Table | null; at: number | null; found: string }) {
  const t = text();
  const steps = table?.num("step");
  const device = (info.value?.kinds.kernel ?? 0) > 0 && table?.str("clock")[0] !== "source";
  const last = table ? table.rows - 1 : 0;
  const choose = (place: number) => steps && go({ params: { sel: steps[Math.max(0, Math.min(last, place))] } });
  const named = (column: string) => table?.str(column)[at ?? last] ?? null;
  const mine = param("fp_start") !== undefined || param("bp_end") !== undefined;
  return (
    <div class="steprow">
      <Segmented choices={[{ id: "average", label: t.average }, { id: "one", label: t.one }]} value={at === null ? "average" : "one"} label={t.which} onChange={(id) => (id === "average" ? go({ params: { sel: null } }) : choose(last))} />
      {steps && steps.length > 0 && (
        <>
          <span class="stepper">
            <button aria-label={t.earlier} title={t.earlier} disabled={at === 0} onClick={() => choose((at ?? last + 1) - 1)}>‹</button>
            <input
              type="number"
              aria-label={t.step}
              placeholder="–"
              value={at === null ? "" : steps[at]}
              min={steps[0]}
              max={steps[last]}
              onChange={(event) => go({ params: { sel: event.currentTarget.value || null } })}
            />
            <button aria-label={t.later} title={t.later} disabled={at === last} onClick={() => choose((at ?? -1) + 1)}>›</button>
          </span>
          <span class="d3 small">{fill(t.of, { count: units.count(steps.length).value })}</span>
        </>
      )}
      <span class="sp" />
      {!source().still && <Marker how={table?.str("how")[0] ?? null} />}
      {device && (
        <Segmented
          choices={[{ id: "host", label: t.host }, { id: "device", label: t.device }]}
          value={param("clock") ?? "host"}
          label={t.clock}
          onChange={(id) => go({ params: { clock: id === "host" ? null : id } })}
        />
      )}
      <Operator which="fp_start" label={t.fpAt} now={named("fp_start_op") ?? (how.startsWith("source") ? t.recorded : null)} step={at === null || !steps ? null : steps[at]} />
      <Operator which="bp_end" label={t.bpAt} now={named("bp_end_op") ?? (how.endsWith("source") ? t.recorded : null)} step={at === null || !steps ? null : steps[at]} />
      <span class="d3 small">{mine ? t.chosen : how && !how.includes("source") && how !== "none, none" && fill(t.found, { how: [...new Set(how.split(", "))].map((one) => t[`found_${one.replace(" ", "_")}` as "found_none"] ?? one).join(t.and) })}</span>
    </div>
  );
}

/** What marks the steps: shown, and to be chosen from what repeats in the recording. The choice holds for all pages of the run. */
function Marker({ how }: { how: string | null }) {
  const t = text();
  const given = param("step_name");
  const shown = given ?? (how === "marker" ? t.asRecorded : how === "inferred" ? t.inferredSteps : how === "given" ? t.givenSteps : t.noMarker);
  return (
    <Menu label={`${t.marker} ${shown}`} class="oppick" align="right" button={<><span class="d3">{t.marker}</span><span class="mono" title={shown}>{shown}</span></>}>
      {(close) => <Markers given={given} close={close} />}
    </Menu>
  );
}

function Markers({ given, close }: { given?: string; close: () => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const asked = useTable("step_markers", {}, { allSteps: true });
  const choose = (choice: string | null) => {
    go({ params: { step_name: choice, steps: null, sel: null, fp_start: null, bp_end: null } });
    close();
  };
  return (
    <div class="opmenu">
      <input type="search" placeholder={t.markerSearch} aria-label={t.markerSearch} value={find} onInput={(event) => setFind(event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && find && choose(firstMatch(asked.data?.str("choice"), find))} />
      {!find && <button class={`item ${given === undefined ? "on" : ""}`} onClick={() => choose(null)}>{t.recordedMarker}</button>}
      <Await of={asked} rows={4}>
        {(table) => {
          const names = table.str("choice");
          const rows = table.where((row) => matches(names[row]!, find));
          return (
            <div class="list">
              {rows.map((row) => (
                <button key={row} class={`item ${names[row] === given ? "on" : ""}`} onClick={() => choose(names[row])} title={fill(t.markerTitle, { name: names[row]!, regular: units.text(units.share(table.num("regularity")[row])), covered: units.text(units.share(table.num("covered")[row])) })}>
                  <span class="mono cut">{table.str("name")[row]}</span>
                  <span class="d3 small">{t[`kind_${table.str("kind")[row]}` as "kind_kernel"]} · {fill(t.times, { count: units.count(table.num("count")[row]).value })} · {t.everyInterval} <Time ns={table.num("median_interval_ns")[row]} /></span>
                </button>
              ))}
              {rows.length === 0 && <p class="d3 small">{find ? t.markerEnter : t.nothingRepeats}</p>}
            </div>
          );
        }}
      </Await>
    </div>
  );
}

/** Whether every word that was typed is in the name. */
function matches(name: string, find: string): boolean {
  return find.toLowerCase().split(/\s+/).filter(Boolean).every((word) => name.toLowerCase().includes(word));
}

/** The name that was typed where there is one, else the first that matches; what matches nothing is taken as it is. */
function firstMatch(names: (string | null)[] | null | undefined, find: string): string {
  return names?.find((name) => name === find) ?? names?.find((name) => matches(name ?? "", find)) ?? find;
}

const OFFERED = 60;

/** The operator that starts forward or ends backward: shown, and to be chosen from those of the step. */
function Operator({ which, label, now, step }: { which: "fp_start" | "bp_end"; label: string; now: string | null; step: number | null }) {
  const t = text();
  const given = param(which);
  const shown = given ?? now;
  return (
    <Menu label={`${label} ${shown ?? t.unknown}`} class="oppick" align="right" button={<><span class="d3">{label}</span><span class="mono" title={shown ?? ""}>{shown ?? t.unknown}</span></>}>
      {(close) => <Candidates which={which} step={step} given={given} close={close} />}
    </Menu>
  );
}

function Candidates({ which, step, given, close }: { which: "fp_start" | "bp_end"; step: number | null; given?: string; close: () => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const asked = useTable("step_operators", { step });
  const forward = which === "fp_start";
  // What starts first is likely to start the forward pass, what ends last to end the backward pass.
  const ordered = (table: Table) => (forward ? table.where(() => true) : table.where(() => true).sort((a, b) => table.num("end_offset_ns")[b] - table.num("end_offset_ns")[a]));
  const choose = (name: string | null) => {
    go({ params: { [which]: name } });
    close();
  };
  return (
    <div class="opmenu">
      <input type="search" placeholder={t.search} aria-label={t.search} value={find} onInput={(event) => setFind(event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && find && choose(firstMatch(asked.data && ordered(asked.data).map((row) => asked.data!.str("name")[row]), find))} />
      {!find && <button class={`item ${given === undefined ? "on" : ""}`} onClick={() => choose(null)}>{t.auto}</button>}
      <Await of={asked} rows={4}>
        {(table) => {
          const names = table.str("name");
          const when = table.num(forward ? "offset_ns" : "end_offset_ns");
          const rows = ordered(table).filter((row) => matches(names[row]!, find));
          return (
            <div class="list">
              {rows.slice(0, OFFERED).map((row) => (
                <button key={row} class={`item ${names[row] === given ? "on" : ""}`} onClick={() => choose(names[row])} title={names[row]!}>
                  <span class="mono cut">{names[row]}</span>
                  <span class="d3 small">{forward ? t.firstStart : t.lastEnd} <Time ns={when[row]} /></span>
                </button>
              ))}
              {rows.length > OFFERED && <p class="d3 small">{fill(t.more, { count: units.count(rows.length - OFFERED).value })}</p>}
              {rows.length === 0 && <p class="d3 small">{t.none}</p>}
            </div>
          );
        }}
      </Await>
    </div>
  );
}

/** One transfer between ranks, from the start of its step. */
interface Transfer {
  stream: string;
  name: string;
  start: number;
  dur: number;
  hidden: number;
  exposed: number;
  bytes: number;
  at: number;
}

function averaged(table: Table | null): Transfer[] {
  if (!table) return [];
  const [start, dur, hidden, exposed, bytes] = ["offset_ns", "dur_ns", "overlapped_ns", "exposed_ns", "bytes"].map((name) => table.num(name));
  return table.str("name").map((name, row) => ({ stream: table.str("stream")[row] ?? "", name: name ?? "", start: start[row], dur: dur[row], hidden: hidden[row], exposed: exposed[row], bytes: bytes[row], at: NaN }));
}

function ofStep(table: Table | null, trace: Table, at: number): Transfer[] {
  if (!table) return [];
  const [step, begin] = [trace.num("step")[at], trace.num("start_ns")[at]];
  const [start, dur, hidden, bytes] = ["start_ns", "dur_ns", "overlapped_ns", "bytes"].map((name) => table.num(name));
  return table.where((row) => table.num("step")[row] === step).map((row) => ({
    stream: table.str("stream")[row] ?? "", name: table.str("name")[row] ?? "", start: start[row] - begin, dur: dur[row], hidden: hidden[row], exposed: dur[row] - hidden[row], bytes: bytes[row], at: start[row],
  }));
}

/** How long the step communicates with nothing to hide it: transfers at the same time count once. */
function exposedIn(overlap: Table | null, step: number): number {
  const row = overlap ? overlap.num("step").indexOf(step) : -1;
  return row < 0 ? 0 : overlap!.num("exposed_ns")[row];
}

const LANES = 10;

/** The picture of the step: stages on the first line, then one line per stream that communicates. */
function InOrder({ trace, of, at, transfers, exposed }: { trace: Table; of: Map<string, Figures>; at: number | null; transfers: Transfer[]; exposed: number }) {
  const t = text();
  const [all, setAll] = useState(false);
  const [box, width] = useWidth<HTMLDivElement>();
  const value = (key: string, stage: string) => (at === null ? (of.get(stage)?.mean_ns ?? NaN) : trace.num(key)[at]);
  const total = value("total_ns", "step");
  const [interval, fpBp, tail] = [value("interval_ns", "interval"), value("fp_bp_ns", "forward and backward"), value("tail_ns", "tail")];
  const divided = Number.isFinite(fpBp);
  const lanes = [...new Set(transfers.map((one) => one.stream))]
    .map((stream) => ({ stream, inside: transfers.filter((one) => one.stream === stream) }))
    .sort((a, b) => a.inside[0].start - b.inside[0].start);
  const last = transfers.reduce((most, one) => Math.max(most, one.start + one.dur), 0);
  const end = Math.max(total, last) || 1;
  const unit = units.timeUnit(end);
  const place = (ns: number) => `${((ns / end) * 100).toFixed(3)}%`;
  const noBackward = trace.blank("bp_end_ns");
  const marks = [
    divided && { at: interval, label: t.forwardStarts },
    divided && { at: interval + fpBp, label: noBackward ? t.forwardEnds : t.backwardEnds },
    transfers.length > 0 && { at: last, label: t.lastEnds },
    { at: total, label: t.stepEnds },
  ].filter((mark): mark is { at: number; label: string } => !!mark);
  const inner = Math.max(100, width - 190 - 84);
  const placed = labelled(marks.map((mark) => ({ ...mark, text: units.time(mark.at, unit).value })), inner, end);
  const deep = Math.max(0, ...placed.map((mark) => mark.line)) + 1;
  const bars = [
    { name: t.interval, start: 0, ns: interval, tone: "interval" },
    { name: t.fpBp, start: interval, ns: fpBp, tone: "fpbp" },
    { name: t.tail, start: interval + fpBp, ns: tail, tone: "tail" },
  ];
  const shown = all ? lanes : lanes.slice(0, LANES);
  const title = at === null ? t.orderAverage : fill(t.order, { step: units.count(trace.num("step")[at]).value });
  const wide = (ns: number) => (ns / end) * inner;
  const [from, to] = at === null ? [NaN, NaN] : [trace.num("start_ns")[at], trace.num("end_ns")[at]];
  return (
    <Card
      title={title}
      note={transfers.length ? fill(t.orderNote, { count: transfers.length === 1 ? t.transferOne : fill(t.transfersCount, { count: units.count(transfers.length).value }) }) : t.orderNone}
      tools={
        <>
          {exposed > 0 && <Chip tone={exposed > 0.1 * total ? "bad" : undefined}>{fill(t.exposed, { time: units.text(units.time(exposed)) })}</Chip>}
          {at !== null && <a class="btn sm" href={link({ page: "timeline", params: { t0: Math.round(from), t1: Math.round(to) } })}>{t.open}</a>}
        </>
      }
    >
      <div class="gantt" ref={box} role="group" aria-label={title}>
        <span />
        <span class="over" style={{ height: `${deep * 16 + 2}px` }}>
          {placed.map((mark) => (
            <span key={mark.label} style={{ left: `${mark.left}px`, top: `${mark.line * 16}px` }}>{mark.label} <b title={units.exact(mark.at, "time")}>{mark.text}</b></span>
          ))}
        </span>
        <span />
        <span class="rules" style={{ left: "190px", right: "84px", top: `${deep * 16 + 2}px` }}>
          {marks.map((mark) => <i key={mark.label} style={{ left: place(mark.at) }} />)}
        </span>
        <span class="who">{t.stages}</span>
        <span class="what stages">
          {!divided && <i class="whole in" style={{ left: "0%", width: place(total) }}><b>{units.text(units.time(total))}</b></i>}
          {divided && bars.map((bar) => bar.ns > 0 && (
            <i
              key={bar.tone}
              class={`${bar.tone} ${wide(bar.ns) > 60 ? "in" : ""}`}
              style={{ left: place(bar.start), width: place(bar.ns) }}
              onPointerMove={(event) => tip(event, <><b>{bar.name}</b><dl><dt>{t.starts}</dt><dd><Time ns={bar.start} /></dd><dt>{t.ends}</dt><dd><Time ns={bar.start + bar.ns} /></dd><dt>{t.takes}</dt><dd><Time ns={bar.ns} /> · <Share of={bar.ns / total} /></dd></dl></>)}
              onPointerLeave={untip}
            >
              {wide(bar.ns) > 60 && <><b>{units.text(units.time(bar.ns))}</b>{[` ${bar.name.toLowerCase()} · ${units.text(units.share(bar.ns / total))}`].find((more) => wideOf(units.text(units.time(bar.ns)) + more) + 20 < wide(bar.ns))}</>}
            </i>
          ))}
          {end > total && <i class="beyond hatch" style={{ left: place(total), width: place(end - total) }} title={t.beyond} />}
        </span>
        <span class="took"><Time ns={total} unit={unit} /></span>
        {shown.map((lane) => [
          <span key={`${lane.stream} who`} class="who" title={lane.stream}><span class="mono d3">{lane.stream}</span></span>,
          <span key={`${lane.stream} what`} class="what">
            {lane.inside.map((one, which) => {
              const say = (event: PointerEvent) => tip(event, <><b class="mono">{one.name}</b><dl><dt>{t.starts}</dt><dd><Time ns={one.start} /></dd><dt>{t.takes}</dt><dd><Time ns={one.dur} /></dd><dt>{t.hidden}</dt><dd><Time ns={one.hidden} /></dd><dt>{t.exposedHead}</dt><dd><Time ns={one.exposed} /></dd>{Number.isFinite(one.bytes) && [<dt key="b">{t.bytes}</dt>, <dd key="c">{units.text(units.bytes(one.bytes))}</dd>]}</dl></>);
              return [
                one.hidden > 0 && <i key={`${which}h`} class={`hidden ${wide(one.hidden) > 80 ? "in" : ""}`} style={{ left: place(one.start), width: place(one.hidden) }} onPointerMove={say} onPointerLeave={untip}>{wide(one.hidden) > 80 && `${units.text(units.time(one.hidden))} ${t.hiddenShort}`}</i>,
                one.exposed > 0 && <i key={`${which}e`} class={`shown ${wide(one.exposed) > 90 ? "in" : ""}`} style={{ left: place(one.start + one.hidden), width: place(one.exposed) }} onPointerMove={say} onPointerLeave={untip}>{wide(one.exposed) > 90 && <b>{units.text(units.time(one.exposed))} {t.exposedShort}</b>}</i>,
              ];
            })}
          </span>,
          <span key={`${lane.stream} took`} class="took"><Time ns={lane.inside.reduce((sum, one) => sum + one.dur, 0)} unit={unit} /></span>,
        ])}
        <span />
        <span class="scale">
          {units.ticks(0, units.timeIn(end, unit), 8).map((tick, which) => <span key={tick} style={{ left: place((tick / units.timeIn(end, unit)) * end), transform: which ? "translateX(-50%)" : undefined }}>{+tick.toPrecision(6)}{which === 0 && ` ${unit}`}</span>)}
        </span>
        <span />
      </div>
      {lanes.length > LANES && <button class="aslink small" onClick={() => setAll(!all)}>{all ? t.fewerStreams : fill(t.moreStreams, { count: lanes.length - LANES })}</button>}
    </Card>
  );
}

/** Labels above the picture, on as many lines as keep them apart. */
function labelled<Mark extends { at: number; label: string; text: string }>(marks: Mark[], inner: number, end: number): (Mark & { left: number; line: number })[] {
  const free: number[] = [];
  return [...marks].sort((a, b) => a.at - b.at).map((mark) => {
    // Chinese letters are about twice as wide.
    const wide = [...`${mark.label} ${mark.text}`].reduce((sum, letter) => sum + (letter > "⺀" ? 11 : 6), 8);
    const left = Math.max(0, Math.min(inner - wide, (mark.at / end) * inner - wide / 2));
    let line = free.findIndex((until) => until <= left);
    if (line < 0) line = free.length;
    free[line] = left + wide + 6;
    return { ...mark, left, line };
  });
}

type Shared = Pick<Parameters<typeof StepLine>[0], "steps" | "leftOut" | "selected" | "hovered" | "onHover" | "onPick" | "say">;

/** One of the three stages: its figure, how it compares, and how it went over the steps. */
function Stage({ trace, of, which, head, note, to, ...shared }: Shared & { trace: Table; of: Map<string, Figures>; which: 0 | 1 | 2; head: string; note: string; to: { page: string; label: string } }) {
  const t = text();
  const part = PARTS[which];
  const stage = of.get(part.stage);
  const at = shared.selected;
  const values = trace.num(part.key);
  const now = at === null ? (stage?.mean_ns ?? NaN) : values[at];
  const p50 = stage?.p50_ns ?? NaN;
  const whole = at === null ? (of.get("step")?.mean_ns ?? NaN) : trace.num("total_ns")[at];
  const over = now - p50;
  return (
    <Card title={head} note={note} tools={<PageLink class="small" to={{ page: to.page }}>{to.label}</PageLink>}>
      <div class="figure">
        <span class="f"><Time ns={now} /></span>
        {at === null ? (
          <span class="d3 small"><Say of={t.average1} p50={<Time ns={p50} />} /></span>
        ) : (
          <>
            {Number.isFinite(over) && <span class={`small ${over > 0.02 * p50 ? "bad" : over < -0.02 * p50 ? "good" : "d3"}`}>{over >= 0 ? "▲" : "▼"} <Time ns={Math.abs(over)} /></span>}
            <span class="d3 small"><Say of={t.against} p50={<Time ns={p50} />} /></span>
          </>
        )}
        <span class="sp" />
        <span class="d3 small"><Say of={t.ofStep} share={<Share of={now / whole} />} /></span>
      </div>
      <StepLine {...shared} values={values} color={part.color} median={p50} label={head} />
    </Card>
  );
}

function Distribution({ trace, of, at, leftOut }: { trace: Table; of: Map<string, Figures>; at: number | null; leftOut: Set<number> }) {
  const t = text();
  const choices = [{ id: "total_ns", stage: "step", label: t.total }, ...PARTS.map((part) => ({ id: part.key, stage: part.stage, label: t[part.word] }))].filter((one) => of.has(one.stage));
  const chosen = choices.find((one) => one.id === param("of")) ?? choices[0];
  const values = useMemo(() => (chosen ? trace.num(chosen.id).filter((_, row) => !leftOut.has(row)) : new Float64Array()), [trace, chosen?.id, leftOut]);
  const cumulative = param("as") === "cumulative";
  if (!chosen) return null;
  const stage = of.get(chosen.stage)!;
  return (
    <Card
      title={t.distribution}
      note={stage.steps === 1 ? t.countedOne : fill(t.counted, { count: units.count(stage.steps).value })}
      tools={
        <>
          <Segmented choices={choices.map(({ id, label }) => ({ id: id as string, label }))} value={chosen.id as string} onChange={(id) => go({ params: { of: id === "total_ns" ? null : id } }, true)} label={t.shown} />
          <Segmented choices={[{ id: "histogram", label: t.histogram }, { id: "cumulative", label: t.cumulative }]} value={cumulative ? "cumulative" : "histogram"} onChange={(id) => go({ params: { as: id === "histogram" ? null : id } }, true)} label={t.how} />
        </>
      }
    >
      <Histogram
        values={values}
        height={168}
        selected={at === null ? null : trace.num(chosen.id)[at]}
        marks={MARKS.map((mark) => [mark, stage[`${mark}_ns`]])}
        cumulative={cumulative}
        label={`${t.distribution}: ${chosen.label}`}
      />
    </Card>
  );
}

/** Starts and ends of the stages of the step, and the figures of all steps beside them. */
function StageTable({ trace, of, at }: { trace: Table; of: Map<string, Figures>; at: number | null }) {
  const t = text();
  const total = at === null ? (of.get("step")?.mean_ns ?? NaN) : trace.num("total_ns")[at];
  const take = (key: string, stage: string) => (at === null ? (of.get(stage)?.mean_ns ?? NaN) : trace.num(key)[at]);
  let from = 0;
  const rows = [PARTS[2], PARTS[0], PARTS[1]].filter((part) => of.has(part.stage)).map((part) => {
    const ns = take(part.key, part.stage);
    const row = { key: part.key as string, label: t[part.word], stage: part.stage, color: part.color, start: from, end: from + ns, ns };
    from += ns;
    return row;
  });
  const gap = take("gap_ns", "gap");
  const all = [
    ...rows,
    { key: "total_ns", label: t.total, stage: "step", color: "", start: 0, end: total, ns: total },
    ...(of.has("gap") ? [{ key: "gap_ns", label: t.gap, stage: "gap", color: "", start: -gap, end: 0, ns: gap }] : []),
  ];
  return (
    <div class="stagetable"><table>
      <thead>
        <tr><th>{t.stage}</th><th>{t.starts}</th><th>{t.ends}</th><th>{at === null ? t.mean : t.takes}</th><th>{t.share}</th><th>{t.fastest}</th><th>p50</th><th>p90</th><th>p99</th><th>{t.slowest}</th></tr>
      </thead>
      <tbody>
        {all.map((row) => {
          const figure = of.get(row.stage);
          return (
            <tr key={row.stage} class={row.stage === "step" ? "b" : ""}>
              <td>{row.color && <Swatch color={row.color} />}{row.label}</td>
              <td><Time ns={row.start} /></td>
              <td><Time ns={row.end} /></td>
              <td class="b"><Time ns={row.ns} /></td>
              <td><Share of={row.ns / total} /></td>
              {(["min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"] as const).map((name) => {
                const value = figure?.[name] ?? NaN;
                const step = trace.num("step")[trace.num(row.key).indexOf(value)];
                return <td key={name}>{step === undefined ? <Time ns={value} /> : <a href={link({ params: { sel: step } })} aria-label={`${t.step} ${step}`}><Time ns={value} /></a>}</td>;
              })}
            </tr>
          );
        })}
      </tbody>
    </table></div>
  );
}

function TransferTable({ transfers, note }: { transfers: Transfer[]; note: string }) {
  const t = text();
  const table = useMemo(() => {
    const column = (of: (one: Transfer) => number) => Float64Array.from(transfers, of);
    return transfersTable(transfers, column);
  }, [transfers]);
  const columns: Column[] = [
    { key: "stream", label: t.stream, as: "name", width: "minmax(120px, 1.4fr)" },
    { key: "name", label: t.name, as: "name" },
    { key: "offset_ns", label: t.starts },
    { key: "dur_ns", label: t.takes },
    { key: "bytes", label: t.bytes },
    { key: "overlapped_share", label: t.hidden },
    { key: "exposed_ns", label: t.exposedHead, bar: true, color: () => "var(--kind-communication)" },
    { key: "timeline", label: "", width: "112px", show: (data, row) => !Number.isFinite(data.num("at")[row]) ? <a href={link({ page: "communication", params: { "ops.find": data.str("name")[row] } })}>{t.toCommunication}</a> : <a href={link({ page: "timeline", params: { t0: Math.round(data.num("at")[row]), t1: Math.round(data.num("at")[row] + data.num("dur_ns")[row]) } })}>{t.timeline}</a> },
  ];
  return <Card title={t.transfers} note={note} flush><Grid id="transfers" table={table} columns={columns} what={t.whatTransfers} search={["name", "stream"]} sort="-dur_ns" label={t.transfers} height={`${Math.min(10, transfers.length + 1) * 28 + 4}px`} /></Card>;
}

function AllSteps({ trace, selected }: { trace: Table; selected: string | null }) {
  const t = text();
  const color = (which: 0 | 1 | 2) => () => PARTS[which].color;
  const columns: Column[] = [
    { key: "step", label: t.step, as: "count" },
    { key: "start_ns", label: t.start },
    { key: "total_ns", label: t.total, bar: true, color: () => "var(--border-strong)" },
    { key: "interval_ns", label: t.interval, bar: true, color: color(2) },
    { key: "fp_bp_ns", label: t.fpBp, bar: true, color: color(0) },
    { key: "tail_ns", label: t.tail, bar: true, color: color(1) },
    { key: "gap_ns", label: t.gap },
    { key: "fp_start_op", label: t.fpOp, as: "name", hide: true },
    { key: "bp_end_op", label: t.bpOp, as: "name", hide: true },
    { key: "clock", label: t.clockHead, as: "said", hide: true },
    { key: "how", label: t.marked, as: "said", hide: true },
    { key: "found", label: t.foundBy, as: "said", hide: true },
    { key: "timeline", label: "", width: "76px", show: (data, row) => <a href={link({ page: "timeline", params: { t0: Math.round(data.num("start_ns")[row]), t1: Math.round(data.num("end_ns")[row]) } })} onClick={(event) => event.stopPropagation()}>{t.timeline}</a> },
  ];
  return (
    <Card title={t.table} flush>
      <Grid id="steps" table={trace} columns={columns} what={t.steps} sort="step" rowKey={(data, row) => data.raw("step", row)} selected={selected} onOpen={(data, row) => go({ params: { sel: data.raw("step", row) } })} label={t.table} />
    </Card>
  );
}

function transfersTable(transfers: Transfer[], column: (of: (one: Transfer) => number) => Float64Array) {
  return Table.of({
    stream: transfers.map((one) => one.stream),
    name: transfers.map((one) => one.name),
    offset_ns: column((one) => one.start),
    dur_ns: column((one) => one.dur),
    bytes: column((one) => one.bytes),
    overlapped_share: column((one) => one.hidden / one.dur),
    exposed_ns: column((one) => one.exposed),
    at: column((one) => one.at),
  });
}
