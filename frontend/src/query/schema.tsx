/** Tables and columns that can be queried. */
import { info, useFetched } from "../data";
import { Card } from "../parts/basics";
import { Icon } from "../parts/icon";
import { source } from "../source";
import { place } from "../state";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useState } from "preact/hooks";

const text = strings("query");

export interface Listed {
  name: string;
  question: string;
  columns: { name: string; type: string }[];
}

/** Tables of the recording with their rows, and analyses with their question. */
export function Schema({ analyses, insert }: { analyses: Listed[]; insert: (word: string) => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const [open, setOpen] = useState<string | null>(null);
  const tables = info.value!.tables;
  const fits = (name: string, columns: string[] = []) =>
    !find || [name, ...columns].some((word) => word.includes(find.toLowerCase()));
  const shown = analyses.filter((item) =>
    fits(
      item.name,
      item.columns.map((column) => column.name),
    ),
  );
  const row = (name: string, note: string, title: string, columns: { name: string; type: string }[] | null) => (
    <div key={name} class="schemarow">
      <div class="schemahead">
        <button
          class="fold"
          aria-expanded={open === name}
          aria-label={name}
          onClick={() => setOpen(open === name ? null : name)}
        >
          <Icon name={open === name ? "down" : "right"} size={12} />
        </button>
        <button class="aslink mono cut" title={`${title ? `${title}\n` : ""}${t.insert}`} onClick={() => insert(name)}>
          {name}
        </button>
        <span class="sp" />
        <span class="d3 small">{note}</span>
      </div>
      {open === name &&
        (columns ? <Columns of={columns} insert={insert} /> : <TableColumns name={name} insert={insert} />)}
    </div>
  );
  return (
    <Card title={t.tables} class="schema" flush>
      <label class="pick find">
        <Icon name="search" size={13} />
        <input
          type="search"
          placeholder={t.find}
          aria-label={t.find}
          value={find}
          onInput={(event) => setFind(event.currentTarget.value)}
        />
      </label>
      <div class="schemalist">
        {Object.keys(tables)
          .filter((name) => fits(name))
          .map((name) =>
            row(
              name,
              units.count(tables[name]).value,
              fill(t.rowsOf, { count: units.count(tables[name]).value }),
              null,
            ),
          )}
        {shown.length > 0 && <h3>{t.analyses}</h3>}
        {shown.map((item) => row(item.name, "", item.question, item.columns))}
      </div>
    </Card>
  );
}

function TableColumns({ name, insert }: { name: string; insert: (word: string) => void }) {
  const run = place.value.run!;
  const fetched = useFetched<Table>(`${run}\ncolumns\n${name}`, () =>
    source().table(run, `tables/${name}`, { limit: 0 }),
  );
  return fetched.data ? (
    <Columns of={fetched.data.names.map((column) => ({ name: column, type: "" }))} insert={insert} />
  ) : null;
}

function Columns({ of, insert }: { of: { name: string; type: string }[]; insert: (word: string) => void }) {
  return (
    <ul class="columns">
      {of.map((column) => (
        <li key={column.name}>
          <button class="aslink mono" onClick={() => insert(column.name)}>
            {column.name}
          </button>
          <span class="d3 small">{column.type}</span>
        </li>
      ))}
    </ul>
  );
}
