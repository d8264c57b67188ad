/** Kernels or copies: chart and table. */
import { color, css } from "../colors";
import { Card, Empty, Segmented, Swatch } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { shortName } from "../parts/shapes";
import { ShareBars, ShareRing, shareSummary, type Slice } from "../parts/shares";
import { go, param } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import { useMemo } from "preact/hooks";

const text = strings("kernels");

const TOP = 15;

export const shade = (table: Table, row: number) => color(table.str("name")[row] ?? "", true);

interface Named {
  name: string;
  value: number;
}

/** A kernel has a row per operator that launches it; here they are combined. */
export function byName(table: Table): Named[] {
  const groups = new Map<string, number>();
  for (let row = 0; row < table.rows; row++)
    groups.set(
      table.str("name")[row] ?? "",
      (groups.get(table.str("name")[row] ?? "") ?? 0) + table.num("total_ns")[row],
    );
  return [...groups].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value);
}

export const add = (table: Table, name: string) => table.num(name).reduce((all, item) => all + (item || 0), 0);

export function rowKey(table: Table, row: number): string {
  const device = table.raw("device", row);
  const parts = [table.str("name")[row], table.str("op")[row], device];
  return JSON.stringify(param("by") === "scope" ? [...parts, table.str("scope")[row]] : parts);
}

export function Activities({ table, id }: { table: Table; id: string }) {
  const t = text();
  const names = useMemo(() => byName(table), [table]);
  const total = names.reduce((all, item) => all + item.value, 0);
  const chart = param("chart") ?? "pie";
  const shown = useMemo(() => {
    const all = names.map((item) => ({
      key: item.name,
      name: item.name,
      label: shortName(item.name),
      value: item.value,
      color: color(item.name),
      code: true,
    }));
    if (all.length <= TOP + 1) return all;
    return [
      ...all.slice(0, TOP),
      {
        key: "",
        name: undefined,
        code: false,
        label: fill(t.rest, { count: all.length - TOP }),
        value: all.slice(TOP).reduce((sum, item) => sum + item.value, 0),
        color: "var(--border-strong)",
      },
    ];
  }, [names, t, css("--op-elem")]);
  if (!table.rows) return <Empty title={id === "copies" ? t.noCopies : t.none} />;
  const several = new Set(table.num("device")).size > 1;
  const pick = (slice: Slice) => slice.key && go({ params: { sel: JSON.stringify([slice.key]) } });
  const title = shown.length > TOP ? fill(t.top, { top: TOP }) : t.picture;
  const note =
    shown.length > TOP ? fill(t.topNote, { count: names.length - TOP }) : fill(t.all, { count: names.length });
  const columns: Column[] = [
    {
      key: "name",
      label: t.name,
      as: "name",
      color: shade,
      width: "minmax(200px, 4fr)",
      show: (of, row) => (
        <span class="name mono" title={of.str("name")[row] ?? ""}>
          <Swatch color={shade(of, row)} />
          <span class="cut">{shortName(of.str("name")[row] ?? "")}</span>
        </span>
      ),
    },
    { key: "op", label: t.op, as: "name", width: "minmax(130px, 2.4fr)" },
    ...(param("by") === "scope"
      ? [
          {
            key: "scope",
            label: t.scope,
            as: "name" as const,
            width: "minmax(140px, 2fr)",
            show: (of: Table, row: number) => (
              <span class="name mono" title={of.str("scope")[row] ?? ""}>
                <span class="cut tail">
                  <bdi>{of.str("scope")[row] ?? "–"}</bdi>
                </span>
              </span>
            ),
          },
        ]
      : []),
    { key: "device", label: t.device, hide: !several },
    { key: "stream", label: t.stream, as: "text", width: "minmax(64px, .6fr)", hide: true },
    { key: "calls", label: t.count, width: "minmax(56px, .6fr)" },
    { key: "total_ns", label: t.total, width: "minmax(70px, .8fr)" },
    { key: "share", label: t.share, bar: true, color: shade, width: "minmax(104px, 1fr)" },
    { key: "avg_ns", label: t.mean, width: "minmax(68px, .7fr)" },
    { key: "min_ns", label: t.min, width: "minmax(68px, .7fr)" },
    { key: "max_ns", label: t.max, width: "minmax(68px, .7fr)" },
    ...(id === "copies"
      ? []
      : [
          { key: "grid", label: t.grid, as: "text" as const, width: "minmax(82px, .9fr)" },
          { key: "block", label: t.block, as: "text" as const, width: "minmax(76px, .8fr)" },
          { key: "registers", label: t.registers, hide: true, width: "minmax(76px, .7fr)" },
          { key: "shared_memory_bytes", label: t.shared, help: t.sharedHelp, width: "minmax(92px, .8fr)" },
          { key: "occupancy", label: t.occupancy, help: t.occHelp, why: t.noOccupancy, width: "minmax(80px, .8fr)" },
          { key: "launch_count", label: t.ways, help: t.waysHelp, hide: true },
        ]),
  ];
  const summary = shareSummary(title, shown, total);
  return (
    <>
      <Card
        title={title}
        note={note}
        tools={
          <Segmented
            label={t.chart}
            value={chart}
            onChange={(value) => go({ params: { chart: value === "pie" ? null : value } })}
            choices={[
              { id: "pie", label: t.pie },
              { id: "bar", label: t.bar },
            ]}
          />
        }
      >
        {chart === "bar" ? (
          <ShareBars of={shown} total={total} summary={summary} onPick={pick} wide />
        ) : (
          <ShareRing of={shown} total={total} summary={summary} onPick={pick} list="kernels" />
        )}
      </Card>
      <section class="card opcard">
        <Grid
          id={id}
          table={table}
          columns={columns}
          find={t.find}
          tools={
            <Segmented
              label={t.rowsBy}
              value={param("by") === "scope" ? "scope" : "op"}
              onChange={(value) => go({ params: { by: value === "scope" ? "scope" : null, sel: null } })}
              choices={[
                { id: "op", label: t.byOp },
                { id: "scope", label: t.byScope },
              ]}
            />
          }
          search={["name", "op", "scope", "stream"]}
          sort="-total_ns"
          what={id === "copies" ? t.whatCopies : t.what}
          rowKey={rowKey}
          selected={param("sel")}
          onOpen={(of, row) => go({ params: { sel: param("sel") === rowKey(of, row) ? null : rowKey(of, row) } })}
          label={id === "copies" ? t.copies : t.kernels}
        />
      </section>
    </>
  );
}
