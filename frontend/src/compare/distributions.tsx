/** The step times of both sides on one axis, as a histogram or as a cumulative distribution. */
import { useFetched } from "../data";
import { Card, Empty, Legend, Segmented, useWidth } from "../parts/basics";
import { quantile } from "../parts/histogram";
import { tip, untip } from "../parts/tip";
import { source, type Info } from "../source";
import { go, link, param } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { sideIds } from "./sides";

const text = strings("compare");

const COLORS = { A: "var(--text-3)", B: "var(--kind-compute)" };
const VIEWS = ["histogram", "cumulative"] as const;
const SIDES = ["A", "B"] as const;

interface DistributionsProps {
  now: Info;
  steps: Table;
  /** The step of each side in the headline: of several runs, the mean of their medians. */
  medians: [number, number];
}

export function Distributions({ now, steps, medians }: DistributionsProps) {
  const t = text();
  const view = VIEWS.find((one) => one === param("view")) ?? "histogram";
  const [side, total, counted] = [steps.str("side"), steps.num("total_ns"), steps.num("counted")];
  const values = (label: string) =>
    Float64Array.from(steps.where((row) => side[row] === label && counted[row] === 1).map((row) => total[row])).sort();
  const [a, b] = SIDES.map(values);
  return (
    <Card
      title={t.times}
      tools={
        <>
          <Legend
            of={SIDES.map((label, at) => ({
              label: `${label} ${units.text(units.write(medians[at], "time"))}`,
              color: COLORS[label],
            }))}
          />
          <Timelines now={now} steps={steps} />
          <Segmented
            label={t.view}
            value={view}
            choices={VIEWS.map((id) => ({ id, label: t[id] }))}
            onChange={(id) => go({ params: { view: id } }, true)}
          />
        </>
      }
    >
      {a.length && b.length ? (
        <Chart a={a} b={b} medians={medians} cumulative={view === "cumulative"} />
      ) : (
        <Empty title={t.noSteps} />
      )}
    </Card>
  );
}

interface ChartProps {
  a: Float64Array;
  b: Float64Array;
  medians: [number, number];
  cumulative: boolean;
}

/** With fewer steps than this, each is a dot. */
const FEW = 20;

function Chart({ a, b, medians, cumulative }: ChartProps) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const [left, right, top, bottom, height] = [40, 12, 18, 18, 180];
  const both = Float64Array.from([...a, ...b]).sort();
  const [low, most, p99] = [both[0], both[both.length - 1], quantile(both, 0.99)];
  // Steps beyond the 99th percentile of both would leave one bar for all others.
  const high = most - p99 > 2 * (p99 - low) && p99 > low ? p99 : most;
  const span = high - low || Math.abs(high) || 1;
  const inner = Math.max(10, width - left - right);
  const bins = Math.max(8, Math.min(60, Math.ceil(Math.sqrt(both.length)) * 2, Math.floor(inner / 6)));
  const unit = units.timeUnit(high);
  const write = (value: number) => units.text(units.write(value, "time", unit));
  const x = (value: number) => left + ((Math.min(value, high) - low) / span) * inner;
  const y = (share: number) => top + (1 - share) * (height - top - bottom);
  const shares = [a, b].map((values) => {
    const counts = new Float64Array(bins);
    for (const value of values)
      if (value <= high) counts[Math.min(bins - 1, Math.floor(((value - low) / span) * bins))] += 1 / values.length;
    return counts;
  });
  const peak = cumulative ? 1 : Math.max(...shares[0], ...shares[1]);
  const beyond = [a, b].map((values) => values.filter((value) => value > high).length);
  const said = fill(t.timesSaid, { a: write(medians[0]), b: write(medians[1]) });
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={said}>
          <line class="ax" x1={left} x2={width - right} y1={height - bottom} y2={height - bottom} />
          {(cumulative || both.length >= FEW) && (
            <text class="axis" x={left - 6} y={y(1) + 4} text-anchor="end">
              {units.text(units.share(peak))}
            </text>
          )}
          {cumulative
            ? [a, b].map((values, at) => (
                <path key={at} d={ecdf(values, x, y)} fill="none" stroke={COLORS[SIDES[at]]} stroke-width="1.5" />
              ))
            : both.length < FEW
              ? [a, b].map((values, at) =>
                  Array.from(values, (value, place) => (
                    <circle
                      key={`${at}.${place}`}
                      cx={x(value)}
                      cy={y(at ? 0.35 : 0.65)}
                      r="5"
                      fill={COLORS[SIDES[at]]}
                      fill-opacity=".7"
                      onPointerMove={(event) => tip(event, `${SIDES[at]} ${write(value)}`)}
                      onPointerLeave={untip}
                    />
                  )),
                )
              : shares.map((counts, at) =>
                  Array.from(counts, (share, bin) => (
                    <rect
                      key={`${at}.${bin}`}
                      x={left + (bin / bins) * inner + 0.5}
                      width={Math.max(1, inner / bins - 1)}
                      y={y(share / peak)}
                      height={height - bottom - y(share / peak)}
                      fill={COLORS[SIDES[at]]}
                      fill-opacity={at ? 0.55 : 0.45}
                      onPointerMove={(event) =>
                        tip(
                          event,
                          <>
                            {write(low + (bin / bins) * span)} – {write(low + ((bin + 1) / bins) * span)}
                            <br />A {units.text(units.share(shares[0][bin]))} · B{" "}
                            {units.text(units.share(shares[1][bin]))}
                          </>,
                        )
                      }
                      onPointerLeave={untip}
                    />
                  )),
                )}
          {medians.map((value, at) => (
            <line
              key={at}
              class="ru"
              x1={x(value)}
              x2={x(value)}
              y1={top - 8}
              y2={height - bottom}
              stroke={COLORS[SIDES[at]]}
              stroke-width="1.5"
            />
          ))}
          <text class="axis" x={left} y={height - 4}>
            {write(low)}
          </text>
          <text class="axis" x={width - right} y={height - 4} text-anchor="end">
            {beyond.some((count) => count > 0)
              ? fill(t.beyond, { high: write(high), a: String(beyond[0]), b: String(beyond[1]) })
              : write(high)}
          </text>
        </svg>
      )}
    </div>
  );
}

/** A step at every value, thinned to what a screen can show. */
function ecdf(sorted: Float64Array, x: (value: number) => number, y: (share: number) => number): string {
  const every = Math.max(1, Math.floor(sorted.length / 1000));
  let path = `M${x(sorted[0]).toFixed(1)} ${y(0).toFixed(1)}`;
  for (let at = 0; at < sorted.length; at += every)
    path += `H${x(sorted[at]).toFixed(1)}V${y((at + 1) / sorted.length).toFixed(1)}`;
  return `${path}H${x(Infinity).toFixed(1)}V${y(1).toFixed(1)}`;
}

/** Links to the step nearest to the median of each side, on the timeline. */
function Timelines({ now, steps }: { now: Info; steps: Table }) {
  const t = text();
  const { a, b } = sideIds(now);
  const other = useFetched(`${b[0]}\ninfo`, () => source().info(b[0]));
  const [first, second] = [medianStep(steps, "A"), medianStep(steps, "B")];
  if (!first || !second || !other.data) return null;
  const shift = Number(BigInt(now.origin_ns) - BigInt(other.data.origin_ns));
  // The same length on both pages: the steps stand at the same scale.
  const length = Math.max(first.length, second.length);
  const view = (at: number, rank: number) => ({ t0: Math.round(at), t1: Math.round(at + length), rank });
  return (
    <span class="small">
      {t.timelines}{" "}
      <a
        href={link({ run: a[0], page: "timeline", params: view(first.start, first.rank) })}
        title={fill(t.timelineOf, { step: String(first.step) })}
      >
        A
      </a>{" "}
      <a
        href={link({ run: b[0], page: "timeline", params: view(second.start + shift, second.rank) })}
        target="_blank"
        rel="noreferrer"
        title={fill(t.timelineOf, { step: String(second.step) })}
      >
        B
      </a>
    </span>
  );
}

interface Step {
  start: number;
  length: number;
  step: number;
  rank: number;
}

/** Of the first run of a side: the counted step next to the median. */
function medianStep(steps: Table, label: string): Step | null {
  const [side, run, counted] = [steps.str("side"), steps.num("run"), steps.num("counted")];
  const rows = steps.where((row) => side[row] === label && run[row] === 0 && counted[row] === 1);
  const total = steps.num("total_ns");
  rows.sort((one, two) => total[one] - total[two]);
  const row = rows[rows.length >> 1];
  if (row === undefined) return null;
  const [start, step, rank] = [steps.num("start_ns"), steps.num("step"), steps.num("rank")];
  return { start: start[row], length: total[row], step: step[row], rank: rank[row] };
}
