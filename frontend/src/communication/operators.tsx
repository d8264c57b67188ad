/** Communication operators and their calls. */
import { info, rank as currentRank, useTable } from "../data";
import { Await, Card, Facts, Segmented } from "../parts/basics";
import { Drawer } from "../parts/drawer";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Histogram } from "../parts/histogram";
import { Quantity, Time } from "../parts/quantity";
import { go, link, param } from "../state";
import { fill, strings, valueText } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { useMemo } from "preact/hooks";

const text = strings("communication");
const BAR = "minmax(110px, 1.6fr)"; // all columns of Ascend, which divides calls, fit 1,200 pixels

export function Operators({ calls }: { calls: Table }) {
  const t = text();
  const mine = currentRank();
  const all = param("ranks") !== "one" || info.value!.ranks.length === 1;
  const table = useMemo(
    () => (all ? calls : calls.pick(calls.where((row) => calls.num("rank")[row] === mine))),
    [calls, all, mine],
  );
  const key = (data: Table, row: number) =>
    `${data.raw("rank", row)}:${data.raw("collective", row)}:${data.raw("group", row)}:${data.raw("name", row)}`;
  const open = param("op");
  const row =
    open === undefined
      ? -1
      : Array.from({ length: calls.rows }, (_, one) => one).findIndex((one) => key(calls, one) === open);
  const warm = () => "var(--kind-communication)";
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count", width: "58px" },
    { key: "name", label: t.name, as: "name", width: "minmax(130px, 3fr)" },
    { key: "collective", label: t.collective, width: "minmax(90px, 1fr)" },
    { key: "group", label: t.group, hide: calls.blank("group") },
    { key: "calls", label: t.calls, width: "minmax(48px, .6fr)" },
    { key: "total_ns", label: t.totalHead, bar: true, color: warm, width: BAR },
    {
      key: "wait_ns",
      label: t.waitHead,
      show: (data, at) => <Time ns={data.num("wait_ns")[at]} why={valueText(data.str("note")[at]) || undefined} />,
    },
    { key: "transit_ns", label: t.transitHead, hide: calls.blank("transit_ns") },
    { key: "idle_ns", label: t.idleHead, hide: calls.blank("idle_ns") },
    { key: "overlapped_ns", label: t.hiddenHead },
    { key: "exposed_ns", label: t.exposedHead, bar: true, color: warm, width: BAR },
    { key: "bytes", label: t.bytes },
    { key: "bytes_per_s", label: t.bandwidth },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.min, hide: true },
    { key: "max_ns", label: t.max, hide: true },
    { key: "matched", label: t.matchedHead, hide: true },
    { key: "unsized", label: t.unsized, hide: true },
    { key: "note", label: t.note, as: "value", hide: true },
  ];
  return (
    <Card title={t.ops} flush>
      <Grid
        id="ops"
        table={table}
        columns={columns}
        what={t.rowsOps}
        search={["name", "collective", "group"]}
        sort="-total_ns"
        rowKey={key}
        selected={open ?? null}
        onOpen={(data, at) => go({ params: { op: key(data, at) } })}
        tools={
          info.value!.ranks.length > 1 && (
            <Segmented
              choices={[
                { id: "all", label: t.allRanks },
                { id: "one", label: fill(t.thisRank, { rank: mine ?? 0 }) },
              ]}
              value={all ? "all" : "one"}
              onChange={(id) => go({ params: { ranks: id === "all" ? null : id } }, true)}
              label={t.which}
            />
          )
        }
        label={t.ops}
      />
      {row >= 0 && <Details calls={calls} row={row} />}
    </Card>
  );
}

/** One operator of one rank: figures, durations of its calls, and each call with its link to the timeline. */
function Details({ calls, row }: { calls: Table; row: number }) {
  const t = text();
  const rank = calls.num("rank")[row];
  const name = calls.str("name")[row] ?? "";
  const asked = useTable("reduces", { rank }, { allRanks: true });
  const number = (key: string, as: units.Quantity) => (
    <Quantity value={calls.num(key)[row]} as={as} why={valueText(calls.str("note")[row]) || undefined} />
  );
  const columns: Column[] = [
    { key: "step", label: t.step, as: "count", width: "60px" },
    { key: "start_ns", label: t.start },
    { key: "dur_ns", label: t.takes, bar: true, color: () => "var(--kind-communication)" },
    { key: "overlapped_share", label: t.hiddenShare },
    {
      key: "timeline",
      label: "",
      width: "74px",
      show: (data, at) => (
        <a
          href={link({
            page: "timeline",
            params: { rank, t0: Math.round(data.num("start_ns")[at]), t1: Math.round(data.num("end_ns")[at]) },
          })}
        >
          {t.timeline}
        </a>
      ),
    },
  ];
  return (
    <Drawer
      title={
        <h2 class="mono cut" title={name}>
          {name}
        </h2>
      }
      onClose={() => go({ params: { op: null } })}
    >
      <Facts
        of={[
          [t.rank, rank],
          [t.collective, calls.str("collective")[row] ?? "–"],
          [t.group, calls.str("group")[row] ?? "–"],
          [t.calls, number("calls", "count")],
          [t.totalHead, number("total_ns", "time")],
          [t.waitHead, number("wait_ns", "time")],
          [t.transitHead, number("transit_ns", "time")],
          [t.idleHead, number("idle_ns", "time")],
          [t.hiddenHead, number("overlapped_ns", "time")],
          [t.exposedHead, number("exposed_ns", "time")],
          [t.bytes, number("bytes", "bytes")],
          [t.bandwidth, number("bytes_per_s", "rate")],
          [t.min, number("min_ns", "time")],
          [t.mean, number("avg_ns", "time")],
          [t.max, number("max_ns", "time")],
        ]}
      />
      {calls.str("note")[row] && <p class="d3 small">{valueText(calls.str("note")[row])}</p>}
      <Await of={asked}>
        {(table) => {
          const rows = table.where((one) => table.str("name")[one] === name);
          const own = table.pick(rows);
          return (
            <>
              <h3>{t.durations}</h3>
              <Histogram values={own.num("dur_ns")} color="var(--kind-communication)" label={t.durations} />
              <Grid
                id="calls"
                table={own}
                columns={columns}
                what={t.instances}
                sort="-dur_ns"
                label={t.instances}
                height="320px"
                bare
              />
            </>
          );
        }}
      </Await>
    </Drawer>
  );
}
