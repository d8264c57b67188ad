/** Tables of ranks, links and the parallel strategy. */
import { useTable } from "../data";
import { Await, Card } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { go } from "../state";
import { strings } from "../strings";
import type { Table } from "../table";

const text = strings("communication");

/** Step times of the recording itself: the cluster analysis of MindSpore. */
const RECORDED_TIMES = ["stage_ns", "receive_ns", "collective_ns", "computation_ns"] as const;

export function RankTable({ means }: { means: Table }) {
  const t = text();
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "steps", label: t.stepsHead },
    { key: "total_ns", label: t.total, bar: true, color: () => "var(--border-strong)" },
    { key: "interval_ns", label: t.interval },
    { key: "fp_bp_ns", label: t.fpBp, width: "minmax(116px, 1fr)" },
    { key: "tail_ns", label: t.tail },
    { key: "computing_ns", label: t.computing, bar: true },
    { key: "communication_ns", label: t.comm },
    { key: "exposed_ns", label: t.exposedHead, bar: true, color: () => "var(--kind-communication)" },
    { key: "transit_ns", label: t.transitHead, hide: means.blank("transit_ns") },
    { key: "wait_ns", label: t.waitHead, bar: true, color: () => "var(--kind-wait)" },
    { key: "communication_idle_ns", label: t.idleTile, hide: means.blank("communication_idle_ns") },
    { key: "copy_ns", label: t.copyHead, hide: true },
    { key: "free_ns", label: t.freeHead },
    ...RECORDED_TIMES.filter((key) => means.num(key).some(Number.isFinite)).map((key) => ({
      key,
      label: t[key],
      help: t[`${key}_help`],
    })),
  ];
  return (
    <Card title={t.ranksTable} note={t.barsMean} flush>
      <Grid
        id="ranks"
        table={means}
        columns={columns}
        what={t.rowsRanks}
        sort="rank"
        rowKey={(table, row) => table.raw("rank", row)}
        onOpen={(table, row) => go({ page: "steps", params: { rank: table.raw("rank", row) } })}
        label={t.ranksTable}
        height={`${Math.min(12, means.rows + 1) * 28 + 4}px`}
      />
    </Card>
  );
}

export function Links() {
  const t = text();
  const asked = useTable("links", {}, { allRanks: true });
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "src", label: t.src, as: "count" },
    { key: "dst", label: t.dst, as: "count" },
    { key: "transport", label: t.transport },
    { key: "transfers", label: t.transfers },
    { key: "bytes", label: t.bytes },
    { key: "total_ns", label: t.totalHead },
    { key: "bytes_per_s", label: t.bandwidth, bar: true, color: () => "var(--kind-communication)" },
  ];
  return (
    <Card title={t.links} note={t.linksNote} flush>
      <Await of={asked}>
        {(table) => (
          <Grid
            id="links"
            table={table}
            columns={columns}
            what={t.rowsLinks}
            search={["transport"]}
            sort="-bytes"
            label={t.links}
          />
        )}
      </Await>
    </Card>
  );
}

/** How the model is sharded, if MindSpore recorded it; ranks without that file are absent. */
export function Strategy() {
  const t = text();
  const asked = useTable("strategy", {}, { allRanks: true, allSteps: true });
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "stage", label: t.stage, as: "count" },
    { key: "node", label: t.node },
    { key: "name", label: t.name },
    { key: "type", label: t.type },
    { key: "part", label: t.part },
    { key: "shards", label: t.shards },
    { key: "pieces", label: t.pieces },
    { key: "role", label: t.role },
    { key: "inputs", label: t.inputs },
  ];
  return (
    <Card title={t.strategy} note={t.strategyNote} flush>
      <Await of={asked}>
        {(table) => (
          <Grid
            id="strategy"
            table={table}
            columns={columns}
            what={t.rowsStrategy}
            search={["name", "type", "shards"]}
            label={t.strategy}
          />
        )}
      </Await>
    </Card>
  );
}
