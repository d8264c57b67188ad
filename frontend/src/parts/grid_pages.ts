/** Rows of a grid that the server sorts and searches. */
import { fetchTable, type TableName } from "../data";
import type { Params } from "../source";
import type { Table } from "../table";
import type { Column, Entries, Entry } from "./grid_rows";
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

export interface GridProps {
  /** Names the state in the address: unique within a page. */
  id: string;
  table: Table;
  columns: Column[];
  /** "types", "kernels", or "type|types": after the count of rows. */
  what?: string;
  /** The placeholder of the search field. */
  find?: string;
  /** Columns to search; without them there is no search. */
  search?: string[];
  /** The first sort: "-total_ns" is largest first. */
  sort?: string;
  /** The column that names a row in the address; with onOpen, rows can be selected. */
  rowKey?: (table: Table, row: number) => string;
  selected?: string | null;
  /** Returns false if there is nothing to open: then the rows below are shown. */
  onOpen?: (table: Table, row: number) => void | boolean;
  /** The rows below a row, drawn in place; null if there are none. Called again for their rows. */
  children?: (table: Table, row: number) => Promise<Table | null> | Table | null;
  /** Rows that cannot be opened; by default those below another. */
  leaf?: (table: Table, row: number, depth: number) => boolean;
  /** Left of the search: tabs, filters. */
  tools?: ComponentChildren;
  /** After the search: what the page leaves out. */
  chips?: ComponentChildren;
  /** CSS height of the scrolling part; by default it grows to 560 px. */
  height?: string;
  /**
   * Where the table is from. If it has more rows than were loaded (`limit: MOST`), the server sorts, searches and sends
   * the visible rows.
   */
  from?: { name: TableName; params: Params };
  /** A plain table of a few rows: no tools. */
  bare?: boolean;
  label: string;
}

/** Tables with more rows stay on the server: fetch with `limit: MOST`. */
export const MOST = 200_000;

const PAGE = 500;

interface Pages extends Entries {
  asked: Params;
  /** These rows are visible. */
  want: (first: number, last: number) => void;
}

/** The rows of a table that is too long to load, page by page; null for a table that is loaded. */
export function usePages(props: GridProps, sort: string, find: string): Pages | null {
  const { table, from } = props;
  const far = from !== undefined && table.total > table.rows;
  const requested: Params = {
    sort: sort.replace(/^-/, "") || null,
    descending: sort.startsWith("-") || null,
    find: find.trim() || null,
  };
  const key = far ? JSON.stringify([from.name, from.params, requested]) : "";
  const [state, setState] = useState<{ key: string; total: number; pages: Map<number, Table> }>({
    key: "",
    total: 0,
    pages: new Map(),
  });
  const wanted = useRef(new Set<string>());
  const latest = useRef(key);
  latest.current = key;
  return useMemo(() => {
    if (!far) return null;
    const current = state.key === key ? state : { key, total: find ? 0 : table.total, pages: new Map<number, Table>() };
    const want = (first: number, last: number) => {
      for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page++) {
        const name = `${key}\n${page}`;
        if (wanted.current.has(name)) continue;
        wanted.current.add(name);
        void fetchTable(from.name, { ...from.params, ...requested, offset: page * PAGE, limit: PAGE }).then(
          (result) =>
            latest.current === key &&
            setState((old) => ({
              key,
              total: result.total,
              pages: new Map([...(old.key === key ? old.pages : []), [page, result]]),
            })),
          () => wanted.current.delete(name),
        );
      }
    };
    const at = (index: number): Entry => {
      const page = current.pages.get(Math.floor(index / PAGE));
      return page && index % PAGE < page.rows
        ? { table: page, row: index % PAGE, depth: 0, path: String(index) }
        : { table, row: -1, depth: 0, path: String(index) };
    };
    return { length: current.total, at, asked: requested, want };
  }, [key, state, table]);
}
