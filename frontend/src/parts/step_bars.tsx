/** Steps as stacked bars. */
import * as units from "../units";
import { useWidth } from "./basics";
import { Hatch } from "./stage_bar";
import { axis, axisEnd, Flag, Levels, type Part, spacedMarks, StepFrame, type StepsProps } from "./step_axis";
import { tip } from "./tip";
import { useMemo, useState } from "preact/hooks";

interface StepBarsProps extends StepsProps {
  /** Stacked from zero, the first at the bottom. */
  parts: Part[];
  total: ArrayLike<number>;
  median?: number;
  as?: units.Quantity;
  /** The range of positions that was dragged over. */
  onRange?: (first: number, last: number) => void;
  /**
   * The end of the axis, such as the capacity of a queue; by default the largest value, unless outliers would flatten
   * the rest.
   */
  limit?: number;
  /** Positions to mark behind the bars, such as those with an empty queue. */
  shade?: (at: number) => boolean;
}

const BAR = 2;

// pixels per step below which bars become a band

/**
 * One stacked bar per step. Where a step has two pixels or fewer, each column is the slowest of its steps, tinted, with
 * the fastest of them in full color before it: a peak is never lost.
 */
export function StepBars({
  steps,
  parts,
  total,
  median,
  leftOut,
  selected,
  hovered,
  onHover,
  onPick,
  onRange,
  say,
  as = "time",
  height = 112,
  limit: end,
  shade,
  label,
}: StepBarsProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const left = 58,
    right = 14,
    top = 14,
    bottom = 20;
  const count = steps.length;
  const inner = Math.max(10, width - left - right);
  const banded = inner / count <= BAR;
  const columns = banded ? Math.floor(inner / BAR) : count;
  const slot = inner / columns;
  const bins = useMemo(() => pixelBins(total, columns), [total, columns]);
  const limit = useMemo(() => end ?? axisEnd(total, leftOut), [total, leftOut, end]);
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
    return {
      slow: draw((bin) => bin.slowest, counts),
      fast: banded ? draw((bin) => bin.fastest, counts) : null,
      out: draw(
        (bin) => bin.slowest,
        (at) => !counts(at),
      ),
    };
  }, [width, height, parts, bins, leftOut, limit]);
  const marked = useMemo(() => {
    let path = "";
    if (shade && width)
      for (let at = 0; at < columns; at++)
        if (bins[at].slowest >= 0 && shade(bins[at].fastest))
          path += `M${(left + at * slot).toFixed(2)} ${top}h${slot.toFixed(2)}V${height - bottom}h${(-slot).toFixed(2)}Z`;
    return path;
  }, [width, height, bins, shade]);
  const clipped = useMemo(() => {
    const result: number[] = [];
    for (let at = 0; at < count; at++) if (total[at] > limit) result.push(at);
    return result.sort((a, b) => total[b] - total[a]);
  }, [total, limit]);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const place = (event: { clientX: number; currentTarget: EventTarget | null }) => {
    const from = (event.currentTarget as Element).getBoundingClientRect().left;
    const at = Math.max(0, Math.min(columns - 1, Math.floor((event.clientX - from - left) / slot)));
    return banded ? bins[at].slowest : at;
  };
  const item = (at: number, mark: string) => (
    <rect
      key={mark}
      x={x(column(at)) - 1.5}
      width={thick + 3}
      y={top - 4}
      height={height - top - bottom + 7}
      rx="2"
      fill="none"
      stroke={mark}
      stroke-width="1.5"
    />
  );
  const ticks = axis(steps, inner);
  const levels = units.ticks(0, limit, height > 120 ? 4 : 3);
  const heights = units.axisLabels(levels, as, as === "time" ? units.timeUnit(limit) : undefined);
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && count > 0 && paths && (
        <StepFrame
          of={{ steps, selected, onPick, onHover, label }}
          width={width}
          height={height}
          left={left}
          inner={inner}
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
        >
          <defs>
            <Hatch id="left-out" />
          </defs>
          <Levels values={levels} labels={heights} y={y} left={left} right={width - right} />
          {marked && <path d={marked} fill="var(--kind-wait)" fill-opacity=".16" />}
          {paths.slow.map((path, at) => (
            <path
              key={at}
              d={path}
              fill={parts[at].color}
              fill-opacity={banded ? 0.35 : selected === null ? 0.8 : 0.55}
            />
          ))}
          {paths.fast?.map((path, at) => (
            <path key={at} d={path} fill={parts[at].color} fill-opacity=".75" />
          ))}
          {paths.out.map(
            (path, at) =>
              path && <path key={at} d={path} fill="url(#left-out)" stroke="var(--kind-idle)" stroke-width=".5" />,
          )}
          {[hovered, selected].map(
            (at) =>
              at !== null &&
              at !== undefined &&
              at >= 0 &&
              at < count &&
              !banded &&
              parts.map((part, which) => {
                let below = 0;
                for (let under = 0; under < which; under++) below += parts[under].values[at] || 0;
                const value = part.values[at];
                return (
                  value > 0 &&
                  !leftOut?.has(at) && (
                    <rect
                      key={`${at} ${which}`}
                      x={x(at)}
                      width={thick}
                      y={y(below + value)}
                      height={Math.max(0.5, y(below) - y(below + value))}
                      fill={part.color}
                    />
                  )
                );
              }),
          )}
          {median !== undefined && median <= limit && (
            <line class="ru" x1={left} x2={width - right} y1={y(median)} y2={y(median)} stroke="var(--text)" />
          )}
          <line class="ax" x1={left} x2={width - right} y1={height - bottom} y2={height - bottom} />
          {spacedMarks(
            clipped.map((at) => [x(column(at)) + thick / 2, at] as const),
            64,
          )
            .slice(0, 8)
            .map(([middle, at]) => (
              <text
                key={at}
                class="axis over"
                x={Math.min(Math.max(middle, left + 24), width - 30)}
                y={top - 3}
                text-anchor="middle"
              >
                {units.text(units.write(total[at], as))} ↑
              </text>
            ))}
          {ticks.map(
            (at) =>
              (selected === null || selected < 0 || Math.abs(x(column(at)) - x(column(selected))) > 30) && (
                <text
                  key={at}
                  class="axis"
                  x={Math.min(x(column(at)) + thick / 2, width - 4 - units.count(steps[at]).value.length * 3)}
                  y={height - 5}
                  text-anchor="middle"
                >
                  {units.count(steps[at]).value}
                </text>
              ),
          )}
          {drag && drag[0] !== drag[1] && (
            <rect
              x={x(column(Math.min(...drag)))}
              width={Math.max(1, Math.abs(column(drag[1]) - column(drag[0])) * slot + thick)}
              y={top}
              height={height - top - bottom}
              fill="var(--accent)"
              fill-opacity=".12"
            />
          )}
          {selected !== null && selected >= 0 && selected < count && (
            <g>
              {item(selected, "var(--accent)")}
              <Flag
                x={x(column(selected)) + thick / 2}
                y={height - bottom + 4}
                text={units.count(steps[selected]).value}
                low={left}
                high={width - right}
              />
            </g>
          )}
        </StepFrame>
      )}
    </div>
  );
}

interface Bin {
  fastest: number;
  slowest: number;
  count: number;
}

/** For each pixel column the positions of its fastest and slowest step. */
function pixelBins(total: ArrayLike<number>, columns: number): Bin[] {
  const bins: Bin[] = Array.from({ length: columns }, () => ({ fastest: -1, slowest: -1, count: 0 }));
  for (let at = 0; at < total.length; at++) {
    const bin = bins[columns === total.length ? at : Math.min(columns - 1, Math.floor((at / total.length) * columns))];
    bin.count += 1;
    // Missing values are neither fast nor slow, unless there are no others.
    if (bin.slowest < 0 || total[at] > total[bin.slowest] || Number.isNaN(total[bin.slowest])) bin.slowest = at;
    if (bin.fastest < 0 || total[at] < total[bin.fastest] || Number.isNaN(total[bin.fastest])) bin.fastest = at;
  }
  return bins;
}
