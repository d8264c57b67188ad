// page: {"order": 60, "group": "performance", "icon": "flops", "needs": ["op", "kernel"]}
import "./operators.css";
import { info, rank, useTable, warmupParams } from "../data";
import { Roofline } from "../flops/roofline";
import { Scopes } from "../flops/scopes";
import { Operators } from "../flops/tables";
import { Await, Card, Empty, Tile, Tiles, Verdict } from "../parts/basics";
import { preload } from "../parts/chart";
import { Count, Quantity, Share, Time } from "../parts/quantity";
import { fill, Sentence, strings, valueText } from "../strings";
import * as units from "../units";
import { useVerdict, VerdictOf } from "../verdict";

const text = strings("flops");

preload();

export default function Flops() {
  const t = text();
  const scopes = useTable("flops_by_scope");
  const operators = useTable("flops");
  const verdict = useVerdict("flops", warmupParams());
  const steps = useTable("tables/steps", { columns: "rank,step,start_ns,end_ns" });
  if (!scopes.data || !operators.data)
    return (
      <>
        <Verdict>{info.value?.name}</Verdict>
        <Await of={scopes.error ? scopes : operators}>{() => null}</Await>
      </>
    );
  const [all] = scopes.data.where((row) => scopes.data!.num("depth")[row] === 0);
  const total = all === undefined ? NaN : scopes.data.num("flops")[all];
  if (!(total > 0)) {
    // other ranks may have them
    const none = info.value!.ranks.length > 1 ? fill(t.noneRank, { rank: rank() ?? "–" }) : t.none;
    return (
      <>
        <VerdictOf of={verdict.data} />
        <Empty title={none}>
          <Sentence
            template={t.noneHow}
            flag={<span class="mono">--flops</span>}
            other={<span class="mono">--shapes</span>}
          />
        </Empty>
      </>
    );
  }
  const rate = scopes.data.num("flops_per_s")[all],
    used = scopes.data.num("utilization")[all];
  const unknown = scopes.data.num("unknown_calls")[all];
  const source = valueText(scopes.data.str("peak_source")[all]);
  const how = scopes.data.str("how")[all] ?? "";
  const counted = how.includes("recorded") ? (how.includes("shapes") ? t.both : t.recorded) : t.shapes;
  const count = new Set(steps.data?.num("step")).size;
  return (
    <div class={`oppage ${scopes.waiting ? "stale" : ""}`}>
      <VerdictOf
        of={verdict.data}
        facts={[fill(t.counted, { how: counted }), !unknown && t.whole, source && fill(t.peak, { source })]}
      />
      <Tiles label={t.model}>
        <Tile
          label={t.flops}
          context={
            count > 1 ? fill(t.ofSteps, { count: units.count(count).value }) : count === 1 ? t.stepsOne : undefined
          }
        >
          <Quantity value={total} as="flops" />
        </Tile>
        <Tile label={t.rate} context={t.rateNote}>
          <Quantity value={rate} as="flopsRate" />
        </Tile>
        <Tile label={t.utilization} context={<span title={source}>{source}</span>}>
          <Share of={used} why={source} />
        </Tile>
        <Tile label={t.time} context={fill(t.calls, { count: units.count(scopes.data.num("calls")[all]).value })}>
          <Time ns={scopes.data.num("time_ns")[all]} />
        </Tile>
        <Tile label={t.unknownCalls} context={t.unknownNote}>
          <Count of={unknown} />
        </Tile>
      </Tiles>
      <Scopes data={scopes.data} />
      <Roofline />
      <Operators data={operators.data} />
      <Card title={t.howTitle}>
        <p class="d2 prose">{t.howText}</p>
      </Card>
    </div>
  );
}
