/** Senders by receivers: how much slower than usual each link is, by transport. */
import { useTable } from "../data";
import { Await, Card, Empty, Segmented } from "../parts/basics";
import type { Column } from "../parts/grid_rows";
import { Grid } from "../parts/grid";
import { Heat } from "../parts/heat";
import { Quantity } from "../parts/quantity";
import { go, param } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import { GroupChoice, grouping, number, rowName } from "./choices";
import { useMemo } from "preact/hooks";

const text = strings("cluster");
const PLACE = "minmax(56px, .8fr)"; // a rank, or the name of a host

export function Links({ places }: { places: Table }) {
  const t = text();
  const by = grouping(places);
  const asked = useTable("link_matrix", { by: by === "rank" ? null : by, max_rows: 64 }, { allRanks: true });
  if (asked.data && !asked.data.rows && by === "rank") return null;
  return (
    <Card title={t.links} note={t.linksNote} tools={<GroupChoice places={places} />}>
      <Await of={asked}>
        {(table) =>
          table.rows ? (
            <LinkMatrix table={table} by={by} />
          ) : (
            <Empty title={t.noLinks} height={120}>
              {t.noLinksHow}
            </Empty>
          )
        }
      </Await>
    </Card>
  );
}

function LinkMatrix({ table, by }: { table: Table; by: ReturnType<typeof grouping> }) {
  const t = text();
  const transports = useMemo(() => [...new Set(table.str("transport").map((name) => name ?? ""))].sort(), [table]);
  const transport = transports.includes(param("transport") ?? "") ? param("transport")! : transports[0];
  const made = useMemo(() => {
    const rows = table.where((row) => (table.str("transport")[row] ?? "") === transport);
    const size = Math.max(...table.num("row"), ...table.num("column")) + 1;
    const values = new Float64Array(size * size).fill(NaN);
    const at = new Int32Array(size * size).fill(-1);
    const labels = Array.from({ length: size }, () => "");
    for (const row of rows) {
      const place = table.num("row")[row] * size + table.num("column")[row];
      values[place] = table.num("usual")[row] / table.num("slowest")[row];
      at[place] = row;
    }
    for (let row = 0; row < table.rows; row++) {
      labels[table.num("row")[row]] = table.str("src")[row] ?? "";
      labels[table.num("column")[row]] = table.str("dst")[row] ?? "";
    }
    return { size, values, at, labels, picked: table.pick(rows) };
  }, [table, transport]);
  const columns: Column[] = [
    // Beside the matrix there is room for about 650 pixels: what the matrix shows on hover is chosen under Columns.
    { key: "src", label: t.src, as: "name", width: PLACE },
    { key: "dst", label: t.dst, as: "name", width: PLACE },
    { key: "links", label: t.linkCount, width: "minmax(52px, .5fr)", hide: by === "rank" },
    { key: "transfers", label: t.transfers, width: "minmax(70px, .7fr)" },
    { key: "bytes", label: t.bytes },
    { key: "total_ns", label: t.time },
    {
      key: "bytes_per_s",
      label: t.bandwidth,
      width: "minmax(130px, 1.6fr)",
      bar: true,
      color: () => "var(--kind-communication)",
    },
    { key: "slowest", label: t.slowestLink, as: "rate", hide: by === "rank" },
    { key: "usual", label: t.usualLink, as: "rate", hide: true },
    { key: "slow_links", label: t.slowLinks, width: "minmax(64px, .6fr)" },
  ];
  const say = (row: number, column: number) => {
    const found = made.at[row * made.size + column];
    if (found < 0) return <b>{t.noLink}</b>;
    return (
      <>
        <b>
          {rowName(by, made.labels[row])} → {rowName(by, made.labels[column])}
        </b>
        <dl>
          {(["bytes_per_s", "slowest", "usual"] as const).map((key) => [
            <dt key={key}>{t[key]}</dt>,
            <dd key={`${key}v`}>
              <Quantity value={table.num(key)[found]} as="rate" />
            </dd>,
          ])}
        </dl>
        <p>
          {fill(t.linkPlace, { src: number(table.num("src_rank")[found]), dst: number(table.num("dst_rank")[found]) })}
        </p>
      </>
    );
  };
  return (
    <div class="cluster-links">
      <div>
        {transports.length > 1 && (
          <Segmented
            choices={transports.map((name) => ({ id: name, label: name || t.unknownTransport }))}
            value={transport}
            onChange={(name) => go({ params: { transport: name } }, true)}
            label={t.transport}
          />
        )}
        <Heat
          rows={made.labels}
          columns={Float64Array.from(made.labels, (_, at) => at)}
          names={made.labels}
          values={made.values}
          color="--kind-communication"
          say={say}
          label={`${t.links}: ${transport}`}
        />
      </div>
      <Grid
        id="links"
        table={made.picked}
        columns={columns}
        what={t.rowsLinks}
        search={["src", "dst"]}
        sort="slowest"
        label={t.links}
        height="380px"
      />
    </div>
  );
}
