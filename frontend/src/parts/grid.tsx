/** A table of any length: only visible rows are in the DOM. Sort, search and selected row are in the address. */
import { source } from "../source";
import { go, param, place } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Chip, copyText } from "./basics";
import { Icon } from "./icon";
import { Cell, isName, scale } from "./grid_cell";
import { type GridProps, usePages } from "./grid_pages";
import { type Column, conditions, type Entry, markdown, sortRows, quantity, visibleEntries } from "./grid_rows";
import { Condition, save, useHidden } from "./grid_tools";
import { Menu } from "./menu";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

const text = strings("grid");

const ROW = 28;

const SPARE = 8;

/** Browsers draw at most about 17 million pixels; a longer table scrolls faster than the pointer. */
const TALLEST = 12_000_000;

export function Grid(props: GridProps) {
  const { id, table, search = [] } = props;
  const t = text();
  const what = (props.what ?? t.rows).split("|").at(table.total === 1 ? 0 : -1)!;
  const [hidden, setHidden] = useHidden(id, props.columns, table);
  const columns = props.columns.filter(
    (column) => !hidden.has(column.key) && (column.show !== undefined || table.has(column.key)),
  );
  const sort = param(`${id}.sort`) ?? props.sort ?? "";
  const find = param(`${id}.find`) ?? "";
  const where = param(`${id}.where`) ?? "";
  const far = usePages(props, sort, find);
  const [rows, wrong] = useMemo(
    () => (far ? [[], false] : sortRows(table, search, find, where, sort)),
    [table, far !== null, find, where, sort, search.join()],
  );
  const [opened, setOpened] = useState<Map<string, Table>>(new Map());
  useEffect(() => setOpened(new Map()), [table]);
  const near = useMemo(() => visibleEntries(table, rows, opened, sort, props.rowKey), [table, rows, opened, sort]);
  const entries = far ?? near;
  const leaf = (entry: Entry) =>
    !props.children || (props.leaf ? props.leaf(entry.table, entry.row, entry.depth) : entry.depth > 0);
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
  // If the table is too long for the browser, the scroll position is scaled.
  const shift = tall < entries.length * ROW ? (top / Math.max(1, tall - room)) * (entries.length * ROW - tall) : 0;
  const first = Math.max(0, Math.floor((top + shift) / ROW) - SPARE);
  const last = Math.min(entries.length, Math.ceil((top + shift + room) / ROW) + SPARE);
  useEffect(() => far?.want(first, last), [far, first, last]);
  const scales = useMemo(
    () => new Map(columns.map((column) => [column.key, scale(table, column)])),
    [table, columns.map((c) => c.key).join()],
  );
  const widths = columns.map(
    (column) =>
      column.width ??
      (isName(table, column) ? "minmax(160px, 3fr)" : column.bar ? "minmax(120px, 1.6fr)" : "minmax(72px, 1fr)"),
  );
  const tracks = widths.join(" ");
  // A narrower table scrolls sideways.
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
    const result = entries.length ? entries.at(Math.min(active, entries.length - 1)) : undefined;
    const entry = result && result.row >= 0 ? result : undefined;
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
    const down =
      sort === `-${column.key}`
        ? column.key
        : sort === column.key || (isName(table, column) && by !== column.key)
          ? sort === column.key
            ? `-${column.key}`
            : column.key
          : `-${column.key}`;
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
          {conditions(where).map((item) => {
            const column = props.columns.find((column) => column.key === item.key);
            return (
              <Chip
                key={item.text}
                tone="acc"
                onRemove={() =>
                  go(
                    {
                      params: {
                        [`${id}.where`]: conditions(where)
                          .filter((other) => other.text !== item.text)
                          .map((other) => other.text)
                          .join(" "),
                      },
                    },
                    true,
                  )
                }
              >
                {(column?.label ?? item.key).toLowerCase()} {item.most ? "≤" : "≥"}{" "}
                {units.text(units.write(item.value, quantity(column ?? { key: item.key, label: "" })))}
              </Chip>
            );
          })}
          {props.chips}
          <span class="sp" />
          <span class="d3 small nowrap" role="status">
            {far && find
              ? fill(t.shown, { some: units.count(far.length).value, all: units.count(table.total).value, what })
              : far || rows.length === table.rows
                ? fill(t.all, { all: units.count(table.total).value, what })
                : fill(t.shown, { some: units.count(rows.length).value, all: units.count(table.total).value, what })}
          </span>
          {!far && (
            <Menu button={t.filter} label={t.filter} class="sm" align="right" arrow={false}>
              {(close) => (
                <Condition
                  columns={props.columns.filter(
                    (column) => column.label && !column.unfiltered && table.has(column.key) && !isName(table, column),
                  )}
                  onAdd={(text) => {
                    go({
                      params: { [`${id}.where`]: [...conditions(where).map((item) => item.text), text].join(" ") },
                    });
                    close();
                  }}
                />
              )}
            </Menu>
          )}
          <Menu button={t.columns} label={t.columns} class="sm" align="right" arrow={false}>
            {() =>
              props.columns
                .filter((column) => table.has(column.key) || column.show)
                .map((column) => (
                  <label key={column.key} class="item">
                    <input type="checkbox" checked={!hidden.has(column.key)} onChange={() => setHidden(column.key)} />{" "}
                    {column.label || column.help || column.key}
                  </label>
                ))
            }
          </Menu>
          <Menu button={t.copy} label={t.copy} class="sm" align="right" arrow={false}>
            {(close) =>
              far ? (
                <a
                  class="item"
                  href={
                    source().download(place.value.run!, props.from!.name, {
                      ...props.from!.params,
                      limit: null,
                      ...far.asked,
                    }) ?? undefined
                  }
                  download
                  onClick={close}
                >
                  {t.save}
                </a>
              ) : (
                <>
                  <button class="item" onClick={() => void copyText(table.csv(names, rows)).then(close)}>
                    {t.csv}
                  </button>
                  <button class="item" onClick={() => void copyText(markdown(table, columns, rows)).then(close)}>
                    {t.markdown}
                  </button>
                  <button
                    class="item"
                    onClick={() => {
                      save(`${id}.csv`, table.csv(table.names, rows));
                      close();
                    }}
                  >
                    {t.save}
                  </button>
                </>
              )
            }
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
            if (entry.row < 0)
              return <div key={index} class="gridrow" style={{ top: `${index * ROW - shift}px` }} aria-hidden="true" />;
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
                  <div
                    key={column.key}
                    role="gridcell"
                    class={`${isName(table, column) || column.bar ? "tl" : ""} ${by === column.key ? "b" : ""}`}
                  >
                    {place === 0 && props.children && (
                      <button
                        class="fold"
                        style={{ marginLeft: `${entry.depth * 14}px` }}
                        tabIndex={-1}
                        disabled={leaf(entry)}
                        aria-label={entry.open ? t.fold : t.open}
                        onClick={(event) => {
                          event.stopPropagation();
                          void toggle(entry);
                        }}
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
            {find && (
              <button class="aslink" onClick={() => go({ params: { [`${id}.find`]: null } }, true)}>
                {t.clear}
              </button>
            )}
          </p>
        )}
      </div>
    </div>
  );
}
