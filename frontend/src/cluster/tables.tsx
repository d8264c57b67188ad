/** Tables of the page: slow places, ranks or groups, stages, waits, experts, devices and incomplete ranks. */
import { useTable, warmupParams } from "../data";
import { Chip } from "../parts/basics";
import type { Column } from "../parts/grid_rows";
import { TableCard } from "../parts/table_card";
import { link } from "../state";
import { strings, valueText } from "../strings";
import type { Table } from "../table";
import { DIMENSIONS, type Grouping, number, select } from "./choices";

const text = strings("cluster");
const warm = () => "var(--kind-communication)";
const wait = () => "var(--kind-wait)";

/** Ranks, hosts, links and stages that are slow, with their cause and evidence. */
export function SlowTable({ slow }: { slow: Table }) {
  const t = text();
  if (!slow.rows) return null;
  const place = (table: Table, row: number) => {
    const [rank, peer, stage] = (["rank", "peer_rank", "stage"] as const).map((key) => table.num(key)[row]);
    const kind = table.str("kind")[row];
    if (kind === "link") return `${number(rank)} → ${number(peer)}`;
    if (kind === "host") return table.str("host")[row] ?? "";
    return number(kind === "stage" ? stage : rank);
  };
  const columns: Column[] = [
    {
      key: "kind",
      label: t.kind,
      width: "150px",
      show: (table, row) => {
        const rank = table.num("rank")[row];
        const name = `${t[`kind_${table.str("kind")[row]}` as "kind_rank"]} ${place(table, row)}`;
        return Number.isFinite(rank) ? (
          <a href={link({ page: "steps", params: { rank, sel: table.num("step")[row] } })}>{name}</a>
        ) : (
          name
        );
      },
    },
    {
      key: "cause",
      label: t.cause,
      width: "130px",
      show: (table, row) => <Chip tone="bad">{valueText(table.str("cause")[row]) || t.unknown}</Chip>,
    },
    { key: "excess_ns", label: t.excess, width: "90px" },
    { key: "loss_ns", label: t.loss, width: "90px" },
    { key: "loss_share", label: t.lossShare, bar: true, color: warm, width: "minmax(110px, 1fr)" },
    { key: "gain_ns", label: t.gain, width: "90px" },
    { key: "steps", label: t.stepsHead, as: "value", width: "110px" },
    { key: "confidence", label: t.confidence, as: "share", width: "90px" },
    { key: "evidence", label: t.evidence, as: "value", width: "minmax(220px, 3fr)" },
    { key: "cause_detail", label: t.detail, as: "value", hide: true },
  ];
  return (
    <TableCard
      title={t.slow}
      note={t.slowNote}
      of={slow}
      id="slow"
      columns={columns}
      what={t.rowsSlow}
      search={["kind", "cause", "host", "evidence"]}
      sort="-loss_ns"
      most={9}
    />
  );
}

/** Every rank, host or group: searched and sorted. */
export function RankTable({ places, by }: { places: Table; by: Grouping }) {
  const t = text();
  const asked = useTable("cluster_ranks", { by: by === "rank" ? null : by, ...warmupParams() }, { allRanks: true });
  const columns: Column[] = [
    by === "rank"
      ? { key: "rank", label: t.rank, as: "count", width: "64px" }
      : { key: "label", label: t[`by_${by}`], as: "name", width: "minmax(80px, 1fr)" },
    { key: "ranks", label: t.ranks, as: "name", hide: by === "rank", width: "minmax(90px, 1fr)" },
    { key: "count", label: t.count, hide: by === "rank", width: "60px" },
    { key: "host", label: t.by_host, as: "name", hide: places.str("host").every((name) => !name) || by === "host" },
    ...DIMENSIONS.filter((name) => places.num(name).some(Number.isFinite) && name !== by).map((name): Column => ({
      key: name,
      label: name.toUpperCase(),
      as: "count",
      width: places.rows > 1000 ? "58px" : "46px",
    })),
    { key: "step_ns", label: t.step_ns },
    { key: "own_ns", label: t.own_ns, bar: true, width: "minmax(130px, 1.4fr)" },
    { key: "excess_share", label: t.excessShare },
    { key: "compute_ns", label: t.compute_ns },
    { key: "input_ns", label: t.input_ns },
    { key: "collection_ns", label: t.collection_ns, hide: true },
    { key: "host_ns", label: t.host_ns },
    { key: "exposed_ns", label: t.exposed_ns, bar: true, color: warm, width: "minmax(120px, 1.2fr)" },
    { key: "wait_ns", label: t.wait_ns, bar: true, color: wait, width: "minmax(120px, 1.2fr)" },
    { key: "uncertain_wait_ns", label: t.uncertain, help: t.uncertainHelp },
    { key: "transit_ns", label: t.transit_ns, hide: true },
    { key: "flops_per_s", label: t.flops, hide: true },
    { key: "utilization", label: t.utilization, hide: true },
    { key: "peak_memory_bytes", label: t.memory },
    { key: "device_clock", label: t.clock, as: "count", hide: true },
    { key: "clock_offset_ns", label: t.offset, hide: true },
    { key: "clock_uncertainty_ns", label: t.uncertainty, hide: true },
    { key: "slow_ranks", label: t.slowRanks, width: "70px", hide: by === "rank" },
    { key: "cause", label: t.cause, as: "value" },
  ];
  return (
    <TableCard
      title={by === "rank" ? t.table : t.groupTable}
      note={t.tableNote}
      of={asked}
      id="ranks"
      columns={columns}
      what={t.rowsRanks}
      search={["label", "host", "cause"]}
      sort="-excess_share"
      rowKey={(table, row) => table.raw("label", row)}
      onOpen={(table, row) => (by === "rank" ? select(table.num("rank")[row], null) : false)}
      most={14}
    />
  );
}

/** The cluster step trace of MindInsight. */
export function Stages() {
  const t = text();
  const asked = useTable("cluster_stages", { per_step: false, ...warmupParams() }, { allRanks: true });
  if (asked.data && !asked.data.rows) return null;
  const blank = (key: string) => asked.data?.blank(key) ?? false;
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count", width: "64px" },
    { key: "stage", label: t.stage, as: "count", hide: blank("stage"), width: "64px" },
    { key: "total_ns", label: t.step_ns },
    { key: "interval_ns", label: t.interval, hide: blank("interval_ns") },
    { key: "fp_bp_ns", label: t.fpBp, hide: blank("fp_bp_ns") },
    { key: "tail_ns", label: t.tail, hide: blank("tail_ns") },
    { key: "computation_ns", label: t.computation, bar: true, help: t.computationHelp },
    { key: "communication_alone_ns", label: t.communicationAlone, bar: true, color: warm },
    { key: "receive_alone_ns", label: t.receiveAlone, hide: blank("receive_alone_ns") },
    { key: "collective_alone_ns", label: t.collectiveAlone, hide: blank("collective_alone_ns") },
    { key: "stage_ns", label: t.stageTime, hide: blank("stage_ns"), help: t.stageTimeHelp },
    { key: "bubble_share", label: t.bubbleShare, bar: true, color: wait, hide: blank("bubble_share") },
    { key: "how", label: t.how, as: "value", hide: true },
  ];
  return (
    <TableCard
      title={t.stages}
      note={asked.data ? valueText(asked.data.str("mode")[0]) || undefined : undefined}
      of={asked}
      id="stages"
      columns={columns}
      what={t.rowsRanks}
      sort="rank"
      most={12}
    />
  );
}

/** Who waits for whom. */
export function Waits() {
  const t = text();
  const asked = useTable("rank_waits", { by_group: false, top: 500 }, { allRanks: true });
  if (asked.data && !asked.data.rows) return null;
  const columns: Column[] = [
    { key: "rank", label: t.waiting, as: "count" },
    { key: "awaited", label: t.awaited, as: "count" },
    { key: "calls", label: t.calls },
    { key: "wait_ns", label: t.wait_ns, bar: true, color: wait },
    { key: "uncertain_wait_ns", label: t.uncertain, help: t.uncertainHelp },
    { key: "longest_ns", label: t.longest },
    { key: "step", label: t.step, as: "count" },
    {
      key: "timeline",
      label: "",
      width: "90px",
      show: (table, row) => (
        <a
          href={link({
            page: "timeline",
            params: {
              rank: table.num("rank")[row],
              t0: Math.round(table.num("start_ns")[row]),
              t1: Math.round(table.num("end_ns")[row]),
            },
          })}
        >
          {t.toTimeline}
        </a>
      ),
    },
  ];
  return (
    <TableCard
      title={t.waits}
      note={t.waitsNote}
      of={asked}
      id="waits"
      columns={columns}
      what={t.rowsPairs}
      sort="-wait_ns"
      most={10}
    />
  );
}

export function Experts() {
  const t = text();
  const asked = useTable("expert_load", {}, { allRanks: true });
  if (!asked.data?.rows) return null;
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "group", label: t.expertGroup, as: "count" },
    { key: "ep", label: "EP", as: "count" },
    { key: "exchanges", label: t.exchanges },
    { key: "bytes", label: t.bytes },
    { key: "load", label: t.load, as: "share", bar: true },
    { key: "exchange_ns", label: t.exchangeTime },
    { key: "wait_ns", label: t.wait_ns },
    { key: "compute_ns", label: t.compute_ns },
    { key: "compute_load", label: t.computeLoad, as: "share", bar: true },
  ];
  return (
    <TableCard
      title={t.experts}
      note={t.expertsNote}
      of={asked.data}
      id="experts"
      columns={columns}
      what={t.rowsRanks}
      sort="-load"
      most={10}
    />
  );
}

export function Devices() {
  const t = text();
  const asked = useTable("device_outliers", {}, { allRanks: true });
  if (!asked.data?.rows) return null;
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count", width: "70px" },
    { key: "host", label: t.by_host, as: "name" },
    { key: "figure", label: t.deviceFigure, as: "value" },
    { key: "value", label: t.value, as: "count" },
    { key: "unit", label: t.unit, as: "name", width: "60px" },
    { key: "usual", label: t.usual, as: "count" },
    { key: "difference_share", label: t.difference, as: "share" },
    {
      key: "outlier",
      label: t.outlier,
      width: "90px",
      show: (table, row) => (table.raw("outlier", row) === "true" ? <Chip tone="warn">{t.outlier}</Chip> : ""),
    },
  ];
  return (
    <TableCard
      title={t.devices}
      note={t.devicesNote}
      of={asked.data}
      id="devices"
      columns={columns}
      what={t.rowsFigures}
      search={["figure", "host"]}
      most={8}
    />
  );
}

/** Ranks that are missing, broken or shorter. */
export function Incomplete({ ranks }: { ranks: Table }) {
  const t = text();
  const rows = ranks.pick(ranks.where((row) => ranks.str("state")[row] !== "recorded"));
  if (!rows.rows) return null;
  const tones: Record<string, "bad" | "warn"> = { broken: "bad", missing: "warn" };
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count", width: "80px" },
    {
      key: "state",
      label: t.state,
      width: "110px",
      show: (table, row) => (
        <Chip tone={tones[table.str("state")[row] ?? ""]}>{valueText(table.str("state")[row])}</Chip>
      ),
    },
    { key: "reason", label: t.reason, as: "value", width: "minmax(200px, 4fr)" },
    { key: "host", label: t.by_host, as: "name" },
    { key: "steps", label: t.stepsHead },
  ];
  return (
    <TableCard
      title={t.incomplete}
      note={t.incompleteNote}
      of={rows}
      id="incomplete"
      columns={columns}
      what={t.rowsRanks}
      search={["state", "reason"]}
      sort="rank"
      most={8}
    />
  );
}
