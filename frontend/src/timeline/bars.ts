/**
 * Bars of the tracks. Each row is first summed per pixel of one line, and all lines are drawn by scaling one small
 * image, so the work depends on the visible pixels, not on the number of spans. Only frames, hatches and labels are
 * drawn one by one.
 */
import * as units from "../units";
import { counter } from "./counter";
import { cover, Line } from "./coverage";
import { DARK, FRAMED, HATCHED, type Tints } from "./tints";
import { shown, type Labels } from "./labels";
import type { Placed } from "./layout";
import type { Pieces } from "./tile_cover";
import { sheet, type Pen, type Scene } from "./scene";
import type { Tile } from "./wire";

const LABEL = 26;
/** Spans of at least this many pixels are drawn individually. */
const WIDE = 6;
/** Height of the mark for spans that are too short to see. */
const FOOT = 2;

/** Rectangles to draw later, with two numbers each. */
class Boxes {
  at = new Float64Array(6 * 512);
  count = 0;

  put(x: number, y: number, wide: number, high: number, what: number, more: number): void {
    if (6 * this.count === this.at.length) {
      const grown = new Float64Array(2 * this.at.length);
      grown.set(this.at);
      this.at = grown;
    }
    const at = 6 * this.count++;
    this.at[at] = x;
    this.at[at + 1] = y;
    this.at[at + 2] = wide;
    this.at[at + 3] = high;
    this.at[at + 4] = what;
    this.at[at + 5] = more;
  }
}

/** How a label is written. */
const [LIGHT_INK, DARK_INK, FRAME_INK, LAST_PART] = [0, 1, 2, 4];

export class Bars {
  private line = new Line(0);
  private strip = sheet();
  private image: ImageData | null = null;
  private words = new Uint32Array(0);
  /** For each line: 1 if there is something, 3 if there are feet, too. */
  private filled = new Uint8Array(512);
  private labeled = new Boxes();
  private framed = new Boxes();
  private hatched = new Boxes();
  private under = new Uint8Array(0);
  private underlines: number[] = [];
  private pattern: CanvasPattern | null = null;
  private patternEpoch = -1;

  constructor(
    private context: Pen,
    private ink: Tints,
    private labels: Labels,
    private pieces: Pieces,
  ) {}

  /** Draw the visible spans of some tracks; `lit` gives by name those with a line below. */
  draw(scene: Scene, lanes: Placed[], offset: number, top: number, bottom: number, lit: Uint8Array | null): void {
    const { context, ink } = this;
    const seen = lanes.filter((box) => offset + box.y < bottom && offset + box.y + box.height > top);
    const lines = seen.reduce((sum, box) => sum + box.rows.length, 0);
    const pixels = Math.round(scene.width * scene.ratio);
    this.room(pixels, lines);
    this.labeled.count = this.framed.count = this.hatched.count = 0;
    let line = 0;
    for (const box of seen) {
      const y = offset + box.y;
      this.pieces.resolve(scene, box.lane.id);
      if (box.lane.kind === "counter") counter(context, ink, this.pieces, scene, box, y);
      for (let at = 0; at < box.rows.length; at++, line++) {
        const rowY = y + box.pad + at * box.rowHeight;
        this.line.clear();
        let any = this.row(scene, box, box.rows[at], rowY, lit);
        if (at === 0) for (const row of box.also) any = this.row(scene, box, row, rowY, lit) || any;
        this.filled[line] = any
          ? this.line.ink(this.words, line * pixels, this.words, (lines + line) * pixels, ink.edge)
            ? 3
            : 1
          : 0;
      }
      context.fillStyle = ink.grid;
      context.fillRect(0, y + box.height - 1, scene.width, 1);
    }
    if (!lines) return;
    this.strip.putImageData(this.image!, 0, 0, 0, 0, pixels, 2 * lines);
    line = 0;
    for (const box of seen) {
      const high = heightOf(box);
      const foot = Math.min(FOOT, high / 2);
      for (let at = 0; at < box.rows.length; at++, line++) {
        const y = offset + box.y + box.pad + at * box.rowHeight;
        if (this.filled[line] & 1) context.drawImage(this.strip.canvas, 0, line, pixels, 1, 0, y, scene.width, high);
        if (this.filled[line] & 2)
          context.drawImage(this.strip.canvas, 0, lines + line, pixels, 1, 0, y + high - foot, scene.width, foot);
      }
    }
    this.decorate(scene);
  }

  private room(pixels: number, lines: number): void {
    if (this.line.pixels !== pixels) {
      this.line = new Line(pixels);
      this.under = new Uint8Array(pixels);
    }
    if (lines > this.filled.length) this.filled = new Uint8Array(lines * 2);
    if (!this.image || this.image.width !== pixels || this.image.height < 2 * lines) {
      const high = Math.max(64, Math.ceil(lines * 2.5));
      this.strip.canvas.width = Math.max(1, pixels);
      this.strip.canvas.height = high;
      this.image = new ImageData(Math.max(1, pixels), high);
      this.words = new Uint32Array(this.image.data.buffer);
    }
  }

  /** Sum up a row; returns whether it has anything. */
  private row(scene: Scene, box: Placed, row: number, y: number, lit: Uint8Array | null): boolean {
    const { line } = this;
    const { ratio, t0 } = scene;
    const scale = line.pixels / (scene.t1 - t0);
    const high = heightOf(box);
    const labeled = box.rowHeight >= 13 && box.lane.kind !== "overlap"; // its rows have names
    const scoped = box.lane.kind === "scope" ? LAST_PART : 0;
    let any = false;
    let first = true;
    for (const piece of this.pieces.found) {
      const { tile } = piece;
      const of = tile ? tile.row(box.lane.id, row) : -1;
      if (!tile || of < 0) continue;
      const tints = tile.longTint!;
      const begun = first;
      first = false;
      const wide = (event: number, from: number, to: number, begins: boolean): boolean => {
        const as = tints[event];
        if (!begins && !begun) return !(as & HATCHED); // it begins in the previous piece
        // Its visible part, beyond this piece, too.
        const size =
          (Math.max(to, Math.min(line.pixels, (tile.longStart[event] + tile.longDur[event] - t0) * scale)) - from) /
          ratio;
        const x = from / ratio;
        if (as & HATCHED) {
          this.hatched.put(x, y, size, high, tile.longDur[event], box.lane.group);
          return false;
        }
        if (as & FRAMED) this.framed.put(x, y, size, high, 0, 0);
        if (labeled && size >= LABEL)
          this.labeled.put(
            x + 4,
            y + high / 2 + 4,
            size - 8,
            high,
            tile.longName[event],
            (as & FRAMED ? FRAME_INK : as & DARK ? DARK_INK : LIGHT_INK) | scoped,
          );
        return true;
      };
      const [from, to] = [Math.max(piece.from, t0), Math.min(piece.to, scene.t1)];
      any = cover(line, tile, of, from, to, t0, scale, WIDE * ratio, wide) || any;
      if (lit) this.light(scene, tile, of, from, to, scale, lit);
    }
    if (lit) this.underline(ratio, y + high);
    return any;
  }

  /** Where spans with matching names are. */
  private light(scene: Scene, tile: Tile, row: number, from: number, to: number, scale: number, lit: Uint8Array): void {
    const { under } = this;
    const mark = (start: number, end: number) => {
      const first = Math.max(0, ((start - scene.t0) * scale) | 0);
      under.fill(1, first, Math.max(first + 1, ((end - scene.t0) * scale) | 0));
    };
    for (let event = tile.longFrom(row, from); event < tile.longs[row + 1] && tile.longStart[event] < to; event++) {
      const end = tile.longStart[event] + tile.longDur[event];
      if (end > from && lit[tile.longName[event]]) mark(Math.max(from, tile.longStart[event]), Math.min(to, end));
    }
    for (
      let event = tile.bucketFrom(row, Math.floor((from - tile.from) / tile.bucket));
      event < tile.buckets[row + 1];
      event++
    ) {
      const start = tile.from + tile.bucketX[event] * tile.bucket;
      if (start >= to) break;
      if (lit[tile.bucketName[event]]) mark(Math.max(from, start), start);
    }
  }

  private underline(ratio: number, y: number): void {
    const { under } = this;
    for (let x = under.indexOf(1); x >= 0; x = under.indexOf(1, x)) {
      const from = x;
      while (x < under.length && under[x]) under[x++] = 0;
      this.underlines.push(from / ratio, y - 2, (x - from) / ratio);
    }
  }

  /** Frames, hatches, labels. */
  private decorate(scene: Scene): void {
    const { context, ink, hatched, framed, labeled, underlines } = this;
    context.lineWidth = 1;
    if (hatched.count) {
      context.fillStyle = this.hatching();
      context.strokeStyle = ink.idle;
      for (let at = 0; at < 6 * hatched.count; at += 6)
        context.fillRect(hatched.at[at] + 0.5, hatched.at[at + 1], hatched.at[at + 2] - 1, hatched.at[at + 3]);
      for (let at = 0; at < 6 * hatched.count; at += 6)
        context.strokeRect(
          hatched.at[at] + 1,
          hatched.at[at + 1] + 0.5,
          Math.max(0, hatched.at[at + 2] - 2),
          hatched.at[at + 3] - 1,
        );
      for (let at = 0; at < 6 * hatched.count; at += 6) {
        if (hatched.at[at + 2] >= 64 && hatched.at[at + 3] >= 10)
          this.gapLabel(
            scene,
            hatched.at[at],
            hatched.at[at + 2],
            hatched.at[at + 1],
            hatched.at[at + 3],
            hatched.at[at + 4],
            hatched.at[at + 5],
          );
      }
    }
    context.strokeStyle = ink.strong;
    for (let at = 0; at < 6 * framed.count; at += 6)
      context.strokeRect(
        framed.at[at] + 0.5,
        framed.at[at + 1] + 0.5,
        Math.max(0, framed.at[at + 2] - 1.5),
        framed.at[at + 3] - 1,
      );
    for (const way of [LIGHT_INK, DARK_INK, FRAME_INK]) {
      context.fillStyle = way === FRAME_INK ? ink.text2 : way === DARK_INK ? ink.text : ink.onKind;
      for (let at = 0; at < 6 * labeled.count; at += 6) {
        const how = labeled.at[at + 5];
        if ((how & 3) !== way) continue;
        const text = this.labels.fit(labeled.at[at + 4], labeled.at[at + 2], (how & LAST_PART) !== 0);
        if (text) context.fillText(text, labeled.at[at], labeled.at[at + 1]);
      }
    }
    if (!underlines.length) return;
    context.fillStyle = ink.text;
    for (let at = 0; at < underlines.length; at += 3)
      context.fillRect(underlines[at], underlines[at + 1], Math.max(1, underlines[at + 2]), 2.5);
    underlines.length = 0;
  }

  /** The fill of idle time. */
  private hatching(): CanvasPattern {
    const { ink } = this;
    if (this.pattern && this.patternEpoch === ink.epoch) return this.pattern;
    this.patternEpoch = ink.epoch;
    const page = sheet();
    page.canvas.width = page.canvas.height = 12;
    page.fillStyle = ink.sunken;
    page.fillRect(0, 0, 12, 12);
    page.strokeStyle = ink.idle;
    page.lineWidth = 1;
    page.beginPath();
    for (let at = -12; at <= 24; at += 6) {
      page.moveTo(at, 12);
      page.lineTo(at + 12, 0);
    }
    page.stroke();
    return (this.pattern = this.context.createPattern(page.canvas, "repeat")!);
  }

  /** Duration and cause of an idle gap. */
  private gapLabel(scene: Scene, x: number, wide: number, y: number, high: number, dur: number, group: number): void {
    const { context, ink } = this;
    const perPixel = (scene.t1 - scene.t0) / scene.width;
    const middle = scene.t0 + (x + wide / 2) * perPixel;
    const free = `${units.text(units.time(dur))} ${scene.words.free}`;
    const gap = scene.gaps.find(
      (item) => item.group === group && middle >= item.start && middle <= item.start + item.dur,
    );
    // As much as fits.
    const choices = [
      ...(gap?.said && gap.host ? [`${free} · ${gap.said}: ${shown(gap.host)}`] : []),
      ...(gap?.said ? [`${free} · ${gap.said}`] : []),
      free,
    ];
    const text = choices.find((item) => context.measureText(item).width + 16 <= wide);
    if (text === undefined) return;
    const width = context.measureText(text).width + 8;
    const left = x + wide / 2 - width / 2;
    context.fillStyle = ink.surface;
    context.fillRect(left, y + 1, width, high - 2);
    context.fillStyle = ink.text2;
    context.fillText(text, left + 4, y + high / 2 + 4);
  }
}

function heightOf(box: Placed): number {
  return Math.max(1, box.rowHeight - (box.rowHeight > 8 ? 2 : 0.5));
}
