// page: {"order": 104, "group": "cluster", "icon": "ranks", "needs": ["ranks", "stage_operations", "links"], "ofSummary": true}
/** All ranks as one job: who is slow and why, every figure of each rank and step, and its place in parallelism. */
import "./cluster.css";
import { Bars } from "../cluster/bars";
import { Cells } from "../cluster/cells";
import { grouping } from "../cluster/choices";
import { Links } from "../cluster/links";
import { ParallelMap } from "../cluster/map";
import { Pipeline } from "../cluster/pipeline";
import { Devices, Experts, Incomplete, RankTable, SlowTable, Stages, Waits } from "../cluster/tables";
import { Summary } from "../cluster/summary";
import { info, useTable, warmupParams } from "../data";
import { Empty, Loading, Trouble } from "../parts/basics";
import { fill, strings } from "../strings";
import { useVerdict, VerdictOf } from "../verdict";

const text = strings("cluster");

export default function Cluster() {
  const t = text();
  const run = info.value!;
  const all = { allRanks: true };
  const verdict = useVerdict("cluster", warmupParams(), all);
  const ranks = useTable("ranks", {}, { ...all, allSteps: true });
  const figures = useTable("cluster_ranks", { ...warmupParams() }, all);
  const map = useTable("parallel_map", {}, { ...all, allSteps: true });
  const slow = useTable("stragglers", {}, all);
  const parts = [verdict, ranks, figures, map, slow];
  const error = parts.find((part) => part.error)?.error;
  if (error) return <Trouble error={error} />;
  if (parts.some((part) => part.data === null)) return <Loading rows={14} />;
  const many = run.ranks.length > 1;
  const hosts = new Set(map.data!.str("host").filter(Boolean)).size;
  const facts = [
    fill(t.recorded, { count: run.ranks.length, world: ranks.data!.rows }),
    hosts > 0 && fill(t.hosts, { count: hosts }),
    map.data!.str("how").find(Boolean),
  ];
  if (!many) {
    return (
      <div class="stack">
        <VerdictOf of={verdict.data} facts={facts} />
        <Empty title={t.empty} height={160}>
          {t.emptyHow}
        </Empty>
        <Links places={map.data!} />
      </div>
    );
  }
  return (
    <div class="stack">
      <VerdictOf of={verdict.data} facts={facts} />
      <Summary ranks={ranks.data!} figures={figures.data!} slow={slow.data!} />
      <Cells places={map.data!} />
      <div class="cluster-pair">
        <Bars places={map.data!} />
        <ParallelMap map={map.data!} figures={figures.data!} />
      </div>
      <SlowTable slow={slow.data!} />
      <RankTable places={map.data!} by={grouping(map.data!)} />
      <Pipeline map={map.data!} />
      <Stages />
      <Links places={map.data!} />
      <Waits />
      <Experts />
      <Devices />
      <Incomplete ranks={ranks.data!} />
    </div>
  );
}
