/** Charts small enough to be SVG: drawn at once, no library. */
import type { ComponentChildren } from "preact";
import { texts } from "../text";
import * as units from "../units";
import { useWidth } from "./basics";
import { tip, untip } from "./tip";

const text = texts({ en: { bin: "{width} per bar" }, zh: { bin: "每柱 {width}" } });

export interface Slice {
  name: string;
  value: number;
  color: string;
}

/** A ring, largest first from twelve o'clock, the total in the middle. */
export function Ring({ slices, total, unit, size = 120, onPick, label }: { slices: Slice[]; total: string; unit: string; size?: number; onPick?: (name: string) => void; label: string }) {
  const sum = slices.reduce((all, slice) => all + slice.value, 0) || 1;
  let from = 0;
  const point = (share: number, radius: number) => {
    const angle = share * 2 * Math.PI - Math.PI / 2;
    return `${(60 + radius * Math.cos(angle)).toFixed(2)} ${(60 + radius * Math.sin(angle)).toFixed(2)}`;
  };
  return (
    <svg width={size} height={size} viewBox="0 0 120 120" role="img" aria-label={label}>
      {slices.map((slice) => {
        const start = from / sum;
        from += slice.value;
        const end = Math.min(from / sum, start + 0.99999); // a full circle is no arc
        const large = end - start > 0.5 ? 1 : 0;
        const path = `M${point(start, 58)}A58 58 0 ${large} 1 ${point(end, 58)}L${point(end, 38)}A38 38 0 ${large} 0 ${point(start, 38)}Z`;
        const written = units.text(units.share(slice.value / sum));
        return (
          <path
            key={slice.name}
            d={path}
            fill={slice.color}
            stroke="var(--surface)"
            stroke-width="1.5"
            class={onPick ? "click" : ""}
            onClick={onPick && (() => onPick(slice.name))}
            onPointerMove={(event) => tip(event, <b>{slice.name} · {written}</b>)}
            onPointerLeave={untip}
          />
        );
      })}
      <text x="60" y="58" text-anchor="middle" font-size="17" font-weight="600" fill="var(--text)" letter-spacing="-.3">{total}</text>
      <text x="60" y="74" text-anchor="middle" font-size="11" fill="var(--text-3)">{unit}</text>
    </svg>
  );
}

interface HistogramProps {
  values: ArrayLike<number>;
  color?: string;
  height?: number;
  /** Written as this quantity. */
  as?: units.Quantity;
  selected?: number | null;
  label: string;
}

/** Counts per bin with p50, p90 and p99; under 20 values each is a dot. */
export function Histogram({ values, color = "var(--text-3)", height = 120, as = "time", selected, label }: HistogramProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const known = Float64Array.from(Array.from(values).filter(Number.isFinite)).sort();
  const left = 36, right = 12, top = 18, bottom = 18;
  const low = known[0] ?? 0;
  const high = known[known.length - 1] ?? 1;
  const span = high - low || Math.abs(high) || 1;
  const inner = Math.max(10, width - left - right);
  const bins = Math.max(8, Math.min(60, Math.ceil(Math.sqrt(known.length)) * 2, Math.floor(inner / 6)));
  const counts = new Float64Array(bins);
  for (const value of known) counts[Math.min(bins - 1, Math.floor(((value - low) / span) * bins))] += 1;
  const most = Math.max(1, ...counts);
  const x = (value: number) => left + ((value - low) / span) * inner;
  const y = (count: number) => top + (1 - count / most) * (height - top - bottom);
  const unit = as === "time" ? units.timeUnit(high) : undefined;
  const write = (value: number) => units.text(units.write(value, as, unit));
  const few = known.length < 20;
  const marks = few ? [] : ([["p50", 0.5], ["p90", 0.9], ["p99", 0.99]] as const).map(([name, at]) => [name, quantile(known, at)] as const);
  let free = -Infinity; // labels that would overlap are left out: the line stays
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && known.length > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          {!few && <text class="axis" x={left - 6} y={y(most) + 4} text-anchor="end">{units.count(most).value}</text>}
          <line class="ax" x1={left} x2={width - right} y1={height - bottom} y2={height - bottom} />
          {few
            ? Array.from(known, (value, at) => <circle key={at} cx={x(value)} cy={height - bottom - 8 - (at % 3) * 8} r="3" fill={color} fill-opacity=".7" />)
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
                    onPointerMove={(event) => tip(event, <>{write(from)} – {write(from + span / bins)} · <b>{units.count(count).value}</b></>)}
                    onPointerLeave={untip}
                  />
                );
              })}
          {marks.map(([name, value]) => {
            const said = `${name} ${write(value)}`;
            const clear = x(value) > free;
            if (clear) free = x(value) + said.length * 6 + 8;
            return (
              <g key={name}>
                <line class="ru" x1={x(value)} x2={x(value)} y1={top} y2={height - bottom} stroke="var(--text-2)" />
                {clear && <text class="axis" x={Math.min(x(value) + 3, width - said.length * 6)} y={top - 6}>{said}</text>}
              </g>
            );
          })}
          {selected !== undefined && selected !== null && Number.isFinite(selected) && (
            <line x1={x(selected)} x2={x(selected)} y1={top} y2={height - bottom} stroke="var(--accent)" stroke-width="2" />
          )}
          <text class="axis" x={left} y={height - 4}>{write(low)}</text>
          <text class="axis" x={width - right} y={height - 4} text-anchor="end">{write(high)}</text>
          {!few && <text class="axis" x={(left + width - right) / 2} y={height - 4} text-anchor="middle">{text().bin.replace("{width}", write(span / bins))}</text>}
        </svg>
      )}
    </div>
  );
}

/** The value that a share of the sorted values is at or below: the nearest rank, so that it is one that happened. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))] : NaN;
}

export interface Stage {
  name: string;
  ns: number;
  color?: string;
  hatch?: boolean;
  /** Ink for light kinds. */
  dark?: boolean;
  label?: ComponentChildren;
}

/** Parts of one whole, side by side in one bar. */
export function StageBar({ stages, total, height = 28, label }: { stages: Stage[]; total: number; height?: number; label: string }) {
  return (
    <div class="bar" style={{ height: `${height}px` }} role="img" aria-label={label}>
      {stages.filter((stage) => stage.ns > 0).map((stage) => {
        const part = stage.ns / total;
        return (
          <i
            key={stage.name}
            class={stage.hatch ? "hatch" : ""}
            style={{ width: `${part * 100}%`, background: stage.hatch ? undefined : stage.color, lineHeight: `${height}px`, padding: part < 0.04 ? "0" : undefined, color: stage.dark ? "var(--text)" : undefined }}
            onPointerMove={(event) => tip(event, <><b>{stage.name}</b> {units.text(units.time(stage.ns))} · {units.text(units.share(part))}</>)}
            onPointerLeave={untip}
          >
            {part > 0.08 && (stage.hatch ? <span class="plate">{stage.label ?? stage.name}</span> : (stage.label ?? stage.name))}
          </i>
        );
      })}
    </div>
  );
}
