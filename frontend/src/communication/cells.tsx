/** All ranks and steps as a matrix. */
import { Card, Segmented } from "../parts/basics";
import { Heat, heatRange } from "../parts/heat";
import { Time } from "../parts/quantity";
import { go, link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Bars } from "./bars";
import { useMemo } from "preact/hooks";

const text = strings("communication");

const METRICS = [
  { key: "total_ns", word: "total", color: "--kind-compute" },
  { key: "computing_ns", word: "computing", color: "--kind-compute" },
  { key: "exposed_ns", word: "exposedMetric", color: "--kind-communication" },
  { key: "wait_ns", word: "wait", color: "--kind-wait" },
] as const;

/** The selected cell in the address: "3:152" is rank 3, step 152; ":152" is that step of all ranks. */
export function selectedCell(): { rank: number | null; step: number | null } {
  const [rank, step] = (param("sel") ?? "").split(":");
  return { rank: rank ? Number(rank) : null, step: step ? Number(step) : null };
}

export function Cells({ cells, means }: { cells: Table; means: Table }) {
  const t = text();
  const metric = METRICS.find((one) => one.key === param("of")) ?? METRICS[0];
  const made = useMemo(() => {
    const ranks = [...new Set(cells.num("rank"))].sort((a, b) => a - b);
    const steps = Float64Array.from([...new Set(cells.num("step"))].sort((a, b) => a - b));
    const at = new Map<number, number>(); // rank and step to the row
    const [rowOf, columnOf] = [
      new Map(ranks.map((rank, row) => [rank, row])),
      new Map(Array.from(steps, (step, column) => [step, column])),
    ];
    for (let row = 0; row < cells.rows; row++)
      at.set(rowOf.get(cells.num("rank")[row])! * steps.length + columnOf.get(cells.num("step")[row])!, row);
    return { ranks, steps, at };
  }, [cells]);
  const values = useMemo(() => {
    const all = new Float64Array(made.ranks.length * made.steps.length).fill(NaN);
    const column = cells.num(metric.key);
    for (const [place, row] of made.at) all[place] = column[row];
    return all;
  }, [made, metric.key]);
  const sel = selectedCell();
  const place = {
    row: sel.rank === null ? -1 : made.ranks.indexOf(sel.rank),
    column: sel.step === null ? -1 : made.steps.indexOf(sel.step),
  };
  const row = place.row < 0 || place.column < 0 ? undefined : made.at.get(place.row * made.steps.length + place.column);
  const range = useMemo(() => heatRange(values), [values]);
  const say = (atRow: number, column: number) => {
    const found = made.at.get(atRow * made.steps.length + column);
    return (
      <>
        <b>
          {t.rank} {made.ranks[atRow]} · {t.step} {units.count(made.steps[column]).value}
        </b>
        {found === undefined ? (
          <p>{t.noRow}</p>
        ) : (
          <dl>
            {METRICS.map((one) => [
              <dt key={one.key}>{t[one.word]}</dt>,
              <dd key={`${one.key}v`}>
                <Time ns={cells.num(one.key)[found]} />
              </dd>,
            ])}
          </dl>
        )}
      </>
    );
  };
  return (
    <>
      <Card
        title={t.heat}
        note={t.heatNote}
        tools={
          <span class="pair">
            <span class="scalebar">
              <Time ns={range.low} />
              <i
                style={{
                  background: `linear-gradient(to right, color-mix(in srgb, var(${metric.color}) 12%, transparent), var(${metric.color}))`,
                }}
              />
              {range.high < range.most && "≥ "}
              <Time ns={range.high} />
            </span>
            <Segmented
              choices={METRICS.map((one) => ({ id: one.key as string, label: t[one.word], off: cells.blank(one.key) }))}
              value={metric.key as string}
              onChange={(id) => go({ params: { of: id === "total_ns" ? null : id } }, true)}
              label={t.metric}
            />
          </span>
        }
      >
        <Heat
          rows={made.ranks.map(String)}
          columns={made.steps}
          values={values}
          color={metric.color}
          selected={place.row >= 0 && place.column >= 0 ? place : null}
          onPick={(atRow, column) => go({ params: { sel: `${made.ranks[atRow]}:${made.steps[column]}` } })}
          say={say}
          rowTitle={t.rank}
          label={`${t.heat}: ${t[metric.word]}`}
        />
        {sel.step !== null && (
          <div class="heatrow">
            {row !== undefined && (
              <>
                <b>
                  <Sentence
                    template={t.chosen}
                    rank={made.ranks[place.row]}
                    step={units.count(made.steps[place.column]).value}
                    total={<Time ns={cells.num("total_ns")[row]} />}
                  />
                </b>
                {METRICS.slice(1).map(
                  (one) =>
                    Number.isFinite(cells.num(one.key)[row]) && (
                      <span key={one.key} class="d2">
                        {t[one.word]} <Time ns={cells.num(one.key)[row]} />
                      </span>
                    ),
                )}
                <a
                  href={link({ page: "steps", params: { rank: made.ranks[place.row], sel: made.steps[place.column] } })}
                >
                  {fill(t.toStep, { rank: made.ranks[place.row] })}
                </a>
                <a
                  href={link({
                    page: "timeline",
                    params: {
                      rank: made.ranks[place.row],
                      t0: Math.round(cells.num("start_ns")[row]),
                      t1: Math.round(cells.num("start_ns")[row] + cells.num("total_ns")[row]),
                    },
                  })}
                >
                  {t.toTimeline}
                </a>
                <button class="aslink" onClick={() => go({ params: { sel: null } })}>
                  {t.clear}
                </button>
              </>
            )}
            {sel.step !== null && row === undefined && (
              <>
                <span class="d2">{sel.rank === null ? fill(t.barsStep, { step: sel.step }) : t.noRow}</span>
                <button class="aslink" onClick={() => go({ params: { sel: null } })}>
                  {t.clear}
                </button>
              </>
            )}
          </div>
        )}
      </Card>
      <Bars cells={cells} means={means} step={sel.step} on={sel.rank} />
    </>
  );
}
