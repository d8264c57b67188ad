// page: {"order": 105, "group": "cluster", "icon": "hangs", "needs": ["flight_records"], "ofSummary": true}
/**
 * A job that hangs: the ranks that the others wait for, the collectives that are not completed, and what each
 * rank called last.
 */
import "./hangs.css";
import { info, useTable } from "../data";
import { Progress } from "../hangs/progress";
import { Calls, RankRows } from "../hangs/tables";
import { Empty, Loading, Trouble } from "../parts/basics";
import { fill, strings } from "../strings";
import { useVerdict, VerdictOf } from "../verdict";

const text = strings("hangs");

export default function Hangs() {
  const t = text();
  const run = info.value!;
  const ranks = useTable("hangs", {}, { allRanks: true, allSteps: true });
  const pending = useTable("pending_collectives", {}, { allRanks: true, allSteps: true });
  const verdict = useVerdict("hangs", {}, { allRanks: true, allSteps: true });
  const error = ranks.error ?? pending.error;
  if (error) return <Trouble error={error} />;
  if (!ranks.data || !pending.data) return <Loading rows={12} />;
  if (!ranks.data.rows) {
    return (
      <Empty title={t.empty} height={240}>
        {t.emptyHow}
      </Empty>
    );
  }
  return (
    <div class="stack">
      <VerdictOf
        of={verdict.data}
        facts={[fill(t.dumps, { dumps: String(run.ranks.length), ranks: String(ranks.data.rows) }), t.clock]}
      />
      {pending.data.rows > 0 && <Progress ranks={ranks.data} pending={pending.data} />}
      <RankRows ranks={ranks.data} />
      <Calls />
    </div>
  );
}
