/** Tables of ranks, links and the parallel strategy. */
import { useTable } from "../data";
import type { Column } from "../parts/grid_rows";
import { TableCard } from "../parts/table_card";
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
    {
      key: "uncertain_wait_ns",
      label: t.uncertainHead,
      help: t.uncertainHelp,
      hide: !means.num("uncertain_wait_ns").some((wait) => wait > 0),
    },
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
    <TableCard
      title={t.ranksTable}
      note={t.barsMean}
      of={means}
      id="ranks"
      columns={columns}
      what={t.rowsRanks}
      sort="rank"
      rowKey={(table, row) => table.raw("rank", row)}
      onOpen={(table, row) => go({ page: "steps", params: { rank: table.raw("rank", row) } })}
      most={12}
    />
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
    <TableCard
      title={t.links}
      note={t.linksNote}
      of={asked}
      id="links"
      columns={columns}
      what={t.rowsLinks}
      search={["transport"]}
      sort="-bytes"
    />
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
    <TableCard
      title={t.strategy}
      note={t.strategyNote}
      of={asked}
      id="strategy"
      columns={columns}
      what={t.rowsStrategy}
      search={["name", "type", "shards"]}
    />
  );
}
