/** Lines over time or steps, with uPlot: one crosshair and one range for all charts of a group. Loaded when first drawn. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlotType from "uplot";
import { css } from "../colors";
import { theme } from "../state";
import { fill, texts } from "../text";
import * as units from "../units";
import { Swatch, useWidth } from "./basics";
import { tip, untip } from "./tip";

const text = texts({
  en: { keys: "{label}. Arrow keys move the crosshair, Enter opens the moment, Escape shows everything.", from: "Start of the range", to: "End of the range", bar: "Zoom bar" },
  zh: { keys: "{label}。方向键移动准线，回车打开该时刻，Esc 显示全部。", from: "范围起点", to: "范围终点", bar: "缩放条" },
});

export interface Line {
  label: string;
  values: ArrayLike<number>;
  /** A token such as "--kind-compute". */
  color: string;
  /** 12 % fill below the line. */
  area?: boolean;
  dashed?: boolean;
  /** Holds its value until the next sample, as a memory curve does; "before" is about the time since the last sample, as a load is. */
  stepped?: boolean | "before";
  /** Sampled less often than others of the chart: drawn through the moments without a value. */
  sparse?: boolean;
}

/** Part of the x axis, such as a step. */
export interface Band {
  from: number;
  to: number;
  label?: string;
}

export type Range = [number, number];

interface SeriesProps {
  /** Charts of one group share crosshair and range. */
  group?: string;
  x: ArrayLike<number>;
  lines: Line[];
  as: units.Quantity;
  /** What x is: ns since the start, or step numbers. */
  xAs?: "time" | "count";
  height?: number;
  /** Starts at zero unless said otherwise. */
  zero?: boolean;
  /** One on top of the other, the first at the bottom. */
  stacked?: boolean;
  /** The y axis reaches at least so far. */
  top?: number;
  /** Moments to rule through, such as the starts of steps: x and a label. */
  rules?: { at: number; label?: string; dashed?: boolean }[];
  /** Steps, shaded in turn; `labels` writes their names above. */
  bands?: Band[];
  bandLabels?: boolean;
  /** Values to rule across, such as a limit. */
  levels?: { at: number; label: string }[];
  /** The moment that is selected. */
  selected?: number | null;
  label: string;
  /** Index of the point clicked. */
  onPick?: (index: number) => void;
  /** The range chosen by dragging, null when reset. */
  onRange?: (range: Range | null) => void;
  range?: Range | null;
  /** Called with the index under the pointer, null when it leaves. */
  onHover?: (index: number | null) => void;
  /** What the tooltip says of a point, in place of the values in the corner. */
  tip?: (index: number) => ComponentChildren;
}

let library: Promise<typeof uPlotType> | null = null;
const load = () => (library ??= import("uplot").then((module) => module.default));
load().catch(() => (library = null)); // at once: whoever has lines to draw asks for their data meanwhile

export function Series(props: SeriesProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlotType | null>(null);
  const [ready, setReady] = useState<typeof uPlotType | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const height = props.height ?? 140;
  useEffect(() => void load().then((found) => setReady(() => found)), []);
  const shade = theme();
  const data = useMemo(() => columns(props), [props.x, props.stacked, ...props.lines.map((line) => line.values)]);
  const shape = JSON.stringify([props.lines.map(({ values: _, ...line }) => line), props.as, props.xAs, props.stacked, props.group, props.zero, props.bandLabels]);
  useEffect(() => {
    if (!ready || !box.current || width === 0) return;
    const made = new ready(options(ready, latest, width, height, setAt), data, box.current);
    plot.current = made;
    show(made, latest.current);
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [ready, width > 0, shade, shape]);
  useEffect(() => {
    if (plot.current && width > 0) plot.current.setSize({ width, height });
  }, [width, height]);
  useEffect(() => {
    if (!plot.current || plot.current.data === data) return;
    plot.current.setData(data, false);
    show(plot.current, latest.current);
  }, [data]);
  useEffect(() => {
    if (plot.current) show(plot.current, latest.current);
  }, [props.range?.[0], props.range?.[1], props.top, ready]);
  useEffect(() => plot.current?.redraw(false), [props.selected, props.rules, props.bands, props.levels]);
  useEffect(() => untip, []);
  const keys = (event: KeyboardEvent) => {
    const drawn = plot.current;
    if (!drawn || !props.x.length) return;
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity }[event.key];
    if (by !== undefined) {
      const now = drawn.cursor.idx ?? 0;
      const to = Math.max(0, Math.min(props.x.length - 1, at === null && Math.abs(by) === 1 ? now : now + by));
      drawn.setCursor({ left: drawn.valToPos(props.x[to], "x"), top: 10 });
    } else if (event.key === "Enter" && at !== null) props.onPick?.(at);
    else if (event.key === "Escape" && props.range) props.onRange?.(null);
    else return;
    event.preventDefault();
  };
  return (
    <div class="series" style={{ height: `${height}px` }}>
      <div ref={box} tabIndex={0} role="img" aria-label={fill(text().keys, { label: props.label })} onKeyDown={keys} onBlur={() => setAt(null)} />
      {at !== null && at < props.x.length && !props.tip && (
        <div class="readout" role="status">
          <span class="d3">{props.xAs === "count" ? units.count(props.x[at]).value : units.text(units.time(props.x[at]))}</span>
          {props.lines.map((line) => (
            <span key={line.label}>
              <Swatch color={`var(${line.color})`} />
              {line.label} <b>{units.text(units.write(line.values[at], props.as))}</b>
            </span>
          ))}
        </div>
      )}
    </div>
  );
}

function show(plot: uPlotType, props: SeriesProps): void {
  if (!props.x.length) return;
  const first = props.x[0];
  const last = props.x[props.x.length - 1];
  const [min, max] = props.range ?? (first === last ? [first - 1, last + 1] : [first, last]);
  plot.setScale("x", { min, max });
}

/** As uPlot wants it: null where nothing is known; sums of the lines below where they are stacked. */
function columns(props: SeriesProps): uPlotType.AlignedData {
  const known = (values: ArrayLike<number>) => (Array.prototype.some.call(values, Number.isNaN) ? Array.from(values, (value) => (Number.isNaN(value) ? null : value)) : values);
  let sum: Float64Array | null = null;
  const lines = props.lines.map((line) => {
    if (!props.stacked) return known(line.values);
    const below = sum;
    sum = Float64Array.from(line.values, (value, row) => value + (below ? below[row] : 0));
    return known(sum);
  });
  return [props.x, ...lines] as unknown as uPlotType.AlignedData;
}

type Latest = { current: SeriesProps };

function options(uPlot: typeof uPlotType, latest: Latest, width: number, height: number, setAt: (at: number | null) => void): uPlotType.Options {
  const props = latest.current;
  const ink = css("--text-3");
  const font = `11px ${css("--font")}`;
  const surface = css("--surface");
  let pressed: number | null = null;
  const solid = (line: Line) => line.color === "--kind-idle" ? hatch(css("--sunken"), css("--kind-idle")) : (props.stacked ? `color-mix(in srgb, ${css(line.color)} 72%, ${surface})` : `color-mix(in srgb, ${css(line.color)} 12%, transparent)`);
  return {
    width,
    height,
    legend: { show: false },
    padding: [props.bandLabels ? 20 : 8, 12, 0, 0],
    cursor: {
      sync: props.group ? { key: props.group, scales: ["x", null] } : undefined,
      drag: { x: true, y: false, setScale: false },
      points: { size: 5, show: !props.stacked },
      y: false,
    },
    scales: {
      x: { time: false },
      y: { range: (_, low, high) => bounds(low, Math.max(high ?? 0, latest.current.top ?? -Infinity), props.zero ?? true, latest.current.top !== undefined) },
    },
    axes: [
      {
        stroke: ink, font, size: 22, gap: 3, grid: { show: false }, ticks: { show: false },
        values: (plot, splits) => (props.xAs === "count" ? splits.map((value) => (Number.isInteger(value) ? units.count(value).value : "")) : moments(splits, plot.scales.x.max ?? 1)),
      },
      {
        stroke: ink, font, size: 62, grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, splits: (_, __, low, high) => units.ticks(low, high, Math.max(2, Math.round(height / 55))),
        values: (_, splits) => units.axisLabels(splits, props.as),
      },
    ],
    bands: props.stacked ? props.lines.slice(1).map((line, at) => ({ series: [at + 2, at + 1] as [number, number], fill: solid(line) })) : undefined,
    series: [
      {},
      ...props.lines.map((line, at) => ({
        label: line.label,
        stroke: line.color === "--kind-idle" ? "transparent" : css(line.color),
        width: props.stacked ? 1 : 1.5,
        dash: line.dashed ? [4, 4] : undefined,
        fill: (props.stacked && at === 0) || line.area ? solid(line) : undefined,
        paths: line.stepped ? uPlot.paths.stepped!({ align: line.stepped === "before" ? -1 : 1 }) : undefined,
        points: { show: !props.stacked && props.x.length < 30, size: 4 },
        spanGaps: line.sparse ?? false,
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const range: Range = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          if (pressed === null) return; // another chart of the group was dragged over
          if (latest.current.onRange) latest.current.onRange(range);
          else plot.setScale("x", { min: range[0], max: range[1] });
        },
      ],
      setCursor: [
        (plot) => {
          const left = plot.cursor.left ?? -1;
          const at = left < 0 ? null : (plot.cursor.idx ?? null);
          setAt(at);
          latest.current.onHover?.(at);
          if (!latest.current.tip) return;
          if (at === null) return untip();
          const frame = plot.over.getBoundingClientRect();
          tip({ clientX: frame.left + left, clientY: frame.top + Math.max(0, plot.cursor.top ?? 0) }, latest.current.tip(at));
        },
      ],
      drawClear: [(plot) => shadeBands(plot, latest.current.bands ?? [], css("--sunken"))],
      draw: [(plot) => ruleAll(plot, latest.current, font)],
      ready: [
        (plot) => {
          const whole = (): Range => [latest.current.x[0], latest.current.x[latest.current.x.length - 1]];
          const to = (range: Range | null) => {
            if (latest.current.onRange) return latest.current.onRange(range);
            const [min, max] = range ?? whole();
            plot.setScale("x", { min, max });
          };
          plot.over.addEventListener("mousedown", (event) => (pressed = event.clientX));
          plot.over.addEventListener("dblclick", () => to(null));
          plot.over.addEventListener("click", (event) => {
            const moved = pressed !== null && Math.abs(event.clientX - pressed) > 3;
            pressed = null;
            if (!moved && plot.cursor.idx !== null && plot.cursor.idx !== undefined) latest.current.onPick?.(plot.cursor.idx);
          });
          plot.over.addEventListener(
            "wheel",
            (event) => {
              if (!event.ctrlKey && !event.metaKey) return;
              event.preventDefault();
              const { min, max } = plot.scales.x;
              const [first, last] = whole();
              const here = plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x");
              const by = event.deltaY > 0 ? 1.25 : 0.8;
              const range: Range = [Math.max(first, here - (here - min!) * by), Math.min(last, here + (max! - here) * by)];
              to(range[0] <= first && range[1] >= last ? null : range);
            },
            { passive: false },
          );
          plot.over.classList.toggle("click", latest.current.onPick !== undefined);
        },
      ],
    },
  };
}

function bounds(low: number | null, high: number, zero: boolean, fixed: boolean): [number, number] {
  const from = zero ? Math.min(0, low ?? 0) : (low ?? 0);
  const room = (high - from || Math.abs(high) || 1) * (fixed ? 0 : 0.06);
  return [zero && from === 0 ? 0 : from - room, high + room || 1];
}

/** Nothing ran: never read as a series. */
function hatch(ground: string, ink: string): CanvasPattern {
  const size = 8 * devicePixelRatio;
  const tile = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const ctx = tile.getContext("2d")!;
  ctx.fillStyle = ground;
  ctx.fillRect(0, 0, size, size);
  ctx.strokeStyle = ink;
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  for (const by of [-size, 0, size]) {
    ctx.moveTo(by - 1, size + 1);
    ctx.lineTo(by + size + 1, -1);
  }
  ctx.stroke();
  return ctx.createPattern(tile, "repeat")!;
}

/** Times along an axis, in one unit, which the first of them names. */
function moments(splits: number[], last: number): string[] {
  const unit = units.timeUnit(last);
  const step = splits.length > 1 ? units.timeIn(splits[1] - splits[0], unit) : 1;
  // As many as tell them apart: 122.5 is not 123.
  let places = 0;
  while (places < 9 && Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6 * step * 10 ** places) places++;
  return splits.map((value, at) => `${group(units.timeIn(value, unit).toFixed(places))}${at === 0 ? ` ${unit}` : ""}`);
}

function group(number: string): string {
  const [whole, part] = number.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return part ? `${grouped}.${part}` : grouped;
}

/** Whether the steps in sight are on average narrower than 10 px. */
function crowded(plot: uPlotType, bands: Band[]): boolean {
  const { min, max } = plot.scales.x;
  const seen = bands.filter((band) => band.to >= min! && band.from <= max!).length;
  return seen > plot.bbox.width / devicePixelRatio / 10;
}

/** Every second step is shaded, where steps are wide enough to see. */
function shadeBands(plot: uPlotType, bands: Band[], color: string): void {
  const { ctx, bbox } = plot;
  if (crowded(plot, bands)) return;
  ctx.save();
  ctx.fillStyle = color;
  bands.forEach((band, at) => {
    const [from, to] = [band.from, band.to].map((value) => Math.min(Math.max(plot.valToPos(value, "x", true), bbox.left), bbox.left + bbox.width));
    if (at % 2 && to > from) ctx.fillRect(from, bbox.top, to - from, bbox.height);
  });
  ctx.restore();
}

function ruleAll(plot: uPlotType, props: SeriesProps, font: string): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const right = bbox.left + bbox.width;
  const ink = css("--text-3");
  ctx.save();
  ctx.font = font.replace("11px", `${11 * ratio}px`);
  ctx.lineWidth = ratio;
  ctx.fillStyle = ink;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const upright = (x: number) => {
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  };
  const place = (value: number) => Math.round(plot.valToPos(value, "x", true)) + 0.5;
  // Steps: a rule where each starts, or, where they stand too close, where one has its name; names where there is room.
  ctx.strokeStyle = css("--border-strong");
  let free = -Infinity;
  const close = crowded(plot, props.bands ?? []);
  for (const { from, label } of props.bands ?? []) {
    const x = place(from);
    if (x < bbox.left || x > right) continue;
    const named = props.bandLabels && label && x > free && x + ctx.measureText(label).width < right;
    if (!close) upright(x);
    if (!named) continue;
    if (close) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top - 14 * ratio);
      ctx.lineTo(x, bbox.top);
      ctx.stroke();
    }
    ctx.fillText(label, x + 3 * ratio, bbox.top - 5 * ratio);
    free = x + ctx.measureText(label).width + (close ? 24 : 12) * ratio;
  }
  free = bbox.left;
  ctx.strokeStyle = ink;
  // A label stands right of its rule, or left of it where another rule or step begins there; on what it crosses it has a ground of its own.
  const lines = [...(close ? [] : (props.bands ?? []).map((band) => place(band.from))), ...(props.rules ?? []).map((rule) => place(rule.at))];
  for (const { at, label, dashed } of props.rules ?? []) {
    const x = place(at);
    if (x < bbox.left || x > right) continue;
    ctx.setLineDash(dashed ? [3 * ratio, 3 * ratio] : []);
    upright(x);
    if (!label) continue;
    const wide = ctx.measureText(label).width + 8 * ratio;
    const clear = (from: number) => from >= free && from + wide <= right && !lines.some((other) => other !== x && other > from && other < from + wide);
    const from = [x, x - wide].find(clear);
    if (from === undefined) continue;
    ctx.fillStyle = css("--surface");
    ctx.fillRect(from + 2 * ratio, bbox.top + ratio, wide - 4 * ratio, 13 * ratio);
    ctx.fillStyle = ink;
    ctx.fillText(label, from + 4 * ratio, bbox.top + 10.5 * ratio);
    free = from + wide;
  }
  ctx.setLineDash([4 * ratio, 4 * ratio]);
  for (const { at, label } of props.levels ?? []) {
    const y = Math.round(plot.valToPos(at, "y", true)) + 0.5;
    if (!(y >= bbox.top - 1 && y <= bbox.top + bbox.height)) continue;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(right, y);
    ctx.stroke();
    ctx.textAlign = "right";
    ctx.fillText(label, right - 2 * ratio, y + (y - bbox.top < 14 * ratio ? 12 : -4) * ratio);
    ctx.textAlign = "left";
  }
  if (props.selected !== null && props.selected !== undefined) {
    const x = place(props.selected);
    ctx.setLineDash([]);
    ctx.strokeStyle = css("--accent");
    ctx.lineWidth = 2 * ratio;
    if (x >= bbox.left && x <= right) upright(x);
  }
  ctx.restore();
}

interface ZoomBarProps {
  x: ArrayLike<number>;
  values: ArrayLike<number>;
  color: string;
  range: Range | null;
  onRange: (range: Range | null) => void;
  height?: number;
}

/** The whole curve, small, with the part that the charts above show: drag in it, move it, or move its ends. */
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
  const valueAt = (event: PointerEvent) => first + Math.max(0, Math.min(1, (event.clientX - box.current!.getBoundingClientRect().left - left) / inner)) * span;
  const down = (what: "new" | "move" | "from" | "to") => (event: PointerEvent) => {
    event.stopPropagation();
    drag.current = { what, at: valueAt(event), range: [from, to] };
    box.current!.setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent) => {
    const now = drag.current;
    if (!now) return;
    const here = valueAt(event);
    const [a, b] = now.range;
    const by = Math.max(first - a, Math.min(last - b, here - now.at));
    const next: Range = now.what === "new" ? [now.at, here] : now.what === "move" ? [a + by, b + by] : now.what === "from" ? [here, b] : [a, here];
    next.sort((one, two) => one - two);
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
    <div ref={box} class="zoombar" style={{ height: `${height}px` }} onPointerMove={move} onPointerUp={() => (drag.current = null)} onDblClick={() => onRange(null)} role="group" aria-label={text().bar}>
      {width > 0 && (
        <svg width={width} height={height}>
          <rect x={left} y={0} width={inner} height={height} fill="var(--sunken)" rx="2" onPointerDown={down("new")} />
          <path d={path} transform={`translate(${left} 2)`} fill={color} fill-opacity=".35" stroke="none" pointer-events="none" />
          <rect class={range ? "brush" : "brush all"} x={px(from)} y={0.5} width={Math.max(2, px(to) - px(from))} height={height - 1} onPointerDown={down(range ? "move" : "new")} />
          {([0, 1] as const).map((end) => (
            <rect
              key={end} class="handle" x={px(end ? to : from) - 3} y={height / 2 - 8} width={6} height={16} rx="2" tabindex={0} role="slider" onKeyDown={keys(end)} onPointerDown={down(end ? "to" : "from")}
              aria-label={end ? text().to : text().from} aria-valuenow={Math.round(end ? to : from)} aria-valuemin={Math.round(first)} aria-valuemax={Math.round(last)}
            />
          ))}
        </svg>
      )}
    </div>
  );
}

/** The highest value of each pixel, as an area. */
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
  const points = Array.from(most, (value, at) => `L${at} ${(height - ((Number.isNaN(value) ? 0 : value) / (high || 1)) * height).toFixed(1)}`);
  return `M0 ${height}${points.join("")}L${columns} ${height}Z`;
}
