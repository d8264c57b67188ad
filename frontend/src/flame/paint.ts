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
  const { layout, view, width, height, top } = scene;
  ink.clearRect(0, 0, width, height);
  ink.font = `11px ${css("--mono")}`;
  ink.textBaseline = "middle";
  const scale = width / (view.right - view.left || 1);
  const [surface, faint] = [css("--surface"), css("--text-3")];
  const [plain, dimmed, hatch] = [1, 0.22, hatching(ink)];
  for (let depth = 0; depth < layout.rows.length; depth++) {
    const y = topOf(depth, layout, scene.inverted, scene.ruler) - top;
    if (y + ROW < 0 || y > height) continue;
    const rows = layout.rows[depth];
    let drawn = -1;
    for (let at = firstVisible(layout, rows, view.left); at < rows.length; at++) {
      const row = rows[at];
      const x = (layout.x[row] - view.left) * scale;
      if (x > width) break;
      const end = x + layout.width[row] * scale;
      const [from, to] = [Math.max(0, x), Math.min(width, end)];
      if (to - from < 0.9) {
        const pixel = Math.floor(from);
        if (pixel === drawn) continue; // the pixel shows a neighbor
        drawn = pixel;
      }
      const tint = scene.tint(row);
      const pale = scene.matches !== null && !scene.matches.is[row];
      ink.globalAlpha = pale ? dimmed : plain;
      ink.fillStyle = tint.fill;
      const size = Math.max(1, to - from - (to - from > 3 ? 1 : 0));
      ink.fillRect(from, y, size, ROW - 1);
      if (scene.frames.kind[row] === OTHER && size > 2) {
        ink.fillStyle = hatch;
        ink.fillRect(from, y, size, ROW - 1);
      }
      ink.globalAlpha = plain;
      if (size > 26)
        text(ink, scene.label(row), pale ? faint : tint.ink, from + PAD, y + (ROW - 1) / 2 + 0.5, size - 2 * PAD);
      if (row === scene.selected || row === scene.hovered)
        outline(ink, from, y, size, row === scene.selected ? css("--accent") : css("--text"), surface);
    }
  }
  ink.globalAlpha = 1;
  if (scene.ruler) ruler(ink, scene, scale);
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
        `<g><title>${escaped(tooltip(row))}</title><rect x="${x.toFixed(1)}" y="${y}" width="${Math.max(0.3, size - 0.5).toFixed(1)}" height="${ROW - 1}" fill="${hex(tint.fill)}"/>` +
          (cut
            ? `<text x="${(x + PAD).toFixed(1)}" y="${y + 13}" fill="${hex(tint.ink)}">${escaped(cut)}</text>`
            : "") +
          "</g>",
      );
    }
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="monospace" font-size="11"><rect width="${width}" height="${height}" fill="${css("--surface")}"/><text x="4" y="15" fill="${css("--text")}">${escaped(title)}</text>${parts.join("")}</svg>`;
}

const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true })!;
const plainColors = new Map<string, string>();

/** Colors that every viewer of SVG understands: not oklch(from …). */
function hex(color: string): string {
  let known = plainColors.get(color);
  if (!known) {
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
    plainColors.set(color, (known = `rgb(${red},${green},${blue})`));
  }
  return known;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
