/** The whole range of a chart, with the part that it shows. */
import { strings } from "../strings";
import { useWidth } from "./basics";
import type { Range } from "./series_marks";
import { useMemo, useRef } from "preact/hooks";

const text = strings("series");

interface ZoomBarProps {
  x: ArrayLike<number>;
  values: ArrayLike<number>;
  color: string;
  range: Range | null;
  onRange: (range: Range | null) => void;
  height?: number;
}

/** The whole curve, small, with the range of the charts above: drag to select, move it, or move its ends. */
export function ZoomBar({ x, values, color, range, onRange, height = 36 }: ZoomBarProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const left = 62;
  const right = 12;
  const inner = Math.max(1, width - left - right);
  const first = x[0] ?? 0;
  const last = x[x.length - 1] ?? 1;
  const span = last - first || 1;
  const drag = useRef<{ what: "new" | "move" | "from" | "to"; at: number; range: Range } | null>(null);
  const path = useMemo(() => outline(x, values, inner, height - 4), [x, values, inner, height]);
  const px = (value: number) => left + Math.max(0, Math.min(1, (value - first) / span)) * inner;
  const [from, to] = range ?? [first, last];
  const valueAt = (event: PointerEvent) =>
    first + Math.max(0, Math.min(1, (event.clientX - box.current!.getBoundingClientRect().left - left) / inner)) * span;
  const down = (what: "new" | "move" | "from" | "to") => (event: PointerEvent) => {
    event.stopPropagation();
    drag.current = { what, at: valueAt(event), range: [from, to] };
    box.current!.setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent) => {
    const now = drag.current;
    if (!now) return;
    const current = valueAt(event);
    const [a, b] = now.range;
    const by = Math.max(first - a, Math.min(last - b, current - now.at));
    const next: Range =
      now.what === "new"
        ? [now.at, current]
        : now.what === "move"
          ? [a + by, b + by]
          : now.what === "from"
            ? [current, b]
            : [a, current];
    next.sort((item, two) => item - two);
    if (next[1] - next[0] > span / inner) onRange(next[0] <= first && next[1] >= last ? null : next);
  };
  const keys = (end: 0 | 1) => (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") onRange(null);
    if (by === undefined) return;
    const next: Range = [from, to];
    next[end] = Math.max(first, Math.min(last, next[end] + (by * span) / 100));
    if (next[0] < next[1]) onRange(next[0] <= first && next[1] >= last ? null : next);
    event.preventDefault();
  };
  return (
    <div
      ref={box}
      class="zoombar"
      style={{ height: `${height}px` }}
      onPointerMove={move}
      onPointerUp={() => (drag.current = null)}
      onDblClick={() => onRange(null)}
      role="group"
      aria-label={text().bar}
    >
      {width > 0 && (
        <svg width={width} height={height}>
          <rect x={left} y={0} width={inner} height={height} fill="var(--sunken)" rx="2" onPointerDown={down("new")} />
          <path
            d={path}
            transform={`translate(${left} 2)`}
            fill={color}
            fill-opacity=".35"
            stroke="none"
            pointer-events="none"
          />
          <rect
            class={range ? "brush" : "brush all"}
            x={px(from)}
            y={0.5}
            width={Math.max(2, px(to) - px(from))}
            height={height - 1}
            onPointerDown={down(range ? "move" : "new")}
          />
          {([0, 1] as const).map((end) => (
            <rect
              key={end}
              class="handle"
              x={px(end ? to : from) - 3}
              y={height / 2 - 8}
              width={6}
              height={16}
              rx="2"
              tabindex={0}
              role="slider"
              onKeyDown={keys(end)}
              onPointerDown={down(end ? "to" : "from")}
              aria-label={end ? text().to : text().from}
              aria-valuenow={Math.round(end ? to : from)}
              aria-valuemin={Math.round(first)}
              aria-valuemax={Math.round(last)}
            />
          ))}
        </svg>
      )}
    </div>
  );
}

/** The maximum of each pixel, as an area. */
function outline(x: ArrayLike<number>, values: ArrayLike<number>, width: number, height: number): string {
  if (!x.length) return "";
  const first = x[0];
  const span = x[x.length - 1] - first || 1;
  const columns = Math.max(1, Math.floor(width));
  const most = new Float64Array(columns + 1).fill(NaN);
  let high = 0;
  let before = 0;
  let held = values[0];
  for (let row = 0; row < x.length; row++) {
    const at = Math.floor(((x[row] - first) / span) * columns);
    for (let gap = before; gap < at; gap++) if (!(most[gap] >= held)) most[gap] = held;
    if (!(most[at] >= values[row])) most[at] = values[row];
    if (values[row] > high) high = values[row];
    before = at;
    held = values[row];
  }
  const points = Array.from(
    most,
    (value, at) => `L${at} ${(height - ((Number.isNaN(value) ? 0 : value) / (high || 1)) * height).toFixed(1)}`,
  );
  return `M0 ${height}${points.join("")}L${columns} ${height}Z`;
}
