// page: {"order": 30, "group": "performance", "icon": "steps", "needs": ["steps"], "ofSummary": true}
/** The average or one step: its stages and transfers in order; and the distribution over all steps. */
import "./steps.css";
import { warmupParams, allStepsParam, info, shownSteps, useTable } from "../data";
import { Card, Empty, Legend, Loading, Trouble, Verdict } from "../parts/basics";
import { Time } from "../parts/quantity";
import type { Part } from "../parts/step_axis";
import { StepBars } from "../parts/step_bars";
import type { Params } from "../source";
import { go, link, param } from "../state";
import { Controls, markerSource } from "../steps/controls";
import { Distribution, Stage } from "../steps/distribution";
import { figures, PARTS } from "../steps/figures";
import { StepOrder } from "../steps/order";
import { AllSteps, StageTable } from "../steps/tables";
import { meanTransfers, exposedTime, stepTransfers, TransferTable } from "../steps/transfers";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { Message, tone, useVerdict } from "../verdict";
import { useMemo, useState } from "preact/hooks";

const text = strings("steps");

export default function Steps() {
  const t = text();
  const choices = { fp_start: param("fp_start"), bp_end: param("bp_end"), clock: param("clock") };
  const trace = useTable("step_trace", choices);
  const times = useTable("step_times", { ...choices, ...warmupParams() });
  if (info.value && info.value.steps.length === 0) {
    return (
      <>
        <Verdict>{t.noSteps}</Verdict>
        <Empty title={t.noSteps} height={200}>
          {t.noStepsHow}
        </Empty>
      </>
    );
  }
  // A name that does not occur: show the error, and keep the controls.
  const error = trace.error ?? times.error;
  if (error)
    return (
      <>
        <Trouble error={error} />
        <Controls table={trace.data} at={null} found="" />
      </>
    );
  if (!trace.data || !times.data) return <Loading rows={12} />;
  return (
    <div class={`stack ${trace.waiting || times.waiting ? "stale" : "fresh"}`} aria-busy={trace.waiting}>
      <StepPage trace={trace.data} times={times.data} given={choices} />
    </div>
  );
}

function StepPage({ trace, times, given }: { trace: Table; times: Table; given: Params }) {
  const t = text();
  const steps = trace.num("step");
  const total = trace.num("total_ns");
  const of = useMemo(() => figures(times), [times]);
  const step = of.get("step");
  const wanted = param("sel");
  const selected = wanted === undefined ? null : steps.indexOf(Number(wanted));
  const at = selected === null || selected < 0 ? null : selected;
  const [hovered, setHovered] = useState<number | null>(null);
  const leftOut = useMemo(
    () =>
      new Set(Array.from({ length: Math.max(0, steps.length - (step?.steps ?? steps.length)) }, (_, first) => first)),
    [steps, step],
  );
  const all = useVerdict("steps", { ...given, ...warmupParams() });
  const single = useVerdict("steps", { ...given, ...warmupParams(), per_step: 1 }, { skip: at === null });
  const verdict = at === null ? all.data : single.data && single.data.filter((row) => row.step === steps[at]);
  const divided = !trace.blank("fp_bp_ns");
  const parts = useMemo(() => {
    const result: Part[] = PARTS.map((part) => ({
      label: t[part.word],
      color: part.color,
      values: trace.num(part.key),
    }));
    const bare = total.map((value, row) => (Number.isFinite(trace.num("fp_bp_ns")[row]) ? NaN : value));
    if (bare.some(Number.isFinite)) result.push({ label: t.undivided, color: "var(--op-other)", values: bare });
    return result.filter((part) => Array.from(part.values).some(Number.isFinite));
  }, [trace, t]);
  const clock = param("clock");
  const reduces = useTable("reduces", {}, { skip: !info.value?.kinds.communication });
  const overlap = useTable("overlap", {}, { skip: at === null || !info.value?.kinds.communication });
  const means = useTable(
    "reduces_per_step",
    { ...warmupParams(), clock },
    { skip: at !== null || !info.value?.kinds.communication },
  );
  const transfers = useMemo(
    () => (at === null ? meanTransfers(means.data) : stepTransfers(reduces.data, trace, at)),
    [at, means.data, reduces.data, trace],
  );
  const pick = (place: number | null) => go({ params: { sel: place === null ? null : steps[place] } });
  const exposed = at === null ? (of.get("exposed communication")?.mean_ns ?? 0) : exposedTime(overlap.data, steps[at]);
  const say = (place: number, among: number) => (
    <>
      <b>
        {t.step} {units.count(steps[place]).value}
      </b>{" "}
      {among > 1 && <span class="d3">{fill(t.among, { count: among })}</span>}
      <dl>
        <dt>{t.total}</dt>
        <dd>
          <Time ns={total[place]} />
        </dd>
        {PARTS.map(
          (part) =>
            Number.isFinite(trace.num(part.key)[place]) && [
              <dt key={part.key}>{t[part.word]}</dt>,
              <dd key={`${part.key}v`}>
                <Time ns={trace.num(part.key)[place]} />
              </dd>,
            ],
        )}
      </dl>
    </>
  );
  const compared = verdict?.[0]?.values ?? {};
  const shared = { compared, steps, leftOut, selected: at, hovered, onHover: setHovered, onPick: pick, say };
  const range = shownSteps();
  return (
    <>
      <Verdict
        facts={[
          step && (step.steps === 1 ? t.countedOne : fill(t.counted, { count: units.count(step.steps).value })),
          leftOut.size > 0 && (
            <>
              {fill(t.outOne, {
                step: Array.from(leftOut, (place) => steps[place]).join(", "),
                total: units.text(units.time(total[0])),
              })}{" "}
              <button class="aslink" onClick={() => go({ params: { warmup: "keep" } })}>
                {t.keep}
              </button>
            </>
          ),
          param("warmup") === "keep" && (
            <>
              {t.kept}{" "}
              <button class="aslink" onClick={() => go({ params: { warmup: null } })}>
                {t.leave}
              </button>
            </>
          ),
          trace.str("how")[0] === "whole" && t.noStepsHow,
          range && (
            <>
              {fill(t.ranged, { range: range.replace(":", "–") })}{" "}
              <button class="aslink" onClick={() => go({ params: { steps: allStepsParam() } })}>
                {t.allSteps}
              </button>
            </>
          ),
          { host: t.clockHost, device: t.clockDevice, source: t.clockSource }[trace.str("clock")[0] ?? ""],
        ]}
      >
        {verdict?.length ? <Message of={verdict[0]} /> : "…"}
      </Verdict>
      <Controls table={trace} at={at} found={markerSource(trace, at)} />
      {selected !== null && selected < 0 && (
        <Empty title={fill(t.noStep, { step: wanted ?? "" })} height={60}>
          <a href={link({ params: { sel: null } })}>{t.backToAverage}</a>
        </Empty>
      )}
      <Card
        title={t.every}
        note={steps.length > 600 ? `${t.everyNote}; ${t.bandNote}` : t.everyNote}
        tools={<Legend of={parts.map((part) => ({ label: part.label, color: part.color }))} />}
        flush
      >
        <StepBars
          {...shared}
          parts={parts}
          total={total}
          median={step?.p50_ns}
          onRange={(first, last) => go({ params: { steps: `${steps[first]}:${steps[last]}` } })}
          label={t.every}
        />
      </Card>
      <StepOrder
        trace={trace}
        of={of}
        at={at}
        transfers={transfers}
        exposed={exposed}
        tone={tone(verdict?.find((row) => row.code === "step-exposed-communication"))}
      />
      {divided ? (
        <div class="three">
          <Stage
            {...shared}
            trace={trace}
            of={of}
            which={2}
            head={t.intervalHead}
            note={t.intervalNote}
            to={{ page: "data", label: t.toData }}
          />
          <Stage
            {...shared}
            trace={trace}
            of={of}
            which={0}
            head={t.fpBp}
            note={t.fpBpNote}
            to={{ page: "operators", label: t.toOperators }}
          />
          <Stage
            {...shared}
            trace={trace}
            of={of}
            which={1}
            head={t.tailHead}
            note={t.tailNote}
            to={{ page: "communication", label: t.toCommunication }}
          />
        </div>
      ) : (
        <Empty title={t.undivided} height={60}>
          {t.undividedHow}
        </Empty>
      )}
      <div class="two wide">
        <Distribution trace={trace} of={of} at={at} leftOut={leftOut} />
        <Card title={t.stagesTitle} note={t.stagesOf} flush>
          <StageTable trace={trace} of={of} at={at} />
        </Card>
      </div>
      {transfers.length > 0 && (
        <TransferTable
          transfers={transfers}
          note={at === null ? t.transfersAverage : fill(t.transfersOf, { step: steps[at] })}
        />
      )}
      <AllSteps trace={trace} selected={at === null ? null : String(steps[at])} />
    </>
  );
}
