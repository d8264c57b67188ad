/** Rows of a table in the order, search and folds of a grid. */
import type { Table } from "../table";
import * as units from "../units";
import { isName } from "./grid_cell";
import type { ComponentChildren } from "preact";

/** A condition that a row must meet. */
interface Condition {
  text: string;
  key: string;
  most: boolean;
  value: number;
}

export interface Column {
  key: string;
  label: string;
  /**
   * How values are written; by default the name and type of the column decide. "name" is code: mono, with the full text
   * on hover; "value" is a value of an analysis, in the reader's language.
   */
  as?: units.Quantity | "name" | "value";
  /** A bar beside the number, scaled to the largest row. */
  bar?: boolean;
  /** A CSS grid track, such as "2fr" or "90px". */
  width?: string;
  /** The color of the swatch before a name, and of the bar. */
  color?: (table: Table, row: number) => string;
  /** Drawn instead of the value. */
  show?: (table: Table, row: number) => ComponentChildren;
  /** Not shown until chosen under Columns. */
  hide?: boolean;
  /** Not a quantity to compare with a number, such as a date. */
  unfiltered?: boolean;
  help?: string;
  /** The name of a figure that other pages show, too: see `Quantity`. */
  figure?: (table: Table, row: number) => string | undefined;
  /** The reason for a missing value, on hover and for screen readers. */
  why?: string;
}

export interface Entry {
  table: Table;
  row: number;
  depth: number;
  open?: boolean;
  path: string;
}

/** "total_ns>=1000000 calls<=3": conditions in the address. */
export function conditions(where: string): Condition[] {
  return where.split(" ").flatMap((text) => {
    const match = /^(\w+)(>=|<=)(-?[\d.e+-]+)$/.exec(text);
    return match && Number.isFinite(Number(match[3]))
      ? [{ text, key: match[1], most: match[2] === "<=", value: Number(match[3]) }]
      : [];
  });
}

export const SCALE: Record<string, number> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  "%": 0.01,
  k: 1e3,
  m: 1e6,
  g: 1e9,
  t: 1e12,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
};

export function quantity(column: Column): units.Quantity {
  return (column.as ?? units.quantityOf(column.key)) as units.Quantity;
}

const collator = new Intl.Collator("en", { numeric: true });

export function sortRows(
  table: Table,
  search: string[],
  find: string,
  where: string,
  sort: string,
): [ArrayLike<number>, boolean] {
  const [test, wrong] = matcher(table, search, find);
  const bounds = conditions(where)
    .filter((item) => table.has(item.key))
    .map((item) => ({ values: table.num(item.key), most: item.most, value: item.value }));
  const kept = (row: number) =>
    (!test || test(row)) &&
    bounds.every((item) => (item.most ? item.values[row] <= item.value : item.values[row] >= item.value));
  const rows =
    test || bounds.length
      ? Uint32Array.from(table.where(kept))
      : Uint32Array.from({ length: table.rows }, (_, row) => row);
  const key = sort.replace(/^-/, "");
  if (!table.has(key)) return [rows, wrong];
  const sign = sort.startsWith("-") ? -1 : 1;
  let compare: (a: number, b: number) => number;
  if (table.isText(key)) {
    const values = table.str(key);
    // Natural order (2 before 10) is ten times slower: only if needed.
    const collate = rows.length < 20_000 ? collator.compare : (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
    compare = (a, b) =>
      (values[a] === null
        ? values[b] === null
          ? 0
          : 1
        : values[b] === null
          ? -1
          : sign * collate(values[a]!, values[b]!)) || a - b;
  } else {
    const values = table.num(key);
    // Missing values come last in both directions.
    compare = (a, b) =>
      (Number.isNaN(values[a])
        ? Number.isNaN(values[b])
          ? 0
          : 1
        : Number.isNaN(values[b])
          ? -1
          : sign * (values[a] - values[b])) || a - b;
  }
  // Analyses are sorted already: usually there is nothing to do.
  for (let at = 1; at < rows.length; at++) if (compare(rows[at - 1], rows[at]) > 0) return [rows.sort(compare), wrong];
  return [rows, wrong];
}

/** Words in any order, each somewhere in the row, at worst with gaps between letters; /.../ is a regular expression. */
function matcher(table: Table, search: string[], find: string): [((row: number) => boolean) | null, boolean] {
  const wanted = find.trim();
  const columns = search.filter((name) => table.has(name)).map((name) => table.str(name));
  if (!wanted || !columns.length) return [null, false];
  const pattern = /^\/(.*?)\/?$/.exec(wanted);
  if (pattern) {
    try {
      const expression = new RegExp(pattern[1], "i");
      return [(row) => columns.some((values) => values[row] !== null && expression.test(values[row]!)), false];
    } catch {
      return [null, true];
    }
  }
  const words = wanted.toLowerCase().split(/\s+/);
  const plain = (row: number) => {
    const whole = columns
      .map((values) => values[row] ?? "")
      .join("\n")
      .toLowerCase();
    return words.every((word) => whole.includes(word));
  };
  for (let row = 0; row < table.rows; row++) if (plain(row)) return [plain, false];
  // No row contains the words: allow gaps between letters, as a fuzzy finder does.
  const loose = words.map(
    (word) => new RegExp([...word].map((letter) => letter.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".{0,3}?"), "i"),
  );
  return [
    (row) => {
      const whole = columns.map((values) => values[row] ?? "").join("\n");
      return loose.every((word) => word.test(whole));
    },
    false,
  ];
}

export interface Entries {
  length: number;
  at: (index: number) => Entry;
}

/** Rows in display order. An object is created for a visible row, unless some are open. */
export function visibleEntries(
  table: Table,
  rows: ArrayLike<number>,
  opened: Map<string, Table>,
  sort: string,
  rowKey?: (table: Table, row: number) => string,
): Entries {
  const entry = (of: Table, row: number, depth: number, above: string): Entry => {
    const path = `${above}${rowKey?.(of, row) ?? row}`;
    return { table: of, row, depth, path, open: opened.has(path) };
  };
  if (!opened.size) return { length: rows.length, at: (index) => entry(table, rows[index], 0, "") };
  const entries: Entry[] = [];
  const add = (of: Table, order: ArrayLike<number>, depth: number, above: string) => {
    for (let at = 0; at < order.length; at++) {
      const item = entry(of, order[at], depth, above);
      entries.push(item);
      const below = opened.get(item.path);
      if (below) add(below, sortRows(below, [], "", "", sort)[0], depth + 1, `${item.path}\n`);
    }
  };
  add(table, rows, 0, "");
  return { length: entries.length, at: (index) => entries[index] };
}

export function markdown(table: Table, columns: Column[], rows: ArrayLike<number>): string {
  const known = columns.filter((column) => table.has(column.key));
  const cell = (column: Column, row: number) => {
    if (isName(table, column)) return (table.str(column.key)[row] ?? "").replaceAll("|", "\\|");
    return units.text(
      units.write(table.num(column.key)[row], (column.as ?? units.quantityOf(column.key)) as units.Quantity),
    );
  };
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  const head = [
    line(known.map((column) => column.label)),
    line(known.map((column) => (isName(table, column) ? "---" : "---:"))),
  ];
  return [...head, ...Array.from(rows, (row) => line(known.map((column) => cell(column, row))))].join("\n") + "\n";
}
