/** A table of any length: only the rows in sight are in the page. Sort, search and the selected row live in the address. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fill, texts } from "../text";
import { go, param, place, remember, remembered } from "../state";
import { fetchTable } from "../data";
import { said } from "../said";
import { source, type Params } from "../source";
import type { Table } from "../table";
import * as units from "../units";
import { Chip, copyText, Icon, InlineBar, Quantity, Swatch } from "./basics";
import { Menu } from "./menu";

const text = texts({
  en: {
    find: "Name, type or /regular expression/",
    shown: "{some} of {all} {what}",
    all: "{all} {what}",
    rows: "row|rows",
    columns: "Columns",
    copy: "Copy",
    csv: "Copy as CSV",
    markdown: "Copy as Markdown",
    save: "Download CSV",
    none: "No row matches.",
    clear: "Clear the search",
    open: "Open",
    fold: "Close",
    bad: "not a regular expression",
    filter: "Filter",
    least: "at least",
    most: "at most",
    add: "Add",
    value: "Value, such as 1 ms, 5 % or 10",
    remove: "Remove the filter",
  },
  zh: {
    find: "名称、类型或 /正则表达式/",
    shown: "{all} {what}中的 {some}",
    all: "{all} {what}",
    rows: "行",
    columns: "列",
    copy: "复制",
    csv: "复制为 CSV",
    markdown: "复制为 Markdown",
    save: "下载 CSV",
    none: "没有匹配的行。",
    clear: "清除搜索",
    open: "展开",
    fold: "收起",
    bad: "不是正则表达式",
    filter: "筛选",
    least: "至少",
    most: "至多",
    add: "添加",
    value: "数值，如 1 ms、5 % 或 10",
    remove: "移除筛选",
  },
});

export interface Column {
  key: string;
  label: string;
  /** How values are written; by default the column's name and type decide. "name" is code: mono, with the full text on hover; "said" are
   * words of an analysis, in the reader's language. */
  as?: units.Quantity | "name" | "said";
  /** A bar beside the number, scaled to the largest row. */
  bar?: boolean;
  /** A CSS grid track, such as "2fr" or "90px". */
  width?: string;
  /** The colour of the swatch before a name, and of the bar. */
  color?: (table: Table, row: number) => string;
  /** Drawn instead of the value. */
  show?: (table: Table, row: number) => ComponentChildren;
  /** Not shown until chosen under Columns. */
  hide?: boolean;
  /** Not a quantity to compare with a number, such as a date. */
  unfiltered?: boolean;
  help?: string;
  /** Why a value may be missing, on hover and to a screen reader. */
  why?: string;
}

interface GridProps {
  /** Names its state in the address: one per page is enough to be unique. */
  id: string;
  table: Table;
  columns: Column[];
  /** "types", "kernels", or "type|types": after the count of rows. */
  what?: string;
  /** What the search field says. */
  find?: string;
  /** Columns that the search looks into; none, no search. */
  search?: string[];
  /** The first sort: "-total_ns" is largest first. */
  sort?: string;
  /** The column that names a row in the address; with onOpen, rows can be selected. */
  rowKey?: (table: Table, row: number) => string;
  selected?: string | null;
  /** Answers false where there is nothing to open: then the rows below are shown. */
  onOpen?: (table: Table, row: number) => void | boolean;
  /** The rows below a row, drawn in place; null where there are none. Asked again for the rows below those. */
  children?: (table: Table, row: number) => Promise<Table | null> | Table | null;
  /** Rows that cannot be opened; by default those below another. */
  leaf?: (table: Table, row: number, depth: number) => boolean;
  /** Left of the search: tabs, filters. */
  tools?: ComponentChildren;
  /** After the search: what the page itself leaves out. */
  chips?: ComponentChildren;
  /** CSS height of the scrolling part; by default it grows to 560 px. */
  height?: string;
  /** Where the table is from. If it has more rows than came (`limit: MOST`), the server sorts, searches and sends the rows in sight. */
  from?: { name: string; params: Params };
  /** A plain table of a few rows: no tools. */
  bare?: boolean;
  label: string;
}

interface Entry {
  table: Table;
  row: number;
  depth: number;
  open?: boolean;
  path: string;
}

const ROW = 28;
const SPARE = 8;
/** More rows than these stay on the server: ask with `limit: MOST`. */
export const MOST = 200_000;
const PAGE = 500;
/** Browsers draw nothing taller than about 17 million pixels; a longer table scrolls faster than the pointer. */
const TALLEST = 12_000_000;

export function Grid(props: GridProps) {
  const { id, table, search = [] } = props;
  const t = text();
  const what = (props.what ?? t.rows).split("|").at(table.total === 1 ? 0 : -1)!;
  const [hidden, setHidden] = useHidden(id, props.columns, table);
  const columns = props.columns.filter((column) => !hidden.has(column.key) && (column.show !== undefined || table.has(column.key)));
  const sort = param(`${id}.sort`) ?? props.sort ?? "";
  const find = param(`${id}.find`) ?? "";
  const where = param(`${id}.where`) ?? "";
  const far = usePages(props, sort, find);
  const [rows, wrong] = useMemo(() => (far ? [[], false] : ordered(table, search, find, where, sort)), [table, far !== null, find, where, sort, search.join()]);
  const [opened, setOpened] = useState<Map<string, Table>>(new Map());
  useEffect(() => setOpened(new Map()), [table]);
  const near = useMemo(() => unfolded(table, rows, opened, sort, props.rowKey), [table, rows, opened, sort]);
  const entries = far ?? near;
  const leaf = (entry: Entry) => !props.children || (props.leaf ? props.leaf(entry.table, entry.row, entry.depth) : entry.depth > 0);
  const scroll = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [active, setActive] = useState(0);
  const [room, setRoom] = useState(600);
  useEffect(() => {
    if (!scroll.current) return;
    const watch = new ResizeObserver(() => setRoom(scroll.current?.clientHeight ?? 600));
    watch.observe(scroll.current);
    return () => watch.disconnect();
  }, []);
  const tall = Math.min(entries.length * ROW, TALLEST);
  // Where the table is too long for the browser, a place of the scroll bar is a row further down.
  const shift = tall < entries.length * ROW ? (top / Math.max(1, tall - room)) * (entries.length * ROW - tall) : 0;
  const first = Math.max(0, Math.floor((top + shift) / ROW) - SPARE);
  const last = Math.min(entries.length, Math.ceil((top + shift + room) / ROW) + SPARE);
  useEffect(() => far?.want(first, last), [far, first, last]);
  const scales = useMemo(() => new Map(columns.map((column) => [column.key, scale(table, column)])), [table, columns.map((c) => c.key).join()]);
  const widths = columns.map((column) => column.width ?? (isName(table, column) ? "minmax(160px, 3fr)" : column.bar ? "minmax(120px, 1.6fr)" : "minmax(72px, 1fr)"));
  const tracks = widths.join(" ");
  // Narrower than this the table scrolls sideways.
  const least = widths.reduce((sum, width) => sum + Number(/(\d+)px/.exec(width)?.[1] ?? 60), 0);

  const toggle = async (entry: Entry) => {
    const next = new Map(opened);
    if (!next.delete(entry.path)) {
      const below = await props.children?.(entry.table, entry.row);
      if (below) next.set(entry.path, below);
    }
    setOpened(next);
  };
  const open = (entry: Entry) => {
    if ((!props.onOpen || props.onOpen(entry.table, entry.row) === false) && !leaf(entry)) void toggle(entry);
  };
  const keys = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(room / ROW) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    const found = entries.length ? entries.at(Math.min(active, entries.length - 1)) : undefined;
    const entry = found && found.row >= 0 ? found : undefined;
    if (by !== undefined) {
      const to = Math.max(0, Math.min(entries.length - 1, active + by));
      setActive(to);
      const box = scroll.current!;
      const place = to * ROW * (tall / Math.max(1, entries.length * ROW));
      if (place < box.scrollTop) box.scrollTop = place;
      if (place + 2 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = place + 2 * ROW - box.clientHeight;
    } else if (event.key === "Enter" && entry) open(entry);
    else if (event.key === "ArrowRight" && entry && !leaf(entry) && !entry.open) void toggle(entry);
    else if (event.key === "ArrowLeft" && entry?.open) void toggle(entry);
    else if (event.key === "c" && (event.ctrlKey || event.metaKey) && entry && !getSelection()?.toString()) {
      void copyText(columns.map((column) => entry.table.raw(column.key, entry.row)).join("\t"));
    } else return;
    event.preventDefault();
  };
  const by = sort.replace(/^-/, "");
  const turn = (column: Column) => {
    const down = sort === `-${column.key}` ? column.key : sort === column.key || isName(table, column) && by !== column.key ? (sort === column.key ? `-${column.key}` : column.key) : `-${column.key}`;
    go({ params: { [`${id}.sort`]: down } }, true);
    scroll.current!.scrollTop = 0;
  };
  const names = columns.filter((column) => table.has(column.key)).map((column) => column.key);
  return (
    <div class="gridwrap">
      {!props.bare && (
        <div class="gridtools">
          {props.tools}
          {search.length > 0 && (
            <label class="pick find">
              <Icon name="search" size={13} />
              <input
                type="search"
                aria-label={props.find ?? t.find}
                placeholder={props.find ?? t.find}
                value={find}
                onInput={(event) => go({ params: { [`${id}.find`]: event.currentTarget.value } }, true)}
              />
            </label>
          )}
          {wrong && <span class="bad small">{t.bad}</span>}
          {conditions(where).map((one) => {
            const column = props.columns.find((column) => column.key === one.key);
            return (
              <Chip key={one.text} tone="acc" onRemove={() => go({ params: { [`${id}.where`]: conditions(where).filter((other) => other.text !== one.text).map((other) => other.text).join(" ") } }, true)}>
                {(column?.label ?? one.key).toLowerCase()} {one.most ? "≤" : "≥"} {units.text(units.write(one.value, quantity(column ?? { key: one.key, label: "" })))}
              </Chip>
            );
          })}
          {props.chips}
          <span class="sp" />
          <span class="d3 small nowrap" role="status">
            {far && find ? fill(t.shown, { some: units.count(far.length).value, all: units.count(table.total).value, what }) : far || rows.length === table.rows
              ? fill(t.all, { all: units.count(table.total).value, what })
              : fill(t.shown, { some: units.count(rows.length).value, all: units.count(table.total).value, what })}
          </span>
          {!far && <Menu button={t.filter} label={t.filter} class="sm" align="right" arrow={false}>
            {(close) => <Condition columns={props.columns.filter((column) => column.label && !column.unfiltered && table.has(column.key) && !isName(table, column))} onAdd={(text) => { go({ params: { [`${id}.where`]: [...conditions(where).map((one) => one.text), text].join(" ") } }); close(); }} />}
          </Menu>}
          <Menu button={t.columns} label={t.columns} class="sm" align="right" arrow={false}>
            {() =>
              props.columns.filter((column) => table.has(column.key) || column.show).map((column) => (
                <label key={column.key} class="item">
                  <input type="checkbox" checked={!hidden.has(column.key)} onChange={() => setHidden(column.key)} /> {column.label || column.help || column.key}
                </label>
              ))
            }
          </Menu>
          <Menu button={t.copy} label={t.copy} class="sm" align="right" arrow={false}>
            {(close) => far ? (
              <a class="item" href={source().download(place.value.run!, props.from!.name, { ...props.from!.params, limit: null, ...far.asked }) ?? undefined} download onClick={close}>{t.save}</a>
            ) : (
              <>
                <button class="item" onClick={() => void copyText(table.csv(names, rows)).then(close)}>{t.csv}</button>
                <button class="item" onClick={() => void copyText(markdown(table, columns, rows)).then(close)}>{t.markdown}</button>
                <button class="item" onClick={() => { save(`${id}.csv`, table.csv(table.names, rows)); close(); }}>{t.save}</button>
              </>
            )}
          </Menu>
        </div>
      )}
      <div
        class="grid-scroll"
        ref={scroll}
        style={{ height: props.height, maxHeight: props.height ? undefined : "560px" }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onKeyDown={keys}
        tabIndex={0}
        role={props.children ? "treegrid" : "grid"}
        aria-label={props.label}
        aria-rowcount={entries.length + 1}
        aria-activedescendant={entries.length ? `${id}-row-${active}` : undefined}
      >
        <div class="gridrow head" role="row" style={{ gridTemplateColumns: tracks, minWidth: `${least}px` }}>
          {columns.map((column) => (
            <button
              key={column.key}
              role={"columnheader" as "button"}
              tabIndex={-1}
              class={isName(table, column) || column.bar ? "tl" : ""}
              title={column.help ?? column.key}
              aria-sort={by === column.key ? (sort.startsWith("-") ? "descending" : "ascending") : "none"}
              onClick={() => turn(column)}
            >
              {column.label}
              {by === column.key && <span class="ar"> {sort.startsWith("-") ? "↓" : "↑"}</span>}
            </button>
          ))}
        </div>
        <div style={{ height: `${tall}px`, minWidth: `${least}px`, position: "relative" }} role="rowgroup">
          {Array.from({ length: Math.max(0, last - first) }, (_, at) => {
            const index = first + at;
            const entry = entries.at(index);
            if (entry.row < 0) return <div key={index} class="gridrow" style={{ top: `${index * ROW - shift}px` }} aria-hidden="true" />;
            const key = props.rowKey?.(entry.table, entry.row);
            const chosen = props.selected !== undefined && props.selected !== null && key === props.selected;
            return (
              <div
                key={entry.path}
                id={`${id}-row-${index}`}
                role="row"
                aria-rowindex={index + 2}
                aria-level={props.children ? entry.depth + 1 : undefined}
                aria-expanded={leaf(entry) ? undefined : !!entry.open}
                aria-selected={chosen}
                class={`gridrow ${entry.depth ? "sub" : ""} ${chosen ? "on" : ""} ${index === active ? "active" : ""} ${props.onOpen ? "click" : ""}`}
                style={{ gridTemplateColumns: tracks, top: `${index * ROW - shift}px` }}
                onClick={() => {
                  setActive(index);
                  open(entry);
                }}
              >
                {columns.map((column, place) => (
                  <div key={column.key} role="gridcell" class={`${isName(table, column) || column.bar ? "tl" : ""} ${by === column.key ? "b" : ""}`}>
                    {place === 0 && props.children && (
                      <button
                        class="fold"
                        style={{ marginLeft: `${entry.depth * 14}px` }}
                        tabIndex={-1}
                        disabled={leaf(entry)}
                        aria-label={entry.open ? t.fold : t.open}
                        onClick={(event) => { event.stopPropagation(); void toggle(entry); }}
                      >
                        {!leaf(entry) && <Icon name={entry.open ? "down" : "right"} size={12} />}
                      </button>
                    )}
                    <Cell column={column} entry={entry} scale={scales.get(column.key)!} />
                  </div>
                ))}
              </div>
            );
          })}
        </div>
        {entries.length === 0 && (
          <p class="nomatch d2">
            {t.none}{" "}
            {find && <button class="aslink" onClick={() => go({ params: { [`${id}.find`]: null } }, true)}>{t.clear}</button>}
          </p>
        )}
      </div>
    </div>
  );
}

interface Scale {
  max: number;
  unit?: units.TimeUnit;
}

function Cell({ column, entry, scale }: { column: Column; entry: Entry; scale: Scale }) {
  const { table, row } = entry;
  if (column.show) return <>{column.show(table, row)}</>;
  if (isName(table, column)) {
    const own = table.str(column.key)[row] ?? "";
    const name = column.as === "said" ? said(own) : own;
    return (
      <span class={`name ${column.as === "name" ? "mono" : ""}`} title={name}>
        {column.color && <Swatch color={column.color(table, row)} />}
        <span class="cut">{name || units.MISSING}</span>
      </span>
    );
  }
  const value = table.num(column.key)[row];
  const as = quantity(column);
  const written = <Quantity value={value} as={as} unit={scale.unit} why={column.why} />;
  if (!column.bar) return written;
  return (
    <span class="withbar">
      <InlineBar share={scale.max ? value / scale.max : 0} color={column.color?.(table, row) ?? "var(--kind-compute)"} />
      <span class="r">{written}</span>
    </span>
  );
}

function isName(table: Table, column: Column): boolean {
  return column.as === "name" || column.as === "text" || column.as === "said" || (column.as === undefined && table.isText(column.key));
}

/** The largest value, and one unit of time where the column spans less than a thousandfold. */
function scale(table: Table, column: Column): Scale {
  if (!table.has(column.key) || isName(table, column)) return { max: 0 };
  let max = 0;
  let min = Infinity;
  for (const value of table.num(column.key)) {
    if (value > max) max = value;
    if (value > 0 && value < min) min = value;
  }
  const time = (column.as ?? units.quantityOf(column.key)) === "time";
  if (!time || max >= min * 1000 || max >= 60e9) return { max };
  // 1,170 µs beside 1.09 µs, rather than 1.17 ms beside 0.001; but neither 41,354 µs nor 0.05 ms.
  const unit = [units.timeUnit(max), units.timeUnit(min)].find((one) => units.timeIn(min, one) >= 0.1 && units.timeIn(max, one) < 9999.5);
  return { max, unit };
}

interface Condition {
  text: string;
  key: string;
  most: boolean;
  value: number;
}

/** "total_ns>=1000000 calls<=3": what the address says of the rows wanted. */
function conditions(where: string): Condition[] {
  return where.split(" ").flatMap((text) => {
    const found = /^(\w+)(>=|<=)(-?[\d.e+-]+)$/.exec(text);
    return found && Number.isFinite(Number(found[3])) ? [{ text, key: found[1], most: found[2] === "<=", value: Number(found[3]) }] : [];
  });
}

const SCALE: Record<string, number> = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, "%": 0.01, k: 1e3, m: 1e6, g: 1e9, t: 1e12, kb: 1e3, mb: 1e6, gb: 1e9 };

function Condition({ columns, onAdd }: { columns: Column[]; onAdd: (text: string) => void }) {
  const t = text();
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const found = /^(-?[\d.]+)\s*([a-zµ%]*)$/i.exec(String(form.get("value")).trim().replaceAll(",", ""));
    if (!found) return;
    const unit = found[2].toLowerCase();
    onAdd(`${form.get("key")}${form.get("how")}${Number(found[1]) * (unit ? (SCALE[unit] ?? 1) : 1)}`);
  };
  return (
    <form class="steprange" onSubmit={submit}>
      <select name="key" aria-label={t.columns}>{columns.map((column) => <option key={column.key} value={column.key}>{column.label}</option>)}</select>
      <select name="how" aria-label={t.filter}><option value=">=">{t.least}</option><option value="<=">{t.most}</option></select>
      <input type="text" name="value" aria-label={t.value} title={t.value} placeholder="1 ms" required />
      <button class="btn sm pri">{t.add}</button>
    </form>
  );
}

function quantity(column: Column): units.Quantity {
  return (column.as ?? units.quantityOf(column.key)) as units.Quantity;
}

const collator = new Intl.Collator("en", { numeric: true });

function ordered(table: Table, search: string[], find: string, where: string, sort: string): [ArrayLike<number>, boolean] {
  const [test, wrong] = matcher(table, search, find);
  const bounds = conditions(where).filter((one) => table.has(one.key)).map((one) => ({ values: table.num(one.key), most: one.most, value: one.value }));
  const kept = (row: number) => (!test || test(row)) && bounds.every((one) => (one.most ? one.values[row] <= one.value : one.values[row] >= one.value));
  const rows = test || bounds.length ? Uint32Array.from(table.where(kept)) : Uint32Array.from({ length: table.rows }, (_, row) => row);
  const key = sort.replace(/^-/, "");
  if (!table.has(key)) return [rows, wrong];
  const sign = sort.startsWith("-") ? -1 : 1;
  let compare: (a: number, b: number) => number;
  if (table.isText(key)) {
    const values = table.str(key);
    // Natural order (2 before 10) costs ten times as much: only where it does not show.
    const collate = rows.length < 20_000 ? collator.compare : (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
    compare = (a, b) => (values[a] === null ? (values[b] === null ? 0 : 1) : values[b] === null ? -1 : sign * collate(values[a]!, values[b]!)) || a - b;
  } else {
    const values = table.num(key);
    // What is missing stands last either way.
    compare = (a, b) => (Number.isNaN(values[a]) ? (Number.isNaN(values[b]) ? 0 : 1) : Number.isNaN(values[b]) ? -1 : sign * (values[a] - values[b])) || a - b;
  }
  // Analyses come sorted: most often there is nothing to do.
  for (let at = 1; at < rows.length; at++) if (compare(rows[at - 1], rows[at]) > 0) return [rows.sort(compare), wrong];
  return [rows, wrong];
}

/** Words in any order, each somewhere in the row, letters of a word with gaps between them at the worst; /.../ is a regular expression. */
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
    const whole = columns.map((values) => values[row] ?? "").join("\n").toLowerCase();
    return words.every((word) => whole.includes(word));
  };
  for (let row = 0; row < table.rows; row++) if (plain(row)) return [plain, false];
  // Nothing has the words as they stand: allow gaps, as a fuzzy finder does.
  const loose = words.map((word) => new RegExp([...word].map((letter) => letter.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".{0,3}?"), "i"));
  return [(row) => { const whole = columns.map((values) => values[row] ?? "").join("\n"); return loose.every((word) => word.test(whole)); }, false];
}

interface Pages extends Entries {
  asked: Params;
  /** These rows are in sight. */
  want: (first: number, last: number) => void;
}

/** The rows of a table that is too long to have it here, page by page; null for one that came whole. */
function usePages(props: GridProps, sort: string, find: string): Pages | null {
  const { table, from } = props;
  const far = from !== undefined && table.total > table.rows;
  const asked: Params = { sort: sort.replace(/^-/, "") || null, descending: sort.startsWith("-") || null, find: find.trim() || null };
  const key = far ? JSON.stringify([from.name, from.params, asked]) : "";
  const [state, setState] = useState<{ key: string; total: number; pages: Map<number, Table> }>({ key: "", total: 0, pages: new Map() });
  const wanted = useRef(new Set<string>());
  const latest = useRef(key);
  latest.current = key;
  return useMemo(() => {
    if (!far) return null;
    const here = state.key === key ? state : { key, total: find ? 0 : table.total, pages: new Map<number, Table>() };
    const want = (first: number, last: number) => {
      for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page++) {
        const name = `${key}\n${page}`;
        if (wanted.current.has(name)) continue;
        wanted.current.add(name);
        void fetchTable(from.name, { ...from.params, ...asked, offset: page * PAGE, limit: PAGE }).then(
          (found) => latest.current === key && setState((old) => ({ key, total: found.total, pages: new Map([...(old.key === key ? old.pages : []), [page, found]]) })),
          () => wanted.current.delete(name),
        );
      }
    };
    const at = (index: number): Entry => {
      const page = here.pages.get(Math.floor(index / PAGE));
      return page && index % PAGE < page.rows ? { table: page, row: index % PAGE, depth: 0, path: String(index) } : { table, row: -1, depth: 0, path: String(index) };
    };
    return { length: here.total, at, asked, want };
  }, [key, state, table]);
}

interface Entries {
  length: number;
  at: (index: number) => Entry;
}

/** Rows as they stand below each other. An object is made for a row in sight, unless some are opened. */
function unfolded(table: Table, rows: ArrayLike<number>, opened: Map<string, Table>, sort: string, rowKey?: (table: Table, row: number) => string): Entries {
  const entry = (of: Table, row: number, depth: number, above: string): Entry => {
    const path = `${above}${rowKey?.(of, row) ?? row}`;
    return { table: of, row, depth, path, open: opened.has(path) };
  };
  if (!opened.size) return { length: rows.length, at: (index) => entry(table, rows[index], 0, "") };
  const entries: Entry[] = [];
  const add = (of: Table, order: ArrayLike<number>, depth: number, above: string) => {
    for (let at = 0; at < order.length; at++) {
      const one = entry(of, order[at], depth, above);
      entries.push(one);
      const below = opened.get(one.path);
      if (below) add(below, ordered(below, [], "", "", sort)[0], depth + 1, `${one.path}\n`);
    }
  };
  add(table, rows, 0, "");
  return { length: entries.length, at: (index) => entries[index] };
}

/** What the reader chose; else without the columns that are seldom wanted, and without those of which this recording knows nothing. */
function useHidden(id: string, columns: Column[], table: Table): [Set<string>, (key: string) => void] {
  const [chosen, set] = useState(() => { const said = remembered(`columns.${id}`); return said === null ? null : new Set(said.split(",")); });
  const names = columns.map((column) => column.key).join();
  const usual = useMemo(() => new Set(columns.filter((column, at) => column.hide || at > 0 && table.rows > 0 && table.has(column.key) && table.blank(column.key)).map((column) => column.key)), [table, names]);
  const hidden = chosen ?? usual;
  const toggle = (key: string) => {
    const next = new Set(hidden);
    if (!next.delete(key)) next.add(key);
    remember(`columns.${id}`, [...next].join(","));
    set(next);
  };
  return [hidden, toggle];
}

function markdown(table: Table, columns: Column[], rows: ArrayLike<number>): string {
  const known = columns.filter((column) => table.has(column.key));
  const cell = (column: Column, row: number) => {
    if (isName(table, column)) return (table.str(column.key)[row] ?? "").replaceAll("|", "\\|");
    return units.text(units.write(table.num(column.key)[row], (column.as ?? units.quantityOf(column.key)) as units.Quantity));
  };
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  const head = [line(known.map((column) => column.label)), line(known.map((column) => (isName(table, column) ? "---" : "---:")))];
  return [...head, ...Array.from(rows, (row) => line(known.map((column) => cell(column, row))))].join("\n") + "\n";
}

export function save(name: string, content: string | Blob): void {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: "text/csv" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
