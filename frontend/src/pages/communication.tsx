// page: {"order": 110, "group": "cluster", "icon": "communication", "needs": ["communication", "links", "ranks"], "ofSummary": true}
/** Communication between the ranks: how long it takes, who waits, and for whom. */
import "./steps.css";
import "./communication.css";
import { Alone } from "../communication/bars";
import { Cells } from "../communication/cells";
import { Figures } from "../communication/figures";
import { Headline } from "../communication/headline";
import { Operators } from "../communication/operators";
import { Links, RankTable, Strategy } from "../communication/tables";
import { warmupParams, info, useTable } from "../data";
import { Card, Empty, Loading, Trouble, Verdict } from "../parts/basics";
import { strings } from "../strings";
import { Message, useVerdict } from "../verdict";

const text = strings("communication");

export default function Communication() {
  const t = text();
  const now = info.value!;
  const calls = useTable("communication", {}, { allRanks: true });
  const means = useTable("cluster_steps", { per_step: false, ...warmupParams() }, { allRanks: true });
  const cells = useTable("cluster_steps", {}, { allRanks: true });
  const verdict = useVerdict("communication", warmupParams(), { allRanks: true });
  const asked = [calls, means, cells];
  const error = asked.find((one) => one.error)?.error;
  if (error) return <Trouble error={error} />;
  if (asked.some((one) => one.data === null)) return <Loading rows={12} />;
  const ranks = now.ranks;
  const many = ranks.length > 1;
  const divided = (now.tables.sharded_operators ?? 0) > 0;
  if (!calls.data!.rows && !many && !divided) {
    return (
      <>
        <Verdict>{verdict.data?.length ? <Message of={verdict.data[0]} /> : "…"}</Verdict>
        <Empty title={t.emptyOps} height={200}>
          {t.emptyOne}
        </Empty>
      </>
    );
  }
  return (
    <div class="stack">
      <Headline verdict={verdict.data ?? []} means={means.data!} cells={cells.data!} />
      <Figures calls={calls.data!} means={means.data!} verdict={verdict.data ?? []} />
      {cells.data!.rows > 0 &&
        (many ? <Cells cells={cells.data!} means={means.data!} /> : <Alone cells={cells.data!} />)}
      {means.data!.rows > 0 && many && <RankTable means={means.data!} />}
      {calls.data!.rows > 0 ? (
        <Operators calls={calls.data!} />
      ) : (
        <Card title={t.ops}>
          <Empty title={t.emptyOps} height={100}>
            {t.emptyMany}
          </Empty>
        </Card>
      )}
      {(now.tables.links ?? 0) > 0 && <Links />}
      {divided && <Strategy />}
    </div>
  );
}
