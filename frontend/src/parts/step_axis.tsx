/** Axis, flags and keys of charts over steps. */
import * as units from "../units";
import { quantile } from "./histogram";
import { untip } from "./tip";
import type { ComponentChildren, SVGAttributes } from "preact";

export interface Part {
  label: string;
  color: string;
  values: ArrayLike<number>;
}

export interface StepsProps {
  /** The numbers of the steps, in order. */
  steps: ArrayLike<number>;
  /** Positions (not numbers) of steps that the figures exclude. */
  leftOut?: Set<number>;
  /** The position of the selected step. */
  selected: number | null;
  /** The position under the pointer, shared by the charts of a page. */
  hovered?: number | null;
  onHover?: (at: number | null) => void;
  onPick: (at: number | null) => void;
  /** The tooltip of the step at a position. `among` is the number of steps in its pixels. */
  say: (at: number, among: number) => ComponentChildren;
  height?: number;
  label: string;
}

export function Flag({
  x,
  y,
  text: label,
  low,
  high,
}: {
  x: number;
  y: number;
  text: string;
  low: number;
  high: number;
}) {
  const wide = label.length * 7 + 10;
  const from = Math.max(low, Math.min(high - wide, x - wide / 2));
  return (
    <g>
      <rect x={from} y={y} width={wide} height="14" rx="3" fill="var(--accent)" />
      <text x={from + wide / 2} y={y + 11} text-anchor="middle" font-size="11" fill="var(--on-accent)">
        {label}
      </text>
    </g>
  );
}

/**
 * The end of the axis: the largest value, unless a few outliers would flatten the rest. Outliers are labeled with their
 * value.
 */
export function axisEnd(values: ArrayLike<number>, leftOut?: Set<number>): number {
  const known = Float64Array.from(Array.from(values).filter((value, at) => value > 0 && !leftOut?.has(at))).sort();
  const most = known[known.length - 1] ?? 1;
  const usual = quantile(known, 0.9);
  const all = Math.max(most, ...Array.from(leftOut ?? [], (at) => values[at] || 0));
  if (all <= 2.5 * usual || (known.length < 5 && !leftOut?.size)) return all * 1.04 || 1;
  return Math.min(most, 2.5 * usual) * 1.15;
}

/** The marks that have room, earlier ones first. */
export function spacedMarks<Rest>(marks: (readonly [number, Rest])[], room: number): (readonly [number, Rest])[] {
  const kept: (readonly [number, Rest])[] = [];
  for (const mark of marks.slice(0, 200)) if (kept.every(([x]) => Math.abs(x - mark[0]) >= room)) kept.push(mark);
  return kept;
}

/** Positions with a number below the axis: round numbers, about one per 120 pixels. */
export function axis(steps: ArrayLike<number>, inner: number): number[] {
  const count = steps.length;
  const wanted = Math.max(3, Math.floor(inner / 120));
  if (count <= wanted) return Array.from({ length: count }, (_, at) => at);
  const round = units.ticks(steps[0], steps[count - 1], wanted).filter(Number.isInteger);
  const places = new Map<number, number>();
  for (let at = 0; at < count; at++) places.set(steps[at], at);
  const match = round.map((step) => places.get(step)).filter((at): at is number => at !== undefined);
  return match.length > 1 ? match : [0, count - 1];
}

function stepKeys(count: number, selected: number | null, onPick: (at: number | null) => void) {
  return (event: KeyboardEvent) => {
    const now = selected ?? -1;
    const jump = Math.max(1, Math.round(count / 10));
    const to = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: selected === null ? count - 1 : now - 1,
      ArrowDown: selected === null ? count - 1 : now - 1,
      PageUp: now + jump,
      PageDown: now - jump,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (to !== undefined) onPick(Math.max(0, Math.min(count - 1, to)));
    else if (event.key === "Escape" && selected !== null) onPick(null);
    else return;
    event.preventDefault();
  };
}

interface FrameProps extends SVGAttributes<SVGSVGElement> {
  of: Pick<StepsProps, "steps" | "selected" | "onPick" | "onHover" | "label">;
  width: number;
  height: number;
  /** Left of it are the labels of the levels. */
  left: number;
  inner: number;
}

/** The picture of a chart of steps, which is a slider for the keyboard; pointers are its owner's. */
export function StepFrame({ of, width, height, left, inner, children, ...pointers }: FrameProps) {
  const { steps, selected, onPick, onHover, label } = of;
  const count = steps.length;
  return (
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
      onPointerLeave={() => {
        onHover?.(null);
        untip();
      }}
      {...pointers}
    >
      <rect x={left} y="0" width={inner} height={height} fill="transparent" />
      {children}
    </svg>
  );
}

/** Labeled lines at these values. */
export function Levels({
  values,
  labels,
  y,
  left,
  right,
}: {
  values: number[];
  labels: string[];
  y: (value: number) => number;
  left: number;
  right: number;
}) {
  return (
    <>
      {values.map((value, at) => (
        <g key={value}>
          <line class="gl" x1={left} x2={right} y1={y(value)} y2={y(value)} />
          <text class="axis" x={left - 6} y={y(value) + 4} text-anchor="end">
            {labels[at]}
          </text>
        </g>
      ))}
    </>
  );
}
