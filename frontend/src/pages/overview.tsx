// page: {"order": 20, "group": "performance", "icon": "overview", "en": "Overview", "zh": "概览"}
import "./overview.css";
import type { ComponentChildren } from "preact";
import { counting, info, rank, ranged, useTable } from "../data";
import { type Case, deviceWord, finding, type Finding, onDevice } from "../finding";
import { OverheadSentence, SlowedSentence, overheadFact, overheadOf } from "../overhead";
import { Activity } from "../overview/activity";
import { pickedStep } from "../overview/chosen";
import { FigureTiles } from "../overview/figures";
import { StepPicture } from "../overview/picture";
import { Preparation } from "../overview/preparation";
import { StepsCard } from "../overview/steps";
import { OperatorTypes } from "../overview/types";
import { WhyCard } from "../overview/why";
import { text } from "../overview/words";
import { Loading, Share, Time, Trouble, Verdict } from "../parts/basics";
import { framework, useStepNumbers } from "../shell";
import type { Info } from "../source";
import { link } from "../state";
import type { Table } from "../table";
import { fill, Say } from "../text";
import * as units from "../units";

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
      <Sentence now={now} overview={overview.data} found={device && !causes.data && !causes.error ? null : found} />
      {overview.data.rows > 0 && (
        <>
          <StepPicture now={now} overlap={overlap} chosen={chosen} overview={overview.data} />
          <FigureTiles now={now} overview={overview.data} overlap={overlap.data} />
        </>
      )}
      <div class="ov-cols">
        <div class="col">
          {overview.data.rows > 0 && <StepsCard overview={overview.data} overlap={overlap} chosen={chosen} />}
          {device && <WhyCard now={now} causes={causes} overview={overview.data} />}
          <Preparation now={now} overview={overview.data} />
        </div>
        <OperatorTypes overview={overview.data} />
      </div>
      <Activity now={now} />
    </div>
  );
}

function Sentence({ now, overview, found }: { now: Info; overview: Table; found: Finding | null }) {
  const t = text();
  const facts = useFacts(now, overview, found !== null && WAITS.includes(found.case));
  const onlyStep = useOnlyStep(overview);
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
  const only = whole ? null : onlyStep;
  const first = whole ? t.whole : only !== null ? t.onlyStep : host ? t.stepHost : t.step;
  const over = onDevice(now) ? overheadOf(overview, 0) : null;
  const compute = overview.num("compute_share")[0] * (over ? over.step / over.bare : 1);
  const why = REST[found.case];
  if (over)
    return (
      <Verdict facts={facts}>
        <OverheadSentence of={over} device={word} />{" "}
        {why && <Say of={t.rest} why={t[why]} />}
        {found.case === "communication" && <Say of={t.communication} device={word} compute={<b><Share of={compute} /></b>} lost={<b><Share of={found.share} /></b>} />}
      </Verdict>
    );
  return (
    <Verdict facts={facts}>
      <Say of={first} step={<b><Time ns={overview.num("step_ns")[0]} /></b>} number={<b>{only}</b>} />{" "}
      <Say of={t[found.case]} device={word} compute={<b><Share of={compute} /></b>} lost={<b><Share of={found.share} /></b>} />
      {overview.str("device_step_ranges")[0] && <>{" "}<Say of={t.recordedSteps} ranges={overview.str("device_step_ranges")[0]} count={units.count(overview.num("steps")[0]).value} /></>}
      {WAITS.includes(found.case) && <>{" "}<SlowedSentence overview={overview} device={word} /></>}
    </Verdict>
  );
}

/** The device waits, and a slower host makes it wait longer. */
const WAITS: Case[] = ["launch", "sync", "latency", "idle"];
const REST: Partial<Record<Case, "why_host" | "why_data" | "why_sync" | "why_launch">> = { launch: "why_host", input: "why_data", sync: "why_sync", latency: "why_launch" };

/** The number of the one step that the figures are of; null where they are of several, or it is not known yet. */
function useOnlyStep(overview: Table): number | null {
  const [low, high] = (ranged() ?? "").split(":").map(Number);
  const numbers = useStepNumbers()?.filter((step) => !ranged() || (step >= low && step <= (high ?? low)));
  if (!numbers || !overview.rows || overview.num("steps")[0] !== 1) return null;
  const counted = numbers.slice(overview.num("left_out")[0] || 0);
  return counted.length === 1 ? counted[0] : null;
}

function useFacts(now: Info, overview: Table, waits: boolean): ComponentChildren[] {
  const t = text();
  const firstStep = useStepNumbers()?.[0] ?? "–";
  const said: ComponentChildren[] = [];
  if (overview.rows) {
    const count = overview.num("steps")[0];
    const how = overview.str("steps_how")[0] ?? "";
    const words = how.split(", ").map((one) => ({ marker: t.marker, given: t.given, inferred: t.inferred, whole: t.wholeHow, "device ranges": t.deviceRanges })[one] ?? one).join(", ");
    if (count > 1) said.push(<Say of={t.medianOf} count={units.count(count).value} low={<Time ns={overview.num("min_ns")[0]} />} high={<Time ns={overview.num("max_ns")[0]} />} />);
    else said.push(t.oneStep);
    if (overview.num("left_out")[0] === 1) said.push(<a href={link({ page: "steps", params: { sel: firstStep } })}>{fill(t.outFact, { step: firstStep, time: units.text(units.time(overview.num("first_step_ns")[0])) })}</a>);
    said.push(overheadFact(overview, 0, waits));
    said.push(words);
  }
  if (now.ranks.length > 1) said.push(fill(t.rankOf, { rank: rank() ?? "–", count: now.ranks.length }));
  said.push(framework(now));
  said.push([...new Set(now.devices.filter((one) => one.rank === rank()).map((one) => one.name).filter(Boolean))].join(", "));
  said.push(now.problem_count ? <a href={link({ page: "files" })}>{now.problem_count === 1 ? t.problem : fill(t.problems, { count: units.count(now.problem_count).value })}</a> : t.noProblems);
  return said;
}
