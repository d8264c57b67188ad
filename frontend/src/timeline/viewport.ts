/** The visible range of time: it moves smoothly to its target, and has a history. */
import { signal } from "@preact/signals";

const SHORTEST = 20;
const SETTLED = 150;
const TAU = 35;

/** Callbacks for the drawing code. */
export interface Told {
  /** Another picture is due. */
  changed: () => void;
  /** A move begins or ends. */
  turned: () => void;
  /** The move has ended. */
  settled: () => void;
  /** Scroll the tracks by this many px. */
  lifted: (px: number) => void;
}

export class Viewport {
  t0 = 0;
  t1: number;
  /** The timestamp under the pointer. */
  cursor: number | null = null;
  /** Where it last rested. */
  readonly seen = signal<{ t0: number; t1: number }>({ t0: 0, t1: 1 });
  /** The number of views to go back and forward to. */
  readonly views = signal<{ back: number; forward: number }>({ back: 0, forward: 0 });
  /** In px. */
  width = 0;
  private aim0 = 0;
  private aim1: number;
  private held = new Set<string>();
  private settling = 0;
  private history: [number, number][] = [];
  private future: [number, number][] = [];
  private still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  constructor(
    readonly end: number,
    /** Where it opens. */
    private home: [number, number],
    private reported: Told,
  ) {
    this.t1 = this.aim1 = end;
  }

  /** The target of the present move. */
  get aim(): [number, number] {
    return [this.aim0, this.aim1];
  }

  get underway(): boolean {
    return this.settling !== 0;
  }

  get atHome(): boolean {
    return this.t0 === this.home[0] && this.t1 === this.home[1];
  }

  momentAt(x: number): number {
    return this.t0 + (x / Math.max(1, this.width)) * (this.t1 - this.t0);
  }

  /** Advance by this many ms; returns whether the move continues. */
  advance(passed: number): boolean {
    let moving = this.steer(passed);
    if (this.t0 !== this.aim0 || this.t1 !== this.aim1) {
      const part = this.still ? 1 : 1 - Math.exp(-passed / TAU);
      this.t0 += (this.aim0 - this.t0) * part;
      this.t1 += (this.aim1 - this.t1) * part;
      const near = (this.aim1 - this.aim0) / Math.max(1, this.width) / 4;
      if (Math.abs(this.aim0 - this.t0) < near && Math.abs(this.aim1 - this.t1) < near) this.arrive();
      else moving = true;
    }
    return moving;
  }

  /** Held keys move on with every picture. */
  private steer(passed: number): boolean {
    if (!this.held.size) return false;
    const way = (item: string, other: string) => (this.held.has(item) ? 1 : 0) - (this.held.has(other) ? 1 : 0);
    const [pan, zoom, lift] = [way("right", "left"), way("in", "out"), way("down", "up")];
    if (pan) this.shift(pan * (this.aim1 - this.aim0) * 0.0011 * passed);
    if (zoom) this.zoom(this.cursor ?? (this.t0 + this.t1) / 2, Math.exp(-zoom * passed * 0.0032));
    if (lift) this.reported.lifted(lift * passed * 0.7);
    return true;
  }

  hold(way: string): void {
    if (this.held.has(way)) return;
    this.held.add(way);
    // A tap moves, too.
    if (way === "left" || way === "right") this.shift((way === "right" ? 1 : -1) * (this.aim1 - this.aim0) * 0.06);
    else if (way === "in" || way === "out")
      this.zoom(this.cursor ?? (this.aim0 + this.aim1) / 2, way === "in" ? 0.85 : 1 / 0.85);
    else this.reported.lifted(way === "down" ? 24 : -24);
    this.reported.changed();
  }

  release(way?: string): void {
    if (way) this.held.delete(way);
    else this.held.clear();
  }

  shift(ns: number): void {
    this.send(this.aim0 + ns, this.aim1 + ns);
  }

  /** Zoom around a timestamp, which stays in place. */
  zoom(at: number, by: number): void {
    const wide = this.aim1 - this.aim0;
    const next = Math.max(SHORTEST, Math.min(this.end, wide * by));
    // The present position of the timestamp on the screen, not its target.
    const part = Math.max(0, Math.min(1, (at - this.t0) / (this.t1 - this.t0)));
    this.send(at - part * next, at - part * next + next);
  }

  /** At once: what is dragged stays under the pointer. */
  drag(t0: number, t1: number): void {
    this.send(t0, t1);
    this.arrive();
  }

  private arrive(): void {
    [this.t0, this.t1] = [this.aim0, this.aim1];
  }

  private send(t0: number, t1: number): void {
    const wide = Math.max(SHORTEST, Math.min(this.end, t1 - t0));
    if (t0 < 0) t0 = 0;
    if (t0 + wide > this.end) t0 = this.end - wide;
    this.aim0 = t0;
    this.aim1 = t0 + wide;
    this.settle();
    this.reported.changed();
  }

  /** Go to a range; the previous one stays in the history. */
  to(t0: number, t1: number, at: "glide" | "jump" = "glide"): void {
    this.keep();
    if (t1 - t0 < SHORTEST) [t0, t1] = [(t0 + t1) / 2 - SHORTEST / 2, (t0 + t1) / 2 + SHORTEST / 2];
    this.send(t0, t1);
    if (at === "jump") this.arrive();
  }

  all(): void {
    this.to(0, this.end);
  }

  goHome(at: "glide" | "jump"): void {
    this.to(...this.home, at);
  }

  /** Center a span, with some context. */
  focus(event: { start: number; dur: number }, at: "glide" | "jump" = "glide"): void {
    const around = Math.max(event.dur, 2_000) * 1.2;
    this.to(event.start - around, event.start + event.dur + around, at);
  }

  /** Whether none of it will be visible. */
  misses({ start, dur }: { start: number; dur: number }): boolean {
    return start + dur < this.aim0 || start > this.aim1;
  }

  private keep(): void {
    const last = this.history[this.history.length - 1];
    if (last && last[0] === this.aim0 && last[1] === this.aim1) return;
    this.history.push([this.aim0, this.aim1]);
    if (this.history.length > 100) this.history.shift();
    this.future = [];
    this.count();
  }

  /** There is nothing to go back to. */
  begin(): void {
    this.history = [];
    this.count();
  }

  back(): void {
    const to = this.history.pop();
    if (!to) return;
    this.future.push([this.aim0, this.aim1]);
    this.count();
    this.send(...to);
  }

  forward(): void {
    const to = this.future.pop();
    if (!to) return;
    this.history.push([this.aim0, this.aim1]);
    this.count();
    this.send(...to);
  }

  private count(): void {
    this.views.value = { back: this.history.length, forward: this.future.length };
  }

  /** Wait until it rests. */
  settle(): void {
    clearTimeout(this.settling);
    this.settling = window.setTimeout(() => {
      if (this.t0 !== this.aim0 || this.held.size) return this.settle();
      this.settling = 0;
      this.reported.turned();
      this.seen.value = { t0: this.t0, t1: this.t1 };
      this.reported.settled();
    }, SETTLED);
    this.reported.turned();
  }

  close(): void {
    clearTimeout(this.settling);
  }
}
