// page: {"order": 70, "group": "performance", "icon": "data", "en": "Data preparation", "zh": "数据准备", "needs": ["pipeline", "data", "queue", "batch time"]}
/** Does the training wait for its data, and which part of the pipeline makes it wait? */
import "./steps.css";
import "./data.css";
import type { ComponentChildren } from "preact";
import { counting, info, useTable } from "../data";
import { Loading, Share, Tabs, Time, Trouble, Verdict } from "../parts/basics";
import { StepGap } from "../preparation/gap";
import { Pipeline } from "../preparation/pipeline";
import type { Recorded } from "../preparation/recorded";
import { LOST, text } from "../preparation/words";
import { go, param } from "../state";
import { Table } from "../table";
import { fill, Say } from "../text";
import * as units from "../units";

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
  const all: Recorded = { waits: waits.data, trace: trace.data!, queues: queues.data!, whole: whole.data!, pipeline: pipeline.data!, share: overview.data!.num("input_wait_share")[0] ?? NaN, wait: overview.data!.num("input_wait_ns")[0] ?? NaN, median: overview.data!.num("step_ns")[0] };
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

function Sentence({ trace, whole, pipeline, share, wait, median }: Recorded) {
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
  let sentence;
  if (Number.isFinite(share) && share >= LOST) {
    if (transfer) sentence = <Say of={t.waitsTransfer} share={part} />;
    else if (op) sentence = <Say of={t.starved} share={part} op={op} rule={rule} />;
    else if (!Number.isFinite(batches) || !Number.isFinite(empty)) sentence = <Say of={t.waitsAlone} share={part} />;
    else if (empty > 0.2 * batches) sentence = <Say of={t.waits} share={part} {...counts} />;
    else sentence = <Say of={t.waitsReady} share={part} {...counts} />;
  } else if (Number.isFinite(share)) sentence = op ? <Say of={t.readySlow} share={part} op={op} /> : <Say of={t.ready} share={part} />;
  else if (Number.isFinite(empty)) sentence = <Say of={t.queueOnly} {...counts} />;
  else if (op) sentence = <Say of={t.pipelineOnly} op={op} rule={rule} />;
  else sentence = t.unknown;
  const workers = pipeline.rows === 1 ? pipeline.num("workers")[0] : NaN;
  return (
    <Verdict
      facts={[
        trace.rows > 0 && fill(trace.rows === 1 ? t.oneStep : t.steps, { count: units.count(trace.rows).value }),
        Number.isFinite(wait) && <Say of={t.perStep} wait={<Time ns={wait} />} step={<Time ns={median} />} />,
        Number.isFinite(empty) && fill(t.empty, { queue: whole.str("queue")[read] ?? "", empty: units.count(empty).value, batches: units.count(batches).value }),
        full > 0 && fill(t.full, { full: units.count(full).value, batches: units.count(batches).value }),
        pipeline.rows > 1 && fill(t.ops, { count: pipeline.rows }),
        workers > 0 && fill(t.workers, { count: workers }),
      ]}
    >
      {sentence}
    </Verdict>
  );
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
