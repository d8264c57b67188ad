/** The rows behind a finding: the named analysis, filtered. */
import { useFetched } from "../data";
import { Await, Empty } from "../parts/basics";
import { Quantity } from "../parts/quantity";
import { source } from "../source";
import { link, place } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import type { Evidence } from "./rows";

const text = strings("advice");

const ROWS = 5;
const COLUMNS = 7;
/** Columns that say little in a small table. */
const LEFT_OUT = new Set(["rank", "span", "track", "args", "correlation", "next_span", "parent", "node", "stack"]);

export function Figures({ of }: { of: Evidence }) {
  const figures = Object.entries(of.figures).filter(([, value]) => Number.isFinite(value));
  if (!figures.length) return null;
  return (
    <dl class="kv adv-figures">
      {figures.map(([name, value]) => [
        <dt key={`${name} name`}>{name.replace(/_(ns|share|bytes)$/, "").replaceAll("_", " ")}</dt>,
        <dd key={name}>
          <Quantity value={value} as={units.quantityOf(name)} />
        </dd>,
      ])}
    </dl>
  );
}

export function EvidenceRows({ of }: { of: Evidence }) {
  const t = text();
  const run = place.value.run!;
  const key = `${run}\n${of.analysis}\nall ranks ${JSON.stringify(of.arguments)}`;
  const asked = useFetched(key, () => source().table(run, of.analysis, of.arguments));
  if (asked.error) return source().isReport ? null : <p class="d3 small">{asked.error.message}</p>;
  return (
    <Await of={asked} rows={2}>
      {(table) => <Rows of={of} table={table} t={t} />}
    </Await>
  );
}

function Rows({ of, table, t }: { of: Evidence; table: Table; t: ReturnType<typeof text> }) {
  const wanted = Object.entries(of.rows).filter(([name]) => table.has(name));
  const rows = table.where((row) => wanted.every(([name, value]) => table.raw(name, row) === String(value ?? "")));
  if (!rows.length) return <Empty title={t.noRows} height={48} />;
  const by = table.names.find((name) => /^(total|self|dur|gain|wait)_ns$/.test(name));
  if (by) rows.sort((a, b) => table.num(by)[b] - table.num(by)[a]);
  const shown = table.pick(rows.slice(0, ROWS));
  const names = shown.names.filter((name) => !LEFT_OUT.has(name) && !shown.blank(name)).slice(0, COLUMNS);
  return (
    <div class="adv-rows">
      <table>
        <thead>
          <tr>
            {names.map((name) => (
              <th key={name} class={shown.isText(name) ? "tl" : ""}>
                {name.replace(/_ns$/, "")}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: shown.rows }, (_, row) => (
            <tr key={row}>
              {names.map((name) =>
                shown.isText(name) ? (
                  <td key={name} class="tl mono cut" title={shown.raw(name, row)}>
                    {shown.raw(name, row)}
                  </td>
                ) : (
                  <td key={name}>
                    <Quantity value={shown.num(name)[row]} as={units.quantityOf(name)} />
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="d3 small">
        {fill(t.rowsOf, { shown: shown.rows, count: units.count(rows.length).value })}{" "}
        <span class="mono">{of.analysis}</span>
        {!source().isReport && !Object.keys(of.arguments).length && (
          <>
            {" · "}
            <a href={link({ page: "query", params: { sql: sql(of, wanted) } })}>{t.allRows}</a>
          </>
        )}
      </p>
    </div>
  );
}

function sql(of: Evidence, wanted: [string, string | number | null][]): string {
  const value = (one: string | number | null) =>
    typeof one === "string" ? `= '${one.replaceAll("'", "''")}'` : one === null ? "is null" : `= ${one}`;
  const where = wanted.map(([name, one]) => `${name} ${value(one)}`).join(" and ");
  return `select * from ${of.analysis}${where ? `\nwhere ${where}` : ""}`;
}
