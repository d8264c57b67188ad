/** Tools of a table: a condition to add, the choice of columns, and files to download. */
import { remember, remembered } from "../state";
import { strings } from "../strings";
import type { Table } from "../table";
import { type Column, SCALE } from "./grid_rows";
import { useMemo, useState } from "preact/hooks";

const text = strings("grid");

export function Condition({ columns, onAdd }: { columns: Column[]; onAdd: (text: string) => void }) {
  const t = text();
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const match = /^(-?[\d.]+)\s*([a-zµ%]*)$/i.exec(String(form.get("value")).trim().replaceAll(",", ""));
    if (!match) return;
    const unit = match[2].toLowerCase();
    onAdd(`${form.get("key")}${form.get("how")}${Number(match[1]) * (unit ? (SCALE[unit] ?? 1) : 1)}`);
  };
  return (
    <form class="steprange" onSubmit={submit}>
      <select name="key" aria-label={t.columns}>
        {columns.map((column) => (
          <option key={column.key} value={column.key}>
            {column.label}
          </option>
        ))}
      </select>
      <select name="how" aria-label={t.filter}>
        <option value=">=">{t.least}</option>
        <option value="<=">{t.most}</option>
      </select>
      <input type="text" name="value" aria-label={t.value} title={t.value} placeholder="1 ms" required />
      <button class="btn sm pri">{t.add}</button>
    </form>
  );
}

/**
 * The choice of the user; by default without rarely used columns and without columns that are empty in this recording.
 */
export function useHidden(id: string, columns: Column[], table: Table): [Set<string>, (key: string) => void] {
  const [chosen, set] = useState(() => {
    const stored = remembered(`columns.${id}`);
    return stored === null ? null : new Set(stored.split(","));
  });
  const names = columns.map((column) => column.key).join();
  const usual = useMemo(
    () =>
      new Set(
        columns
          .filter(
            (column, at) =>
              column.hide || (at > 0 && table.rows > 0 && table.has(column.key) && table.blank(column.key)),
          )
          .map((column) => column.key),
      ),
    [table, names],
  );
  const hidden = chosen ?? usual;
  const toggle = (key: string) => {
    const next = new Set(hidden);
    if (!next.delete(key)) next.add(key);
    remember(`columns.${id}`, [...next].join(","));
    set(next);
  };
  return [hidden, toggle];
}

export function save(name: string, content: string | Blob): void {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: "text/csv" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
