/** Draws frames on a canvas: only what is visible, and frames narrower than a pixel once per pixel. */
import { css } from "../colors";
import { shown } from "../timeline/labels";
import * as units from "../units";
import { firstVisible, OTHER, type Frames, type Layout, type Matches } from "./tree";
import type { Tint } from "./tints";

export const ROW = 19;
export const RULER = 20;
const PAD = 4;

export interface View {
  left: number;
  right: number;
}

export interface Scene {
  frames: Frames;
  layout: Layout;
  view: View;
  width: number;
  height: number;
  /** Pixels above the visible part. */
  top: number;
  /** The outermost frame is at the bottom. */
  inverted: boolean;
  /** Times above the frames. */
  ruler: boolean;
  tint: (row: number) => Tint;
  label: (row: number) => string;
  matches: Matches | null;
  selected: number;
  hovered: number;
  now: string;
}

/** The height of all frames. */
export function wholeHeight(layout: Layout, ruler: boolean): number {
  return layout.rows.length * ROW + (ruler ? RULER : 0);
}

/** The top of a depth in the whole picture. */
export function topOf(depth: number, layout: Layout, inverted: boolean, ruler: boolean): number {
  return (inverted ? layout.rows.length - 1 - depth : depth) * ROW + (ruler ? RULER : 0);
}

/** The depth at a height of the whole picture. */
export function depthAt(y: number, layout: Layout, inverted: boolean, ruler: boolean): number {
  const depth = Math.floor((y - (ruler ? RULER : 0)) / ROW);
  return inverted ? layout.rows.length - 1 - depth : depth;
}

const widths = new Map<string, number>();

export function paint(ink: CanvasRenderingContext2D, scene: Scene): void {
  const { layout, width, height, top } = scene;
  ink.clearRect(0, 0, width, height);
  ink.font = `11px ${css("--mono")}`;
  ink.textBaseline = "middle";
  ink.imageSmoothingEnabled = false;
  const style = { surface: css("--surface"), faint: css("--text-3"), accent: css("--accent"), text: css("--text") };
  const hatch = hatching(ink);
  for (let depth = 0; depth < layout.rows.length; depth++) {
    const y = topOf(depth, layout, scene.inverted, scene.ruler) - top;
    if (y + ROW >= 0 && y <= height) paintRow(ink, scene, layout.rows[depth], y, hatch, style);
  }
  ink.globalAlpha = 1;
  if (scene.ruler) ruler(ink, scene, width / (scene.view.right - scene.view.left || 1));
}

type Style = Record<"surface" | "faint" | "accent" | "text", string>;

/** Frames narrower than this are one pixel of a line of pixels, which is stretched to the height of the row. */
const NARROW = 2;
const PALE = 0.22;

function paintRow(
  ink: CanvasRenderingContext2D,
  scene: Scene,
  rows: Int32Array,
  y: number,
  hatch: CanvasPattern,
  style: Style,
): void {
  const { layout, view, width } = scene;
  const scale = width / (view.right - view.left || 1);
  const line = pixelLine(Math.ceil(width));
  let narrow = false;
  for (let at = firstVisible(layout, rows, view.left); at < rows.length; at++) {
    const row = rows[at];
    const x = (layout.x[row] - view.left) * scale;
    if (x > width) break;
    const [from, to] = [Math.max(0, x), Math.min(width, x + layout.width[row] * scale)];
    const size = to - from;
    const pale = scene.matches !== null && !scene.matches.is[row];
    const marked = row === scene.selected || row === scene.hovered;
    if (size < NARROW && !marked) {
      const pixel = Math.min(line.colors.length - 1, Math.floor(from));
      narrow = true;
      const color = scene.tint(row).pixel;
      line.colors[pixel] = pale ? ((color & 0xffffff) | (Math.round(255 * PALE) << 24)) >>> 0 : color;
      // The pixel shows this frame: go on with the first one beyond it.
      if (size < 1) at = Math.max(at, firstBeyond(layout, rows, at, view.left + (pixel + 1) / scale) - 1);
      continue;
    }
    const tint = scene.tint(row);
    const wide = Math.max(1, size - (size > 3 ? 1 : 0));
    ink.globalAlpha = pale ? PALE : 1;
    ink.fillStyle = tint.fill;
    ink.fillRect(from, y, wide, ROW - 1);
    if (scene.frames.kind[row] === OTHER && wide > 2) {
      ink.fillStyle = hatch;
      ink.fillRect(from, y, wide, ROW - 1);
    }
    ink.globalAlpha = 1;
    if (wide > 26) text(ink, scene.label(row), pale ? style.faint : tint.ink, from + PAD, y + ROW / 2, wide - 2 * PAD);
    if (marked) outline(ink, from, y, wide, row === scene.selected ? style.accent : style.text, style.surface);
  }
  ink.globalAlpha = 1;
  if (narrow) ink.drawImage(line.drawn(), 0, 0, line.colors.length, 1, 0, y, line.colors.length, ROW - 1);
}

/** The first row from `at` on whose right end is beyond a place. */
function firstBeyond(layout: Layout, rows: Int32Array, at: number, place: number): number {
  let [low, high] = [at, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.x[rows[middle]] + layout.width[rows[middle]] <= place) low = middle + 1;
    else high = middle;
  }
  return low;
}

const strip = document.createElement("canvas");

/** One line of pixels, transparent at first. */
function pixelLine(width: number): { colors: Uint32Array; drawn: () => HTMLCanvasElement } {
  const image = new ImageData(Math.max(1, width), 1);
  return {
    colors: new Uint32Array(image.data.buffer),
    drawn: () => {
      if (strip.width !== image.width) strip.width = image.width;
      strip.height = 1;
      strip.getContext("2d")!.putImageData(image, 0, 0);
      return strip;
    },
  };
}

function text(ink: CanvasRenderingContext2D, label: string, color: string, x: number, y: number, room: number): void {
  const cut = fitted(ink, label, room);
  if (!cut) return;
  ink.fillStyle = color;
  ink.fillText(cut, x, y);
}

/** The text, or its beginning. In a monospaced font a letter has one width; other scripts are measured. */
function fitted(ink: CanvasRenderingContext2D, label: string, room: number): string {
  let whole = widths.get(label);
  if (whole === undefined) widths.set(label, (whole = ink.measureText(label).width));
  if (whole <= room) return label;
  const letters = Math.floor((room / whole) * label.length) - 1;
  return letters < 2 ? "" : `${label.slice(0, letters)}…`;
}

function outline(
  ink: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  color: string,
  around: string,
): void {
  ink.globalAlpha = 1;
  ink.lineWidth = 4;
  ink.strokeStyle = around;
  ink.strokeRect(x + 1, y + 1, width - 2, ROW - 3);
  ink.lineWidth = 2;
  ink.strokeStyle = color;
  ink.strokeRect(x + 1, y + 1, width - 2, ROW - 3);
}

function ruler(ink: CanvasRenderingContext2D, { view, width }: Scene, scale: number): void {
  ink.fillStyle = css("--surface");
  ink.fillRect(0, 0, width, RULER);
  ink.font = `11px ${css("--font")}`;
  const at = units.ticks(view.left, view.right, Math.max(3, Math.floor(width / 140)));
  const labels = units.axisLabels(at, "time");
  for (const [number, value] of at.entries()) {
    const x = Math.round((value - view.left) * scale) + 0.5;
    ink.strokeStyle = css("--border-strong");
    ink.lineWidth = 1;
    ink.beginPath();
    ink.moveTo(x, RULER - 6);
    ink.lineTo(x, RULER - 1);
    ink.stroke();
    ink.fillStyle = css("--text-3");
    if (x + 40 < width) ink.fillText(labels[number], x + 4, RULER / 2);
  }
}

let pattern: { theme: string; hatch: CanvasPattern } | null = null;

function hatching(ink: CanvasRenderingContext2D): CanvasPattern {
  const color = css("--kind-idle");
  if (pattern?.theme !== color) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d")!;
    pen.strokeStyle = color;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) {
      pen.moveTo(shift, 6);
      pen.lineTo(shift + 6, 0);
    }
    pen.stroke();
    pattern = { theme: color, hatch: ink.createPattern(tile, "repeat")! };
  }
  return pattern.hatch;
}

/** A name as written on a frame: the function before its file. */
export function labelOf(name: string): string {
  const python = /^(.*?)([^/]+\.pyx?)\((\d+)\): (.*)$/.exec(name) ?? /^(\$)([^/]+\.pyx?):(\d+) (.*)$/.exec(name);
  return python
    ? `${python[4]} ${python[2]}:${python[3]}`
    : shown(name.replace(/^nn\.Module: /, "").replace(/ of \S+ object at 0x\w+/, ""));
}

/** The frames in view as SVG. */
export function svg(scene: Scene, title: string, tooltip: (row: number) => string): string {
  const { layout, view, width } = scene;
  const scale = width / (view.right - view.left || 1);
  const height = wholeHeight(layout, false) + 24;
  const parts: string[] = [];
  for (const [depth, rows] of layout.rows.entries()) {
    const y = topOf(depth, layout, scene.inverted, false) + 24;
    for (let at = firstVisible(layout, rows, view.left); at < rows.length; at++) {
      const row = rows[at];
      const x = Math.max(0, (layout.x[row] - view.left) * scale);
      if (x > width) break;
      const size = Math.min(width, (layout.x[row] + layout.width[row] - view.left) * scale) - x;
      if (size < 0.3) continue;
      const tint = scene.tint(row);
      const letters = Math.floor((size - 2 * PAD) / 6.7);
      const label = scene.label(row);
      const cut = letters < 3 ? "" : label.length <= letters ? label : `${label.slice(0, letters - 1)}…`;
      parts.push(
        `<g><title>${escaped(tooltip(row))}</title><rect x="${x.toFixed(1)}" y="${y}" width="${Math.max(0.3, size - 0.5).toFixed(1)}" height="${ROW - 1}" fill="${tint.fill}"/>` +
          (cut ? `<text x="${(x + PAD).toFixed(1)}" y="${y + 13}" fill="${tint.ink}">${escaped(cut)}</text>` : "") +
          "</g>",
      );
    }
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`,
    ` font-family="monospace" font-size="11"><rect width="${width}" height="${height}" fill="${css("--surface")}"/>`,
    `<text x="4" y="15" fill="${css("--text")}">${escaped(title)}</text>`,
    ...parts,
    "</svg>",
  ].join("");
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
