// page: {"order": 20, "group": "performance", "icon": "overview", "ofSummary": true}
import "./overview.css";
import "./advice.css";
import type { ComponentChildren } from "preact";
import { warmupParams, info, rank, useTable } from "../data";
import { onDevice } from "../device";
import { AdviceRail } from "../advice/rail";
import { Activity } from "../overview/activity";
import { selectedStep } from "../overview/selected_step";
import { FigureTiles } from "../overview/figures";
import { StepPicture } from "../overview/picture";
import { Preparation } from "../overview/preparation";
import { StepsCard } from "../overview/steps";
import { OperatorTypes } from "../overview/operator_types";
import { WhyCard } from "../overview/idle_causes";
import { Loading, Trouble, Verdict } from "../parts/basics";
import { Time } from "../parts/quantity";
import { framework } from "../shell/framework";
import { useStepNumbers } from "../shell/step_range";
import type { Info } from "../source";
import { link } from "../state";
import type { Table } from "../table";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import { Message, Messages, type Row, useVerdict } from "../verdict";

const text = strings("overview");

export default function Overview() {
  const now = info.value!;
  const overview = useTable("overview", warmupParams());
  const overlap = useTable("overlap");
  const device = onDevice(now);
  const verdict = useVerdict("overview", warmupParams());
  const input = useVerdict("input", warmupParams());
  const causes = useTable("gap_causes", warmupParams(), { skip: !device });
  if (overview.error) return <Trouble error={overview.error} />;
  if (!overview.data) return <Loading rows={12} />;
  const chosen = selectedStep(overview.data, overlap.data);
  return (
    <div class={`ov ${overview.waiting || overlap.waiting || causes.waiting ? "stale" : ""}`}>
      <Headline now={now} overview={overview.data} verdict={verdict.data} />
      {overview.data.rows > 0 && (
        <>
          <StepPicture now={now} overlap={overlap} chosen={chosen} overview={overview.data} />
          <FigureTiles
            now={now}
            overview={overview.data}
            overlap={overlap.data}
            verdict={[...(verdict.data ?? []), ...(input.data ?? [])]}
          />
        </>
      )}
      {overview.data.rows > 0 && <AdviceRail />}
      <div class="ov-cols">
        <div class="col">
          {overview.data.rows > 0 && <StepsCard overview={overview.data} overlap={overlap} chosen={chosen} />}
          {device && <WhyCard now={now} causes={causes} overview={overview.data} />}
          <Preparation now={now} overview={overview.data} verdict={input.data?.[0]} />
        </div>
        <OperatorTypes overview={overview.data} />
      </div>
      <Activity now={now} />
    </div>
  );
}

function Headline({ now, overview, verdict }: { now: Info; overview: Table; verdict: Row[] | null }) {
  const t = text();
  const facts = useFacts(now, overview);
  if (!verdict?.length) return <Verdict facts={facts}>…</Verdict>;
  if (!overview.rows) {
    const cpu = Object.keys(now.counters).some((name) => name.startsWith("cpu"));
    const links = [
      (now.tables.pipeline ?? 0) > 0 && <a href={link({ page: "data" })}>{t.toData}</a>,
      cpu && <a href={link({ page: "cpu" })}>{t.toCpu}</a>,
    ];
    facts.unshift(...links);
  }
  return (
    <Verdict facts={facts} more={verdict.length > 1 && <Messages of={verdict.slice(1)} />}>
      <Message of={verdict[0]} />
    </Verdict>
  );
}

function useFacts(now: Info, overview: Table): ComponentChildren[] {
  const t = text();
  const firstStep = useStepNumbers()?.[0] ?? "–";
  const facts: ComponentChildren[] = [];
  if (overview.rows) {
    const count = overview.num("steps")[0];
    const how = overview.str("steps_how")[0] ?? "";
    const words = how
      .split(", ")
      .map(
        (item) =>
          ({
            marker: t.marker,
            given: t.given,
            inferred: t.inferred,
            whole: t.wholeHow,
            "device ranges": t.deviceRanges,
          })[item] ?? item,
      )
      .join(", ");
    if (count > 1)
      facts.push(
        <Sentence
          template={t.medianOf}
          count={units.count(count).value}
          low={<Time ns={overview.num("min_ns")[0]} />}
          high={<Time ns={overview.num("max_ns")[0]} />}
        />,
      );
    else facts.push(t.oneStep);
    if (overview.num("left_out")[0] === 1)
      facts.push(
        <a href={link({ page: "steps", params: { sel: firstStep } })}>
          {fill(t.outFact, { step: firstStep, time: units.text(units.time(overview.num("first_step_ns")[0])) })}
        </a>,
      );
    facts.push(words);
  }
  if (now.ranks.length > 1) facts.push(fill(t.rankOf, { rank: rank() ?? "–", count: now.ranks.length }));
  facts.push(framework(now));
  facts.push(
    [
      ...new Set(
        now.devices
          .filter((item) => item.rank === rank())
          .map((item) => item.name)
          .filter(Boolean),
      ),
    ].join(", "),
  );
  facts.push(
    now.problem_count ? (
      <a href={link({ page: "files" })}>
        {now.problem_count === 1 ? t.problem : fill(t.problems, { count: units.count(now.problem_count).value })}
      </a>
    ) : (
      t.noProblems
    ),
  );
  return facts;
}
