/** The result of a query. */
import { color } from "../colors";
import { Card, Empty, InlineBar, Segmented } from "../parts/basics";
import { Grid } from "../parts/grid";
import { save } from "../parts/grid_tools";
import type { Column } from "../parts/grid_rows";
import { Quantity } from "../parts/quantity";
import { Series } from "../parts/series";
import { go, link, param } from "../state";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useMemo } from "preact/hooks";

const text = strings("query");

// Columns whose values have colors.
const OPERATORS = ["name", "type", "op", "op_type", "operator"];

const BARS = 40;

type View = "table" | "bar" | "line";

export function Result({ table }: { table: Table }) {
  const t = text();
  const numbers = table.names.filter((name) => !table.isText(name) && !table.blank(name));
  const requested = param("chart");
  const view: View = requested === "bar" || requested === "line" ? requested : "table";
  const words = table.names.filter((name) => table.isText(name));
  const y = numbers.includes(param("y") ?? "")
    ? param("y")!
    : (numbers.find((name) => name.endsWith("_ns") && !/start_ns|end_ns|at_ns/.test(name)) ??
      numbers[numbers.length - 1]);
  const along = view === "line" ? numbers : table.names;
  const x = along.includes(param("x") ?? "")
    ? param("x")!
    : ((view === "line" ? numbers.find((name) => name !== y) : words[0]) ?? along[0]);
  const columns: Column[] = table.names.map((name) => ({
    key: name,
    label: name,
    as: table.isText(name) ? "name" : undefined,
  }));
  if (table.has("start_ns"))
    columns.push({
      key: "\ttimeline",
      label: t.timeline,
      width: "80px",
      show: (rows, row) => <a href={link({ page: "timeline", params: timelinePlace(rows, row) })}>{t.here}</a>,
    });
  const pick = (name: string, value: string, of: string[], label: string) => (
    <label class="small d2">
      {label}{" "}
      <select value={value} onChange={(event) => go({ params: { [name]: event.currentTarget.value } }, true)}>
        {of.map((item) => (
          <option key={item} value={item}>
            {item}
          </option>
        ))}
      </select>
    </label>
  );
  const tools = (
    <>
      {view !== "table" && y && (
        <>
          {pick("x", x, along, t.x)}
          {pick("y", y, numbers, t.y)}
        </>
      )}
      <Segmented<View>
        label={t.view}
        value={view}
        onChange={(id) => go({ params: { chart: id === "table" ? null : id } }, true)}
        choices={[
          { id: "table", label: t.table },
          { id: "bar", label: t.bar, off: !numbers.length },
          { id: "line", label: t.line, off: numbers.length < 2 },
        ]}
      />
      <button class="btn sm" onClick={() => save("query.csv", table.csv())}>
        {t.csv}
      </button>
    </>
  );
  return (
    <Card title={view === "table" || !y ? t.result : fill(t.chartOf, { x, y })} tools={tools} flush={view === "table"}>
      {view === "bar" && (y ? <Bars table={table} x={x} y={y} /> : <Empty title={t.noNumber} />)}
      {view === "line" && (y ? <Lines table={table} x={x} y={y} /> : <Empty title={t.noNumber} />)}
      <div class={view === "table" ? "" : "below"}>
        <Grid id="answer" table={table} columns={columns} search={words} what={t.what} label={t.result} />
      </div>
    </Card>
  );
}

/** The place of a row on the timeline. */
function timelinePlace(table: Table, row: number): { t0: number; t1: number; span?: string } {
  const from = table.num("start_ns")[row];
  const length =
    [table.num("dur_ns")[row], table.num("end_ns")[row] - from, table.num("step_ns")[row]].find((value) =>
      Number.isFinite(value),
    ) ?? 1e6;
  return {
    t0: Math.round(from),
    t1: Math.round(from + length),
    ...(table.has("span") ? { span: table.raw("span", row) } : {}),
  };
}

function Bars({ table, x, y }: { table: Table; x: string; y: string }) {
  const t = text();
  const values = table.num(y);
  const count = Math.min(BARS, table.rows);
  const high =
    Array.from({ length: count }, (_, row) => Math.abs(values[row]) || 0).reduce((a, b) => Math.max(a, b), 0) || 1;
  const as = units.quantityOf(y);
  return (
    <>
      <div class="bars" role="img" aria-label={fill(t.chartOf, { x, y })}>
        {Array.from({ length: count }, (_, row) => {
          const name = table.isText(x)
            ? (table.str(x)[row] ?? "–")
            : units.text(units.write(table.num(x)[row], units.quantityOf(x)));
          return (
            <div key={row}>
              <span class="cut mono" title={name}>
                {name}
              </span>
              <InlineBar
                share={Math.abs(values[row]) / high}
                color={OPERATORS.includes(x) ? color(name) : "var(--kind-compute)"}
              />
              <span class="r">
                <Quantity value={values[row]} as={as} />
              </span>
            </div>
          );
        })}
      </div>
      {table.rows > count && (
        <p class="d3 small">{fill(t.first, { some: count, all: units.count(table.rows).value })}</p>
      )}
    </>
  );
}

function Lines({ table, x, y }: { table: Table; x: string; y: string }) {
  const sorted = useMemo(() => {
    const along = table.num(x);
    const rows = table.where((row) => !Number.isNaN(along[row])).sort((a, b) => along[a] - along[b]);
    return { x: Float64Array.from(rows, (row) => along[row]), y: Float64Array.from(rows, (row) => table.num(y)[row]) };
  }, [table, x, y]);
  const time = units.quantityOf(x) === "time";
  return (
    <Series
      x={sorted.x}
      lines={[{ label: y, values: sorted.y, color: "--kind-compute" }]}
      as={units.quantityOf(y)}
      xAs={time ? "time" : "count"}
      height={260}
      label={fill(text().chartOf, { x, y })}
    />
  );
}
