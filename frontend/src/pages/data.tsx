// page: {"order": 70, "group": "performance", "icon": "data", "en": "Data preparation", "zh": "数据准备", "needs": ["pipeline", "data", "queue", "steps"]}
/** Does the training wait for its data, and which part of the pipeline makes it wait? */
import { useMemo, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { counting, info, useTable, type Asked } from "../data";
import { Await, Card, Chip, Empty, Facts, Legend, Loading, Share, Tabs, Time, Trouble, useWidth, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { minmaxPath, StepBars, type Part } from "../parts/plots";
import { Series } from "../parts/series";
import { go, language, link, param } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./steps.css";
import "./data.css";

const text = texts({
  en: {
    starved: "The step waits for data {share} of the time. {op} is the bottleneck: {rule}.",
    waits: "The step waits for data {share} of the time: {empty} of {batches} times no batch was ready.",
    waitsTransfer: "The step waits for data {share} of the time, while the host has batches ready: the transfer to the device is too slow.",
    waitsReady: "The step waits for data {share} of the time, although batches were ready {ready} of {batches} times: the one that was its turn was not.",
    waitsAlone: "The step waits for data {share} of the time. How full its queues were was not recorded.",
    ready: "Data is ready when the step asks for it: it waits {share} of the time.",
    readySlow: "The step waits for data only {share} of the time, but {op} is slower than the operators around it.",
    queueOnly: "When the training asked for data, {empty} of {batches} times no batch was ready.",
    pipelineOnly: "{op} holds the input pipeline up: {rule}.",
    unknown: "This recording does not show how the training gets its data.",
    betweenRule: "full queue before it, empty queue after it", leafRule: "the queues after it are empty", lastRule: "the queues before it are full",
    steps: "{count} steps", oneStep: "1 step", perStep: "{wait} of {step} per step spent waiting", empty: "{queue} empty {empty} of {batches} times", full: "full {full} of {batches}", ops: "{count} pipeline operators", workers: "{count} workers",
    everything: "Everything", gap: "Step gap", pipeline: "Pipeline", parts: "Parts of the page",
    waitCard: "Waiting for data, per step", waitNote: "click a step to choose it", inputWait: "input wait", rest: "the rest of the step", stepMedian: "dashed: median step",
    chosen: "Step {step} waits {wait} of {total}", toStep: "Open step {step}",
    noWait: "Waits for data were not recorded", noWaitHow: "stepscope run and stepscope.Profiler record them; a plain trace has them where the loader marks its ranges.",
    hostQueue: "Host queue", deviceQueue: "Device queue", ready1: "batches ready when one was asked for", emptyOf: "empty {empty} of {batches}", fullOf: "full {full}", places: "{count} places",
    noHost: "No queue on the host was recorded",
    hostHowMindspore: "Record with data_process=True, and create the profiler before the dataset's iterator.",
    hostHowPytorch: "Record with stepscope run or stepscope.Profiler: they count the batches that a DataLoader has ready. With num_workers=0 there is no queue, and the step prepares each batch itself.",
    hostHow: "Record with stepscope run or stepscope.Profiler.",
    noDevice: "No queue on the device", deviceHowMindspore: "It is there with data sinking on an Ascend or GPU; record with data_process=True.",
    deviceHowPytorch: "A PyTorch step copies its batch to the device itself.", deviceHow: "This run has none.",
    rules: "How a verdict is reached", rule1: "Batches in the queue that the step reads: data preparation is not the bottleneck of that step. None: the step waits.",
    rule2: "The host's queue is empty: data processing is too slow.", rule3: "The host's queue holds batches while the device's is empty: the transfer is too slow.", applies: "applies", applyNot: "does not apply", notKnown: "not known", contrary: "Yet the step waited {share} of the time: batches are handed out in their order, so a late one holds those that are ready back.", noDepth: "How many batches were ready was not recorded", noStepsTitle: "Without steps there is no bar for each", noStepsHow: "{depth} of {capacity} batches were ready on average, none {empty} of {batches} times. stepscope run finds the steps.",
    table: "Queues, step by step", rows: "row|rows", queue: "Queue", step: "Step", batches: "Asked for", depth: "Ready", capacity: "Places", emptyHead: "None ready", fullHead: "All ready", wait: "Wait", verdict: "Verdict", outside: "outside steps",
    launch: "Work queued on the device", launchNote: "kernels launched and not yet finished; often empty means that the device waits for the host", stream: "Stream", maxLength: "Longest", meanLength: "On average", emptyShare: "Empty",
    pipeTitle: "Pipeline", pipeNote: "operators left to right, queues between them; click a queue for its history", filled: "filled", free: "free", training: "Training step", worker: "1 worker", workersN: "{count} workers", noWorkers: "in the training process", cpu: "CPU {share}", bottleneck: "bottleneck", ofPlaces: "{share} of {places}", direct: "no queue",
    noPipe: "No input pipeline was recorded",
    intoQueue: "Queue into {reader}", queueNote: "{writer} → {reader}, {places} places", samples: "{count} samples", depthLine: "waiting for {reader}", nextLine: "done, waiting for {next}", mean: "On average", producer: "Fills it", consumer: "Empties it", emptyTime: "Empty", fullTime: "Full", noSamples: "This queue was not sampled",
    opsTitle: "Operators", op: "Operator", workersHead: "Workers", use: "Queue use", user: "CPU user", system: "CPU system", batch: "Per batch", hint: "Advice", id: "No.", operators: "operator|operators",
    todo: "What to do", todoNone: "No operator holds the others up.", rulesPipe: "Full before and empty after an operator: that operator. Empty everywhere: the source. Full everywhere: the last operator, or the step itself.", toCpu: "CPU",
    "waits for input": "waits for input", "waits for its reader": "waits for its reader", "keeps up": "keeps up", "waits for processing": "waits for processing", "waits for transfer": "waits for transfer", "no queue": "no queue", "v_ready": "ready", "v_full": "full",
  },
  zh: {
    starved: "迭代有 {share} 的时间在等待数据。{op} 是瓶颈：{rule}。",
    waits: "迭代有 {share} 的时间在等待数据：{batches} 次取数中有 {empty} 次没有就绪的批次。",
    waitsTransfer: "迭代有 {share} 的时间在等待数据，而主机上已有就绪的批次：向设备的传输太慢。",
    waitsReady: "迭代有 {share} 的时间在等待数据，尽管 {batches} 次中有 {ready} 次已有就绪的批次：轮到的那一批尚未就绪。",
    waitsAlone: "迭代有 {share} 的时间在等待数据。没有记录队列的占用情况。",
    ready: "迭代取数时数据已就绪：只有 {share} 的时间在等待。",
    readySlow: "迭代只有 {share} 的时间在等待数据，但 {op} 比相邻算子慢。",
    queueOnly: "训练取数 {batches} 次，其中 {empty} 次没有就绪的批次。",
    pipelineOnly: "{op} 拖慢了数据流水线：{rule}。",
    unknown: "此记录没有显示训练如何获取数据。",
    betweenRule: "前面的队列满，后面的队列空", leafRule: "后面的队列都是空的", lastRule: "前面的队列都是满的",
    steps: "{count} 个迭代", oneStep: "1 个迭代", perStep: "每个迭代 {step} 中等待 {wait}", empty: "{queue} {batches} 次中空 {empty} 次", full: "{batches} 次中满 {full} 次", ops: "{count} 个流水线算子", workers: "{count} 个工作进程",
    everything: "全部", gap: "迭代间隙", pipeline: "流水线", parts: "页面各部分",
    waitCard: "每个迭代等待数据的时间", waitNote: "点击选择一个迭代", inputWait: "等待输入", rest: "迭代的其余部分", stepMedian: "虚线：迭代中位数",
    chosen: "迭代 {step} 在 {total} 中等待 {wait}", toStep: "打开迭代 {step}",
    noWait: "没有记录等待数据的时间", noWaitHow: "stepscope run 与 stepscope.Profiler 会记录；普通 trace 仅在加载器标出范围时才有。",
    hostQueue: "主机队列", deviceQueue: "设备队列", ready1: "取数时已就绪的批次", emptyOf: "{batches} 次中空 {empty} 次", fullOf: "满 {full} 次", places: "{count} 个位置",
    noHost: "没有记录主机上的队列",
    hostHowMindspore: "请用 data_process=True 记录，并在创建数据集迭代器之前创建 profiler。",
    hostHowPytorch: "请用 stepscope run 或 stepscope.Profiler 记录：它们会统计 DataLoader 已就绪的批次。num_workers=0 时没有队列，由迭代自己准备每个批次。",
    hostHow: "请用 stepscope run 或 stepscope.Profiler 记录。",
    noDevice: "设备上没有队列", deviceHowMindspore: "在 Ascend 或 GPU 上使用数据下沉时才有；请用 data_process=True 记录。",
    deviceHowPytorch: "PyTorch 的迭代自己把批次拷贝到设备。", deviceHow: "此训练没有。",
    rules: "结论如何得出", rule1: "迭代所读队列中有批次：数据准备不是该迭代的瓶颈。没有：迭代等待。",
    rule2: "主机队列为空：数据处理太慢。", rule3: "主机队列有批次而设备队列为空：传输太慢。", applies: "适用", applyNot: "不适用", notKnown: "未知", contrary: "但迭代仍有 {share} 的时间在等待：批次按顺序交付，迟到的一批会挡住已就绪的批次。", noDepth: "没有记录已就绪的批次数", noStepsTitle: "没有迭代，无法逐迭代显示", noStepsHow: "平均 {capacity} 个批次中有 {depth} 个就绪，{batches} 次中 {empty} 次没有。stepscope run 会识别迭代。",
    table: "逐迭代的队列", rows: "行", queue: "队列", step: "迭代", batches: "取数次数", depth: "就绪", capacity: "位置", emptyHead: "无就绪", fullHead: "全就绪", wait: "等待", verdict: "结论", outside: "迭代之外",
    launch: "设备上排队的任务", launchNote: "已下发但未完成的内核；经常为空说明设备在等主机", stream: "流", maxLength: "最长", meanLength: "平均", emptyShare: "为空",
    pipeTitle: "流水线", pipeNote: "算子从左到右，队列在其间；点击队列查看其历史", filled: "已占用", free: "空闲", training: "训练迭代", worker: "1 个 worker", workersN: "{count} 个 worker", noWorkers: "在训练进程中", cpu: "CPU {share}", bottleneck: "瓶颈", ofPlaces: "{places} 的 {share}", direct: "无队列",
    noPipe: "没有记录数据流水线",
    intoQueue: "进入 {reader} 的队列", queueNote: "{writer} → {reader}，{places} 个位置", samples: "{count} 个采样", depthLine: "等待 {reader}", nextLine: "已完成，等待 {next}", mean: "平均", producer: "写入方", consumer: "读取方", emptyTime: "为空", fullTime: "为满", noSamples: "此队列没有采样",
    opsTitle: "算子", op: "算子", workersHead: "worker 数", use: "队列占用", user: "CPU 用户", system: "CPU 系统", batch: "每批次", hint: "建议", id: "编号", operators: "个算子",
    todo: "怎么做", todoNone: "没有算子拖慢其他算子。", rulesPipe: "某算子前满后空：就是该算子。处处为空：数据源。处处为满：最后一个算子，或迭代本身。", toCpu: "CPU",
    "waits for input": "等待输入", "waits for its reader": "等待读取方", "keeps up": "跟得上", "waits for processing": "等待处理", "waits for transfer": "等待传输", "no queue": "无队列", "v_ready": "就绪", "v_full": "已满",
  },
});

const LOST = 0.05; // of the time: less is not worth a sentence about what to change

type View = "everything" | "gap" | "pipeline";

export default function Data() {
  const t = text();
  const now = info.value!;
  const waits = useTable("step_stages", {}, { skip: !now.kinds.data });
  const trace = useTable("step_trace");
  const queues = useTable("data_queues");
  const whole = useTable("data_queues", { per_step: false });
  const pipeline = useTable("data_pipeline");
  const overview = useTable("overview", counting());
  const asked = [waits, trace, queues, whole, pipeline, overview];
  const error = asked.find((one) => one.error)?.error;
  if (error) return <Trouble error={error} />;
  if (asked.some((one) => one.data === null && one.waiting)) return <Loading rows={12} />;
  const all: Facts0 = { waits: waits.data, trace: trace.data!, queues: queues.data!, whole: whole.data!, pipeline: pipeline.data!, share: overview.data!.num("input_wait_share")[0] ?? NaN, median: overview.data!.num("step_ns")[0] };
  const view = (param("view") as View | undefined) ?? "everything";
  const pipe = all.pipeline.rows > 0;
  return (
    <>
      <Sentence {...all} />
      <Tabs
        choices={[{ id: "everything", label: t.everything }, { id: "gap", label: t.gap }, { id: "pipeline", label: t.pipeline, count: all.pipeline.rows }]}
        value={view}
        onChange={(id) => go({ params: { view: id === "everything" ? null : id } })}
        label={t.parts}
      />
      {view !== "gap" && (pipe || view === "pipeline") && <Pipeline table={all.pipeline} />}
      {view !== "pipeline" && <StepGap {...all} whole={all.whole} detail={view === "gap"} />}
    </>
  );
}

interface Facts0 {
  waits: Table | null;
  trace: Table;
  queues: Table;
  whole: Table;
  pipeline: Table;
  /** Of the time in steps that the training waited for data; NaN where that was not recorded. */
  share: number;
  /** The median step, as `overview` has it. */
  median: number;
}

function Sentence({ waits, trace, whole, pipeline, share }: Facts0) {
  const t = text();
  const bottleneck = pipeline.str("verdict").indexOf("bottleneck");
  const op = bottleneck < 0 ? null : <b>{pipeline.str("op_type")[bottleneck]}</b>;
  const read = mainQueue(whole);
  const [empty, batches, full] = read < 0 ? [NaN, NaN, NaN] : [whole.num("empty")[read], whole.num("batches")[read], whole.num("full")[read]];
  const transfer = whole.str("verdict").includes("waits for transfer");
  const bold = (value: ComponentChildren) => <b>{value}</b>;
  const part = bold(<Share of={share} />);
  const counts = { empty: bold(units.count(empty).value), batches: units.count(batches).value, ready: bold(units.count(batches - empty).value) };
  const rule = bottleneck < 0 ? "" : ruleOf(pipeline, bottleneck, t);
  let said;
  if (Number.isFinite(share) && share >= LOST) {
    if (transfer) said = <Say of={t.waitsTransfer} share={part} />;
    else if (op) said = <Say of={t.starved} share={part} op={op} rule={rule} />;
    else if (!Number.isFinite(batches) || !Number.isFinite(empty)) said = <Say of={t.waitsAlone} share={part} />;
    else if (empty > 0.2 * batches) said = <Say of={t.waits} share={part} {...counts} />;
    else said = <Say of={t.waitsReady} share={part} {...counts} />;
  } else if (Number.isFinite(share)) said = op ? <Say of={t.readySlow} share={part} op={op} /> : <Say of={t.ready} share={part} />;
  else if (Number.isFinite(empty)) said = <Say of={t.queueOnly} {...counts} />;
  else if (op) said = <Say of={t.pipelineOnly} op={op} rule={rule} />;
  else said = t.unknown;
  // Sums of the rows that the chart below shows.
  const waited = waits ? sum(waits.num("dur_ns"), (row) => waits.str("stage")[row] === "data wait") : NaN;
  const workers = pipeline.rows === 1 ? pipeline.num("workers")[0] : NaN;
  return (
    <Verdict
      facts={[
        trace.rows > 0 && fill(trace.rows === 1 ? t.oneStep : t.steps, { count: units.count(trace.rows).value }),
        Number.isFinite(waited) && trace.rows > 0 && <Say of={t.perStep} wait={<Time ns={waited / trace.rows} />} step={<Time ns={sum(trace.num("total_ns")) / trace.rows} />} />,
        Number.isFinite(empty) && fill(t.empty, { queue: whole.str("queue")[read] ?? "", empty: units.count(empty).value, batches: units.count(batches).value }),
        full > 0 && fill(t.full, { full: units.count(full).value, batches: units.count(batches).value }),
        pipeline.rows > 1 && fill(t.ops, { count: pipeline.rows }),
        workers > 0 && fill(t.workers, { count: workers }),
      ]}
    >
      {said}
    </Verdict>
  );
}

function sum(values: Float64Array, keep: (row: number) => boolean = () => true): number {
  let all = 0;
  for (let row = 0; row < values.length; row++) if (keep(row) && Number.isFinite(values[row])) all += values[row];
  return all;
}

/** The queue that the training reads: on the device if there is one, else on the host. */
function mainQueue(whole: Table): number {
  const names = whole.str("queue");
  const found = ["device", "iterator", "device queue"].map((name) => names.indexOf(name)).find((row) => row >= 0);
  return found ?? (whole.rows ? 0 : -1);
}

/** Which of the three rules names the bottleneck. */
function ruleOf(pipeline: Table, row: number, t: { betweenRule: string; leafRule: string; lastRule: string }): string {
  const id = pipeline.num("op_id")[row];
  if (!pipeline.num("parent").includes(id)) return t.leafRule;
  return pipeline.num("queue_share")[row] > 0.5 ? t.lastRule : t.betweenRule;
}

/** Waits and queues, step by step. */
function StepGap({ waits, trace, queues, whole, median, share, detail }: Facts0 & { detail: boolean }) {
  const t = text();
  const framework = info.value?.framework;
  const launch = useTable("queues", {}, { skip: !detail || !info.value?.kinds.kernel });
  const steps = trace.num("step");
  const total = trace.num("total_ns");
  const wanted = param("step");
  const found = wanted === undefined ? -1 : steps.indexOf(Number(wanted));
  const at = found < 0 ? null : found;
  const [hovered, setHovered] = useState<number | null>(null);
  const waited = useMemo(() => byStep(steps, waits, waits ? waits.where((row) => waits.str("stage")[row] === "data wait") : [], "dur_ns"), [trace, waits]);
  const parts = useMemo<Part[]>(() => [
    { label: t.inputWait, color: "var(--kind-wait)", values: waited },
    { label: t.rest, color: "var(--kind-compute)", values: total.map((value, row) => value - (waited[row] || 0)) },
  ], [waited, total, t]);
  const pick = (place: number | null) => go({ params: { step: place === null ? null : steps[place] } });
  const names = [...new Set(queues.str("queue"))].filter((name): name is string => name !== null);
  const host = names.filter((name) => name !== "device");
  const shared = { steps, selected: at, hovered, onHover: setHovered, onPick: pick };
  const how = (kind: "host" | "device") => ({ mindspore: kind === "host" ? t.hostHowMindspore : t.deviceHowMindspore, pytorch: kind === "host" ? t.hostHowPytorch : t.deviceHowPytorch }[framework ?? ""] ?? (kind === "host" ? t.hostHow : t.deviceHow));
  const verdicts = new Map(whole.str("queue").map((name, row) => [name, whole.str("verdict")[row]]));
  return (
    <>
      <Card
        title={t.waitCard}
        note={waits && `${t.waitNote}; ${t.stepMedian}`}
        tools={
          <>
            {at !== null && waits && <><span class="small">{fill(t.chosen, { step: steps[at], wait: units.text(units.time(waited[at] || 0)), total: units.text(units.time(total[at])) })}</span><a class="btn sm" href={link({ page: "steps", params: { sel: steps[at] } })}>{fill(t.toStep, { step: steps[at] })}</a></>}
            {waits && <Legend of={parts.map((part) => ({ label: part.label, color: part.color }))} />}
          </>
        }
        flush
      >
        {waits && trace.rows ? (
          <StepBars
            {...shared}
            parts={parts}
            total={total}
            median={median}
            height={160}
            onRange={(first, last) => go({ params: { steps: `${steps[first]}:${steps[last]}` } })}
            say={(place) => <><b>{t.step} {steps[place]}</b><dl><dt>{t.inputWait}</dt><dd><Time ns={waited[place] || 0} /></dd><dt>{t.rest}</dt><dd><Time ns={total[place] - (waited[place] || 0)} /></dd></dl></>}
            label={t.waitCard}
          />
        ) : (
          <div class="bd"><Empty title={t.noWait} height={100}>{t.noWaitHow}</Empty></div>
        )}
      </Card>
      <div class="two">
        {host.map((name) => <Queue key={name} {...shared} title={host.length > 1 || name.startsWith("DataLoader") ? `${t.hostQueue}: ${name}` : t.hostQueue} name={name} queues={queues} whole={whole} />)}
        {!host.length && <Card title={t.hostQueue}><Empty title={t.noHost} height={110}>{how("host")}</Empty></Card>}
        {names.includes("device") ? <Queue {...shared} title={t.deviceQueue} name="device" queues={queues} whole={whole} /> : <Card title={t.deviceQueue}><Empty title={t.noDevice} height={110}>{how("device")}</Empty></Card>}
      </div>
      {detail && (
        <>
          <Card title={t.rules}>
            <ul class="rules3">
              {rulesOf(verdicts).map((applies, which) => (
                <li key={which} class={applies ? "on" : ""}>
                  <Chip tone={applies ? (which ? "bad" : share >= LOST ? undefined : "good") : undefined}>{applies === null ? t.notKnown : applies ? t.applies : t.applyNot}</Chip>
                  {[t.rule1, t.rule2, t.rule3][which]}
                </li>
              ))}
            </ul>
            {rulesOf(verdicts)[0] && share >= LOST && <p class="d2 contrary"><Say of={t.contrary} share={<Share of={share} />} /></p>}
          </Card>
          {queues.rows > 0 && <QueueTable queues={queues} />}
          {launch.data && launch.data.rows > 0 && <Launches asked={launch} />}
        </>
      )}
    </>
  );
}

/** Whether each of the three rules holds for the whole recording: data is there, processing is slow, the transfer is slow. */
function rulesOf(verdicts: Map<string | null, string | null>): (boolean | null)[] {
  const said = [...verdicts.values()];
  if (!said.length) return [null, null, null];
  const read = verdicts.get("device") ?? verdicts.get("iterator") ?? said[0];
  if (read === null) return [null, null, null];
  const both = verdicts.has("device") && verdicts.has("device queue");
  return [read === "ready" || read === "full", said.includes("waits for processing"), both ? said.includes("waits for transfer") : null];
}

/** A column of the rows of some steps, step by step; several rows of a step add up. */
function byStep(steps: Float64Array, table: Table | null, rows: number[], column: string): Float64Array {
  const places = new Map(Array.from(steps, (step, at) => [step, at]));
  const values = new Float64Array(steps.length).fill(NaN);
  if (!table) return values;
  const [step, value] = [table.num("step"), table.num(column)];
  for (const row of rows) {
    const at = places.get(step[row]);
    if (at !== undefined && Number.isFinite(value[row])) values[at] = (values[at] || 0) + value[row];
  }
  return values;
}

type Chosen = Pick<Parameters<typeof StepBars>[0], "steps" | "selected" | "hovered" | "onHover" | "onPick">;

/** How many batches one queue had ready, step by step; shaded where it had none. */
function Queue({ title, name, queues, whole, ...shared }: Chosen & { title: string; name: string; queues: Table; whole: Table }) {
  const t = text();
  const steps = shared.steps as Float64Array;
  const rows = useMemo(() => queues.where((row) => queues.str("queue")[row] === name), [queues, name]);
  const depth = useMemo(() => byStep(steps, queues, rows, "depth"), [steps, queues, rows]);
  const row = whole.str("queue").indexOf(name);
  const [empty, batches, full, capacity, mean] = ["empty", "batches", "full", "capacity", "depth"].map((column) => whole.num(column)[row]);
  const parts = useMemo<Part[]>(() => [{ label: t.depth, color: "var(--kind-compute)", values: depth }], [depth, t]);
  const most = Math.max(1, ...Array.from(depth).filter(Number.isFinite));
  return (
    <Card
      title={title}
      note={t.ready1}
      tools={
        <>
          {full > 0 && <Chip>{fill(t.fullOf, { full: units.count(full).value })}</Chip>}
          {Number.isFinite(empty) && <Chip tone={empty > 0.2 * batches ? "bad" : empty > 0 ? "warn" : "good"}>{fill(t.emptyOf, { empty: units.count(empty).value, batches: units.count(batches).value })}</Chip>}
        </>
      }
      flush
    >
      {!depth.some(Number.isFinite) ? <div class="bd">{!steps.length && Number.isFinite(mean) ? <Empty title={t.noStepsTitle} height={100}>{fill(t.noStepsHow, { depth: units.count(mean).value, capacity: units.count(capacity).value, empty: units.count(empty).value, batches: units.count(batches).value })}</Empty> : <Empty title={t.noDepth} height={100} />}</div> : <StepBars
        {...shared}
        parts={parts}
        total={depth}
        as="count"
        limit={Number.isFinite(capacity) && capacity > 0 ? Math.max(capacity, most) : most}
        shade={(at) => depth[at] === 0}
        height={130}
        say={(at) => <><b>{t.step} {steps[at]}</b><dl><dt>{t.depth}</dt><dd>{units.text(units.count(depth[at]))}</dd>{Number.isFinite(capacity) && [<dt key="c">{t.capacity}</dt>, <dd key="d">{capacity}</dd>]}</dl></>}
        label={title}
      />}
    </Card>
  );
}

function QueueTable({ queues }: { queues: Table }) {
  const t = text();
  const columns: Column[] = [
    { key: "queue", label: t.queue, as: "name" },
    { key: "step", label: t.step, show: (table, row) => (Number.isFinite(table.num("step")[row]) ? <a href={link({ page: "steps", params: { sel: table.raw("step", row) } })}>{table.raw("step", row)}</a> : <span class="d3">{t.outside}</span>) },
    { key: "batches", label: t.batches },
    { key: "depth", label: t.depth, bar: true },
    { key: "capacity", label: t.capacity },
    { key: "empty", label: t.emptyHead },
    { key: "full", label: t.fullHead },
    { key: "wait_ns", label: t.wait, bar: true, color: () => "var(--kind-wait)" },
    { key: "verdict", label: t.verdict, as: "text", show: (table, row) => <Word of={table.str("verdict")[row]} /> },
  ];
  return <Card title={t.table} flush><Grid id="queues" table={queues} columns={columns} search={["queue", "verdict"]} label={t.table} what={t.rows} height={`${Math.min(12, queues.rows + 1) * 28 + 4}px`} /></Card>;
}

/** A verdict of an analysis, in the reader's language. */
function Word({ of }: { of: string | null }) {
  const t = text() as Record<string, string>;
  if (!of) return <span class="d3">–</span>;
  const tone = { bottleneck: "bad", "waits for processing": "bad", "waits for transfer": "bad", "waits for input": "warn", ready: "good", "keeps up": "good" }[of] as "bad" | "warn" | "good" | undefined;
  return <Chip tone={tone}>{t[`v_${of}`] ?? t[of] ?? of}</Chip>;
}

function Launches({ asked }: { asked: Asked<Table> }) {
  const t = text();
  const columns: Column[] = [
    { key: "stream", label: t.stream, as: "name" },
    { key: "max_length", label: t.maxLength },
    { key: "mean_length", label: t.meanLength, bar: true },
    { key: "empty_share", label: t.emptyShare, bar: true, color: () => "var(--kind-wait)" },
    { key: "empty_ns", label: t.wait },
  ];
  return (
    <Card title={t.launch} note={t.launchNote} flush>
      <Await of={asked}>{(table) => <Grid id="launch" table={table} columns={columns} sort="-mean_length" label={t.launch} height={`${Math.min(8, table.rows + 1) * 28 + 4}px`} />}</Await>
    </Card>
  );
}

function NoPipeline() {
  const t = text();
  const framework = info.value?.framework;
  return <Card title={t.pipeTitle}><Empty title={t.noPipe} height={110}>{framework === "mindspore" ? t.hostHowMindspore : framework === "pytorch" ? t.hostHowPytorch : t.hostHow}</Empty></Card>;
}

/** Operators and queues as a picture, the chosen queue's history, and the operators as a table. */
function Pipeline({ table }: { table: Table }) {
  const t = text();
  const samples = useTable("queue_samples", {}, { skip: table.rows === 0 });
  if (table.rows === 0) return <NoPipeline />;
  const ids = table.num("op_id");
  const queued = table.where((row) => Number.isFinite(table.num("queue_share")[row]));
  const bottleneck = table.str("verdict").indexOf("bottleneck");
  // Without a choice: the queue before the bottleneck, else the one that the training reads.
  const before = bottleneck < 0 ? -1 : queued.find((row) => table.num("parent")[row] === ids[bottleneck]) ?? bottleneck;
  const wanted = param("sel");
  const chosen = wanted === undefined ? (before >= 0 ? before : (queued[0] ?? -1)) : ids.indexOf(Number(wanted));
  const detail = param("view") === "pipeline";
  return (
    <>
      <Card title={t.pipeTitle} note={t.pipeNote} tools={<Legend of={[{ label: t.filled, color: "var(--kind-compute)" }, { label: t.free, color: "var(--grid)" }]} />}>
        <Picture table={table} samples={samples.data} chosen={chosen} />
      </Card>
      <div class="two">
        {chosen >= 0 && <History table={table} row={chosen} asked={samples} />}
        <Todo table={table} />
      </div>
      {detail && <Operators table={table} chosen={chosen} />}
    </>
  );
}

interface Node {
  row: number;
  /** Columns from the left, lines from the top. */
  column: number;
  line: number;
}

/** A tree from the operators that read storage, on the left, to the training on the right: one column per step on the way. */
function layered(table: Table): { nodes: Node[]; columns: number; lines: number } {
  const ids = table.num("op_id");
  const parent = table.num("parent");
  const rowOf = new Map(Array.from(ids, (id, row) => [id, row]));
  const children = new Map<number, number[]>();
  const roots: number[] = [];
  for (let row = 0; row < table.rows; row++) {
    const above = rowOf.get(parent[row]);
    if (above === undefined || above === row) roots.push(row);
    else children.set(above, [...(children.get(above) ?? []), row]);
  }
  const depth = new Map<number, number>();
  const line = new Map<number, number>();
  let lines = 0;
  const place = (row: number, deep: number) => {
    if (depth.has(row)) return; // a circle, which no pipeline has
    depth.set(row, deep);
    const below = children.get(row) ?? [];
    for (const child of below) place(child, deep + 1);
    // A reader stands in the middle of those it reads from.
    const on = below.map((child) => line.get(child) ?? 0);
    line.set(row, on.length ? (Math.min(...on) + Math.max(...on)) / 2 : lines++);
  };
  for (const root of roots) place(root, 0);
  for (let row = 0; row < table.rows; row++) place(row, 0);
  const most = Math.max(0, ...depth.values());
  return { nodes: Array.from({ length: table.rows }, (_, row) => ({ row, column: most - depth.get(row)!, line: line.get(row)! })), columns: most + 1, lines };
}

const BOX = { width: 116, least: 100, height: 100 };
const GAP = { queue: [84, 200], plain: 34 } as const;

function Picture({ table, samples, chosen }: { table: Table; samples: Table | null; chosen: number }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const { nodes, columns, lines } = useMemo(() => layered(table), [table]);
  // Where no queue stands between two columns they move together; the queues share the room that is left.
  const queued = Array.from({ length: columns }, (_, column) => nodes.some((node) => node.column === column && Number.isFinite(table.num("queue_share")[node.row])));
  const count = queued.filter(Boolean).length || 1;
  const plain = GAP.plain * (columns - count);
  const wide = Math.max(BOX.least, Math.min(BOX.width, (width - 4 - plain - GAP.queue[0] * count) / (columns + 1)));
  const room = (width - 4 - wide * (columns + 1) - plain) / count;
  const gap = Math.max(GAP.queue[0], Math.min(GAP.queue[1], room));
  const left = [1];
  for (const one of queued) left.push(left[left.length - 1] + wide + (one ? gap : GAP.plain));
  const tall = BOX.height + 16;
  const [total, height] = [left[columns] + wide + 2, Math.max(1, lines) * tall - 14];
  const parents = table.num("parent");
  const rowOf = new Map(Array.from(table.num("op_id"), (id, row) => [id, row]));
  const at = (node: { column: number; line: number }): [number, number] => [left[node.column], 1 + node.line * tall];
  const roots = nodes.filter((node) => !rowOf.has(parents[node.row]));
  const train = { column: columns, line: roots.reduce((all, node) => all + node.line, 0) / Math.max(1, roots.length) };
  const [trainX, trainY] = at(train);
  const choose = (row: number) => go({ params: { sel: table.raw("op_id", row) } }, true);
  const keys = (row: number) => (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(row);
  };
  return (
    <div class="pipe" ref={box}>
      {width > 0 && (
        <svg width={Math.max(total, 10)} height={height} role="group" aria-label={t.pipeTitle}>
          {nodes.map((node) => {
            const reader = nodes.find((other) => rowOf.get(parents[node.row]) === other.row) ?? train;
            const [fromX, fromY] = at(node);
            const [toX, toY] = at(reader);
            return <QueueShape key={node.row} table={table} row={node.row} samples={samples} from={[fromX + wide, fromY]} to={[toX, toY]} on={node.row === chosen} onPick={() => choose(node.row)} onKey={keys(node.row)} readerName={reader === train ? t.training : (table.str("op_type")[(reader as Node).row] ?? "")} />;
          })}
          {nodes.map((node) => {
            const [x, y] = at(node);
            const bad = table.str("verdict")[node.row] === "bottleneck";
            const workers = table.num("workers")[node.row];
            const cpu = (table.num("user_share")[node.row] || 0) + (table.num("system_share")[node.row] || 0);
            const measured = Number.isFinite(table.num("user_share")[node.row]);
            const name = table.str("op_type")[node.row] ?? "";
            return (
              <g key={node.row} transform={`translate(${x} ${y})`}>
                <title>{name}</title>
                <rect class={`box ${bad ? "bad" : ""}`} width={wide} height={BOX.height} rx="6" />
                <text class="op" x="10" y="20">{name.length > 14 ? `${name.slice(0, 13)}…` : name}</text>
                <text x="10" y="39">{workers === 0 ? t.noWorkers : workers === 1 ? t.worker : Number.isFinite(workers) ? fill(t.workersN, { count: workers }) : ""}</text>
                {measured && <text x="10" y="57">{fill(t.cpu, { share: units.text(units.share(cpu)) })}</text>}
                {bad && <text class="badword" x="10" y="88">{t.bottleneck}</text>}
              </g>
            );
          })}
          <g transform={`translate(${trainX} ${trainY})`}>
            <rect class="box train" width={wide} height={BOX.height} rx="6" />
            <text class="op" x="10" y="20">{t.training}</text>
          </g>
        </svg>
      )}
    </div>
  );
}

const CELLS = 16;

interface QueueShapeProps {
  table: Table;
  row: number;
  samples: Table | null;
  from: [number, number];
  to: [number, number];
  on: boolean;
  onPick: () => void;
  onKey: (event: KeyboardEvent) => void;
  readerName: string;
}

/** The queue between an operator and its reader: as many cells as places, filled from the left; its use and its history below. */
function QueueShape({ table, row, samples, from, to, on, onPick, onKey, readerName }: QueueShapeProps) {
  const t = text();
  const share = table.num("queue_share")[row];
  const capacity = table.num("queue_capacity")[row];
  const [y, wide] = [from[1] + 22, to[0] - from[0]];
  const bend = to[1] !== from[1];
  const arrow = (x: number, at: number) => <path d={`M${x - 6} ${at - 4}L${x} ${at}L${x - 6} ${at + 4}`} class="wire" />;
  if (!Number.isFinite(share)) {
    const middle = from[0] + wide / 2;
    return (
      <g>
        <path class="wire" d={bend ? `M${from[0]} ${y}H${middle}V${to[1] + 22}H${to[0] - 2}` : `M${from[0]} ${y}H${to[0] - 2}`} />
        {arrow(to[0] - 1, to[1] + 22)}
      </g>
    );
  }
  const [left, right] = [from[0] + 12, Math.min(to[0] - (bend ? 26 : 14), from[0] + 220)];
  const cells = capacity > 0 && capacity <= CELLS ? capacity : 0;
  const inner = right - left - 6;
  const low = share < 0.2;
  const name = `${fill(t.intoQueue, { reader: readerName })}: ${units.text(units.share(share))}`;
  const turn = to[0] - 18;
  return (
    <g class={on ? "on" : ""} role="button" tabindex={0} aria-pressed={on} aria-label={name} onClick={onPick} onKeyDown={onKey}>
      <path class="wire" d={`M${from[0]} ${y}H${left}M${right} ${y}${bend ? `H${turn}V${to[1] + 22}` : ""}H${to[0] - 2}`} />
      {arrow(to[0] - 1, to[1] + 22)}
      <rect x={left - 4} y={y - 20} width={right - left + 8} height="82" fill="transparent" />
      {on && <rect class="halo" x={left - 2.5} y={y - 12.5} width={right - left + 5} height="25" rx="5" />}
      <rect class="frame" x={left} y={y - 10} width={right - left} height="20" rx="3" />
      {cells
        ? Array.from({ length: cells }, (_, cell) => <rect key={cell} class={`cell ${cell < Math.round(share * cells) ? "filled" : ""}`} x={left + 3 + (cell * inner) / cells} y={y - 7} width={Math.max(1, inner / cells - 1)} height="14" rx="1" />)
        : [<rect key="free" class="cell" x={left + 3} y={y - 7} width={inner} height="14" />, <rect key="filled" class="cell filled" x={left + 3} y={y - 7} width={inner * Math.min(1, share)} height="14" />]}
      <text x={(left + right) / 2} y={y + 27} text-anchor="middle"><tspan class="use">{fill(t.ofPlaces, { share: units.text(units.share(share)), places: capacity })}</tspan></text>
      <Past samples={samples} id={table.num("op_id")[row]} capacity={capacity} x={left} y={y + 34} width={right - left} color={low ? "var(--kind-wait)" : "var(--kind-compute)"} />
    </g>
  );
}

/** The samples of one operator's queue. Where it is also sampled as batches are taken, the operator's own samples count. */
function samplesOf(samples: Table, id: number): number[] {
  const rows = samples.where((row) => samples.num("op_id")[row] === id);
  const own = rows.filter((row) => samples.str("queue")[row]?.startsWith("operator "));
  return own.length ? own : rows;
}

function Past({ samples, id, capacity, x, y, width, color }: { samples: Table | null; id: number; capacity: number; x: number; y: number; width: number; color: string }) {
  const values = useMemo(() => (samples ? Float64Array.from(samplesOf(samples, id), (row) => samples.num("depth")[row]) : new Float64Array()), [samples, id]);
  if (values.length < 2) return null;
  const tall = 20;
  const most = Math.max(capacity || 1, 1);
  const path = minmaxPath(values, (at) => x + (at / (values.length - 1)) * width, (value) => y + tall - (Math.min(value, most) / most) * (tall - 2), width);
  return <path d={path} fill="none" stroke={color} stroke-width="1.25" />;
}

/** How the chosen queue filled and emptied, and what stands on both sides of it. */
function History({ table, row, asked }: { table: Table; row: number; asked: Asked<Table> }) {
  const t = text();
  const id = table.num("op_id")[row];
  const above = table.num("op_id").indexOf(table.num("parent")[row]);
  const writer = table.str("op_type")[row] ?? "";
  const reader = above < 0 ? t.training : (table.str("op_type")[above] ?? "");
  const capacity = table.num("queue_capacity")[row];
  const side = (which: number) => which < 0 ? t.training : `${table.str("op_type")[which]} · ${table.num("workers")[which] === 1 ? t.worker : fill(t.workersN, { count: units.count(table.num("workers")[which]).value })}${Number.isFinite(table.num("user_share")[which]) ? ` · ${fill(t.cpu, { share: units.text(units.share(table.num("user_share")[which] + table.num("system_share")[which])) })}` : ""}`;
  return (
    <Card class="chosen" title={fill(t.intoQueue, { reader })} note={fill(t.queueNote, { writer, reader, places: Number.isFinite(capacity) ? capacity : "–" })} tools={<span class="d3 small">{fill(t.samples, { count: units.count(table.num("samples")[row]).value })}</span>}>
      <Await of={asked} rows={4}>
        {(samples) => <Lines table={table} samples={samples} id={id} above={above} reader={reader} capacity={capacity} />}
      </Await>
      <Facts
        of={[
          [t.mean, <><Share of={table.num("queue_share")[row]} /> ({units.count(table.num("queue_depth")[row]).value})</>],
          [t.emptyTime, <Share of={table.num("empty_share")[row]} />],
          [t.fullTime, <Share of={table.num("full_share")[row]} />],
          [t.producer, side(row)],
          [t.consumer, side(above)],
        ]}
      />
    </Card>
  );
}

function Lines({ table, samples, id, above, reader, capacity }: { table: Table; samples: Table; id: number; above: number; reader: string; capacity: number }) {
  const t = text();
  const made = useMemo(() => {
    const rows = samplesOf(samples, id);
    const x = Float64Array.from(rows, (row) => samples.num("at_ns")[row]);
    const own = Float64Array.from(rows, (row) => samples.num("depth")[row]);
    const next = above < 0 ? [] : samplesOf(samples, table.num("op_id")[above]);
    // Both are samples of the same moments, or the second is left out.
    const same = next.length === rows.length && next.length > 0;
    return { x, own, next: same ? Float64Array.from(next, (row) => samples.num("depth")[row]) : null };
  }, [samples, id, above]);
  if (made.x.length < 2) return <Empty title={t.noSamples} height={100} />;
  const beyond = above < 0 ? -1 : table.num("op_id").indexOf(table.num("parent")[above]);
  const lines = [
    { label: fill(t.depthLine, { reader }), values: made.own, color: "--kind-compute", area: true, stepped: true as const },
    ...(made.next ? [{ label: fill(t.nextLine, { next: beyond < 0 ? t.training : (table.str("op_type")[beyond] ?? "") }), values: made.next, color: "--kind-wait", stepped: true as const }] : []),
  ];
  return (
    <>
      <Legend of={lines.map((line) => ({ label: line.label, color: `var(${line.color})` }))} />
      <Series x={made.x} lines={lines} as="count" height={140} top={Number.isFinite(capacity) ? capacity : undefined} label={fill(t.intoQueue, { reader })} />
    </>
  );
}

/** What `data_pipeline` advises, in Chinese. */
const HINTS: Record<string, string> = {
  "raise num_workers or prefetch_factor, or do less per sample in the dataset's __getitem__": "增大 num_workers 或 prefetch_factor，或减少数据集 __getitem__ 中每个样本的工作",
  "raise num_parallel_workers, or store the data as MindRecord and read it with MindDataset": "增大 num_parallel_workers，或将数据存为 MindRecord 并用 MindDataset 读取",
  "raise num_parallel_workers; if it calls Python functions, make them faster or use the built-in transforms": "增大 num_parallel_workers；如果它调用 Python 函数，请加快这些函数或改用内置变换",
  "raise prefetch_size (mindspore.dataset.config.set_prefetch_size) or num_parallel_workers": "增大 prefetch_size（mindspore.dataset.config.set_prefetch_size）或 num_parallel_workers",
  "raise num_parallel_workers": "增大 num_parallel_workers",
  "num_workers is 0: the training prepares each batch itself, and waits for it": "num_workers 为 0：训练自己准备每个批次，并等待它",
};

/** A hint of the analysis in the reader's language. */
function advised(hint: string | null): string {
  return (language() === "zh" ? HINTS[hint ?? ""] : undefined) ?? hint ?? "";
}

/** What the analysis advises, operator by operator. */
function Todo({ table }: { table: Table }) {
  const t = text();
  const rows = table.where((row) => !!table.str("hint")[row]);
  return (
    <Card title={t.todo} tools={<a class="small" href={link({ page: "cpu" })}>{t.toCpu}</a>}>
      <div class="todo">
        {rows.map((row) => (
          <div key={row} class={table.str("verdict")[row] === "bottleneck" ? "" : "soft"}>
            <b>{table.str("op_type")[row]} <Word of={table.str("verdict")[row]} /></b>
            <span class="d2">{advised(table.str("hint")[row])}</span>
          </div>
        ))}
        {!rows.length && <p class="d2">{t.todoNone}</p>}
        <p class="d3 small">{t.rulesPipe}</p>
      </div>
    </Card>
  );
}

function Operators({ table, chosen }: { table: Table; chosen: number }) {
  const t = text();
  const columns: Column[] = [
    { key: "op_id", label: t.id, as: "count", width: "56px" },
    { key: "op_type", label: t.op, as: "name" },
    { key: "workers", label: t.workersHead },
    { key: "queue_share", label: t.use, bar: true },
    { key: "queue_capacity", label: t.capacity },
    { key: "empty_share", label: t.emptyTime },
    { key: "full_share", label: t.fullTime },
    { key: "user_share", label: t.user, bar: true, color: () => "var(--kind-host)" },
    { key: "system_share", label: t.system },
    { key: "batch_ns", label: t.batch },
    { key: "verdict", label: t.verdict, as: "text", show: (data, row) => <Word of={data.str("verdict")[row]} /> },
    { key: "hint", label: t.hint, as: "text", width: "minmax(120px, 2fr)", show: (data, row) => <span class="name cut" title={advised(data.str("hint")[row])}>{advised(data.str("hint")[row]) || units.MISSING}</span> },
  ];
  return (
    <Card title={t.opsTitle} flush>
      <Grid id="ops" table={table} columns={columns} what={t.operators} rowKey={(data, row) => data.raw("op_id", row)} selected={chosen < 0 ? null : table.raw("op_id", chosen)} onOpen={(data, row) => go({ params: { sel: data.raw("op_id", row) } }, true)} label={t.opsTitle} height={`${Math.min(12, table.rows + 1) * 28 + 4}px`} />
    </Card>
  );
}
