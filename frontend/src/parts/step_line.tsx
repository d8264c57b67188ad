/** A value per step as a line. */
import * as units from "../units";
import { useWidth } from "./basics";
import { axis, Levels, StepFrame, type StepsProps } from "./step_axis";
import { tip } from "./tip";
import { useMemo } from "preact/hooks";

interface StepLineProps extends StepsProps {
  values: ArrayLike<number>;
  color: string;
  median?: number;
}

/** One value per step; the axis need not start at zero. Minimum and maximum of each pixel are drawn. */
export function StepLine({
  steps,
  values,
  color,
  median,
  leftOut,
  selected,
  hovered,
  onHover,
  onPick,
  say,
  height = 110,
  label,
}: StepLineProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const left = 52,
    right = 12,
    top = 10,
    bottom = 18;
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
  const y = (value: number) =>
    top + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (height - top - bottom);
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
  const point = (at: number, strong: boolean) =>
    Number.isFinite(values[at]) && (
      <g key={strong ? "selected" : "hovered"}>
        <line
          x1={x(at)}
          x2={x(at)}
          y1={top}
          y2={height - bottom}
          stroke={strong ? "var(--accent)" : "var(--text-3)"}
          stroke-width="1"
          stroke-dasharray={strong ? undefined : "2 2"}
        />
        <circle cx={x(at)} cy={y(values[at])} r="3.5" fill={color} stroke="var(--surface)" stroke-width="1.5" />
      </g>
    );
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && count > 0 && (
        <StepFrame
          of={{ steps, selected, onPick, onHover, label }}
          width={width}
          height={height}
          left={left}
          inner={inner}
          onClick={(event) => onPick(place(event))}
          onPointerMove={(event) => {
            onHover?.(place(event));
            tip(event, say(place(event), 1));
          }}
        >
          <Levels values={ticks} labels={labels} y={y} left={left} right={width - right} />
          <path class="ln" d={path} stroke={color} />
          {count < 30 &&
            Array.from(
              { length: count },
              (_, at) =>
                Number.isFinite(values[at]) && (
                  <circle
                    key={at}
                    cx={x(at)}
                    cy={y(values[at])}
                    r="2.5"
                    fill={leftOut?.has(at) ? "var(--surface)" : color}
                    stroke={color}
                  />
                ),
            )}
          {median !== undefined && Number.isFinite(median) && (
            <line class="ru" x1={left} x2={width - right} y1={y(median)} y2={y(median)} stroke="var(--text-2)" />
          )}
          {axis(steps, inner).map((at) => (
            <text
              key={at}
              class="axis"
              x={x(at)}
              y={height - 4}
              text-anchor={at === 0 ? "start" : at === count - 1 ? "end" : "middle"}
            >
              {units.count(steps[at]).value}
            </text>
          ))}
          {hovered !== null && hovered !== undefined && hovered !== selected && point(hovered, false)}
          {selected !== null && selected >= 0 && point(selected, true)}
        </StepFrame>
      )}
    </div>
  );
}

export function minmaxPath(
  values: ArrayLike<number>,
  x: (at: number) => number,
  y: (value: number) => number,
  inner: number,
): string {
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
