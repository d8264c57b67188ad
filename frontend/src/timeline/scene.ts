/** What is to be drawn, as plain values that can be sent to a worker. */
import type { Layout } from "./layout";
import type { Event } from "./wire";

export interface Gap {
  start: number;
  dur: number;
  said: string;
  /** What the host was doing. */
  host: string | null;
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
  /** Tracks of the selection; null for all. */
  lanes: number[] | null;
}

/** Names to match: one, all of these words, or a pattern. */
export type Lit = { name: string } | { words: string[] } | { pattern: string };

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
  /** Every span with this name gets a line below it. */
  lit: Lit | null;
  /** Ends of arrows of the selected span. */
  into: Event[];
  out: Event[];
  words: { step: string; free: string };
  /** The next picture will differ. */
  moving: boolean;
}

export const NOTHING: Scene = {
  t0: 0,
  t1: 1,
  width: 0,
  height: 0,
  ratio: 1,
  scroll: 0,
  layout: { pinned: [], pinnedHeight: 0, heads: [], lanes: [], height: 0 },
  end: 1,
  steps: [],
  median: 0,
  gaps: [],
  marks: [],
  area: null,
  hover: null,
  selected: null,
  lit: null,
  into: [],
  out: [],
  words: { step: "Step", free: "free" },
  moving: false,
};

/** What is under the pointer: a span, or several that are too short to distinguish. */
export interface Hit extends Event {
  count: number;
  /** Busy share of the bucket; 1 for a single span. */
  busy: number;
  /** Its tint. */
  color: string;
}

/** Heights above the tracks, in px. */
export const MINI = 64;
export const RULER = 42;
export const TOP = MINI + RULER;

export type Pen = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;

/** A canvas that is not shown. */
export function sheet(options?: CanvasRenderingContext2DSettings): Pen {
  if (typeof OffscreenCanvas !== "undefined") return new OffscreenCanvas(1, 1).getContext("2d", options)!;
  return document.createElement("canvas").getContext("2d", options)!;
}
