/**
 * How much of each pixel of a line is covered, and by what. Only arithmetic, so that it can be held against sums made
 * in another way. How dense a pixel is drawn says how much of it is covered, and nothing else. That something happened
 * in a pixel which is too faint to be seen is said by a foot below it (docs/decisions/013).
 */
import type { Tile } from "./wire";

/** A pixel with less coverage is hard to see in both themes. */
export const FAINT = 0.16;
/** Spans of at least this many pixels are distinguished from their neighbors. */
const APART = 3;
const COLOR = 0xffffff;
/** Half a pixel, as opacity. */
const HALF = 127;

export class Line {
  /** The covered share of each pixel; it may exceed 1, see `ink`. */
  readonly cover: Float32Array;
  readonly tint: Uint32Array;
  /** Something was here, however short; 2 if a longer span begins. */
  readonly marks: Uint8Array;
  private readonly most: Float32Array;

  constructor(readonly pixels: number) {
    this.cover = new Float32Array(pixels);
    this.most = new Float32Array(pixels);
    this.tint = new Uint32Array(pixels);
    this.marks = new Uint8Array(pixels);
  }

  clear(): void {
    this.cover.fill(0);
    this.most.fill(-1);
    this.marks.fill(0);
  }

  /** Cover a range, in pixels of the line, by a share of each. The largest cover of a pixel gives its tint. */
  add(from: number, to: number, dense: number, tint: number): void {
    const first = from | 0;
    const last = to | 0;
    if (first === last) return this.part(first, (to - from) * dense, tint);
    this.part(first, (first + 1 - from) * dense, tint);
    for (let at = first + 1; at < last; at++) this.part(at, dense, tint);
    if (to > last) this.part(last, (to - last) * dense, tint);
  }

  private part(at: number, share: number, tint: number): void {
    this.cover[at] += share;
    if (share > this.most[at]) {
      this.most[at] = share;
      this.tint[at] = tint;
    }
    if (this.marks[at] === 0) this.marks[at] = 1;
  }

  /** As pixels of a canvas: the share as opacity, and feet where that is invisible. Returns whether there are feet. */
  ink(into: Uint32Array, at: number, feet: Uint32Array, footAt: number, edge: number): boolean {
    const { cover, tint, marks, pixels } = this;
    const quarter = (edge >> 2) & 0x3f3f3f;
    let carry = 0;
    let any = false;
    for (let x = 0; x < pixels; x++) {
      if (!marks[x]) {
        into[at + x] = feet[footAt + x] = 0;
        continue;
      }
      const dense = cover[x];
      // Rounding errors are carried to the next pixel, and so is excess coverage: for a bucket across two pixels it is
      // unknown which of them its short spans cover. Further excess is overlapping spans of one row, which are visible
      // once.
      const exact = dense * 255 + carry;
      const alpha = Math.min(255, (exact + 0.5) | 0);
      carry = Math.min(HALF, exact - alpha);
      let color = tint[x] & COLOR;
      if (dense < FAINT) {
        feet[footAt + x] = 0xff000000 | color;
        any = true;
      } else feet[footAt + x] = 0;
      // Further from the background, not nearer: it is covered as much as the rest.
      if (marks[x] === 2 && x > 0 && cover[x - 1] > 0.5)
        color = ((color >> 1) & 0x7f7f7f) + ((color >> 2) & 0x3f3f3f) + quarter;
      into[at + x] = (alpha << 24) | color;
    }
    return any;
  }
}

/** Called with a span that is wide enough to be drawn individually, clipped to the line; returns whether it covers. */
export type Wide = (event: number, from: number, to: number, begins: boolean) => boolean;

/** Cover a line with a row of a tile within a range; `t0` is the start of the line, `scale` its pixels per ns. */
export function cover(
  line: Line,
  tile: Tile,
  row: number,
  from: number,
  to: number,
  t0: number,
  scale: number,
  wideFrom: number,
  wide: Wide | null,
): boolean {
  const [left, right] = [Math.max(0, (from - t0) * scale), Math.min(line.pixels, (to - t0) * scale)];
  if (right <= left) return false;
  const { longStart, longDur, bucketX, bucketBusy } = tile;
  const tints = tile.longTint!;
  const end = tile.longs[row + 1];
  let any = false;
  for (let event = tile.longFrom(row, from); event < end; event++) {
    const start = longStart[event];
    if (start >= to) break;
    const stop = start + longDur[event];
    if (stop <= from) continue;
    const begin = (start - t0) * scale;
    const x1 = Math.min(right, (stop - t0) * scale);
    const x0 = Math.max(left, begin);
    any = true;
    const size = (stop - start) * scale;
    if (wide !== null && size >= wideFrom && !wide(event, x0, x1, begin >= left)) continue;
    if (size >= APART && begin >= left) line.marks[x0 | 0] = 2;
    line.add(x0, x1, 1, tints[event]);
  }
  const { bucket } = tile;
  const dyes = tile.bucketTint!;
  const last = tile.buckets[row + 1];
  const [size, origin] = [bucket * scale, (tile.from - t0) * scale];
  for (let event = tile.bucketFrom(row, Math.floor((from - tile.from) / bucket)); event < last; event++) {
    const x = origin + bucketX[event] * size;
    if (x >= right) break;
    const [x0, x1] = [Math.max(left, x), Math.min(right, x + size)];
    if (x1 <= x0) continue;
    any = true;
    line.add(x0, x1, bucketBusy[event] / 255, dyes[event]);
  }
  return any;
}
