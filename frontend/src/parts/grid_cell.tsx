/** One cell of a grid. */
import { valueText } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { InlineBar, Swatch } from "./basics";
import { Quantity } from "./quantity";
import { type Column, type Entry, quantity } from "./grid_rows";

interface Scale {
  max: number;
  unit?: units.TimeUnit;
}

export function Cell({ column, entry, scale }: { column: Column; entry: Entry; scale: Scale }) {
  const { table, row } = entry;
  if (column.show) return <>{column.show(table, row)}</>;
  if (isName(table, column)) {
    const content = table.str(column.key)[row] ?? "";
    const name = column.as === "value" ? valueText(content) : content;
    return (
      <span class={`name ${column.as === "name" ? "mono" : ""}`} title={name}>
        {column.color && <Swatch color={column.color(table, row)} />}
        <span class="cut">{name || units.MISSING}</span>
      </span>
    );
  }
  const value = table.num(column.key)[row];
  const as = quantity(column);
  const figure = column.figure?.(table, row);
  const written = <Quantity value={value} as={as} unit={scale.unit} why={column.why} figure={figure} />;
  if (!column.bar) return written;
  return (
    <span class="withbar">
      <InlineBar
        share={scale.max ? value / scale.max : 0}
        color={column.color?.(table, row) ?? "var(--kind-compute)"}
      />
      <span class="r">{written}</span>
    </span>
  );
}

export function isName(table: Table, column: Column): boolean {
  return (
    column.as === "name" ||
    column.as === "text" ||
    column.as === "value" ||
    (column.as === undefined && table.isText(column.key))
  );
}

/** The largest value, and one unit of time if the column spans less than a factor of 1000. */
export function scale(table: Table, column: Column): Scale {
  if (!table.has(column.key) || isName(table, column)) return { max: 0 };
  let max = 0;
  let min = Infinity;
  for (const value of table.num(column.key)) {
    if (value > max) max = value;
    if (value > 0 && value < min) min = value;
  }
  const time = (column.as ?? units.quantityOf(column.key)) === "time";
  if (!time || max >= min * 1000 || max >= 60e9) return { max };
  // 1,170 µs beside 1.09 µs, not 1.17 ms beside 0.001; but neither 41,354 µs nor 0.05 ms.
  const unit = [units.timeUnit(max), units.timeUnit(min)].find(
    (item) => units.timeIn(min, item) >= 0.1 && units.timeIn(max, item) < 9999.5,
  );
  return { max, unit };
}
