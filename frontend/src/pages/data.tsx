// page: {"order": 70, "group": "performance", "icon": "data", "needs": ["pipeline", "data", "queue", "batch time"]}
/** Whether the training waits for data, and which part of the pipeline is the bottleneck. */
import "./steps.css";
import "./data.css";
import { warmupParams, info, useTable } from "../data";
import { Loading, Tabs, Trouble, Verdict } from "../parts/basics";
import { Time } from "../parts/quantity";
import { StepGap } from "../preparation/gap";
import { Pipeline } from "../preparation/pipeline";
import type { InputTables } from "../preparation/tables";
import { go, param } from "../state";
import { Table } from "../table";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import { Message, useVerdict } from "../verdict";

const text = strings("data");

type View = "everything" | "gap" | "pipeline";

export default function Data() {
  const t = text();
  const now = info.value!;
  const waits = useTable("step_stages", {}, { skip: !now.kinds.data });
  const trace = useTable("step_trace");
  const queues = useTable("data_queues");
  const whole = useTable("data_queues", { per_step: false });
  const pipeline = useTable("data_pipeline");
  const overview = useTable("overview", warmupParams());
  const verdict = useVerdict("input", warmupParams());
  const fetched = [waits, trace, queues, whole, pipeline, overview];
  const error = fetched.find((item) => item.error)?.error;
  if (error) return <Trouble error={error} />;
  if (fetched.some((item) => item.data === null && item.waiting)) return <Loading rows={12} />;
  const all: InputTables = {
    waits: waits.data,
    trace: trace.data!,
    queues: queues.data!,
    whole: whole.data!,
    pipeline: pipeline.data!,
    verdict: verdict.data ?? [],
    share: overview.data!.num("input_wait_share")[0] ?? NaN,
    wait: overview.data!.num("input_wait_ns")[0] ?? NaN,
    median: overview.data!.num("step_ns")[0],
  };
  const view = (param("view") as View | undefined) ?? "everything";
  const pipe = all.pipeline.rows > 0;
  return (
    <>
      <Headline {...all} />
      <Tabs
        choices={[
          { id: "everything", label: t.everything },
          { id: "gap", label: t.gap },
          { id: "pipeline", label: t.pipeline, count: all.pipeline.rows },
        ]}
        value={view}
        onChange={(id) => go({ params: { view: id === "everything" ? null : id } })}
        label={t.parts}
      />
      {view !== "gap" && (pipe || view === "pipeline") && <Pipeline table={all.pipeline} />}
      {view !== "pipeline" && <StepGap {...all} whole={all.whole} detail={view === "gap"} />}
    </>
  );
}

function Headline({ trace, whole, pipeline, wait, median, verdict }: InputTables) {
  const t = text();
  const read = mainQueue(whole);
  const [empty, batches, full] =
    read < 0 ? [NaN, NaN, NaN] : [whole.num("empty")[read], whole.num("batches")[read], whole.num("full")[read]];
  const workers = pipeline.rows === 1 ? pipeline.num("workers")[0] : NaN;
  return (
    <Verdict
      facts={[
        trace.rows > 0 && fill(trace.rows === 1 ? t.oneStep : t.steps, { count: units.count(trace.rows).value }),
        Number.isFinite(wait) && (
          <Sentence
            template={t.perStep}
            wait={<Time ns={wait} figure="input_wait_ns" />}
            step={<Time ns={median} figure="step_ns" />}
          />
        ),
        Number.isFinite(empty) &&
          fill(t.empty, {
            queue: whole.str("queue")[read] ?? "",
            empty: units.count(empty).value,
            batches: units.count(batches).value,
          }),
        full > 0 && fill(t.full, { full: units.count(full).value, batches: units.count(batches).value }),
        pipeline.rows > 1 && fill(t.ops, { count: pipeline.rows }),
        workers > 0 && fill(t.workers, { count: workers }),
      ]}
    >
      {verdict.length ? <Message of={verdict[0]} /> : "…"}
    </Verdict>
  );
}

/** The queue that the training reads: on the device if there is one, else on the host. */
function mainQueue(whole: Table): number {
  const names = whole.str("queue");
  const match = ["device", "iterator", "device queue"].map((name) => names.indexOf(name)).find((row) => row >= 0);
  return match ?? (whole.rows ? 0 : -1);
}
