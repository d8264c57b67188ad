/** The picture of the lanes. Everything of a row is first summed up per pixel of one line, and all lines are drawn by scaling one small image;
 * so the work depends on the pixels in sight, not on the number of events. Only frames, hatches and labels are drawn one by one. */
import * as units from "../units";
import { cssOf, DARK, FRAMED, HATCHED, type Ink } from "./ink";
import { GROUP, type Layout, type Placed } from "./layout";
import type { Tiles } from "./tiles";
import type { Event, Names, Tile } from "./wire";

export interface Gap {
  start: number;
  dur: number;
  said: string;
  group: number;
}

export interface Step {
  step: number;
  start: number;
  end: number;
}

export interface Mark {
  t0: number;
  t1: number;
  text: string;
}

export interface Area {
  t0: number;
  t1: number;
  /** Lanes it is about; null for all. */
  lanes: number[] | null;
}

/** What is to be drawn. */
export interface Scene {
  t0: number;
  t1: number;
  width: number;
  height: number;
  ratio: number;
  scroll: number;
  layout: Layout;
  end: number;
  steps: Step[];
  median: number;
  gaps: Gap[];
  marks: Mark[];
  area: Area | null;
  hover: Event | null;
  selected: Event | null;
  /** By name: 1 where every event of it gets a line below it; null where none does. */
  lit: Uint8Array | null;
  /** Ends of arrows of the selected event. */
  into: Event[];
  out: Event[];
  words: { step: string; free: string };
  /** The next picture will be another one. */
  moving: boolean;
}

export const MINI = 64;
export const RULER = 42;
export const TOP = MINI + RULER;
const LABEL = 26;
const WIDE = 3;
const MANY = 4000;
const OVERVIEW = 64;
const NUMBERS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });
/** A pixel in which something so short happened that it would not be seen is at least this dense. */
const FAINT = 0.16;

interface Piece {
  tile: Tile | null;
  from: number;
  to: number;
}

/** Texts at sizes they fit into. */
class Labels {
  private widths: number[] = [];
  private cut = new Map<number, string>();
  private short: string[] = [];

  constructor(
    private names: Names,
    private context: CanvasRenderingContext2D,
  ) {}

  text(name: number): string {
    return (this.short[name] ??= shown(this.names.text[name]));
  }

  /** The name, or its beginning; "" where nothing useful fits. Of a scope the last part. */
  fit(name: number, room: number, scope: boolean): string {
    const whole = scope ? (this.short[name] ??= this.names.text[name].replace(/^.*\//, "")) : this.text(name);
    const width = (this.widths[name] ??= this.context.measureText(whole).width);
    if (width <= room) return whole;
    const letters = Math.floor((room / width) * whole.length) - 1;
    if (letters < 3) return "";
    const key = name * 512 + Math.min(letters, 511);
    let cut = this.cut.get(key);
    if (cut === undefined) this.cut.set(key, (cut = `${whole.slice(0, Math.min(letters, 511))}…`));
    return cut;
  }

  forget(): void {
    this.widths = [];
    this.cut.clear();
  }
}

/** A name as it is written in a bar: without what every name of its kind has. */
export function shown(name: string): string {
  let text = name.replace(/^autograd::engine::evaluate_function: /, "").replace(/^void /, "");
  if (/[<(]/.test(text) && /::|</.test(text)) {
    const functor = /(\w*(?:Functor|_functor|Op)\w*)/.exec(text.slice(text.indexOf("<") + 1))?.[1];
    const plain = text.replace(/\(anonymous namespace\)::/g, "").split(/[<(]/, 1)[0].split("::").pop()!;
    text = functor && plain && functor !== plain ? `${plain.replace(/_kernel$/, "")} · ${functor}` : plain || text;
  }
  return text.length > 160 ? text.slice(0, 160) : text;
}

/** A value of a counter, with its unit. */
export function amount(value: number, unit?: string | null): string {
  if (unit === "bytes") return units.text(units.bytes(value));
  if (unit === "bytes/s") return units.text(units.rate(value));
  if (unit === "share") return units.text(units.share(value));
  if (unit === "ns") return units.text(units.time(value));
  return `${units.text(units.short(value))}${unit ? ` ${unit}` : ""}`;
}

export class Painter {
  readonly labels: Labels;
  private strip = document.createElement("canvas");
  private image: ImageData | null = null;
  private words = new Uint32Array(0);
  private cover = new Float32Array(0);
  private best = new Float32Array(0);
  private tint = new Uint32Array(0);
  private under = new Uint8Array(0);
  private lined = new Uint8Array(512);
  private pieces: Piece[] = [];
  private pieceCount = 0;
  private labelX = new Float32Array(MANY);
  private labelY = new Float32Array(MANY);
  private labelW = new Float32Array(MANY);
  private labelName = new Int32Array(MANY);
  private labelDark = new Uint8Array(MANY);
  private labelCount = 0;
  private box = new Float32Array(MANY * 4);
  private boxCount = 0;
  private hatch = new Float32Array(MANY * 4);
  private hatchCount = 0;
  private free = new Float64Array(MANY);
  private freeOf = new Int32Array(MANY);
  private pattern: CanvasPattern | null = null;
  private patternEpoch = -1;
  private mini = document.createElement("canvas");
  private miniKey = "";
  private resolved = -1;

  constructor(
    private context: CanvasRenderingContext2D,
    private tiles: Tiles,
    private ink: Ink,
    names: Names,
  ) {
    this.labels = new Labels(names, context);
  }

  /** The level whose buckets are about a pixel of the screen. */
  level(scene: Scene): number {
    const perPixel = (scene.t1 - scene.t0) / (scene.width * scene.ratio);
    return Math.max(0, Math.min(this.tiles.header.top_level, Math.floor(Math.log2(perPixel))));
  }

  draw(scene: Scene): void {
    const { context, ink, tiles } = this;
    const { width, height, ratio, layout } = scene;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `11px ${ink.font}`;
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.imageSmoothingEnabled = false;
    this.makePattern();
    tiles.begin();
    this.resolved = -1;
    context.fillStyle = ink.surface;
    context.fillRect(0, 0, width, height);
    this.gridlines(scene);
    const begin = TOP + layout.pinnedHeight;
    // What is scrolled
    context.save();
    context.beginPath();
    context.rect(0, begin, width, Math.max(0, height - begin));
    context.clip();
    const offset = begin - scene.scroll;
    for (const head of layout.heads) {
      const y = offset + head.y;
      if (y > height || y + GROUP < begin) continue;
      context.fillStyle = ink.sunken;
      context.fillRect(0, y, width, GROUP);
      context.fillStyle = ink.border;
      context.fillRect(0, y, width, 1);
    }
    this.lanes(scene, layout.lanes, offset, begin, height);
    this.selection(scene, layout.lanes, offset);
    context.restore();
    // What stays
    if (layout.pinned.length) {
      this.lanes(scene, layout.pinned, TOP, TOP, begin);
      this.selection(scene, layout.pinned, TOP);
      context.fillStyle = ink.strong;
      context.fillRect(0, begin - 1, width, 1);
    }
    this.arrows(scene, offset);
    this.ruler(scene);
    this.minimap(scene);
    if (!scene.moving) this.beside(scene, layout, offset);
    // All of it, for the minimap and to be drawn until the rest comes.
    for (let at = 0; at < Math.min(OVERVIEW, tiles.bundles.length); at++) tiles.want(tiles.bundles[at], tiles.header.top_level, 0);
    tiles.end();
  }

  /** After what is in sight: what will be, when one moves on. */
  private beside(scene: Scene, layout: Layout, offset: number): void {
    const level = this.level(scene);
    const span = this.tiles.span(level);
    const [first, last] = [Math.floor(scene.t0 / span), Math.floor(scene.t1 / span)];
    let before = -1;
    for (const list of [layout.pinned, layout.lanes]) {
      for (const placed of list) {
        const y = placed.pinned ? TOP + placed.y : offset + placed.y;
        if (!placed.pinned && (y > scene.height + 300 || y + placed.height < TOP - 300)) continue;
        const bundle = this.tiles.bundle(placed.lane.id);
        if (bundle.id === before) continue;
        before = bundle.id;
        this.tiles.want(bundle, this.tiles.header.top_level, 0);
        this.tiles.want(bundle, level, first - 1);
        this.tiles.want(bundle, level, last + 1);
        if (level < this.tiles.header.top_level) for (let index = first >> 1; index <= last >> 1; index++) this.tiles.want(bundle, level + 1, index);
        if (level > 0) {
          const middle = Math.floor((scene.t0 + scene.t1) / span);
          this.tiles.want(bundle, level - 1, middle);
        }
      }
    }
  }

  private makePattern(): void {
    if (this.patternEpoch === this.ink.epoch) return;
    this.patternEpoch = this.ink.epoch;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 12;
    const context = tile.getContext("2d")!;
    context.fillStyle = this.ink.sunken;
    context.fillRect(0, 0, 12, 12);
    context.strokeStyle = this.ink.idle;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = -12; at <= 24; at += 6) {
      context.moveTo(at, 12);
      context.lineTo(at + 12, 0);
    }
    context.stroke();
    this.pattern = this.context.createPattern(tile, "repeat");
  }

  private lanes(scene: Scene, lanes: Placed[], offset: number, top: number, bottom: number): void {
    const { context, ink } = this;
    const pixels = Math.round(scene.width * scene.ratio);
    let lines = 0;
    for (const placed of lanes) if (offset + placed.y < bottom && offset + placed.y + placed.height > top) lines += placed.rows.length;
    this.room(pixels, lines);
    this.labelCount = this.boxCount = this.hatchCount = 0;
    let line = 0;
    for (const placed of lanes) {
      const y = offset + placed.y;
      if (y >= bottom || y + placed.height <= top) continue;
      this.resolve(scene, placed.lane.id);
      if (placed.lane.kind === "counter") this.counter(scene, placed, y);
      for (let at = 0; at < placed.rows.length; at++) {
        this.cover.fill(0);
        this.best.fill(0);
        let any = this.row(scene, placed, placed.rows[at], y + placed.pad + at * placed.rowHeight, pixels);
        if (at === 0) for (const row of placed.also) any = this.row(scene, placed, row, y + placed.pad, pixels) || any;
        this.lined[line] = any ? 1 : 0;
        if (any) this.line(line, pixels);
        line += 1;
      }
      context.fillStyle = ink.grid;
      context.fillRect(0, y + placed.height - 1, scene.width, 1);
    }
    if (!lines) return;
    this.strip.getContext("2d")!.putImageData(this.image!, 0, 0, 0, 0, pixels, lines);
    line = 0;
    for (const placed of lanes) {
      const y = offset + placed.y;
      if (y >= bottom || y + placed.height <= top) continue;
      const high = Math.max(1, placed.rowHeight - (placed.rowHeight > 8 ? 2 : 0.5));
      for (let at = 0; at < placed.rows.length; at++, line++) {
        if (this.lined[line]) context.drawImage(this.strip, 0, line, pixels, 1, 0, y + placed.pad + at * placed.rowHeight, scene.width, high);
      }
    }
    this.decorate(scene);
  }

  private room(pixels: number, lines: number): void {
    if (this.cover.length !== pixels) {
      this.cover = new Float32Array(pixels);
      this.best = new Float32Array(pixels);
      this.tint = new Uint32Array(pixels);
      this.under = new Uint8Array(pixels);
    }
    if (lines > this.lined.length) this.lined = new Uint8Array(lines * 2);
    if (!this.image || this.image.width !== pixels || this.image.height < lines) {
      const high = Math.max(32, Math.ceil(lines * 1.25));
      this.strip.width = Math.max(1, pixels);
      this.strip.height = high;
      this.image = new ImageData(Math.max(1, pixels), high);
      this.words = new Uint32Array(this.image.data.buffer);
    }
  }

  /** Which tiles show a lane: its own, and where they have not come yet, coarser or finer ones. */
  private resolve(scene: Scene, lane: number): void {
    const bundle = this.tiles.bundle(lane);
    if (bundle.id === this.resolved) return;
    this.resolved = bundle.id;
    this.pieceCount = 0;
    const level = this.level(scene);
    const span = this.tiles.span(level);
    const last = Math.min(this.tiles.last(level), Math.floor(scene.t1 / span));
    for (let index = Math.max(0, Math.floor(scene.t0 / span)); index <= last; index++) {
      this.tiles.want(bundle, level, index);
      const own = this.tiles.get(bundle, level, index);
      const [from, to] = [index * span, (index + 1) * span];
      if (own) this.piece(own, from, to);
      else if (level > 0) {
        const [left, right] = [this.tiles.get(bundle, level - 1, 2 * index), this.tiles.get(bundle, level - 1, 2 * index + 1)];
        if (left && (right || from + span / 2 >= this.tiles.header.end_ns)) {
          this.piece(left, from, from + span / 2);
          if (right) this.piece(right, from + span / 2, to);
          continue;
        }
        this.piece(this.tiles.coarser(bundle, level, index) ?? null, from, to);
      } else this.piece(this.tiles.coarser(bundle, level, index) ?? null, from, to);
    }
  }

  private piece(tile: Tile | null, from: number, to: number): void {
    if (tile) this.ink.paint(tile);
    const kept = this.pieces[this.pieceCount];
    if (kept) {
      kept.tile = tile;
      kept.from = from;
      kept.to = to;
    } else this.pieces.push({ tile, from, to });
    this.pieceCount += 1;
  }

  /** Add something to the line: from and to in pixels, how dense, and as what. */
  private add(from: number, to: number, dense: number, tint: number): void {
    const { cover, best, tint: tints } = this;
    let at = from | 0;
    const end = to | 0;
    if (at === end) {
      const part = (to - from) * dense;
      cover[at] += part;
      if (part > best[at]) {
        best[at] = part;
        tints[at] = tint;
      }
      return;
    }
    let part = (at + 1 - from) * dense;
    cover[at] += part;
    if (part > best[at]) {
      best[at] = part;
      tints[at] = tint;
    }
    for (at += 1; at < end; at++) {
      cover[at] += dense;
      if (dense > best[at]) {
        best[at] = dense;
        tints[at] = tint;
      }
    }
    if (end < cover.length) {
      part = (to - end) * dense;
      cover[end] += part;
      if (part > best[end]) {
        best[end] = part;
        tints[end] = tint;
      }
    }
  }

  /** Sum a row up; answers whether there is anything. */
  private row(scene: Scene, placed: Placed, row: number, y: number, pixels: number): boolean {
    const { under } = this;
    const scale = pixels / (scene.t1 - scene.t0);
    const t0 = scene.t0;
    const high = placed.rowHeight - (placed.rowHeight > 8 ? 2 : 0.5);
    const labelled = placed.rowHeight >= 13 && placed.lane.kind !== "overlap"; // its rows are named
    const wide = WIDE * scene.ratio;
    const gap = 0.7 * scene.ratio;
    const lights = scene.lit;
    const scoped = placed.lane.kind === "scope";
    let any = false;
    let lit = false;
    for (let at = 0; at < this.pieceCount; at++) {
      const piece = this.pieces[at];
      const tile = piece.tile;
      if (!tile) continue;
      const of = tile.row(placed.lane.id, row);
      if (of < 0) continue;
      const from = Math.max(piece.from, t0);
      const to = Math.min(piece.to, scene.t1);
      if (to <= from) continue;
      const [left, right] = [(from - t0) * scale, Math.min(pixels, (to - t0) * scale)];
      // Long events
      const end = tile.longs[of + 1];
      const tints = tile.longTint!;
      const first = piece.from <= t0 || at === 0;
      for (let event = tile.longFrom(of, from); event < end; event++) {
        const start = tile.longStart[event];
        if (start >= to) break;
        const stop = start + tile.longDur[event];
        if (stop <= from) continue;
        any = true;
        let x0 = (start - t0) * scale;
        let x1 = (stop - t0) * scale;
        const big = x1 - x0;
        const begins = x0 >= left;
        if (big >= wide && x1 <= right) x1 -= gap;
        if (x0 < left) x0 = left;
        if (x1 > right) x1 = right;
        if (x1 <= x0) continue;
        const as = tints[event];
        const seen = Math.min(pixels, (stop - t0) * scale) - x0; // of the whole, if this is the piece in which it begins
        if (as & HATCHED && big >= 6 * scene.ratio) {
          if (this.hatchCount < MANY && (begins || first)) {
            this.free[this.hatchCount] = tile.longDur[event];
            this.freeOf[this.hatchCount] = placed.lane.group;
            this.put(this.hatch, this.hatchCount++, x0 / scene.ratio, y, seen / scene.ratio, high);
          }
          continue;
        }
        this.add(x0, x1, 1, as);
        if (lights && lights[tile.longName[event]]) {
          lit = true;
          under.fill(1, x0 | 0, Math.max((x0 | 0) + 1, x1 | 0));
        }
        if (big >= 6 * scene.ratio && as & FRAMED && (begins || first) && this.boxCount < MANY) this.put(this.box, this.boxCount++, x0 / scene.ratio, y, (seen - gap) / scene.ratio, high);
        if (labelled && seen >= LABEL * scene.ratio && (begins || first) && this.labelCount < MANY) {
          const label = this.labelCount++;
          this.labelX[label] = x0 / scene.ratio + 4;
          this.labelY[label] = y + high / 2 + 4;
          this.labelW[label] = seen / scene.ratio - 8;
          this.labelName[label] = tile.longName[event];
          this.labelDark[label] = (as & FRAMED ? 2 : as & DARK ? 1 : 0) | (scoped ? 4 : 0);
        }
      }
      // Short ones, summed up
      const bucket = tile.bucket * scale;
      const origin = (tile.from - t0) * scale;
      const stop = tile.buckets[of + 1];
      const dyes = tile.bucketTint!;
      for (let event = tile.bucketFrom(of, Math.floor((from - tile.from) / tile.bucket)); event < stop; event++) {
        let x0 = origin + tile.bucketX[event] * bucket;
        if (x0 >= right) break;
        let x1 = x0 + bucket;
        if (x0 < left) x0 = left;
        if (x1 > right) x1 = right;
        if (x1 <= x0) continue;
        any = true;
        this.add(x0, x1, Math.max(1, tile.bucketBusy[event]) / 255, dyes[event]);
        if (lights && lights[tile.bucketName[event]]) {
          lit = true;
          under[x0 | 0] = 1;
        }
      }
    }
    if (lit) this.underline(scene, y + high, pixels);
    return any;
  }

  /** The sums as pixels. */
  private line(line: number, pixels: number): void {
    const { cover, tint, words } = this;
    const begin = line * pixels;
    for (let x = 0; x < pixels; x++) {
      const dense = cover[x];
      if (dense === 0) words[begin + x] = 0;
      else words[begin + x] = ((dense >= 1 ? 255 : (dense < FAINT ? FAINT : dense) * 255) << 24) | (tint[x] & 0xffffff);
    }
  }

  private put(into: Float32Array, at: number, x: number, y: number, w: number, h: number): void {
    into[4 * at] = x;
    into[4 * at + 1] = y;
    into[4 * at + 2] = w;
    into[4 * at + 3] = h;
  }

  private underlines: number[] = [];

  private underline(scene: Scene, y: number, pixels: number): void {
    const { under } = this;
    for (let x = 0; x < pixels; ) {
      if (!under[x]) {
        x += 1;
        continue;
      }
      const from = x;
      while (x < pixels && under[x]) under[x++] = 0;
      this.underlines.push(from / scene.ratio, y - 2, (x - from) / scene.ratio);
    }
  }

  /** Frames, hatches, labels. */
  private decorate(scene: Scene): void {
    const { context, ink } = this;
    if (this.hatchCount) {
      context.fillStyle = this.pattern!;
      for (let at = 0; at < this.hatchCount; at++) context.fillRect(this.hatch[4 * at] + 0.5, this.hatch[4 * at + 1], this.hatch[4 * at + 2] - 1, this.hatch[4 * at + 3]);
      context.strokeStyle = ink.idle;
      context.lineWidth = 1;
      for (let at = 0; at < this.hatchCount; at++) context.strokeRect(this.hatch[4 * at] + 1, this.hatch[4 * at + 1] + 0.5, Math.max(0, this.hatch[4 * at + 2] - 2), this.hatch[4 * at + 3] - 1);
      context.fillStyle = ink.text2;
      for (let at = 0; at < this.hatchCount; at++) {
        const wide = this.hatch[4 * at + 2];
        if (wide < 64 || this.hatch[4 * at + 3] < 10) continue;
        this.gapLabel(scene, this.hatch[4 * at], wide, this.hatch[4 * at + 1], this.hatch[4 * at + 3], this.free[at], this.freeOf[at]);
      }
    }
    if (this.boxCount) {
      context.strokeStyle = ink.strong;
      context.lineWidth = 1;
      for (let at = 0; at < this.boxCount; at++) context.strokeRect(this.box[4 * at] + 0.5, this.box[4 * at + 1] + 0.5, Math.max(0, this.box[4 * at + 2] - 1), this.box[4 * at + 3] - 1);
    }
    for (let way = 0; way < 3; way++) {
      context.fillStyle = way === 2 ? ink.text2 : way === 1 ? ink.text : ink.onKind;
      for (let at = 0; at < this.labelCount; at++) {
        if ((this.labelDark[at] & 3) !== way) continue;
        const text = this.labels.fit(this.labelName[at], this.labelW[at], this.labelDark[at] > 3);
        if (text) context.fillText(text, this.labelX[at], this.labelY[at]);
      }
    }
    if (this.underlines.length) {
      context.fillStyle = ink.text;
      const lines = this.underlines;
      for (let at = 0; at < lines.length; at += 3) context.fillRect(lines[at], lines[at + 1], Math.max(1, lines[at + 2]), 2.5);
      lines.length = 0;
    }
  }

  /** How long nothing ran, and why. */
  private gapLabel(scene: Scene, x: number, wide: number, y: number, high: number, dur: number, group: number): void {
    const { context, ink } = this;
    const perPixel = (scene.t1 - scene.t0) / scene.width;
    const middle = scene.t0 + (x + wide / 2) * perPixel;
    const free = `${units.text(units.time(dur))} ${scene.words.free}`;
    let text = free;
    for (const gap of scene.gaps) {
      if (gap.group !== group || middle < gap.start || middle > gap.start + gap.dur) continue;
      if (gap.said) text = `${free} · ${gap.said}`;
      break;
    }
    let width = context.measureText(text).width + 8;
    if (width > wide - 8) {
      text = free;
      width = context.measureText(text).width + 8;
      if (width > wide - 4) return;
    }
    const left = x + wide / 2 - width / 2;
    context.fillStyle = ink.surface;
    context.fillRect(left, y + 1, width, high - 2);
    context.fillStyle = ink.text2;
    context.fillText(text, left + 4, y + high / 2 + 4);
  }

  /** A value over time: an area from zero with a line on top. Of each pixel the lowest and highest. */
  private counter(scene: Scene, placed: Placed, y: number): void {
    const { context, ink, cover: low, best: high } = this;
    const pixels = low.length;
    const max = placed.lane.max || 1;
    const [top, bottom] = [y + 4, y + placed.height - 3];
    const scale = pixels / (scene.t1 - scene.t0);
    let last = NaN;
    low.fill(NaN);
    for (let at = 0; at < this.pieceCount; at++) {
      const { tile, from, to } = this.pieces[at];
      const points = tile?.pointsOf(placed.lane.id);
      if (!tile || !points) continue;
      let filled = Math.max(0, Math.floor((Math.max(from, scene.t0) - scene.t0) * scale));
      const right = Math.min(pixels, Math.ceil((Math.min(to, scene.t1) - scene.t0) * scale));
      for (let point = points[0]; point < points[1]; point++) {
        const x = Math.floor((tile.pointAt[point] - scene.t0) * scale);
        if (x >= right) break;
        const [lowest, highest] = [tile.pointLow[point], tile.pointHigh[point]];
        if (x >= filled) {
          for (; filled < x; filled++) low[filled] = high[filled] = last;
          if (Number.isNaN(low[x])) {
            low[x] = Math.min(lowest, Number.isNaN(last) ? lowest : Math.min(last, lowest));
            high[x] = Math.max(highest, Number.isNaN(last) ? highest : last);
          }
          filled = x + 1;
        } else if (x === filled - 1 && x >= 0) {
          low[x] = Math.min(low[x], lowest);
          high[x] = Math.max(high[x], highest);
        }
        last = lowest === highest ? lowest : (lowest + highest) / 2;
      }
      for (; filled < right; filled++) low[filled] = high[filled] = last;
    }
    const place = (value: number) => bottom - (bottom - top) * Math.max(0, Math.min(1, value / max));
    const ratio = scene.ratio;
    for (let pass = 0; pass < 2; pass++) {
      context.fillStyle = ink.compute;
      context.globalAlpha = pass ? 1 : 0.14;
      for (let x = 0; x < pixels; ) {
        if (Number.isNaN(low[x])) {
          x += 1;
          continue;
        }
        const from = x;
        const [under, over] = [low[x], high[x]];
        while (x < pixels && low[x] === under && high[x] === over) x += 1;
        const [up, down] = [place(over), place(under)];
        if (pass) context.fillRect(from / ratio, up - 0.6, (x - from) / ratio, Math.max(1.25, down - up + 1.25));
        else context.fillRect(from / ratio, up, (x - from) / ratio, bottom - up);
      }
    }
    context.globalAlpha = 1;
    const said = amount(placed.lane.max ?? 0, placed.lane.unit);
    if (placed.height >= 24) {
      const wide = context.measureText(said).width;
      context.globalAlpha = 0.75;
      context.fillStyle = ink.surface;
      context.fillRect(2, y + 3, wide + 5, 12);
      context.globalAlpha = 1;
      context.fillStyle = ink.text3;
      context.fillText(said, 4, y + 13);
    }
  }

  /** Where an event is now; null where its lane is out of sight. */
  place(scene: Scene, event: Event, offset: number): { x: number; y: number; w: number; h: number; pinned: boolean } | null {
    const { layout } = scene;
    for (const list of [layout.pinned, layout.lanes]) {
      for (const placed of list) {
        if (placed.lane.id !== event.lane) continue;
        const at = placed.rows.indexOf(event.row);
        if (at < 0) return null;
        const scale = scene.width / (scene.t1 - scene.t0);
        const x = (event.start - scene.t0) * scale;
        const h = Math.max(2, placed.rowHeight - (placed.rowHeight > 8 ? 2 : 0.5));
        return { x, w: Math.max(1.5, event.dur * scale), y: (placed.pinned ? TOP : offset) + placed.y + placed.pad + at * placed.rowHeight, h, pinned: placed.pinned };
      }
    }
    return null;
  }

  private outline(scene: Scene, event: Event | null, offset: number, pinned: boolean, color: string, line: number): void {
    if (!event) return;
    const at = this.place(scene, event, offset);
    if (!at || at.pinned !== pinned) return;
    const left = Math.max(-3, at.x);
    const right = Math.min(scene.width + 3, at.x + at.w);
    if (right < -2 || left > scene.width + 2) return;
    this.context.strokeStyle = color;
    this.context.lineWidth = line;
    this.context.strokeRect(left, at.y, Math.max(2, right - left), at.h);
  }

  private selection(scene: Scene, lanes: Placed[], offset: number): void {
    const { context, ink } = this;
    const scale = scene.width / (scene.t1 - scene.t0);
    const pinned = lanes.length > 0 && lanes[0].pinned;
    for (const mark of scene.marks) if (mark.t0 !== scene.area?.t0 || mark.t1 !== scene.area.t1) this.band(scene, mark.t0, mark.t1, pinned ? TOP : TOP + scene.layout.pinnedHeight, scene.height, ink.warn, 0.08);
    if (scene.area) {
      const { t0, t1, lanes: some } = scene.area;
      const [from, to] = [Math.max(-2, (t0 - scene.t0) * scale), Math.min(scene.width + 2, (t1 - scene.t0) * scale)];
      context.fillStyle = ink.accent;
      context.globalAlpha = ink.dark ? 0.14 : 0.08;
      if (some) {
        for (const placed of lanes) if (some.includes(placed.lane.id)) context.fillRect(from, offset + placed.y, to - from, placed.height);
      } else {
        context.fillRect(from, pinned ? TOP : TOP + scene.layout.pinnedHeight, to - from, scene.height);
      }
      context.globalAlpha = 1;
    }
    this.outline(scene, scene.hover, offset, pinned, ink.text, 1);
    this.outline(scene, scene.selected, offset, pinned, ink.text, 2);
  }

  private band(scene: Scene, t0: number, t1: number, y: number, bottom: number, color: string, alpha: number): void {
    const scale = scene.width / (scene.t1 - scene.t0);
    const [from, to] = [Math.max(-2, (t0 - scene.t0) * scale), Math.min(scene.width + 2, (t1 - scene.t0) * scale)];
    if (to < 0 || from > scene.width) return;
    this.context.fillStyle = color;
    this.context.globalAlpha = alpha;
    this.context.fillRect(from, y, Math.max(1, to - from), bottom - y);
    this.context.globalAlpha = 1;
  }

  /** From what caused the selected event, and to what it caused. */
  private arrows(scene: Scene, offset: number): void {
    if (!scene.selected || (!scene.into.length && !scene.out.length)) return;
    const { context, ink } = this;
    const begin = TOP + scene.layout.pinnedHeight;
    const here = this.place(scene, scene.selected, offset);
    if (!here) return;
    context.save();
    context.beginPath();
    context.rect(0, TOP, scene.width, scene.height - TOP);
    context.clip();
    context.strokeStyle = context.fillStyle = ink.text;
    context.lineWidth = 1.5;
    const arrow = (from: { x: number; y: number; w: number; h: number }, to: { x: number; y: number; w: number; h: number }) => {
      const down = to.y > from.y;
      const [x0, y0] = [Math.max(-20, Math.min(scene.width + 20, from.x + Math.min(from.w, 6) / 2)), Math.max(begin - 40, down ? from.y + from.h - 2 : from.y + 2)];
      const [x1, y1] = [Math.max(-20, Math.min(scene.width + 20, to.x + Math.min(to.w, 6) / 2)), down ? to.y : to.y + to.h];
      const head = down ? -7 : 7;
      const middle = (y0 + y1 + head) / 2;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0, middle, x1, middle, x1, y1 + head);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 4, y1 + head);
      context.lineTo(x1 + 4, y1 + head);
      context.closePath();
      context.fill();
      context.beginPath();
      context.arc(x0, y0, 3, 0, 7);
      context.fill();
    };
    for (const one of scene.into) {
      const at = this.place(scene, one, offset);
      if (at) arrow(at, here);
    }
    for (const one of scene.out) {
      const at = this.place(scene, one, offset);
      if (at) arrow(here, at);
    }
    context.restore();
  }

  /** Round distances between marks of time. */
  private tick(perPixel: number): number {
    const rough = perPixel * 90;
    const power = 10 ** Math.floor(Math.log10(Math.max(1e-3, rough)));
    const size = rough / power;
    return Math.max(1, (size <= 1 ? 1 : size <= 2 ? 2 : size <= 5 ? 5 : 10) * power);
  }

  /** The step a moment belongs to, and whether its time counts from there. */
  inStep(scene: Scene): boolean {
    const { steps, t0, t1 } = scene;
    let widest = 0;
    for (let at = this.stepFrom(steps, t0); at < steps.length && steps[at].start < t1; at++) widest = Math.max(widest, Math.min(t1, steps[at].end) - Math.max(t0, steps[at].start));
    return widest > (t1 - t0) * 0.3;
  }

  /** The first step that ends after a moment. */
  stepFrom(steps: Step[], moment: number): number {
    let [low, high] = [0, steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].end <= moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Calls for each mark of time in sight: where, and how long after the start of its step or of the run. */
  private each(scene: Scene, mark: (x: number, since: number, first: boolean, whole: boolean) => void): void {
    const { t0, t1, steps, width } = scene;
    const scale = width / (t1 - t0);
    const size = this.tick((t1 - t0) / width);
    const from = (start: number, end: number, first: boolean) => {
      const half = size / 2 >= 1 && size % 2 === 0 ? size / 2 : size / 5 >= 1 ? size / 5 : size;
      const low = Math.max(t0, start);
      for (let at = Math.ceil((low - start) / half - 1e-9); start + at * half < Math.min(end, t1); at++) {
        const since = at * half;
        mark((start + since - t0) * scale, since, first && at === 0, Math.abs(since / size - Math.round(since / size)) < 1e-6);
      }
    };
    if (!steps.length || !this.inStep(scene)) return from(0, Infinity, true);
    let at = this.stepFrom(steps, t0);
    if (steps[at] && steps[at].start > t0 && at > 0) from(steps[at - 1].start, steps[at].start, false);
    else if (steps[at] && steps[at].start > t0) from(0, steps[at].start, true);
    for (; at < steps.length && steps[at].start < t1; at++) from(steps[at].start, steps[at + 1]?.start ?? Infinity, true);
    if (at === steps.length && steps[at - 1].end <= t0) from(steps[at - 1].start, Infinity, false);
  }

  private gridlines(scene: Scene): void {
    const { context, ink } = this;
    context.fillStyle = ink.grid;
    this.each(scene, (x, _since, _first, whole) => {
      if (whole) context.fillRect(Math.round(x), TOP, 1, scene.height - TOP);
    });
  }

  private ruler(scene: Scene): void {
    const { context, ink } = this;
    const { width, t0, t1, steps } = scene;
    const scale = width / (t1 - t0);
    context.fillStyle = ink.surface;
    context.fillRect(0, 0, width, TOP);
    // Steps: the longer than usual, the warmer
    const y = MINI + 2;
    let painted = -1;
    for (let at = this.stepFrom(steps, t0); at < steps.length && steps[at].start < t1; at++) {
      const step = steps[at];
      const [from, to] = [Math.max(0, (step.start - t0) * scale), Math.min(width, (step.end - t0) * scale)];
      if (to - painted < 1) continue; // several in one pixel
      painted = to;
      const slow = scene.median > 0 ? (step.end - step.start) / scene.median - 1 : 0;
      context.fillStyle = ink.sunken;
      context.fillRect(from, y, Math.max(1, to - from - 1.5), 17);
      if (slow > 0.05) {
        context.fillStyle = ink.warn;
        context.globalAlpha = Math.min(0.55, slow * 0.9);
        context.fillRect(from, y, Math.max(1, to - from - 1.5), 17);
        context.globalAlpha = 1;
      }
      if (to - from > 30) {
        context.fillStyle = ink.text2;
        const whole = `${scene.words.step} ${step.step}  ·  ${units.text(units.time(step.end - step.start))}`;
        const text = context.measureText(whole).width <= to - from - 10 ? whole : String(step.step);
        if (context.measureText(text).width <= to - from - 6) context.fillText(text, from + 5, y + 12.5);
      }
    }
    // Time
    const size = this.tick((t1 - t0) / width);
    // The unit of the latest mark; of the marks' distance where that would need too many digits.
    let last = size;
    this.each(scene, (_x, since, _first, whole) => {
      if (whole && since > last) last = since;
    });
    const unit = units.timeUnit(last / size > 1e6 ? size : last);
    let room = -100;
    this.each(scene, (x, since, first, whole) => {
      context.fillStyle = whole ? ink.strong : ink.grid;
      context.fillRect(Math.round(x), whole ? TOP - 10 : TOP - 6, 1, whole ? 10 : 6);
      if (!whole || x < room) return;
      const value = units.timeIn(since, unit);
      const text = `${NUMBERS.format(Number(value.toPrecision(9)))}${first || room < 0 ? ` ${unit}` : ""}`;
      context.fillStyle = ink.text3;
      context.fillText(text, Math.round(x) + 4, TOP - 5);
      room = x + context.measureText(text).width + 10;
    });
    context.fillStyle = ink.border;
    context.fillRect(0, TOP - 1, width, 1);
    for (const mark of scene.marks) {
      const [from, to] = [Math.max(-2, (mark.t0 - t0) * scale), Math.min(width + 2, (mark.t1 - t0) * scale)];
      if (to < 0 || from > width) continue;
      context.fillStyle = ink.warn;
      context.fillRect(from, TOP - 4, Math.max(2, to - from), 3);
      if (mark.text) {
        context.font = `600 11px ${ink.font}`;
        const wide = Math.min(220, context.measureText(mark.text).width + 12);
        context.fillStyle = ink.surface;
        context.fillRect(from, TOP - 20, wide, 16);
        context.strokeStyle = ink.warn;
        context.lineWidth = 1;
        context.strokeRect(from + 0.5, TOP - 19.5, wide - 1, 15);
        context.fillStyle = ink.text;
        context.save();
        context.beginPath();
        context.rect(from, TOP - 20, wide - 4, 16);
        context.clip();
        context.fillText(mark.text, from + 6, TOP - 8);
        context.restore();
        context.font = `11px ${ink.font}`;
      }
    }
    if (scene.area) {
      const [from, to] = [(scene.area.t0 - t0) * scale, (scene.area.t1 - t0) * scale];
      const low = scene.area.lanes ? TOP : scene.height;
      context.fillStyle = ink.accent;
      context.fillRect(from, TOP - 21, 1.5, low - TOP + 21);
      context.fillRect(to - 1.5, TOP - 21, 1.5, low - TOP + 21);
      const [left, right] = [Math.max(0, from), Math.min(width, to)];
      if (right > left) {
        context.fillRect(left, TOP - 21, right - left, 2);
        context.font = `600 11px ${ink.font}`;
        const text = units.text(units.time(scene.area.t1 - scene.area.t0));
        const wide = context.measureText(text).width + 12;
        const x = Math.max(0, Math.min(width - wide, (left + right) / 2 - wide / 2));
        context.fillRect(x, TOP - 20, wide, 16);
        context.fillStyle = ink.onAccent;
        context.fillText(text, x + 6, TOP - 8);
        context.font = `11px ${ink.font}`;
      }
    }
  }

  private minimap(scene: Scene): void {
    const { context, ink, mini } = this;
    const { width, ratio } = scene;
    const top = this.tiles.header.top_level;
    let known = 0;
    for (const bundle of this.tiles.bundles) if (this.tiles.get(bundle, top, 0)) known += 1;
    const key = `${width} ${ratio} ${known} ${ink.epoch} ${scene.steps.length}`;
    if (key !== this.miniKey) {
      this.miniKey = key;
      mini.width = Math.max(1, Math.round(width * ratio));
      mini.height = Math.round(MINI * ratio);
      this.drawMini(scene, mini.getContext("2d")!);
    }
    context.drawImage(mini, 0, 0, width, MINI);
    const [from, to] = [(scene.t0 / scene.end) * width, (scene.t1 / scene.end) * width];
    const wide = Math.max(3, to - from);
    context.fillStyle = ink.surface;
    context.globalAlpha = 0.62;
    context.fillRect(0, 0, from, MINI - 1);
    context.fillRect(from + wide, 0, width - from - wide, MINI - 1);
    context.globalAlpha = 1;
    context.strokeStyle = context.fillStyle = ink.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from, 1, wide, MINI - 3);
    context.fillRect(from - 2, 22, 4, 18);
    context.fillRect(from + wide - 2, 22, 4, 18);
    context.fillStyle = ink.border;
    context.fillRect(0, MINI - 1, width, 1);
  }

  /** Where nothing is known to be work: where there is anything but steps. */
  private anything(into: Float32Array): void {
    const { header } = this.tiles;
    for (const lane of header.lanes) {
      const tile = this.tiles.get(this.tiles.bundle(lane.id), header.top_level, 0);
      const of = lane.kind === "spans" ? (tile?.row(lane.id, 0) ?? -1) : -1;
      if (!tile || of < 0) continue;
      for (let at = tile.longs[of]; at < tile.longs[of + 1]; at++) {
        if (header.kinds[tile.longKind[at]] === "step") continue;
        const [from, to] = [tile.longStart[at] / tile.bucket, (tile.longStart[at] + tile.longDur[at]) / tile.bucket];
        for (let bucket = Math.max(0, Math.floor(from)); bucket < Math.min(into.length, to); bucket++) into[bucket] = Math.min(1, into[bucket] + Math.min(to, bucket + 1) - Math.max(from, bucket));
      }
      for (let at = tile.buckets[of]; at < tile.buckets[of + 1]; at++) into[tile.bucketX[at]] = Math.max(into[tile.bucketX[at]], tile.bucketBusy[at] / 255);
    }
  }

  private drawMini(scene: Scene, context: CanvasRenderingContext2D): void {
    const { ink, tiles } = this;
    const { header } = tiles;
    const { width, ratio } = scene;
    const groups = new Map(header.groups.map((group) => [group.id, group]));
    const device = new Float32Array(header.buckets);
    const host = new Float32Array(header.buckets);
    const one = new Float32Array(header.buckets);
    const devices = new Set(header.lanes.filter((lane) => lane.kind === "overlap").map((lane) => lane.group));
    for (const lane of header.lanes) {
      const tile = tiles.get(tiles.bundle(lane.id), header.top_level, 0);
      if (!tile || lane.kind === "counter" || lane.kind === "steps" || lane.kind === "scope") continue;
      const group = groups.get(lane.group)!;
      if (lane.kind === "spans" && devices.has(lane.group)) continue;
      const into = group.kind === "device" ? device : host;
      for (let row = 0; row < lane.rows; row++) {
        const of = tile.row(lane.id, row);
        if (of < 0) continue;
        one.fill(0);
        const counts = (kind: number) => !IDLE.has(header.kinds[kind]);
        for (let at = tile.longs[of]; at < tile.longs[of + 1]; at++) {
          if (!counts(tile.longKind[at])) continue;
          const [from, to] = [tile.longStart[at] / tile.bucket, (tile.longStart[at] + tile.longDur[at]) / tile.bucket];
          for (let bucket = Math.max(0, Math.floor(from)); bucket < Math.min(one.length, to); bucket++) one[bucket] += Math.min(to, bucket + 1) - Math.max(from, bucket);
        }
        for (let at = tile.buckets[of]; at < tile.buckets[of + 1]; at++) if (counts(tile.bucketKind[at])) one[tile.bucketX[at]] += tile.bucketBusy[at] / 255;
        for (let bucket = 0; bucket < one.length; bucket++) into[bucket] = Math.min(1, Math.max(into[bucket], one[bucket]));
      }
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = ink.surface;
    context.fillRect(0, 0, width, MINI);
    const bucket = (2 ** header.top_level / scene.end) * width;
    if (!device.some((value) => value > 0) && !host.some((value) => value > 0)) this.anything(host);
    const both = device.some((value) => value > 0);
    context.globalAlpha = 0.75;
    for (let at = 0; at < device.length; at++) {
      const x = at * bucket;
      if (x > width) break;
      context.fillStyle = ink.compute;
      if (device[at] > 0) context.fillRect(x, 42 - 26 * device[at], bucket + 0.4, 26 * device[at]);
      context.fillStyle = ink.host;
      const [base, high] = both ? [58, 12] : [58, 40];
      if (host[at] > 0) context.fillRect(x, base - high * host[at], bucket + 0.4, high * host[at]);
    }
    context.globalAlpha = 1;
    context.font = `11px ${ink.font}`;
    let room = -1;
    for (const step of scene.steps) {
      const x = (step.start / scene.end) * width;
      if (x < room) continue;
      context.fillStyle = ink.strong;
      context.fillRect(x, 0, 1, MINI);
      context.fillStyle = ink.text2;
      const text = `${scene.words.step.toLowerCase()} ${step.step}`;
      context.fillText(text, x + 5, 12);
      room = x + context.measureText(text).width + 14;
    }
  }
}

const IDLE = new Set(["step", "scope", "annotation", "free", "sync", "data", "instant", "other"]);

export { cssOf };
