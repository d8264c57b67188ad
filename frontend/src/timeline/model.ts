/** What the timeline shows, and what the reader does with it. It draws when something changed; the parts around the picture follow its signals. */
import { signal } from "@preact/signals";
import { context, rank } from "../data";
import { source } from "../source";
import { go, place, remember, remembered, theme } from "../state";
import { Table } from "../table";
import { css } from "../colors";
import { artist, type Artist } from "./artist";
import type { Arrow } from "./connections";
import { COLORINGS, TOKENS, type Coloring } from "./ink";
import { arrange, read, UNARRANGED, written, type Arrangement, type Layout } from "./layout";
import type { Measured } from "./measure";
import { NOTHING, TOP, type Area, type Gap, type Hit, type Lit, type Mark, type Scene, type Step } from "./scene";
import type { Told, Under } from "./stage";
import type { Event, Header, Lane } from "./wire";

/** Everything known of one event. */
export interface Details {
  event: Event;
  rank: number;
  said: Record<string, unknown>;
  into: Event[];
  out: Event[];
  /** Of an operator: the work on a device that it launched. */
  launched: Event[];
  /** Of work on a device: the operator that launched it. */
  operator: Event | null;
  parents: Event[];
  previous: Event | null;
  next: Event | null;
  /** What it is connected with, and how many such there are. */
  arrows: Arrow[];
  arrowCount: number;
}

export interface Found {
  text: string;
  count: number;
  total: number;
  at: number;
  error: string;
}

/** Sums over a range; of each group in ns: busy_ns, idle_ns, and of a device by kind of work, such as kernel_ns. */
export interface Sums {
  table: Table;
  groups: ({ group: number; busy_ns: number; idle_ns: number } & Record<string, number>)[];
}

export type Tab = "area" | "event" | "events" | "flow";
export type Mode = "select" | "pan" | "measure";

const SHORTEST = 20;
const SETTLED = 150;
const TAU = 35;

export class Timeline {
  readonly layout = signal<Layout>({ pinned: [], pinnedHeight: 0, heads: [], lanes: [], height: 0 });
  readonly arrangement = signal<Arrangement>(UNARRANGED);
  readonly seen = signal<{ t0: number; t1: number }>({ t0: 0, t1: 1 });
  readonly mode = signal<Mode>("select");
  readonly coloring = signal<Coloring>("family");
  readonly scopes = signal(2);
  readonly area = signal<Area | null>(null);
  readonly measured = signal<Measured | null>(null);
  readonly selected = signal<Event | null>(null);
  readonly details = signal<Details | null>(null);
  readonly trouble = signal<Error | null>(null);
  readonly found = signal<Found | null>(null);
  /** Kinds that are meant: others are pale, and are not found. None: all are. */
  readonly kinds = signal<string[]>([]);
  readonly marks = signal<Mark[]>([]);
  /** Idle stretches in view, with their causes. */
  readonly gaps = signal<Gap[]>([]);
  readonly tab = signal<Tab>("event");
  readonly open = signal(false);
  readonly hover = signal<{ hit: Hit; x: number; y: number } | null>(null);
  readonly views = signal<{ back: number; forward: number }>({ back: 0, forward: 0 });
  steps: Step[] = [];
  /** Of the lane whose steps the ruler shows. */
  ruled = -1;
  t0 = 0;
  t1 = 1;
  scroll = 0;
  width = 0;
  height = 0;
  private artist: Artist | null = null;
  /** Called after each picture, with how many ms it took and whether it has all its tiles. */
  drawn: (took: number, whole: boolean) => void = () => undefined;
  /** Called when it begins or ends to move or to wait for something. */
  turned: (busy: boolean) => void = () => undefined;
  words = { step: "Step", free: "free" };
  private aim0 = 0;
  private aim1 = 1;
  private scene: Scene;
  /** What of it is known where it is drawn. */
  private sent: Partial<Scene> = {};
  private drawing = false;
  /** Something has changed since what is being drawn was sent. */
  private late = false;
  private waiting = false;
  private tilesFailed = false;
  private ratio = 1;
  private pending = 0;
  private before = 0;
  private held = new Set<string>();
  private settling = 0;
  private wrote = "";
  private history: [number, number][] = [];
  private future: [number, number][] = [];
  private lit: Lit | null = null;
  private gapsFor = "";
  private wanted = 0;
  private laneOf: Lane[] = [];
  private empty = new Set<string>();
  private still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  constructor(
    readonly run: string,
    readonly header: Header,
  ) {
    for (const lane of header.lanes) this.laneOf[lane.id] = lane;
    const steps = header.lanes.filter((lane) => lane.kind === "steps");
    if (steps.length === 1) this.ruled = steps[0].id;
    this.scene = { ...NOTHING, end: this.end };
    this.t1 = this.aim1 = this.end;
  }

  get end(): number {
    return Math.max(1, this.header.end_ns);
  }

  lane(id: number): Lane | undefined {
    return this.laneOf[id];
  }

  rankOf(lane: number): number {
    const group = this.laneOf[lane]?.group;
    return this.header.groups.find((one) => one.id === group)?.rank ?? rank() ?? 0;
  }

  // The picture

  /** Draw into a canvas from now on. */
  attach(canvas: HTMLCanvasElement): void {
    this.artist?.close();
    this.sent = {};
    this.drawing = false;
    this.artist = artist(canvas, this.run, this.header, (told) => this.told(told));
    this.recolor();
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.ratio = Math.min(3, devicePixelRatio || 1);
    this.scrollTo(this.scroll);
    this.frame(performance.now());
  }

  setSteps(steps: Step[]): void {
    this.steps = steps;
    const lengths = steps.map((step) => step.end - step.start).sort((a, b) => a - b);
    this.scene.median = steps.length > 2 ? lengths[lengths.length >> 1] : 0;
    this.invalidate();
  }

  recolor(how = this.coloring.value): void {
    this.coloring.value = how;
    const tokens = Object.fromEntries(TOKENS.map((name) => [name, css(name)]));
    this.artist?.recolor({ dark: theme() === "dark", tokens, how, only: this.kinds.peek() }, how === "scope" && !source().still);
    this.invalidate();
  }

  invalidate = (): void => {
    if (!this.pending) this.pending = requestAnimationFrame(this.frame);
    this.turn();
  };

  private told({ took, whole, waiting, error, empty }: Told): void {
    this.waiting = waiting;
    if (error !== (this.trouble.peek()?.message ?? null) && (error !== null || this.tilesFailed)) this.trouble.value = error === null ? null : new Error(error);
    this.tilesFailed = error !== null;
    if (empty) {
      this.empty = new Set(empty);
      this.relayout();
    }
    if (took === null) this.invalidate();
    else {
      this.drawing = false;
      this.drawn(took, whole);
      if (this.late) this.send();
    }
    this.turn();
  }

  private frame = (now: number): void => {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    const passed = this.before ? Math.min(50, now - this.before) : 16;
    let moving = this.steer(passed);
    if (this.t0 !== this.aim0 || this.t1 !== this.aim1) {
      const part = this.still ? 1 : 1 - Math.exp(-passed / TAU);
      this.t0 += (this.aim0 - this.t0) * part;
      this.t1 += (this.aim1 - this.t1) * part;
      const near = (this.aim1 - this.aim0) / Math.max(1, this.width) / 4;
      if (Math.abs(this.aim0 - this.t0) < near && Math.abs(this.aim1 - this.t1) < near) [this.t0, this.t1] = [this.aim0, this.aim1];
      else moving = true;
    }
    const known = this.details.peek();
    this.scene = {
      ...this.scene,
      t0: this.t0, t1: this.t1, width: this.width, height: this.height, ratio: this.ratio, scroll: this.scroll, moving,
      layout: this.layout.peek(), steps: this.steps, gaps: this.gaps.peek(), marks: this.marks.peek(), area: this.area.peek(),
      hover: this.hover.peek()?.hit ?? null, selected: this.selected.peek(), lit: this.lit, words: this.words,
      into: known?.into ?? NONE, out: known ? (known.out.length ? known.out : known.launched) : NONE,
    };
    this.send();
    this.before = moving ? now : 0;
    if (moving) this.invalidate();
  };

  /** Have the scene drawn: what of it has changed, when the picture before is done. */
  private send(): void {
    if (!this.artist || this.width <= 0) return;
    this.late = this.drawing;
    if (this.drawing) return;
    const change: Partial<Scene> = Object.fromEntries(Object.entries(this.scene).filter(([name, value]) => this.sent[name as keyof Scene] !== value));
    this.sent = this.scene;
    this.drawing = true;
    this.artist.draw(change);
  }

  private light(by: Lit | null): void {
    this.lit = by;
    this.invalidate();
  }

  // Moving

  /** Keys held down move on with every picture. */
  private steer(passed: number): boolean {
    if (!this.held.size) return false;
    const way = (one: string, other: string) => (this.held.has(one) ? 1 : 0) - (this.held.has(other) ? 1 : 0);
    const [pan, zoom, lift] = [way("right", "left"), way("in", "out"), way("down", "up")];
    if (pan) this.shift(pan * (this.aim1 - this.aim0) * 0.0011 * passed);
    if (zoom) this.zoom(this.cursor ?? (this.t0 + this.t1) / 2, Math.exp(-zoom * passed * 0.0032));
    if (lift) this.scrollTo(this.scroll + lift * passed * 0.7);
    return true;
  }

  /** Where the pointer is over the picture, as a moment. */
  cursor: number | null = null;

  hold(way: string): void {
    if (this.held.has(way)) return;
    this.held.add(way);
    // A tap moves, too.
    if (way === "left" || way === "right") this.shift((way === "right" ? 1 : -1) * (this.aim1 - this.aim0) * 0.06);
    else if (way === "in" || way === "out") this.zoom(this.cursor ?? (this.aim0 + this.aim1) / 2, way === "in" ? 0.85 : 1 / 0.85);
    else this.scrollTo(this.scroll + (way === "down" ? 24 : -24));
    this.invalidate();
  }

  release(way?: string): void {
    if (way) this.held.delete(way);
    else this.held.clear();
  }

  shift(ns: number): void {
    this.aim(this.aim0 + ns, this.aim1 + ns);
  }

  /** Make the window longer or shorter around a moment, which stays where it is. */
  zoom(at: number, by: number): void {
    const wide = this.aim1 - this.aim0;
    const next = Math.max(SHORTEST, Math.min(this.end, wide * by));
    // Where the moment is now, on the screen; not where it will have been.
    const part = Math.max(0, Math.min(1, (at - this.t0) / (this.t1 - this.t0)));
    this.aim(at - part * next, at - part * next + next);
  }

  /** Without delay: what is dragged stays under the pointer. */
  drag(t0: number, t1: number): void {
    this.aim(t0, t1);
    [this.t0, this.t1] = [this.aim0, this.aim1];
  }

  private aim(t0: number, t1: number): void {
    const wide = Math.max(SHORTEST, Math.min(this.end, t1 - t0));
    if (t0 < 0) t0 = 0;
    if (t0 + wide > this.end) t0 = this.end - wide;
    this.aim0 = t0;
    this.aim1 = t0 + wide;
    this.settle();
    this.invalidate();
  }

  /** Go to a window; the one before can be gone back to. */
  to(t0: number, t1: number, at: "glide" | "jump" = "glide"): void {
    this.keep();
    if (t1 - t0 < SHORTEST) [t0, t1] = [(t0 + t1) / 2 - SHORTEST / 2, (t0 + t1) / 2 + SHORTEST / 2];
    this.aim(t0, t1);
    if (at === "jump") [this.t0, this.t1] = [this.aim0, this.aim1];
  }

  private keep(): void {
    const last = this.history[this.history.length - 1];
    if (last && last[0] === this.aim0 && last[1] === this.aim1) return;
    this.history.push([this.aim0, this.aim1]);
    if (this.history.length > 100) this.history.shift();
    this.future = [];
    this.views.value = { back: this.history.length, forward: 0 };
  }

  back(): void {
    const to = this.history.pop();
    if (!to) return;
    this.future.push([this.aim0, this.aim1]);
    this.views.value = { back: this.history.length, forward: this.future.length };
    this.aim(...to);
  }

  forward(): void {
    const to = this.future.pop();
    if (!to) return;
    this.history.push([this.aim0, this.aim1]);
    this.views.value = { back: this.history.length, forward: this.future.length };
    this.aim(...to);
  }

  all(): void {
    this.to(0, this.end);
  }

  scrollTo(y: number): void {
    const layout = this.layout.peek();
    this.scroll = Math.max(0, Math.min(layout.height + 60 - (this.height - TOP - layout.pinnedHeight), y));
    this.invalidate();
  }

  /** When it rests, the address says where it is. */
  private settle(): void {
    clearTimeout(this.settling);
    this.settling = window.setTimeout(() => {
      if (this.t0 !== this.aim0 || this.held.size) return this.settle();
      this.settling = 0;
      this.turn();
      this.seen.value = { t0: this.t0, t1: this.t1 };
      this.write();
      this.invalidate();
      void this.findGaps();
    }, SETTLED);
    this.turn();
  }

  private busy = false;
  private asking = 0;

  private turn(): void {
    const busy = this.settling !== 0 || this.asking > 0 || this.waiting || this.drawing || this.pending > 0;
    if (busy === this.busy) return;
    this.busy = busy;
    this.turned(busy);
  }

  /** The address as it would be now. */
  private params(): Record<string, string | number | null> {
    const all = this.t0 === 0 && this.t1 === this.end;
    const area = this.area.peek();
    const selected = this.selected.peek();
    const measured = this.measured.peek();
    return {
      t0: all ? null : Math.round(this.t0), t1: all ? null : Math.round(this.t1),
      span: selected && selected.span >= 0 ? selected.span : null,
      area: area && [Math.round(area.t0), Math.round(area.t1), ...(area.lanes ? [area.lanes.join(",")] : [])].join(":"),
      lanes: written(this.arrangement.peek()) === this.usual ? null : written(this.arrangement.peek()) || "all",
      color: this.coloring.peek() === "family" ? null : this.coloring.peek(),
      scopes: this.scopes.peek() === 2 ? null : this.scopes.peek(),
      find: this.found.peek()?.text || null,
      kinds: this.kinds.peek().join(",") || null,
      notes: this.marks.peek().map((mark) => `${Math.round(mark.t0)}:${Math.round(mark.t1)}:${encodeURIComponent(mark.text)}`).join(";") || null,
      tab: this.open.peek() ? this.tab.peek() : null,
      measure: measured && measured.to !== null ? `${Math.round(measured.from)}:${Math.round(measured.to)}` : null,
    };
  }

  write(): void {
    if (place.value.page !== "timeline" || place.value.run !== this.run) return;
    const params = this.params();
    const selected = this.selected.peek();
    // A span's number is of its rank.
    const of = selected && selected.span >= 0 ? this.rankOf(selected.lane) : null;
    go({ params: { ...params, ...(of !== null && of !== rank() ? { rank: of } : {}) } }, true);
    this.wrote = said();
  }

  /** Whether the address has been read once. */
  followed = false;

  /** Take over what the address says; `first` where the page has just been opened. */
  async follow(first: boolean): Promise<void> {
    if (place.value.page !== "timeline" || place.value.run !== this.run || (!first && said() === this.wrote)) return;
    this.wrote = said();
    this.followed = true;
    const { t0, t1, span, area, lanes, color, scopes, find, kinds, notes, tab, measure } = place.value.params;
    const points = (measure ?? "").split(":").map(Number);
    this.measured.value = measure && points.length === 2 && points.every(Number.isFinite) ? { from: points[0], to: points[1] } : null;
    if (first || lanes !== undefined) this.arrangement.value = read(lanes ?? remembered(`timeline.${this.run}`) ?? this.usual);
    this.kinds.value = kinds ? kinds.split(",").filter((kind) => this.header.kinds.includes(kind)) : [];
    this.recolor(COLORINGS.includes((color ?? "family") as Coloring) ? ((color ?? "family") as Coloring) : undefined);
    this.scopes.value = Math.max(1, Number(scopes) || 2);
    this.marks.value = notes !== undefined ? parseMarks(notes) : first ? parseMarks(remembered(`timeline.${this.run}.notes`) ?? "") : [];
    if (area) {
      const [from, to, some] = area.split(":");
      if (Number(to) > Number(from)) this.area.value = { t0: Number(from), t1: Number(to), lanes: some ? some.split(",").map(Number) : null };
    } else this.area.value = null;
    this.relayout();
    const [from, to] = [t0, t1].map((text) => (text === undefined ? NaN : Number(text)));
    const windowed = Number.isFinite(from) && Number.isFinite(to) && to >= from;
    if (windowed) this.to(from, Math.max(to, from + 1), first ? "jump" : "glide");
    else if (first && context().steps && this.steps.length) {
      const [low, high] = String(context().steps).split(":").map(Number);
      const some = this.steps.filter((step) => step.step >= low && step.step <= (high ?? low));
      if (some.length) this.to(some[0].start, some[some.length - 1].end, "jump");
    } else if (!first && span === undefined) this.all();
    if (first) this.history = [];
    this.views.value = { back: this.history.length, forward: this.future.length };
    this.open.value = tab !== undefined || span !== undefined || area !== undefined;
    if (tab && ["area", "event", "events", "flow"].includes(tab)) this.tab.value = tab as Tab;
    else if (area && span === undefined) this.tab.value = "area";
    else if (span !== undefined) this.tab.value = "event";
    this.seen.value = { t0: this.aim0, t1: this.aim1 };
    if ((find ?? "") !== (this.found.value?.text ?? "")) void this.search(find ?? "", "count");
    if (span !== undefined && /^\d+$/.test(span)) {
      if (this.selected.value?.span !== Number(span) || this.rankOf(this.selected.value.lane) !== rank()) await this.pick(rank() ?? 0, Number(span), windowed ? "show" : "fit");
    } else if (this.selected.value && this.selected.value.span >= 0) this.choose(null);
    this.settle();
    this.invalidate();
  }

  // Lanes

  /** As it is at first: with many ranks only the chosen one unfolded, and nowhere what only says that
   * something was recorded, nor counters that count nothing. */
  get usual(): string {
    const ranks = new Set(this.header.groups.map((group) => group.rank));
    const lanes = (group: number) => this.header.lanes.filter((lane) => lane.group === group && lane.id !== this.ruled);
    const said = (group: number) => lanes(group).length > 0 && lanes(group).every((lane) => lane.kind === "spans" && (lane.note === "instant" || lane.note === "other"));
    const hidden = this.header.lanes.filter((lane) => lane.kind === "counter" && lane.min === 0 && lane.max === 0).map((lane) => lane.id);
    return written({ ...UNARRANGED, hidden, folded: this.header.groups.filter((group) => (ranks.size > 4 && group.rank !== rank()) || said(group.id)).map((group) => group.id) });
  }

  relayout(): void {
    this.layout.value = arrange(this.header, this.arrangement.peek(), {
      scopes: this.scopes.peek(),
      ruled: this.ruled,
      ranks: null,
      empty: (lane, row) => this.empty.has(`${lane.id} ${row}`),
    });
    this.scrollTo(this.scroll);
  }

  rearrange(change: Partial<Arrangement>, rest = true): void {
    this.arrangement.value = { ...this.arrangement.peek(), ...change };
    this.relayout();
    if (!rest) return;
    remember(`timeline.${this.run}`, written(this.arrangement.peek()) === this.usual ? null : written(this.arrangement.peek()));
    this.write();
  }

  toggle(list: "pins" | "hidden" | "folded", id: number): void {
    const now = this.arrangement.peek()[list];
    this.rearrange({ [list]: now.includes(id) ? now.filter((one) => one !== id) : [...now, id] });
  }

  /** Put a lane before another of its group (or after the last). */
  move(id: number, before: number | null): void {
    const group = this.lane(id)!.group;
    const layout = this.layout.peek();
    const pinned = layout.pinned.some((placed) => placed.lane.id === id);
    const ids = (pinned ? layout.pinned : layout.lanes).map((placed) => placed.lane.id).filter((one) => one !== id && (pinned || this.lane(one)!.group === group));
    const at = before === null ? ids.length : ids.indexOf(before);
    if (at < 0) return;
    ids.splice(at, 0, id);
    if (pinned) return this.rearrange({ pins: ids });
    const others = this.arrangement.peek().order.filter((one) => this.lane(one)?.group !== group);
    this.rearrange({ order: [...others, ...ids] });
  }

  // Finding what is where

  momentAt(x: number): number {
    return this.t0 + (x / Math.max(1, this.width)) * (this.t1 - this.t0);
  }

  /** What is at a place of the picture. */
  async at(x: number, y: number): Promise<Under> {
    return this.artist && y >= TOP ? this.artist.at(x, y) : { hit: null, counter: null };
  }

  /** An edge of an event near a place of the picture, to which a selection clings. */
  async edge(x: number, y: number): Promise<number> {
    const [at, slack] = [this.momentAt(x), ((this.t1 - this.t0) / Math.max(1, this.width)) * 6];
    const { hit } = await this.at(x, y);
    if (!hit || hit.count > 1) return at;
    if (Math.abs(hit.start - at) < slack) return hit.start;
    if (Math.abs(hit.start + hit.dur - at) < slack) return hit.start + hit.dur;
    return at;
  }

  /** The picture as it is now. */
  async picture(): Promise<CanvasImageSource | null> {
    return this.artist && this.artist.picture();
  }

  /** Why nothing ran at a moment. */
  causeAt(lane: number, moment: number): string | null {
    const group = this.laneOf[lane]?.group;
    return this.gaps.peek().find((gap) => gap.group === group && moment >= gap.start && moment <= gap.start + gap.dur)?.said || null;
  }

  /** What most of the idle time of a range is due to, as far as it is known. */
  mostCause(t0: number, t1: number, group: number): string | null {
    const sums = new Map<string, number>();
    for (const gap of this.gaps.value) {
      const inside = Math.min(t1, gap.start + gap.dur) - Math.max(t0, gap.start);
      if (inside > 0 && gap.group === group && gap.said) sums.set(gap.said, (sums.get(gap.said) ?? 0) + inside);
    }
    return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
  }

  // Choosing

  /** Select an event that is known, or none. */
  choose(event: Event | null, open = true): void {
    this.selected.value = event;
    this.details.value = null;
    this.light(event && event.name && event.span >= 0 ? { name: event.name } : this.finder());
    if (event && event.span >= 0) {
      if (open) this.show("event");
      void this.pick(this.rankOf(event.lane), event.span, "stay");
    }
    this.write();
    this.invalidate();
  }

  show(tab: Tab): void {
    this.tab.value = tab;
    this.open.value = true;
  }

  /** Ask everything of a span; `fit` goes there, `show` only where it is out of sight. */
  async pick(of: number, span: number, view: "stay" | "show" | "fit"): Promise<void> {
    const asked = ++this.wanted;
    try {
      const details = this.detailed(await this.json<Record<string, unknown>>(`timeline/span?rank=${of}&span=${span}`), of);
      if (asked !== this.wanted) return;
      this.selected.value = details.event;
      this.details.value = details;
      this.light({ name: details.event.name });
      const { start, dur } = details.event;
      if (view === "fit") this.focus(details.event, "jump");
      else if (view === "show" && (start + dur < this.aim0 || start > this.aim1)) this.focus(details.event);
      if (view !== "stay") this.reveal(details.event);
      this.write();
    } catch (error) {
      if (asked === this.wanted && !source().still) this.trouble.value = error as Error;
    }
    this.invalidate();
  }

  private detailed(said: Record<string, unknown>, of: number): Details {
    const { flows, launched, operator, parents, previous, next, arrows, arrow_count, ...rest } = said as Record<string, unknown> & { flows: { in: Event[]; out: Event[]; out_count: number }; launched: Event[]; operator: Event | null; parents: Event[]; previous: Event | null; next: Event | null; arrows: Arrow[]; arrow_count: number };
    const [into, out] = [arrows.filter((arrow) => arrow.way === "in"), arrows.filter((arrow) => arrow.way !== "in")];
    return { event: said as unknown as Event, rank: of, said: rest, into, out, launched, operator, parents, previous, next, arrows, arrowCount: arrow_count };
  }

  /** Bring an event into the middle, with what is around it. */
  focus(event: { start: number; dur: number }, at: "glide" | "jump" = "glide"): void {
    const around = Math.max(event.dur, 2_000) * 1.2;
    this.to(event.start - around, event.start + event.dur + around, at);
  }

  /** Scroll to the lane of an event; unfold its group, show it if hidden. */
  reveal(event: Event): void {
    const lane = this.lane(event.lane);
    if (!lane) return;
    const by = this.arrangement.peek();
    if (by.hidden.includes(lane.id) || by.folded.includes(lane.group)) this.rearrange({ hidden: by.hidden.filter((one) => one !== lane.id), folded: by.folded.filter((one) => one !== lane.group) });
    const layout = this.layout.peek();
    const placed = layout.lanes.find((one) => one.lane.id === lane.id);
    if (!placed) return;
    const room = this.height - TOP - layout.pinnedHeight;
    const y = placed.y + placed.pad + Math.max(0, placed.rows.indexOf(event.row)) * placed.rowHeight;
    if (y < this.scroll || y + placed.rowHeight > this.scroll + room) this.scrollTo(y - room / 2);
  }

  /** Go to an event that is named elsewhere: a search, a flow, the previous of the same name. */
  visit(event: Event): void {
    this.choose(event);
    if (event.start + event.dur < this.aim0 || event.start > this.aim1) {
      const wide = Math.max(this.aim1 - this.aim0, event.dur * 1.2);
      const middle = event.start + event.dur / 2;
      this.to(middle - wide / 2, middle + wide / 2);
    } else if (event.dur * 400 < this.aim1 - this.aim0) this.focus(event);
    this.reveal(event);
  }

  /** The event before or after the selected one in its row, or the one above or below it. */
  async step(way: "prev" | "next" | "up" | "down"): Promise<void> {
    const now = this.selected.peek();
    const layout = this.layout.peek();
    const rows = [...layout.pinned, ...layout.lanes].filter((placed) => placed.lane.kind !== "counter").flatMap((placed) => placed.rows.map((row) => ({ lane: placed.lane.id, row })));
    if (!rows.length) return;
    if (!now) return void this.near(rows[0].lane, rows[0].row, this.t0 - 1, "next");
    if (way === "prev" || way === "next") return void this.near(now.lane, now.row, now.start, way);
    const at = rows.findIndex((one) => one.lane === now.lane && one.row === now.row) + (way === "down" ? 1 : -1);
    if (!rows[at]) return;
    const { lane, row } = rows[at];
    const middle = now.start + now.dur / 2;
    for (const direction of ["at", "next", "prev"] as const) if (await this.near(lane, row, middle, direction)) return;
  }

  /** Go to an event of a row; answers whether there is one. */
  private async near(lane: number, row: number, at: number, direction: "prev" | "next" | "at"): Promise<boolean> {
    const now = this.selected.peek();
    const from = now && direction !== "at" && now.span >= 0 && now.lane === lane && now.row === row ? `&span=${now.span}` : "";
    try {
      const { event } = await this.json<{ event: Event | null }>(`timeline/near?lane=${lane}&row=${row}&at=${Math.round(at)}&direction=${direction}${from}`);
      if (event) this.visit(event);
      return event !== null;
    } catch (error) {
      if (!source().still) this.trouble.value = error as Error;
      return true;
    }
  }

  setArea(area: Area | null, rest = true): void {
    this.area.value = area;
    if (area && rest) this.show("area");
    if (rest) this.write();
    this.invalidate();
  }

  measure(measured: Measured | null): void {
    this.measured.value = measured;
    if (!measured || measured.to !== null) this.write();
  }

  /** What `F` goes to. */
  focusSelection(): void {
    const [event, area] = [this.selected.peek(), this.area.peek()];
    if (this.open.peek() && this.tab.peek() === "area" && area) this.to(area.t0 - (area.t1 - area.t0) * 0.05, area.t1 + (area.t1 - area.t0) * 0.05);
    else if (event) {
      this.focus(event);
      this.reveal(event);
    } else if (area) this.to(area.t0, area.t1);
  }

  /** `R`: the time of the selected event, or what is in sight, becomes the area. */
  areaOfSelection(): void {
    const event = this.selected.peek();
    if (event) this.setArea({ t0: event.start, t1: event.start + event.dur, lanes: null });
    else this.setArea({ t0: this.t0, t1: this.t1, lanes: null });
  }

  /** `M`: keep the range. */
  mark(text = ""): void {
    const [event, area] = [this.selected.peek(), this.area.peek()];
    const range = area ?? (event ? { t0: event.start, t1: event.start + event.dur } : { t0: this.cursor ?? this.t0, t1: this.cursor ?? this.t1 });
    this.setMarks([...this.marks.peek().filter((mark) => mark.t0 !== range.t0 || mark.t1 !== range.t1), { t0: range.t0, t1: range.t1, text }]);
  }

  setMarks(marks: Mark[]): void {
    this.marks.value = marks;
    const text = this.params().notes;
    remember(`timeline.${this.run}.notes`, text === null ? null : String(text));
    this.write();
    this.invalidate();
  }

  // Searching

  private finder(): Lit | null {
    const text = this.found.peek()?.text;
    if (!text) return null;
    const pattern = /^\/(.+)\/$/.exec(text);
    return pattern ? { pattern: pattern[1] } : { words: text.toLowerCase().split(/\s+/).filter(Boolean) };
  }

  private searching = 0;

  /** Mean only events of these kinds: others are pale, and are not found. */
  restrict(kinds: string[]): void {
    this.kinds.value = kinds;
    this.recolor();
    const text = this.found.peek()?.text;
    this.found.value = null;
    if (text) void this.search(text);
    else this.write();
  }

  async search(text: string, way: "count" | "next" | "prev" = "count"): Promise<void> {
    const asked = ++this.searching;
    const before = this.found.peek();
    if (!text.trim()) {
      this.found.value = null;
      this.light(null);
      return this.write();
    }
    const same = before?.text === text;
    this.found.value = { text, count: same ? before.count : 0, total: same ? before.total : 0, at: same ? before.at : 0, error: "" };
    this.light(this.finder());
    const now = this.selected.peek();
    const on = same && now !== null && before.at > 0;
    const more = way === "count" ? "" : way === "next" ? `&after=${Math.round(on ? now.start : this.t0 - 1)}` : `&before=${Math.round(on ? now.start : this.t1)}`;
    try {
      const answer = await this.json<Record<string, unknown>>(`timeline/search?text=${encodeURIComponent(text)}&rank=${rank() ?? 0}${this.kinds.peek().length ? `&kinds=${this.kinds.peek().join(",")}` : ""}${more}`);
      if (asked !== this.searching) return;
      const hit = answer.found as (Event & { ordinal: number }) | null;
      const at = way === "count" || !hit ? 0 : hit.ordinal + 1;
      this.found.value = { text, count: Number(answer.count ?? 0), total: Number(answer.total_ns ?? 0), at, error: "" };
      if (way !== "count" && hit) {
        this.visit(hit);
        this.light(this.finder());
      }
    } catch (error) {
      if (asked === this.searching) this.found.value = { text, count: 0, total: 0, at: 0, error: (error as Error).message };
    }
    this.write();
  }

  /** Why the device had nothing to do, for what is in sight. */
  private async findGaps(): Promise<void> {
    const devices = this.header.lanes.filter((lane) => lane.kind === "overlap");
    if (!devices.length) return;
    const wide = this.t1 - this.t0;
    const [from, to] = [Math.max(0, Math.round(this.t0 - wide / 4)), Math.min(this.end, Math.round(this.t1 + wide / 4))];
    const key = `${from} ${to}`;
    if (key === this.gapsFor) return;
    this.gapsFor = key;
    try {
      const groups = [...new Set(devices.map((lane) => lane.group))].slice(0, 8);
      const said = await Promise.all(groups.map((group) => this.json<{ gaps: { start: number; dur: number; cause: string | null; host_activity?: string | null }[] }>(`timeline/gaps?t0=${from}&t1=${Math.max(from + 1, to)}&group=${group}`)));
      if (key !== this.gapsFor) return;
      const gaps: Gap[] = [];
      said.forEach((answer, at) => {
        for (const gap of answer.gaps) gaps.push({ start: gap.start, dur: gap.dur, said: gap.cause === "unknown" ? "" : (gap.cause ?? ""), host: gap.host_activity ?? null, group: groups[at] });
      });
      this.gaps.value = gaps;
      this.invalidate();
    } catch {
      this.gaps.value = [];
    }
  }

  // Asking

  async json<Answer>(path: string): Promise<Answer> {
    this.asking += 1;
    this.turn();
    try {
      return (await (await source().raw(this.run, path)).json()) as Answer;
    } finally {
      this.asking -= 1;
      // After whoever asked has gone on.
      setTimeout(() => this.turn());
    }
  }

  /** What happened in a range: the sums, and what each group did in it. */
  async sums(area: Area, by: "name" | "lane" | "kind"): Promise<Sums> {
    // What is hidden or folded away is not meant.
    const layout = this.layout.peek();
    const shown = [...layout.pinned, ...layout.lanes].map((placed) => placed.lane).filter((lane) => lane.kind === "spans").map((lane) => lane.id);
    const some = area.lanes ?? (shown.length < this.header.lanes.filter((lane) => lane.kind === "spans").length && shown.length ? shown : null);
    const lanes = some ? `&lanes=${some.join(",")}` : "";
    const answer = await source().raw(this.run, `timeline/area?t0=${Math.round(area.t0)}&t1=${Math.max(Math.round(area.t0) + 1, Math.round(area.t1))}${lanes}&by=${by}`);
    if (source().still) {
      const { columns, groups } = (await answer.json()) as { columns: Record<string, number[]>; groups: Sums["groups"] };
      return { table: Table.of(columns), groups };
    }
    const groups = JSON.parse(answer.headers.get("X-Stepscope-Area") ?? "[]") as Sums["groups"];
    return { table: Table.decode(await answer.arrayBuffer(), 0n), groups };
  }

  close(): void {
    cancelAnimationFrame(this.pending);
    clearTimeout(this.settling);
    this.pending = -1;
    this.artist?.close();
    this.artist = null;
  }
}

const NONE: Event[] = [];

function parseMarks(text: string): Mark[] {
  return text.split(";").filter(Boolean).map((one) => {
    const [t0, t1, words] = one.split(":");
    let said = words ?? "";
    try {
      said = decodeURIComponent(said);
    } catch {
      /* typed by hand */
    }
    return { t0: Number(t0), t1: Number(t1), text: said };
  }).filter((mark) => mark.t1 >= mark.t0);
}

const OWN = ["t0", "t1", "span", "area", "lanes", "color", "scopes", "find", "kinds", "notes", "tab", "measure", "rank"];

/** What of the address is the picture's, as one text. */
function said(): string {
  return JSON.stringify(OWN.map((name) => place.value.params[name]));
}
