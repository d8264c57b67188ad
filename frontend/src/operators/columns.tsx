/** Columns and rows that the tables share. */
import { type Family, token } from "../colors";
import { familyOf } from "../families";
import { Swatch } from "../parts/basics";
import type { Column } from "../parts/grid_rows";
import { shapeText, typeText } from "../parts/shapes";
import { go, param } from "../state";
import { strings } from "../strings";
import { Table } from "../table";

const text = strings("operators");

export interface ViewProps {
  device: string;
  wanted?: Family;
  tools: preact.ComponentChildren;
  chips: preact.ComponentChildren;
}

export const shade = (table: Table, row: number) =>
  `var(${token(familyOf(table.str("type")[row], table.has("name") ? table.str("name")[row] : null))})`;

export function figures(t: ReturnType<typeof text>, device: string): Column[] {
  const ofType = (name: string) => (of: Table, row: number) =>
    of.has("name") ? undefined : `type ${device} ${of.str("type")[row]} ${name}`;
  const time = { figure: ofType("self_ns") };
  return [
    { key: "calls", label: t.count, width: "minmax(64px, .7fr)" },
    ...(device === "cpu"
      ? [
          { key: "self_ns", label: t.self, ...time },
          { key: "total_ns", label: t.total, hide: true },
        ]
      : [{ key: "total_ns", label: t.total, ...time }]),
    { key: "share", label: t.share, bar: true, color: shade, width: "minmax(120px, 1.5fr)", figure: ofType("share") },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.min },
    { key: "p95_ns", label: t.p95 },
    { key: "max_ns", label: t.max },
  ];
}

/** p95 of the rows, from the analysis `durations`, as a further column. */
export function withP95(table: Table, spread: Table | null, keys: string[]): Table {
  const known = spread && p95Cache.get(table);
  if (known?.spread === spread) return known.table;
  const made = joinP95(table, spread, keys);
  if (spread) p95Cache.set(table, { spread, table: made });
  return made;
}

const p95Cache = new WeakMap<Table, { spread: Table; table: Table }>();

function joinP95(table: Table, spread: Table | null, keys: string[]): Table {
  if (!spread) return table.with({ p95_ns: new Float64Array(table.rows).fill(NaN) });
  const key = (of: Table) => {
    const columns = keys.map((name) => of.str(name));
    return (row: number) => columns.map((column) => column[row] ?? "\u0000").join("\n");
  };
  const there = key(spread),
    current = key(table),
    value = spread.num("p95_ns");
  const known = new Map<string, number>();
  for (let row = 0; row < spread.rows; row++) known.set(there(row), value[row]);
  return table.with({ p95_ns: Float64Array.from({ length: table.rows }, (_, row) => known.get(current(row)) ?? NaN) });
}

export function filterFamily(table: Table, wanted: Family | undefined): Table {
  return wanted
    ? table.pick(table.where((row) => familyOf(table.str("type")[row], table.str("name")[row]) === wanted))
    : table;
}

export function Label({ table, row }: { table: Table; row: number }) {
  const level = table.has("level") ? table.str("level")[row] : null;
  if (level === "shape") {
    const shapes = table.str("shapes")[row];
    return (
      <span class="name" title={`${shapes ?? ""} ${table.str("dtypes")[row] ?? ""}`}>
        <span class="mono cut">{shapes ? shapeText(shapes) : text().unknown}</span>
        <span class="d3 small nowrap">{typeText(table.str("dtypes")[row] ?? "[]")}</span>
      </span>
    );
  }
  const label =
    level === "operator" ? (table.str("scope")[row] ?? table.str("name")[row] ?? "") : (table.str("type")[row] ?? "");
  const whole = level === "operator" ? `${table.str("name")[row]}\n${table.str("scope")[row] ?? ""}` : label;
  return (
    <span class="name mono" title={whole}>
      <Swatch color={shade(table, row)} />
      <span class={`cut ${level === "operator" ? "tail" : ""}`}>
        <bdi>{label}</bdi>
      </span>
    </span>
  );
}

/** The key of a row in the address: its type, then its name and scope, then its shapes and types. */
export function rowKey(table: Table, row: number): string {
  const parts = ["type", "name", "scope"].filter((name) => table.has(name)).map((name) => table.str(name)[row]);
  if (table.has("level") && table.str("level")[row] === "shape")
    parts.push(table.str("shapes")[row], table.str("dtypes")[row]);
  return JSON.stringify(parts);
}

export function selectRow(table: Table, row: number): void {
  const key = rowKey(table, row);
  go({ params: { sel: param("sel") === key ? null : key } });
}
