/** A matrix of values as colors. */
import { css } from "../colors";
import { theme } from "../state";
import * as units from "../units";
import { useWidth } from "./basics";
import { quantile } from "./histogram";
import { axis } from "./step_axis";
import { tip, untip } from "./tip";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

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
  /** Names of the columns instead of their numbers. */
  names?: string[];
  /** Cells as wide as the space allows. */
  stretch?: boolean;
  label: string;
}

/** The range of values that the colors cover. A few outliers, such as a first step, share the strongest color. */
export function heatRange(values: Float64Array): { low: number; high: number; most: number } {
  const known = values.filter(Number.isFinite).sort();
  if (!known.length) return { low: 0, high: 1, most: 1 };
  const [low, usual, most] = [known[0], quantile(known, 0.95), known[known.length - 1]];
  return { low, high: usual > low && most - low > 2 * (usual - low) ? low + 1.5 * (usual - low) : most, most };
}

/** One cell per row and column. With more columns than pixels, each pixel shows its largest value. */
export function Heat({
  rows,
  columns,
  values,
  color,
  selected,
  onPick,
  say,
  rowTitle = "",
  names,
  stretch,
  label,
}: HeatProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<[number, number]>([0, 0]);
  const left = Math.max(58, Math.min(110, 14 + 6 * Math.max(...rows.map((row) => row.length + rowTitle.length)))),
    bottom = 20;
  const tall = Math.max(4, Math.min(24, Math.floor(420 / rows.length)));
  const height = tall * rows.length;
  const inner = Math.max(10, width - left - 12);
  const wide = Math.min(inner / columns.length, stretch ? 240 : 64);
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
    const by: Record<string, [number, number]> = {
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1],
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
    };
    if (by[event.key]) {
      const next: [number, number] = [
        Math.max(0, Math.min(rows.length - 1, at[0] + by[event.key][0])),
        Math.max(0, Math.min(columns.length - 1, at[1] + by[event.key][1])),
      ];
      setAt(next);
      const current = canvas.current!.getBoundingClientRect();
      tip(
        { clientX: current.left + (next[1] + 0.5) * wide, clientY: current.top + (next[0] + 0.5) * tall },
        say(...next),
      );
    } else if (event.key === "Enter") onPick?.(...at);
    else return;
    event.preventDefault();
  };
  const every = Math.max(1, Math.ceil(rows.length / Math.floor(height / 14)));
  return (
    <div ref={box} class="plot heat" style={{ height: `${height + bottom}px` }}>
      {rows.map(
        (row, index) =>
          index % every === 0 && (
            <span key={row} class="hl" style={{ top: `${index * tall + tall / 2}px`, width: `${left - 8}px` }}>
              {rowTitle} {row}
            </span>
          ),
      )}
      <canvas
        ref={canvas}
        class={onPick ? "click" : ""}
        style={{ left: `${left}px`, width: `${wide * columns.length}px`, height: `${height}px` }}
        role="img"
        tabIndex={0}
        aria-label={label}
        onKeyDown={keys}
        onBlur={untip}
        onClick={(event) => {
          const result = cell(event);
          setAt(result);
          onPick?.(...result);
        }}
        onPointerMove={(event) => tip(event, say(...cell(event)))}
        onPointerLeave={untip}
      />
      {selected && selected.row >= 0 && selected.column >= 0 && (
        <i
          class="hs"
          style={{
            left: `${left + selected.column * wide - 1}px`,
            top: `${selected.row * tall - 1}px`,
            width: `${Math.max(4, wide + 1)}px`,
            height: `${tall + 1}px`,
          }}
        />
      )}
      {axis(columns, Math.max(10, wide * columns.length)).map((column) => (
        <span key={column} class="hx" style={{ left: `${left + (column + 0.5) * wide}px`, top: `${height + 4}px` }}>
          {names ? names[column] : units.count(columns[column]).value}
        </span>
      ))}
    </div>
  );
}
