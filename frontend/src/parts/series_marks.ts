/** Bands and rules behind the lines of a chart. */
import { css } from "../colors";
import * as units from "../units";
import type { ComponentChildren } from "preact";
import type uPlotType from "uplot";

export interface Line {
  label: string;
  values: ArrayLike<number>;
  /** A token such as "--kind-compute". */
  color: string;
  /** 12 % fill below the line. */
  area?: boolean;
  dashed?: boolean;
  /**
   * Holds its value until the next sample, like a memory curve; "before" covers the time since the last sample, like a
   * load.
   */
  stepped?: boolean | "before";
  /** Sampled less often than others of the chart: drawn across timestamps without a value. */
  sparse?: boolean;
}

/** Part of the x axis, such as a step. */
export interface Band {
  from: number;
  to: number;
  label?: string;
}

export type Range = [number, number];

export interface SeriesProps {
  /** Charts of one group share crosshair and range. */
  group?: string;
  x: ArrayLike<number>;
  lines: Line[];
  as: units.Quantity;
  /** What x is: ns since the start, or step numbers. */
  xAs?: "time" | "count";
  height?: number;
  /** Starts at zero unless this is false. */
  zero?: boolean;
  /** One on top of the other, the first at the bottom. */
  stacked?: boolean;
  /** The y axis reaches at least this value. */
  top?: number;
  /** Timestamps to mark, such as the starts of steps: x and a label. */
  rules?: { at: number; label?: string; dashed?: boolean }[];
  /** Steps, shaded in turn; `labels` writes their names above. */
  bands?: Band[];
  bandLabels?: boolean;
  /** Values to mark, such as a limit. */
  levels?: { at: number; label: string }[];
  /** The selected timestamp. */
  selected?: number | null;
  label: string;
  /** Index of the point clicked. */
  onPick?: (index: number) => void;
  /** The range chosen by dragging, null when reset. */
  onRange?: (range: Range | null) => void;
  range?: Range | null;
  /** Called with the index under the pointer, null when it leaves. */
  onHover?: (index: number | null) => void;
  /** The tooltip of a point, instead of the values in the corner. */
  tip?: (index: number) => ComponentChildren;
}

/** Nothing ran: never read as a series. */
export function hatch(ground: string, ink: string): CanvasPattern {
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

/** Whether the visible steps are narrower than 10 px on average. */
function crowded(plot: uPlotType, bands: Band[]): boolean {
  const { min, max } = plot.scales.x;
  const seen = bands.filter((band) => band.to >= min! && band.from <= max!).length;
  return seen > plot.bbox.width / devicePixelRatio / 10;
}

/** Every second step is shaded if steps are wide enough. */
export function shadeBands(plot: uPlotType, bands: Band[], color: string): void {
  const { ctx, bbox } = plot;
  if (crowded(plot, bands)) return;
  ctx.save();
  ctx.fillStyle = color;
  bands.forEach((band, at) => {
    const [from, to] = [band.from, band.to].map((value) =>
      Math.min(Math.max(plot.valToPos(value, "x", true), bbox.left), bbox.left + bbox.width),
    );
    if (at % 2 && to > from) ctx.fillRect(from, bbox.top, to - from, bbox.height);
  });
  ctx.restore();
}

export function ruleAll(plot: uPlotType, props: SeriesProps, font: string): void {
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
  // Steps: a line at each start, or, if they are too dense, at those with a label; labels where there is room.
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
  // A label is right of its line, or left of it where another line or step begins; it has a background where it crosses
  // something.
  const lines = [
    ...(close ? [] : (props.bands ?? []).map((band) => place(band.from))),
    ...(props.rules ?? []).map((rule) => place(rule.at)),
  ];
  for (const { at, label, dashed } of props.rules ?? []) {
    const x = place(at);
    if (x < bbox.left || x > right) continue;
    ctx.setLineDash(dashed ? [3 * ratio, 3 * ratio] : []);
    upright(x);
    if (!label) continue;
    const wide = ctx.measureText(label).width + 8 * ratio;
    const clear = (from: number) =>
      from >= free &&
      from + wide <= right &&
      !lines.some((other) => other !== x && other > from && other < from + wide);
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
