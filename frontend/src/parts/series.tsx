/** Lines over time or steps, with uPlot: one crosshair and one range for all charts of a group. Loaded when first drawn. */
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlotType from "uplot";
import { css } from "../colors";
import { theme } from "../state";
import * as units from "../units";
import { useWidth } from "./basics";

export interface Line {
  label: string;
  values: ArrayLike<number>;
  /** A token such as "--kind-compute". */
  color: string;
  /** 12 % fill below the line. */
  area?: boolean;
  dashed?: boolean;
  /** Holds its value until the next sample, as a memory curve does. */
  stepped?: boolean;
}

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
  /** Moments to rule through, such as the starts of steps: x and a label. */
  rules?: { at: number; label?: string }[];
  label: string;
  /** Index of the point clicked. */
  onPick?: (index: number) => void;
  /** The range chosen by dragging, null when reset. */
  onRange?: (range: [number, number] | null) => void;
  range?: [number, number] | null;
  /** Called with the index under the pointer, null when it leaves. */
  onHover?: (index: number | null) => void;
}

let library: Promise<typeof uPlotType> | null = null;
const load = () => (library ??= import("uplot").then((module) => module.default));

export function Series(props: SeriesProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlotType | null>(null);
  const [ready, setReady] = useState<typeof uPlotType | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const height = props.height ?? 140;
  useEffect(() => void load().then((found) => setReady(() => found)), []);
  const shade = theme();
  useEffect(() => {
    if (!ready || !box.current || width === 0) return;
    const data = [Float64Array.from(props.x), ...props.lines.map((line) => Float64Array.from(line.values))];
    let first = true;
    plot.current = new ready(options(ready, props, width, height, latest, () => !first), data as unknown as uPlotType.AlignedData, box.current);
    first = false;
    return () => {
      plot.current?.destroy();
      plot.current = null;
    };
  }, [ready, width, height, shade, props.x, props.lines.map((line) => line.label).join(), ...props.lines.map((line) => line.values)]);
  useEffect(() => {
    if (!plot.current || !props.x.length) return;
    const [min, max] = props.range ?? [props.x[0], props.x[props.x.length - 1]];
    plot.current.setScale("x", { min, max });
  }, [props.range?.[0], props.range?.[1], ready]);
  return <div ref={box} class="series" style={{ height: `${height}px` }} role="img" aria-label={props.label} />;
}

function options(uPlot: typeof uPlotType, props: SeriesProps, width: number, height: number, latest: { current: SeriesProps }, live: () => boolean): uPlotType.Options {
  const ink = css("--text-3");
  const grid = css("--grid");
  const span = props.x.length ? props.x[props.x.length - 1] - props.x[0] : 1;
  const unit = units.timeUnit(span);
  const font = `11px ${css("--font")}`;
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 12, 0, 0],
    cursor: {
      sync: props.group ? { key: props.group, scales: ["x", null] } : undefined,
      drag: { x: true, y: false, setScale: false },
      points: { size: 5 },
      y: false,
    },
    scales: {
      x: { time: false },
      y: { range: (_, low, high) => bounds(low, high, props.zero ?? true) },
    },
    axes: [
      {
        stroke: ink, font, size: 24, grid: { show: false }, ticks: { show: false },
        values: (_, splits) => splits.map((value, at) => props.xAs === "count" ? (Number.isInteger(value) ? units.count(value).value : "") : `${+(units.timeIn(value, unit)).toPrecision(6)}${at === 0 ? ` ${unit}` : ""}`),
      },
      {
        stroke: ink, font, size: 62, grid: { stroke: grid, width: 1 }, ticks: { show: false }, splits: (_, __, low, high) => units.ticks(low, high, 3),
        values: (_, splits) => splits.map((value) => units.text(units.write(value, props.as))),
      },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: css(line.color),
        width: 1.5,
        dash: line.dashed ? [4, 4] : undefined,
        fill: line.area ? `color-mix(in srgb, ${css(line.color)} 12%, transparent)` : undefined,
        paths: line.stepped ? uPlot.paths.stepped!({ align: 1 }) : undefined,
        points: { show: props.x.length < 30, size: 4 },
        spanGaps: false,
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const range: [number, number] = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          if (latest.current.onRange) latest.current.onRange(range);
          else plot.setScale("x", { min: range[0], max: range[1] });
        },
      ],
      setCursor: [(plot) => live() && latest.current.onHover?.(plot.cursor.idx ?? null)],
      drawClear: [(plot) => rule(plot, latest.current.rules ?? [], css("--border-strong"), ink, font)],
      ready: [
        (plot) => {
          plot.over.addEventListener("dblclick", () => (latest.current.onRange ? latest.current.onRange(null) : plot.setScale("x", { min: props.x[0], max: props.x[props.x.length - 1] })));
          plot.over.addEventListener("click", () => plot.cursor.idx !== null && plot.cursor.idx !== undefined && latest.current.onPick?.(plot.cursor.idx));
        },
      ],
    },
  };
}

function bounds(low: number | null, high: number | null, zero: boolean): [number, number] {
  const from = zero ? Math.min(0, low ?? 0) : (low ?? 0);
  const to = high ?? 1;
  const room = (to - from || Math.abs(to) || 1) * 0.06;
  return [zero && from === 0 ? 0 : from - room, to + room];
}

function rule(plot: uPlotType, rules: { at: number; label?: string }[], line: string, ink: string, font: string): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = line;
  ctx.fillStyle = ink;
  ctx.font = font.replace("11px", `${11 * ratio}px`);
  ctx.lineWidth = ratio;
  let free = -Infinity;
  for (const { at, label } of rules) {
    const x = Math.round(plot.valToPos(at, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (label && x > free) {
      ctx.fillText(label, x + 4 * ratio, bbox.top + 10 * ratio);
      free = x + ctx.measureText(label).width + 8 * ratio;
    }
  }
  ctx.restore();
}
