/** What is to be drawn, as plain values: they are sent to where it is drawn. */
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
  /** Lanes it is about; null for all. */
  lanes: number[] | null;
}

/** Which names are looked for: one, those with all of these words, or those like a pattern. */
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
  /** Every event so named gets a line below it. */
  lit: Lit | null;
  /** Ends of arrows of the selected event. */
  into: Event[];
  out: Event[];
  words: { step: string; free: string };
  /** The next picture will be another one. */
  moving: boolean;
}

export const NOTHING: Scene = {
  t0: 0, t1: 1, width: 0, height: 0, ratio: 1, scroll: 0, layout: { pinned: [], pinnedHeight: 0, heads: [], lanes: [], height: 0 }, end: 1, steps: [], median: 0, gaps: [], marks: [], area: null, hover: null, selected: null, lit: null, into: [], out: [], words: { step: "Step", free: "free" }, moving: false,
};

/** What is under the pointer: an event, or several too short to be told apart. */
export interface Hit extends Event {
  count: number;
  /** How much of the bucket is busy; 1 for an event by itself. */
  busy: number;
  /** What it is drawn with. */
  color: string;
}

/** Heights above the lanes, in px. */
export const MINI = 64;
export const RULER = 42;
export const TOP = MINI + RULER;

export type Pen = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;

/** A canvas that is not shown. */
export function sheet(options?: CanvasRenderingContext2DSettings): Pen {
  if (typeof OffscreenCanvas !== "undefined") return new OffscreenCanvas(1, 1).getContext("2d", options)!;
  return document.createElement("canvas").getContext("2d", options)!;
}
