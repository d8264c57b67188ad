/**
 * Lines over time or steps, with uPlot: one crosshair and one range for all charts of a group. Loaded when first drawn.
 */
import { css } from "../colors";
import { theme } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import { Swatch, useWidth } from "./basics";
import { hatch, type Line, type Range, ruleAll, type SeriesProps, shadeBands } from "./series_marks";
import { tip, untip } from "./tip";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlotType from "uplot";

const text = strings("series");

let library: Promise<typeof uPlotType> | null = null;

const load = () => (library ??= import("uplot").then((module) => module.default));

load().catch(() => (library = null));

// at once: the data is loading at the same time

export function Series(props: SeriesProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlotType | null>(null);
  const [ready, setReady] = useState<typeof uPlotType | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const height = props.height ?? 140;
  useEffect(() => void load().then((result) => setReady(() => result)), []);
  const shade = theme();
  const data = useMemo(() => columns(props), [props.x, props.stacked, ...props.lines.map((line) => line.values)]);
  const shape = JSON.stringify([
    props.lines.map(({ values: _, ...line }) => line),
    props.as,
    props.xAs,
    props.stacked,
    props.group,
    props.zero,
    props.bandLabels,
  ]);
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
      <div
        ref={box}
        tabIndex={0}
        role="img"
        aria-label={fill(text().keys, { label: props.label })}
        onKeyDown={keys}
        onBlur={() => setAt(null)}
      />
      {at !== null && at < props.x.length && !props.tip && (
        <div class="readout" role="status">
          <span class="d3">
            {props.xAs === "count" ? units.count(props.x[at]).value : units.text(units.time(props.x[at]))}
          </span>
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

/** Data for uPlot: null for missing values; sums of the lines below if stacked. */
export function columns(props: SeriesProps): uPlotType.AlignedData {
  const known = (values: ArrayLike<number>) =>
    Array.prototype.some.call(values, Number.isNaN)
      ? Array.from(values, (value) => (Number.isNaN(value) ? null : value))
      : values;
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

function options(
  uPlot: typeof uPlotType,
  latest: Latest,
  width: number,
  height: number,
  setAt: (at: number | null) => void,
): uPlotType.Options {
  const props = latest.current;
  const ink = css("--text-3");
  const font = `11px ${css("--font")}`;
  const surface = css("--surface");
  let pressed: number | null = null;
  const solid = (line: Line) =>
    line.color === "--kind-idle"
      ? hatch(css("--sunken"), css("--kind-idle"))
      : props.stacked
        ? `color-mix(in srgb, ${css(line.color)} 72%, ${surface})`
        : `color-mix(in srgb, ${css(line.color)} 12%, transparent)`;
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
      y: {
        range: (_, low, high) =>
          bounds(
            low,
            Math.max(high ?? 0, latest.current.top ?? -Infinity),
            props.zero ?? true,
            latest.current.top !== undefined,
          ),
      },
    },
    axes: [
      {
        stroke: ink,
        font,
        size: 22,
        gap: 3,
        grid: { show: false },
        ticks: { show: false },
        values: (plot, splits) =>
          props.xAs === "count"
            ? splits.map((value) => (Number.isInteger(value) ? units.count(value).value : ""))
            : moments(splits, plot.scales.x.max ?? 1),
      },
      {
        stroke: ink,
        font,
        size: 62,
        grid: { stroke: css("--grid"), width: 1 },
        ticks: { show: false },
        splits: (_, __, low, high) => units.ticks(low, high, Math.max(2, Math.round(height / 55))),
        values: (_, splits) => units.axisLabels(splits, props.as),
      },
    ],
    bands: props.stacked
      ? props.lines.slice(1).map((line, at) => ({ series: [at + 2, at + 1] as [number, number], fill: solid(line) }))
      : undefined,
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
          const range: Range = [
            plot.posToVal(plot.select.left, "x"),
            plot.posToVal(plot.select.left + plot.select.width, "x"),
          ];
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
          tip(
            { clientX: frame.left + left, clientY: frame.top + Math.max(0, plot.cursor.top ?? 0) },
            latest.current.tip(at),
          );
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
            if (!moved && plot.cursor.idx !== null && plot.cursor.idx !== undefined)
              latest.current.onPick?.(plot.cursor.idx);
          });
          plot.over.addEventListener(
            "wheel",
            (event) => {
              if (!event.ctrlKey && !event.metaKey) return;
              event.preventDefault();
              const { min, max } = plot.scales.x;
              const [first, last] = whole();
              const current = plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x");
              const by = event.deltaY > 0 ? 1.25 : 0.8;
              const range: Range = [
                Math.max(first, current - (current - min!) * by),
                Math.min(last, current + (max! - current) * by),
              ];
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

/** Times along an axis, in one unit, which the first label names. */
function moments(splits: number[], last: number): string[] {
  const unit = units.timeUnit(last);
  const step = splits.length > 1 ? units.timeIn(splits[1] - splits[0], unit) : 1;
  // As many digits as distinguish them: 122.5 is not 123.
  let places = 0;
  while (places < 9 && Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6 * step * 10 ** places)
    places++;
  return splits.map((value, at) => `${group(units.timeIn(value, unit).toFixed(places))}${at === 0 ? ` ${unit}` : ""}`);
}

function group(number: string): string {
  const [whole, part] = number.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return part ? `${grouped}.${part}` : grouped;
}
