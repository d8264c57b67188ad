/** Charts small enough to be SVG: drawn at once, no library. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { css } from "../colors";
import { theme } from "../state";
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
        const end = Math.min(from / sum, start + 0.9999); // a full circle is no arc
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
  /** Percentiles that an analysis gives, by name; by default p50, p90 and p99 of the values. */
  marks?: [string, number][];
  /** The share of the values at or below each, instead of counts. */
  cumulative?: boolean;
  label: string;
}

/** Counts per bin with p50, p90 and p99; under 20 values each is a dot. */
export function Histogram({ values, color = "var(--text-3)", height = 120, as = "time", selected, marks: given, cumulative, label }: HistogramProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const known = Float64Array.from(Array.from(values).filter(Number.isFinite)).sort();
  const left = 36, right = 12, top = 18, bottom = 18;
  const low = known[0] ?? 0;
  const most = known[known.length - 1] ?? 1;
  const few = known.length < 20;
  // A few far away would leave one bar of all the others: they share the last bar, which says so.
  const p99 = quantile(known, 0.99);
  const cut = !few && most - p99 > 2 * (p99 - low) && p99 > low;
  const high = cut ? p99 + (p99 - low) * 0.25 : most;
  const far = cut ? known.length - known.findIndex((value) => value > high) : 0;
  const span = high - low || Math.abs(high) || 1;
  const inner = Math.max(10, width - left - right - (cut ? 56 : 0));
  const bins = Math.max(8, Math.min(60, Math.ceil(Math.sqrt(known.length)) * 2, Math.floor(inner / 6)));
  const counts = new Float64Array(bins);
  for (const value of known) if (value <= high) counts[Math.min(bins - 1, Math.floor(((value - low) / span) * bins))] += 1;
  if (cumulative) for (let at = 1; at < bins; at++) counts[at] += counts[at - 1];
  const peak = Math.max(1, cumulative ? known.length : 1, ...counts);
  const x = (value: number) => left + ((value - low) / span) * inner;
  const place = (value: number) => (value > high ? width - right - 22 : Math.max(left, x(value)));
  const y = (count: number) => top + (1 - count / peak) * (height - top - bottom);
  const unit = as === "time" ? units.timeUnit(high) : undefined;
  const write = (value: number) => units.text(units.write(value, as, unit));
  const own = ([["p50", 0.5], ["p90", 0.9], ["p99", 0.99]] as const).map(([name, at]) => [name, quantile(known, at)] as const);
  const marks = (given ?? own).filter(([name, value]) => value >= low && value <= high && (!few || name === "p50"));
  let free = -Infinity; // labels that would overlap are left out: the line stays
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && known.length > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          {!few && <text class="axis" x={left - 6} y={y(peak) + 4} text-anchor="end">{units.count(peak).value}</text>}
          <line class="ax" x1={left} x2={width - right} y1={height - bottom} y2={height - bottom} />
          {few
            ? Array.from(known, (value, at) => <circle key={at} cx={x(value)} cy={(top + height - bottom) / 2} r="5" fill={color} fill-opacity=".7" onPointerMove={(event) => tip(event, write(value))} onPointerLeave={untip} />)
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
                    onPointerMove={(event) => tip(event, <>{write(from)} – {write(from + span / bins)} · <b>{units.count(count).value}</b></>)}
                    onPointerLeave={untip}
                  />
                );
              })}
          {marks.map(([name, value]) => {
            const said = `${name} ${write(value)}`;
            const at = Math.min(x(value) + 3, width - said.length * 6);
            const clear = at > free;
            if (clear) free = at + said.length * 6 + 8;
            return (
              <g key={name}>
                <title>{said}</title>
                <line class="ru" x1={x(value)} x2={x(value)} y1={top} y2={height - bottom} stroke="var(--text-2)" />
                {clear && <text class="axis" x={at} y={top - 6}>{said}</text>}
              </g>
            );
          })}
          {selected !== undefined && selected !== null && Number.isFinite(selected) && (
            <line x1={place(selected)} x2={place(selected)} y1={top} y2={height - bottom} stroke="var(--accent)" stroke-width="2" />
          )}
          {cut && (
            <g onPointerMove={(event) => tip(event, <>{write(high)} – {write(most)} · <b>{units.count(far).value}</b></>)} onPointerLeave={untip}>
              <rect x={width - right - 44} width="44" y={Math.min(y(cumulative ? known.length : far), height - bottom - 2)} height={Math.max(2, height - bottom - y(cumulative ? known.length : far))} fill={color} fill-opacity=".6" />
              <text class="axis" x={width - right} y={Math.min(y(cumulative ? known.length : far), height - bottom - 2) - 4} text-anchor="end">{units.count(far).value} &gt; {units.write(high, as, unit).value}</text>
            </g>
          )}
          <text class="axis" x={left} y={height - 4}>{write(low)}</text>
          <text class="axis" x={width - right} y={height - 4} text-anchor="end">{write(most)}</text>
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
  /** What it is called inside the bar; by default its name. */
  said?: string;
}

/** Parts of one whole, side by side in one bar. */
/** Parts of a total, side by side; `scale` is what the whole width stands for, where that is more. */
export function StageBar({ stages, total, scale = total, height = 28, label }: { stages: Stage[]; total: number; scale?: number; height?: number; label: string }) {
  const [box, width] = useWidth<HTMLDivElement>();
  return (
    <div class="bar" ref={box} style={{ height: `${height}px` }} role="img" aria-label={label}>
      {stages.filter((stage) => stage.ns > 0).map((stage) => {
        const [part, wide] = [stage.ns / total, stage.ns / scale];
        const time = units.text(units.time(stage.ns));
        // As much as fits whole: the rest is on hover, and in the table.
        const rest = [` ${stage.said ?? stage.name} · ${units.text(units.share(part))}`, ` ${stage.said ?? stage.name}`, ""].find((more) => wideOf(time + more) + 24 < wide * width);
        const inside = rest !== undefined && <><b>{time}</b>{rest}</>;
        return (
          <i
            key={stage.name}
            class={stage.hatch ? "hatch" : ""}
            style={{ width: `${wide * 100}%`, background: stage.hatch ? undefined : stage.color, lineHeight: `${height}px`, padding: wide < 0.04 ? "0" : undefined, color: stage.dark ? "var(--on-wait)" : undefined }}
            onPointerMove={(event) => tip(event, <><b>{stage.name}</b> {units.text(units.time(stage.ns))} · {units.text(units.share(part))}</>)}
            onPointerLeave={untip}
          >
            {inside && stage.hatch ? <span class="plate">{inside}</span> : inside}
          </i>
        );
      })}
    </div>
  );
}

/** About how wide 12 px letters are; Chinese ones are as wide as high. */
export function wideOf(said: string): number {
  return [...said].reduce((sum, letter) => sum + (letter > "⺀" ? 12.5 : 6.6), 0);
}

/** A hatch for SVG: nothing ran here, or it does not count. */
export function Hatch({ id }: { id: string }) {
  return (
    <pattern id={id} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="6" height="6" fill="var(--sunken)" />
      <line x1="0" x2="0" y1="0" y2="6" stroke="var(--kind-idle)" stroke-width="3" />
    </pattern>
  );
}

export interface Part {
  label: string;
  color: string;
  values: ArrayLike<number>;
}

interface StepsProps {
  /** The numbers of the steps, in order. */
  steps: ArrayLike<number>;
  /** Places (not numbers) of steps that do not count in the figures. */
  leftOut?: Set<number>;
  /** The place of the chosen step. */
  selected: number | null;
  /** The place under the pointer, shared by the charts of a page. */
  hovered?: number | null;
  onHover?: (at: number | null) => void;
  onPick: (at: number | null) => void;
  /** What the tooltip says of the step at a place. `among` is how many steps share its pixels. */
  say: (at: number, among: number) => ComponentChildren;
  height?: number;
  label: string;
}

interface StepBarsProps extends StepsProps {
  /** Stacked from zero, the first at the bottom. */
  parts: Part[];
  total: ArrayLike<number>;
  median?: number;
  as?: units.Quantity;
  /** The range of places that was dragged over. */
  onRange?: (first: number, last: number) => void;
  /** Where the axis ends, such as the places of a queue; by default at the largest value, unless a few would flatten the others. */
  limit?: number;
  /** Places to mark behind the bars, such as those where a queue was empty. */
  shade?: (at: number) => boolean;
}

const BAR = 2; // pixels per step below which bars become a band

/**
 * One stacked bar per step. Where a step has two pixels or fewer, each column is the slowest of its steps, tinted, with the fastest of them in
 * full colour before it: a peak is never lost.
 */
export function StepBars({ steps, parts, total, median, leftOut, selected, hovered, onHover, onPick, onRange, say, as = "time", height = 112, limit: end, shade, label }: StepBarsProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const left = 58, right = 14, top = 14, bottom = 20;
  const count = steps.length;
  const inner = Math.max(10, width - left - right);
  const banded = inner / count <= BAR;
  const columns = banded ? Math.floor(inner / BAR) : count;
  const slot = inner / columns;
  const bins = useMemo(() => binned(total, columns), [total, columns]);
  const limit = useMemo(() => end ?? ceiling(total, leftOut), [total, leftOut, end]);
  const y = (value: number) => top + (1 - Math.min(value, limit) / limit) * (height - top - bottom);
  const thick = banded ? slot : Math.max(1, Math.min(72, slot - (slot > 8 ? 2 : slot > 3 ? 1 : 0)));
  const x = (column: number) => left + (column + 0.5) * slot - thick / 2;
  const column = (at: number) => (banded ? Math.min(columns - 1, Math.floor((at / count) * columns)) : at);
  const paths = useMemo(() => {
    if (!width) return null;
    const draw = (pick: (bin: Bin) => number, only?: (at: number) => boolean) =>
      parts.map((part, which) => {
        let path = "";
        for (let at = 0; at < columns; at++) {
          const step = pick(bins[at]);
          if (step < 0 || (only && !only(step))) continue;
          let below = 0;
          for (let under = 0; under < which; under++) below += parts[under].values[step] || 0;
          const value = part.values[step];
          if (!(value > 0)) continue;
          const [high, low] = [y(below + value), y(below)];
          path += `M${x(at).toFixed(2)} ${low.toFixed(2)}V${high.toFixed(2)}h${thick.toFixed(2)}V${low.toFixed(2)}Z`;
        }
        return path;
      });
    const counts = (at: number) => !leftOut?.has(at);
    return { slow: draw((bin) => bin.slowest, counts), fast: banded ? draw((bin) => bin.fastest, counts) : null, out: draw((bin) => bin.slowest, (at) => !counts(at)) };
  }, [width, height, parts, bins, leftOut, limit]);
  const marked = useMemo(() => {
    let path = "";
    if (shade && width) for (let at = 0; at < columns; at++) if (bins[at].slowest >= 0 && shade(bins[at].fastest)) path += `M${(left + at * slot).toFixed(2)} ${top}h${slot.toFixed(2)}V${height - bottom}h${(-slot).toFixed(2)}Z`;
    return path;
  }, [width, height, bins, shade]);
  const clipped = useMemo(() => {
    const found: number[] = [];
    for (let at = 0; at < count; at++) if (total[at] > limit) found.push(at);
    return found.sort((a, b) => total[b] - total[a]);
  }, [total, limit]);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const place = (event: { clientX: number; currentTarget: EventTarget | null }) => {
    const from = (event.currentTarget as Element).getBoundingClientRect().left;
    const at = Math.max(0, Math.min(columns - 1, Math.floor((event.clientX - from - left) / slot)));
    return banded ? bins[at].slowest : at;
  };
  const keys = stepKeys(count, selected, onPick);
  const one = (at: number, mark: string) => (
    <rect key={mark} x={x(column(at)) - 1.5} width={thick + 3} y={top - 4} height={height - top - bottom + 7} rx="2" fill="none" stroke={mark} stroke-width="1.5" />
  );
  const ticks = axis(steps, inner);
  const levels = units.ticks(0, limit, height > 120 ? 4 : 3);
  const heights = units.axisLabels(levels, as, as === "time" ? units.timeUnit(limit) : undefined);
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && count > 0 && paths && (
        <svg
          width={width}
          height={height}
          class="steppick"
          role="slider"
          tabindex={0}
          aria-label={label}
          aria-valuemin={steps[0]}
          aria-valuemax={steps[count - 1]}
          aria-valuenow={selected === null ? undefined : steps[selected]}
          onKeyDown={keys}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            const at = place(event);
            setDrag([at, at]);
          }}
          onPointerMove={(event) => {
            const at = place(event);
            if (drag) setDrag([drag[0], at]);
            onHover?.(at);
            tip(event, say(at, banded ? bins[column(at)].count : 1));
          }}
          onPointerUp={() => {
            if (!drag) return;
            const [from, to] = drag;
            setDrag(null);
            if (Math.abs(column(from) - column(to)) < (banded ? 3 : 1) || !onRange) onPick(to);
            else onRange(Math.min(from, to), Math.max(from, to));
          }}
          onPointerLeave={() => {
            onHover?.(null);
            untip();
          }}
        >
          <defs><Hatch id="left-out" /></defs>
          <rect x={left} y="0" width={inner} height={height} fill="transparent" />
          {levels.map((level, at) => (
            <g key={level}>
              <line class="gl" x1={left} x2={width - right} y1={y(level)} y2={y(level)} />
              <text class="axis" x={left - 6} y={y(level) + 4} text-anchor="end">{heights[at]}</text>
            </g>
          ))}
          {marked && <path d={marked} fill="var(--kind-wait)" fill-opacity=".16" />}
          {paths.slow.map((path, at) => <path key={at} d={path} fill={parts[at].color} fill-opacity={banded ? 0.35 : selected === null ? 0.8 : 0.55} />)}
          {paths.fast?.map((path, at) => <path key={at} d={path} fill={parts[at].color} fill-opacity=".75" />)}
          {paths.out.map((path, at) => path && <path key={at} d={path} fill="url(#left-out)" stroke="var(--kind-idle)" stroke-width=".5" />)}
          {[hovered, selected].map((at) => at !== null && at !== undefined && at >= 0 && at < count && !banded && parts.map((part, which) => {
            let below = 0;
            for (let under = 0; under < which; under++) below += parts[under].values[at] || 0;
            const value = part.values[at];
            return value > 0 && !leftOut?.has(at) && <rect key={`${at} ${which}`} x={x(at)} width={thick} y={y(below + value)} height={Math.max(0.5, y(below) - y(below + value))} fill={part.color} />;
          }))}
          {median !== undefined && median <= limit && <line class="ru" x1={left} x2={width - right} y1={y(median)} y2={y(median)} stroke="var(--text)" />}
          <line class="ax" x1={left} x2={width - right} y1={height - bottom} y2={height - bottom} />
          {spread(clipped.map((at) => [x(column(at)) + thick / 2, at] as const), 64).slice(0, 8).map(([middle, at]) => (
            <text key={at} class="axis over" x={Math.min(Math.max(middle, left + 24), width - 30)} y={top - 3} text-anchor="middle">{units.text(units.write(total[at], as))} ↑</text>
          ))}
          {ticks.map((at) => (selected === null || selected < 0 || Math.abs(x(column(at)) - x(column(selected))) > 30) && <text key={at} class="axis" x={Math.min(x(column(at)) + thick / 2, width - 4 - units.count(steps[at]).value.length * 3)} y={height - 5} text-anchor="middle">{units.count(steps[at]).value}</text>)}
          {drag && drag[0] !== drag[1] && (
            <rect x={x(column(Math.min(...drag)))} width={Math.max(1, Math.abs(column(drag[1]) - column(drag[0])) * slot + thick)} y={top} height={height - top - bottom} fill="var(--accent)" fill-opacity=".12" />
          )}
          {selected !== null && selected >= 0 && selected < count && (
            <g>
              {one(selected, "var(--accent)")}
              <Flag x={x(column(selected)) + thick / 2} y={height - bottom + 4} text={units.count(steps[selected]).value} low={left} high={width - right} />
            </g>
          )}
        </svg>
      )}
    </div>
  );
}

function Flag({ x, y, text: said, low, high }: { x: number; y: number; text: string; low: number; high: number }) {
  const wide = said.length * 7 + 10;
  const from = Math.max(low, Math.min(high - wide, x - wide / 2));
  return (
    <g>
      <rect x={from} y={y} width={wide} height="14" rx="3" fill="var(--accent)" />
      <text x={from + wide / 2} y={y + 11} text-anchor="middle" font-size="11" fill="var(--on-accent)">{said}</text>
    </g>
  );
}

interface Bin {
  fastest: number;
  slowest: number;
  count: number;
}

/** For each column of pixels the places of its fastest and slowest step. */
function binned(total: ArrayLike<number>, columns: number): Bin[] {
  const bins: Bin[] = Array.from({ length: columns }, () => ({ fastest: -1, slowest: -1, count: 0 }));
  for (let at = 0; at < total.length; at++) {
    const bin = bins[columns === total.length ? at : Math.min(columns - 1, Math.floor((at / total.length) * columns))];
    bin.count += 1;
    // What is not known is neither fast nor slow, unless there is nothing else.
    if (bin.slowest < 0 || total[at] > total[bin.slowest] || Number.isNaN(total[bin.slowest])) bin.slowest = at;
    if (bin.fastest < 0 || total[at] < total[bin.fastest] || Number.isNaN(total[bin.fastest])) bin.fastest = at;
  }
  return bins;
}

/** Where the axis ends: at the largest value, unless a few would flatten all the others. Those say their value instead. */
function ceiling(values: ArrayLike<number>, leftOut?: Set<number>): number {
  const known = Float64Array.from(Array.from(values).filter((value, at) => value > 0 && !leftOut?.has(at))).sort();
  const most = known[known.length - 1] ?? 1;
  const usual = quantile(known, 0.9);
  const all = Math.max(most, ...Array.from(leftOut ?? [], (at) => values[at] || 0));
  if (all <= 2.5 * usual || (known.length < 5 && !leftOut?.size)) return all * 1.04 || 1;
  return Math.min(most, 2.5 * usual) * 1.15;
}

/** Of marks on a line those that have room, the first ones first. */
function spread<Rest>(marks: (readonly [number, Rest])[], room: number): (readonly [number, Rest])[] {
  const kept: (readonly [number, Rest])[] = [];
  for (const mark of marks.slice(0, 200)) if (kept.every(([x]) => Math.abs(x - mark[0]) >= room)) kept.push(mark);
  return kept;
}

/** The places whose numbers stand below the axis: round numbers, about one per 120 pixels. */
function axis(steps: ArrayLike<number>, inner: number): number[] {
  const count = steps.length;
  const wanted = Math.max(3, Math.floor(inner / 120));
  if (count <= wanted) return Array.from({ length: count }, (_, at) => at);
  const round = units.ticks(steps[0], steps[count - 1], wanted).filter(Number.isInteger);
  const places = new Map<number, number>();
  for (let at = 0; at < count; at++) places.set(steps[at], at);
  const found = round.map((step) => places.get(step)).filter((at): at is number => at !== undefined);
  return found.length > 1 ? found : [0, count - 1];
}

function stepKeys(count: number, selected: number | null, onPick: (at: number | null) => void) {
  return (event: KeyboardEvent) => {
    const now = selected ?? -1;
    const jump = Math.max(1, Math.round(count / 10));
    const to = {
      ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: selected === null ? count - 1 : now - 1, ArrowDown: selected === null ? count - 1 : now - 1,
      PageUp: now + jump, PageDown: now - jump, Home: 0, End: count - 1,
    }[event.key];
    if (to !== undefined) onPick(Math.max(0, Math.min(count - 1, to)));
    else if (event.key === "Escape" && selected !== null) onPick(null);
    else return;
    event.preventDefault();
  };
}

interface StepLineProps extends StepsProps {
  values: ArrayLike<number>;
  color: string;
  median?: number;
}

/** One figure over the steps; the axis shows both ends and need not start at zero. Lowest and highest of each pixel are drawn. */
export function StepLine({ steps, values, color, median, leftOut, selected, hovered, onHover, onPick, say, height = 110, label }: StepLineProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const left = 52, right = 12, top = 10, bottom = 18;
  const count = steps.length;
  const inner = Math.max(10, width - left - right);
  const [low, high] = useMemo(() => {
    let [from, to] = [Infinity, -Infinity];
    for (let at = 0; at < count; at++) {
      if (leftOut?.has(at) || !Number.isFinite(values[at])) continue;
      from = Math.min(from, values[at]);
      to = Math.max(to, values[at]);
    }
    if (!(to >= from)) return [0, 1];
    const room = (to - from || Math.abs(to) || 1) * 0.08;
    return [Math.max(0, from - room), to + room];
  }, [values, leftOut]);
  const x = (at: number) => left + (count < 2 ? inner / 2 : (at / (count - 1)) * inner);
  const y = (value: number) => top + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (height - top - bottom);
  const path = useMemo(() => {
    const counted = leftOut?.size ? Float64Array.from(values, (value, at) => (leftOut.has(at) ? NaN : value)) : values;
    return width ? minmaxPath(counted, x, y, inner) : "";
  }, [width, height, values, leftOut, low, high]);
  const ticks = units.ticks(low, high, 3);
  const labels = units.axisLabels(ticks, "time", units.timeUnit(high));
  const place = (event: { clientX: number; currentTarget: EventTarget | null }) => {
    const from = (event.currentTarget as Element).getBoundingClientRect().left;
    return Math.max(0, Math.min(count - 1, Math.round(((event.clientX - from - left) / inner) * (count - 1))));
  };
  const point = (at: number, strong: boolean) => Number.isFinite(values[at]) && (
    <g key={strong ? "selected" : "hovered"}>
      <line x1={x(at)} x2={x(at)} y1={top} y2={height - bottom} stroke={strong ? "var(--accent)" : "var(--text-3)"} stroke-width="1" stroke-dasharray={strong ? undefined : "2 2"} />
      <circle cx={x(at)} cy={y(values[at])} r="3.5" fill={color} stroke="var(--surface)" stroke-width="1.5" />
    </g>
  );
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && count > 0 && (
        <svg
          width={width}
          height={height}
          class="steppick"
          role="slider"
          tabindex={0}
          aria-label={label}
          aria-valuemin={steps[0]}
          aria-valuemax={steps[count - 1]}
          aria-valuenow={selected === null ? undefined : steps[selected]}
          onKeyDown={stepKeys(count, selected, onPick)}
          onClick={(event) => onPick(place(event))}
          onPointerMove={(event) => { onHover?.(place(event)); tip(event, say(place(event), 1)); }}
          onPointerLeave={() => { onHover?.(null); untip(); }}
        >
          <rect x={left} y="0" width={inner} height={height} fill="transparent" />
          {ticks.map((tick, at) => (
            <g key={tick}>
              <line class="gl" x1={left} x2={width - right} y1={y(tick)} y2={y(tick)} />
              <text class="axis" x={left - 6} y={y(tick) + 4} text-anchor="end">{labels[at]}</text>
            </g>
          ))}
          <path class="ln" d={path} stroke={color} />
          {count < 30 && Array.from({ length: count }, (_, at) => Number.isFinite(values[at]) && <circle key={at} cx={x(at)} cy={y(values[at])} r="2.5" fill={leftOut?.has(at) ? "var(--surface)" : color} stroke={color} />)}
          {median !== undefined && Number.isFinite(median) && <line class="ru" x1={left} x2={width - right} y1={y(median)} y2={y(median)} stroke="var(--text-2)" />}
          {axis(steps, inner).map((at) => <text key={at} class="axis" x={x(at)} y={height - 4} text-anchor={at === 0 ? "start" : at === count - 1 ? "end" : "middle"}>{units.count(steps[at]).value}</text>)}
          {hovered !== null && hovered !== undefined && hovered !== selected && point(hovered, false)}
          {selected !== null && selected >= 0 && point(selected, true)}
        </svg>
      )}
    </div>
  );
}

export function minmaxPath(values: ArrayLike<number>, x: (at: number) => number, y: (value: number) => number, inner: number): string {
  const count = values.length;
  let path = "";
  let open = false;
  const add = (at: number, value: number) => {
    path += `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  };
  const per = Math.max(1, Math.ceil(count / inner));
  for (let from = 0; from < count; from += per) {
    let [low, high] = [-1, -1];
    for (let at = from; at < Math.min(count, from + per); at++) {
      if (!Number.isFinite(values[at])) {
        if (per === 1) open = false;
        continue;
      }
      if (low < 0 || values[at] < values[low]) low = at;
      if (high < 0 || values[at] > values[high]) high = at;
    }
    if (low < 0) continue;
    for (const at of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) add(at, values[at]);
  }
  return path;
}

interface HeatProps {
  /** Labels of the rows and numbers of the columns. */
  rows: string[];
  columns: ArrayLike<number>;
  /** Row by row; NaN is drawn as nothing. */
  values: Float64Array;
  /** A token such as "--kind-compute": the largest value is drawn in it, the smallest in a tint. */
  color: string;
  selected?: { row: number; column: number } | null;
  onPick?: (row: number, column: number) => void;
  say: (row: number, column: number) => ComponentChildren;
  rowTitle?: string;
  label: string;
}

/** From which value to which the colours go. A few that are far above the others, such as a first step, all have the strongest. */
export function heatRange(values: Float64Array): { low: number; high: number; most: number } {
  const known = values.filter(Number.isFinite).sort();
  if (!known.length) return { low: 0, high: 1, most: 1 };
  const [low, usual, most] = [known[0], quantile(known, 0.95), known[known.length - 1]];
  return { low, high: usual > low && most - low > 2 * (usual - low) ? low + 1.5 * (usual - low) : most, most };
}

/** One cell per row and column. With more columns than pixels each pixel shows the largest of its values. */
export function Heat({ rows, columns, values, color, selected, onPick, say, rowTitle = "", label }: HeatProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<[number, number]>([0, 0]);
  const left = 58, bottom = 20;
  const tall = Math.max(4, Math.min(24, Math.floor(420 / rows.length)));
  const height = tall * rows.length;
  const inner = Math.max(10, width - left - 12);
  const wide = Math.min(inner / columns.length, 64);
  const shade = theme();
  const { low, high } = useMemo(() => heatRange(values), [values]);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !width) return;
    const ratio = devicePixelRatio || 1;
    canvas.current!.width = Math.round(wide * columns.length * ratio);
    canvas.current!.height = Math.round(height * ratio);
    context.scale(ratio, ratio);
    const fill = css(color);
    const gap = wide > 6 && tall > 6 ? 1 : 0;
    for (let row = 0; row < rows.length; row++) {
      const strip = Math.max(1, Math.floor(1 / wide));
      for (let from = 0; from < columns.length; from += strip) {
        let most = NaN;
        for (let column = from; column < Math.min(columns.length, from + strip); column++) {
          const value = values[row * columns.length + column];
          if (!(most >= value)) most = Number.isFinite(value) ? value : most;
        }
        if (!Number.isFinite(most)) continue;
        context.globalAlpha = 0.12 + 0.88 * (high > low ? Math.min(1, (most - low) / (high - low)) : 0.5);
        context.fillStyle = fill;
        context.fillRect(from * wide, row * tall, Math.max(1, wide * strip - gap), tall - gap);
      }
    }
  }, [width, wide, tall, values, color, shade, low, high]);
  const cell = (event: { clientX: number; clientY: number; currentTarget: EventTarget | null }): [number, number] => {
    const from = (event.currentTarget as Element).getBoundingClientRect();
    return [
      Math.max(0, Math.min(rows.length - 1, Math.floor((event.clientY - from.top) / tall))),
      Math.max(0, Math.min(columns.length - 1, Math.floor((event.clientX - from.left) / wide))),
    ];
  };
  const keys = (event: KeyboardEvent) => {
    const by: Record<string, [number, number]> = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (by[event.key]) {
      const next: [number, number] = [Math.max(0, Math.min(rows.length - 1, at[0] + by[event.key][0])), Math.max(0, Math.min(columns.length - 1, at[1] + by[event.key][1]))];
      setAt(next);
      const here = canvas.current!.getBoundingClientRect();
      tip({ clientX: here.left + (next[1] + 0.5) * wide, clientY: here.top + (next[0] + 0.5) * tall }, say(...next));
    } else if (event.key === "Enter") onPick?.(...at);
    else return;
    event.preventDefault();
  };
  const every = Math.max(1, Math.ceil(rows.length / Math.floor(height / 14)));
  return (
    <div ref={box} class="plot heat" style={{ height: `${height + bottom}px` }}>
      {rows.map((row, index) => index % every === 0 && <span key={row} class="hl" style={{ top: `${index * tall + tall / 2}px`, width: `${left - 8}px` }}>{rowTitle} {row}</span>)}
      <canvas
        ref={canvas}
        class={onPick ? "click" : ""}
        style={{ left: `${left}px`, width: `${wide * columns.length}px`, height: `${height}px` }}
        role="img"
        tabIndex={0}
        aria-label={label}
        onKeyDown={keys}
        onBlur={untip}
        onClick={(event) => { const found = cell(event); setAt(found); onPick?.(...found); }}
        onPointerMove={(event) => tip(event, say(...cell(event)))}
        onPointerLeave={untip}
      />
      {selected && selected.row >= 0 && selected.column >= 0 && (
        <i class="hs" style={{ left: `${left + selected.column * wide - 1}px`, top: `${selected.row * tall - 1}px`, width: `${Math.max(4, wide + 1)}px`, height: `${tall + 1}px` }} />
      )}
      {axis(columns, Math.max(10, wide * columns.length)).map((column) => <span key={column} class="hx" style={{ left: `${left + (column + 0.5) * wide}px`, top: `${height + 4}px` }}>{units.count(columns[column]).value}</span>)}
    </div>
  );
}
