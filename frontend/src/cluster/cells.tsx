/**
 * All ranks (or hosts, or parallel groups) by steps as a matrix of one figure. The server limits the number of
 * cells.
 */
import { useTable } from "../data";
import { Await, Card, Empty, Segmented } from "../parts/basics";
import { Heat, heatRange } from "../parts/heat";
import { Menu } from "../parts/menu";
import { Time } from "../parts/quantity";
import { go, link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import {
  type Figure,
  FIGURES,
  GroupChoice,
  type Grouping,
  grouping,
  number,
  rowName,
  select,
  selection,
} from "./choices";
import { useMemo } from "preact/hooks";

const text = strings("cluster");
const ROWS = 96;
const COLUMNS = 400;

export function Cells({ places }: { places: Table }) {
  const t = text();
  const by = grouping(places);
  const figure = FIGURES.find((one) => one.key === param("of")) ?? FIGURES[0];
  const order = param("order") === "value" ? "value" : "rank";
  const asked = useTable(
    "cluster_cells",
    {
      figure: figure.key,
      by: by === "rank" ? null : by,
      order: order === "rank" ? null : order,
      max_rows: ROWS,
      max_columns: COLUMNS,
    },
    { allRanks: true },
  );
  return (
    <Card
      title={t.cells}
      note={t.cellsNote}
      tools={
        <span class="cluster-tools">
          <FigureChoice figure={figure} />
          <GroupChoice places={places} />
          <Segmented
            choices={[
              { id: "rank", label: t.inOrder },
              { id: "value", label: t.highestFirst },
            ]}
            value={order}
            onChange={(id) => go({ params: { order: id === "rank" ? null : id } }, true)}
            label={t.order}
          />
        </span>
      }
    >
      <Await of={asked}>
        {(cells) =>
          cells.rows ? (
            <Matrix cells={cells} figure={figure} by={by} />
          ) : (
            <Empty title={t.noCells} height={140}>
              {t.noCellsHow}
            </Empty>
          )
        }
      </Await>
      <Selected />
    </Card>
  );
}

export function FigureChoice({ figure }: { figure: Figure }) {
  const t = text();
  return (
    <Menu button={t[figure.key]} label={t.figure} class="sm">
      {(close) =>
        FIGURES.map((one) => (
          <button
            key={one.key}
            class={one.key === figure.key ? "on" : ""}
            onClick={() => {
              close();
              go({ params: { of: one.key === FIGURES[0].key ? null : one.key } }, true);
            }}
          >
            {t[one.key]}
          </button>
        ))
      }
    </Menu>
  );
}

function Matrix({ cells, figure, by }: { cells: Table; figure: Figure; by: Grouping }) {
  const t = text();
  const made = useMemo(() => {
    const [row, column] = [cells.num("row"), cells.num("column")];
    const rows = Math.max(...row) + 1;
    const columns = Math.max(...column) + 1;
    const values = new Float64Array(rows * columns).fill(NaN);
    const at = new Int32Array(rows * columns).fill(-1);
    const labels = Array.from({ length: rows }, () => "");
    const steps = new Float64Array(columns);
    const highest = cells.num("highest");
    for (let cell = 0; cell < cells.rows; cell++) {
      const place = row[cell] * columns + column[cell];
      values[place] = highest[cell];
      at[place] = cell;
      labels[row[cell]] = cells.str("label")[cell] ?? "";
      steps[column[cell]] = cells.num("first_step")[cell];
    }
    return { columns, values, at, labels, steps };
  }, [cells]);
  const range = useMemo(() => heatRange(made.values), [made]);
  const say = (row: number, column: number) => {
    const cell = made.at[row * made.columns + column];
    if (cell < 0) return <b>{t.noCell}</b>;
    const [first, last] = [cells.num("first_step")[cell], cells.num("last_step")[cell]];
    return (
      <>
        <b>
          {rowName(by, made.labels[row])} · {t.step}{" "}
          {first === last ? number(first) : `${number(first)}–${number(last)}`}
        </b>
        <dl>
          <dt>{t.highest}</dt>
          <dd>
            <Time ns={cells.num("highest")[cell]} />
          </dd>
          <dt>{t.mean}</dt>
          <dd>
            <Time ns={cells.num("value")[cell]} />
          </dd>
          <dt>{t.usual}</dt>
          <dd>
            <Time ns={cells.num("usual")[cell]} />
          </dd>
        </dl>
        <p>{fill(t.cellPlace, { rank: number(cells.num("rank")[cell]), step: number(cells.num("step")[cell]) })}</p>
      </>
    );
  };
  const chosen = selection();
  const cell = useMemo(
    () =>
      Array.from({ length: cells.rows }, (_, at) => at).find(
        (at) => cells.num("rank")[at] === chosen.rank && cells.num("step")[at] === chosen.step,
      ),
    [cells, chosen.rank, chosen.step],
  );
  const labels = made.labels.map((label) => (by === "rank" ? label : rowName(by, label)));
  return (
    <>
      <Heat
        rows={labels}
        columns={made.steps}
        values={made.values}
        color={figure.color}
        selected={cell === undefined ? null : { row: cells.num("row")[cell], column: cells.num("column")[cell] }}
        onPick={(row, column) => {
          const at = made.at[row * made.columns + column];
          if (at >= 0) select(cells.num("rank")[at], cells.num("step")[at]);
        }}
        say={say}
        label={`${t.cells}: ${t[figure.key]}`}
        stretch
      />
      <p class="cluster-scale d3">
        <Time ns={range.low} />
        <i
          style={{
            background: `linear-gradient(to right, color-mix(in srgb, var(${figure.color}) 12%, transparent), var(${figure.color}))`,
          }}
        />
        {range.high < range.most && "≥ "}
        <Time ns={range.high} />
        <span>{t.cellsHighest}</span>
      </p>
    </>
  );
}

/** The selected rank and step, with links to its step and to the timeline. */
function Selected() {
  const t = text();
  const { rank, step } = selection();
  const asked = useTable(
    "step_trace",
    { rank, steps: `${step}:${step}` },
    { allRanks: true, skip: rank === null || step === null },
  );
  if (rank === null) return null;
  const table = asked.data?.rows ? asked.data : null;
  const times = table && { t0: Math.round(table.num("start_ns")[0]), t1: Math.round(table.num("end_ns")[0]) };
  return (
    <div class="heatrow">
      <b>
        {step === null ? (
          `${t.rank} ${number(rank)}`
        ) : (
          <Sentence template={t.chosen} rank={number(rank)} step={number(step)} />
        )}
      </b>
      <a href={link({ page: "steps", params: { rank, sel: step } })}>{t.toStep}</a>
      <a href={link({ page: "timeline", params: { rank, ...(times ?? {}) } })}>{t.toTimeline}</a>
      <a href={link({ page: "operators", params: { rank } })}>{t.toOperators}</a>
      <button class="aslink" onClick={() => select(null, null)}>
        {t.clear}
      </button>
    </div>
  );
}
