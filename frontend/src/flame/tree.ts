/** Trees of frames as columns: layout, search, and the difference of two trees. Nothing here draws. */
import type { Table } from "../table";

/** A row per frame, after the row of its parent. */
export interface Frames {
  count: number;
  /** null: merged frames that are too small to draw. */
  name: (string | null)[];
  kind: string[];
  /** Row of the parent, -1 for none. */
  parent: Int32Array;
  depth: Int32Array;
  total: Float64Array;
  self: Float64Array;
  calls: Float64Array;
  start: Float64Array;
  /** In the order of time; null in a tree. */
  end: Float64Array | null;
  span: Float64Array;
  /** Paths that a row of other frames stands for; NaN for a frame. */
  merged: Float64Array;
}

/** Where frames are: x and width in ns, and the rows of each depth from left to right. */
export interface Layout {
  /** The left end: 0, or the first start. */
  from: number;
  x: Float64Array;
  width: Float64Array;
  rows: Int32Array[];
  whole: number;
}

export const OTHER = "other frames";

export function framesOf(table: Table): Frames {
  const numbers = table.num("parent");
  const count = table.rows;
  return {
    count,
    name: table.str("name"),
    kind: table.str("kind").map((kind) => kind ?? ""),
    parent: Int32Array.from(numbers, (value) => (Number.isNaN(value) ? -1 : value)),
    depth: Int32Array.from(table.num("depth")),
    total: table.num("total_ns"),
    self: table.num("self_ns"),
    calls: table.num("calls"),
    start: table.num("start_ns"),
    end: table.has("end_ns") ? table.num("end_ns") : null,
    span: table.num("span"),
    merged: table.has("merged")
      ? table.num("merged")
      : Float64Array.from(table.str("kind"), (kind, row) => (kind === OTHER ? table.num("calls")[row] : NaN)),
  };
}

/** Frames of each parent side by side, the largest first; merged ones last. `width` is that of the frames. */
export function leftHeavy(of: Frames, width: Float64Array = of.total): Layout {
  const below = children(of);
  const x = new Float64Array(of.count);
  const size = (row: number) => (of.kind[row] === OTHER ? -1 : width[row]);
  let whole = 0;
  for (let above = -1; above < of.count; above++) {
    const rows = below.get(above);
    if (!rows) continue;
    rows.sort((a, b) => size(b) - size(a) || a - b);
    let left = above < 0 ? 0 : x[above];
    for (const row of rows) {
      x[row] = left;
      left += width[row];
    }
    if (above < 0) whole = left;
  }
  return { from: 0, x, width, rows: rowsByDepth(of, x), whole };
}

/** Frames where they start. */
export function inTime(of: Frames): Layout {
  let [low, high] = [Infinity, -Infinity];
  for (let row = 0; row < of.count; row++) {
    low = Math.min(low, of.start[row]);
    high = Math.max(high, of.end![row]);
  }
  if (!of.count) [low, high] = [0, 0];
  const width = of.end!.map((end, row) => end - of.start[row]);
  return { from: low, x: of.start, width, rows: rowsByDepth(of, of.start), whole: high - low };
}

function rowsByDepth(of: Frames, x: Float64Array): Int32Array[] {
  const rows: number[][] = [];
  for (let row = 0; row < of.count; row++) (rows[of.depth[row]] ??= []).push(row);
  return Array.from(rows, (some) => Int32Array.from((some ?? []).sort((a, b) => x[a] - x[b])));
}

/** The rows below each row, -1 for the outermost. */
export function children(of: Frames): Map<number, number[]> {
  const below = new Map<number, number[]>();
  for (let row = 0; row < of.count; row++) {
    const known = below.get(of.parent[row]);
    if (known) known.push(row);
    else below.set(of.parent[row], [row]);
  }
  return below;
}

/** The first row of a depth whose right end is beyond `left`. */
export function firstVisible(layout: Layout, rows: Int32Array, left: number): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.x[rows[middle]] + layout.width[rows[middle]] <= left) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The frame at a depth and position, -1 for none. */
export function frameAt(layout: Layout, depth: number, at: number): number {
  const rows = layout.rows[depth];
  if (!rows) return -1;
  const row = rows[firstVisible(layout, rows, at)];
  return row !== undefined && layout.x[row] <= at ? row : -1;
}

/** The rows from the outermost frame to this one. */
export function pathTo(of: Frames, row: number): number[] {
  const path: number[] = [];
  for (let at = row; at >= 0; at = of.parent[at]) path.unshift(at);
  return path;
}

/** A stack as text, the innermost frame first, as tracebacks in issues are read. */
export function stackText(of: Frames, row: number): string {
  return pathTo(of, row)
    .reverse()
    .map((at) => of.name[at] ?? "…")
    .join("\n");
}

export interface Matches {
  is: Uint8Array;
  count: number;
  /** Time of matching frames; one inside another counts once. */
  total: number;
}

/** Frames whose name contains the text, whatever the case; `/…/` is a regular expression. */
export function matches(of: Frames, text: string): Matches | null {
  const fits = test(text);
  if (!fits) return null;
  const is = new Uint8Array(of.count);
  const inside = new Uint8Array(of.count);
  let [count, total] = [0, 0];
  for (let row = 0; row < of.count; row++) {
    const above = of.parent[row];
    const within = above >= 0 && inside[above] === 1;
    const name = of.name[row];
    if (name !== null && fits(name)) {
      is[row] = 1;
      count++;
      if (!within) total += of.total[row];
    }
    inside[row] = is[row] || within ? 1 : 0;
  }
  return { is, count, total };
}

function test(text: string): ((name: string) => boolean) | null {
  const wanted = text.trim();
  if (!wanted) return null;
  const pattern = /^\/(.+)\/$/.exec(wanted);
  if (pattern) {
    try {
      const regular = new RegExp(pattern[1], "i");
      return (name) => regular.test(name);
    } catch {
      /* not finished yet: plain text */
    }
  }
  const lower = wanted.toLowerCase();
  return (name) => name.toLowerCase().includes(lower);
}

/** A file and a line in the name of a Python frame: `torch/nn/module.py(1532): forward`, `$train.py:41 step`. */
export function sourceOf(name: string | null): { file: string; line: number; function: string } | null {
  const match = /^(.+?\.pyx?)\((\d+)\): (.*)$/.exec(name ?? "") ?? /^\$(.+?\.pyx?):(\d+) (.*)$/.exec(name ?? "");
  return match && { file: match[1], line: Number(match[2]), function: match[3] };
}

/** A name without addresses, which differ from run to run. */
export function stableName(name: string): string {
  return name.replace(/\b0x[0-9a-f]{4,}\b/gi, "0x…");
}

/** A short text for a path, the same in every run: for addresses of the page. */
export function pathKeys(of: Frames): string[] {
  const hashes = new Uint32Array(of.count);
  for (let row = 0; row < of.count; row++) {
    const above = of.parent[row];
    let hash = above < 0 ? 0x811c9dc5 : hashes[above];
    // In the order of time, calls of the same name differ in their start.
    const text = `${of.kind[row]}\n${stableName(of.name[row] ?? "")}${of.end ? `\n${of.start[row]}` : ""}`;
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
    hashes[row] = hash >>> 0;
  }
  return Array.from(hashes, (hash) => hash.toString(36));
}

/** Frames of two runs by path, in time per step. */
export interface Difference {
  frames: Frames;
  /** Time per step in this run and in the other; NaN where pruned frames may hide it. */
  here: Float64Array;
  there: Float64Array;
  selfHere: Float64Array;
  selfThere: Float64Array;
}

interface Merged {
  name: string | null;
  kind: string;
  parent: number;
  depth: number;
  /** The first row in each run, -1 for none. */
  of: [number, number];
}

/**
 * Two trees as one. The total of a frame is the mean of both runs per step, so that frames of either run are
 * visible.
 */
export function difference(a: Frames, stepsA: number, b: Frames, stepsB: number): Difference {
  const rows: Merged[] = [];
  const index = new Map<string, number>();
  const places = [a, b].map((of, side) => {
    const at = new Int32Array(of.count);
    for (let row = 0; row < of.count; row++) {
      const parent = of.parent[row] < 0 ? -1 : at[of.parent[row]];
      // Names that differ in an address alone are one frame.
      const name = of.name[row] === null ? null : stableName(of.name[row]!);
      const key = `${parent}\n${of.kind[row]}\n${name}`;
      let known = index.get(key);
      if (known === undefined) {
        index.set(key, (known = rows.length));
        rows.push({ name, kind: of.kind[row], parent, depth: of.depth[row], of: [-1, -1] });
      }
      at[row] = known;
      if (rows[known].of[side] < 0) rows[known].of[side] = row;
    }
    return at;
  });
  const sums = (column: "total" | "self" | "calls") =>
    [a, b].map((of, side) => {
      const sum = new Float64Array(rows.length);
      const steps = (side === 0 ? stepsA : stepsB) || 1;
      for (let row = 0; row < of.count; row++) sum[places[side][row]] += of[column][row] / steps;
      return sum;
    });
  const [totals, selfs, calls] = [sums("total"), sums("self"), sums("calls")];
  const mean = ([one, two]: Float64Array[]) => one.map((value, row) => (value + two[row]) / 2);
  const first = rows.map(({ of: [one, two] }) => (one >= 0 ? ([a, one] as const) : ([b, two] as const)));
  const frames: Frames = {
    count: rows.length,
    name: rows.map((row) => row.name),
    kind: rows.map((row) => row.kind),
    parent: Int32Array.from(rows, (row) => row.parent),
    depth: Int32Array.from(rows, (row) => row.depth),
    total: mean(totals),
    self: mean(selfs),
    calls: mean(calls),
    start: Float64Array.from(first, ([of, row]) => of.start[row]),
    end: null,
    span: Float64Array.from(rows, ({ of: [one] }) => (one >= 0 ? a.span[one] : NaN)),
    merged: Float64Array.from(first, ([of, row]) => of.merged[row]),
  };
  hidePruned(rows, [a, b], totals, selfs);
  return { frames, here: totals[0], there: totals[1], selfHere: selfs[0], selfThere: selfs[1] };
}

/** A frame that only one run has is unknown in the other, where that one has merged frames at the same place. */
function hidePruned(rows: Merged[], sides: Frames[], totals: Float64Array[], selfs: Float64Array[]): void {
  for (const side of [0, 1]) {
    const pruned = new Set<number>();
    for (const { of, parent } of rows) if (of[side] >= 0 && sides[side].kind[of[side]] === OTHER) pruned.add(parent);
    for (const [row, { of, parent }] of rows.entries()) {
      if (of[side] >= 0) continue;
      if (pruned.has(parent) || (parent >= 0 && Number.isNaN(totals[side][parent])))
        totals[side][row] = selfs[side][row] = NaN;
    }
  }
}

/** −1 to 1: how much longer (positive) the first time is, against the larger of both. */
export function change(current: number, there: number): number {
  const most = Math.max(current, there);
  return most > 0 ? (current - there) / most : 0;
}
