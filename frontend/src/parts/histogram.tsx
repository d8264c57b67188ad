/** Histogram and cumulative distribution of durations. */
import { strings } from "../strings";
import * as units from "../units";
import { useWidth } from "./basics";
import { tip, untip } from "./tip";

const text = strings("plots");

interface HistogramProps {
  values: ArrayLike<number>;
  color?: string;
  height?: number;
  /** The quantity of the values. */
  as?: units.Quantity;
  selected?: number | null;
  /** Percentiles that an analysis gives, by name; by default p50, p90 and p99 of the values. */
  marks?: [string, number][];
  /** The share of the values at or below each, instead of counts. */
  cumulative?: boolean;
  label: string;
}

/** Counts per bin with p50, p90 and p99; under 20 values each is a dot. */
export function Histogram({
  values,
  color = "var(--text-3)",
  height = 120,
  as = "time",
  selected,
  marks: given,
  cumulative,
  label,
}: HistogramProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const known = Float64Array.from(Array.from(values).filter(Number.isFinite)).sort();
  const left = 36,
    right = 12,
    top = 18,
    bottom = 18;
  const low = known[0] ?? 0;
  const most = known[known.length - 1] ?? 1;
  const few = known.length < 20;
  // A few outliers would leave one bar for all others: they share the last bar, which is labeled.
  const p99 = quantile(known, 0.99);
  const cut = !few && most - p99 > 2 * (p99 - low) && p99 > low;
  const high = cut ? p99 + (p99 - low) * 0.25 : most;
  const far = cut ? known.length - known.findIndex((value) => value > high) : 0;
  const span = high - low || Math.abs(high) || 1;
  const inner = Math.max(10, width - left - right - (cut ? 56 : 0));
  const bins = Math.max(8, Math.min(60, Math.ceil(Math.sqrt(known.length)) * 2, Math.floor(inner / 6)));
  const counts = new Float64Array(bins);
  for (const value of known)
    if (value <= high) counts[Math.min(bins - 1, Math.floor(((value - low) / span) * bins))] += 1;
  if (cumulative) for (let at = 1; at < bins; at++) counts[at] += counts[at - 1];
  const peak = Math.max(1, cumulative ? known.length : 1, ...counts);
  const x = (value: number) => left + ((value - low) / span) * inner;
  const place = (value: number) => (value > high ? width - right - 22 : Math.max(left, x(value)));
  const y = (count: number) => top + (1 - count / peak) * (height - top - bottom);
  const unit = as === "time" ? units.timeUnit(high) : undefined;
  const write = (value: number) => units.text(units.write(value, as, unit));
  const percentiles = (
    [
      ["p50", 0.5],
      ["p90", 0.9],
      ["p99", 0.99],
    ] as const
  ).map(([name, at]) => [name, quantile(known, at)] as const);
  const marks = (given ?? percentiles).filter(
    ([name, value]) => value >= low && value <= high && (!few || name === "p50"),
  );
  let free = -Infinity; // labels that would overlap are dropped: the line stays
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && known.length > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          {!few && (
            <text class="axis" x={left - 6} y={y(peak) + 4} text-anchor="end">
              {units.count(peak).value}
            </text>
          )}
          <line class="ax" x1={left} x2={width - right} y1={height - bottom} y2={height - bottom} />
          {few
            ? Array.from(known, (value, at) => (
                <circle
                  key={at}
                  cx={x(value)}
                  cy={(top + height - bottom) / 2}
                  r="5"
                  fill={color}
                  fill-opacity=".7"
                  onPointerMove={(event) => tip(event, write(value))}
                  onPointerLeave={untip}
                />
              ))
            : Array.from(counts, (count, at) => {
                const from = low + (at / bins) * span;
                return (
                  <rect
                    key={at}
                    x={left + (at / bins) * inner + 0.5}
                    width={Math.max(1, inner / bins - 1)}
                    y={y(count)}
                    height={height - bottom - y(count)}
                    fill={color}
                    fill-opacity=".6"
                    onPointerMove={(event) =>
                      tip(
                        event,
                        <>
                          {write(from)} – {write(from + span / bins)} · <b>{units.count(count).value}</b>
                        </>,
                      )
                    }
                    onPointerLeave={untip}
                  />
                );
              })}
          {marks.map(([name, value]) => {
            const title = `${name} ${write(value)}`;
            const at = Math.min(x(value) + 3, width - title.length * 6);
            const clear = at > free;
            if (clear) free = at + title.length * 6 + 8;
            return (
              <g key={name}>
                <title>{title}</title>
                <line class="ru" x1={x(value)} x2={x(value)} y1={top} y2={height - bottom} stroke="var(--text-2)" />
                {clear && (
                  <text class="axis" x={at} y={top - 6}>
                    {title}
                  </text>
                )}
              </g>
            );
          })}
          {selected !== undefined && selected !== null && Number.isFinite(selected) && (
            <line
              x1={place(selected)}
              x2={place(selected)}
              y1={top}
              y2={height - bottom}
              stroke="var(--accent)"
              stroke-width="2"
            />
          )}
          {cut && (
            <g
              onPointerMove={(event) =>
                tip(
                  event,
                  <>
                    {write(high)} – {write(most)} · <b>{units.count(far).value}</b>
                  </>,
                )
              }
              onPointerLeave={untip}
            >
              <rect
                x={width - right - 44}
                width="44"
                y={Math.min(y(cumulative ? known.length : far), height - bottom - 2)}
                height={Math.max(2, height - bottom - y(cumulative ? known.length : far))}
                fill={color}
                fill-opacity=".6"
              />
              <text
                class="axis"
                x={width - right}
                y={Math.min(y(cumulative ? known.length : far), height - bottom - 2) - 4}
                text-anchor="end"
              >
                {units.count(far).value} &gt; {units.write(high, as, unit).value}
              </text>
            </g>
          )}
          <text class="axis" x={left} y={height - 4}>
            {write(low)}
          </text>
          <text class="axis" x={width - right} y={height - 4} text-anchor="end">
            {write(most)}
          </text>
          {!few && (
            <text class="axis" x={(left + width - right) / 2} y={height - 4} text-anchor="middle">
              {text().bin.replace("{width}", write(span / bins))}
            </text>
          )}
        </svg>
      )}
    </div>
  );
}

/** The value that a share of the sorted values does not exceed: by nearest rank, so a measured one. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))] : NaN;
}
