/** State of the timeline, as signals for the parts around the picture. It draws on changes. */
import { signal } from "@preact/signals";
import { rank } from "../data";
import { source } from "../source";
import { remember, theme } from "../state";
import { css } from "../colors";
import { write } from "./address";
import { artist, type Renderer } from "./renderer";
import type { Details } from "./navigation";
import { findGaps } from "./gaps";
import { TOKENS, type Coloring } from "./tints";
import { arrange, UNARRANGED, formatArrangement, type Arrangement, type Layout } from "./layout";
import type { Measured } from "./measure";
import { NOTHING, TOP, type Area, type Gap, type Hit, type Lit, type Mark, type Scene, type Step } from "./scene";
import type { Found } from "./search";
import { Viewport } from "./viewport";
import type { Told, Under } from "./stage";
import type { Event, Header, Lane } from "./wire";

/** Room below the selection. */
const BELOW = 12;

export type Tab = "area" | "event" | "events" | "flow";
export type Mode = "select" | "pan" | "measure";

export class Timeline {
  readonly layout = signal<Layout>({ pinned: [], pinnedHeight: 0, heads: [], lanes: [], height: 0 });
  readonly arrangement = signal<Arrangement>(UNARRANGED);
  readonly mode = signal<Mode>("select");
  readonly coloring = signal<Coloring>("family");
  readonly scopes = signal(2);
  readonly area = signal<Area | null>(null);
  readonly measured = signal<Measured | null>(null);
  readonly selected = signal<Event | null>(null);
  readonly details = signal<Details | null>(null);
  readonly trouble = signal<Error | null>(null);
  readonly found = signal<Found | null>(null);
  /** Selected kinds: others are pale, and are not found. None: all. */
  readonly kinds = signal<string[]>([]);
  readonly marks = signal<Mark[]>([]);
  /** Idle gaps in view, with their causes. */
  readonly gaps = signal<Gap[]>([]);
  readonly tab = signal<Tab>("event");
  readonly open = signal(false);
  readonly hover = signal<{ hit: Hit; x: number; y: number } | null>(null);
  readonly sight: Viewport;
  steps: Step[] = [];
  /** Steps of the track that the ruler shows. */
  ruled = -1;
  /** The rank of the last jump. */
  ofRank: number | null = null;
  scroll = 0;
  height = 0;
  /** Called after each picture, with its time in ms and whether it has all tiles. */
  drawn: (took: number, whole: boolean) => void = () => undefined;
  /** Called when it begins or ends to move or to wait. */
  turned: (busy: boolean) => void = () => undefined;
  words = { step: "Step", free: "free" };
  /** The part of the address that was last written or applied, and whether any was. */
  wrote = "";
  followed = false;
  /** The last request of each kind: a response to an earlier one is dropped. */
  readonly asked = { span: 0, search: 0, gaps: "" };
  private artist: Renderer | null = null;
  private scene: Scene;
  /** The scene that the stage has. */
  private sent: Partial<Scene> = {};
  private drawing = false;
  /** There are changes since the scene was sent. */
  private late = false;
  private waiting = false;
  private tilesFailed = false;
  private ratio = 1;
  private pending = 0;
  private before = 0;
  private lit: Lit | null = null;
  private laneOf: Lane[] = [];
  private empty = new Set<string>();
  private busy = false;
  private answers = 0;

  constructor(
    readonly run: string,
    readonly header: Header,
  ) {
    for (const lane of header.lanes) this.laneOf[lane.id] = lane;
    const steps = header.lanes.filter((lane) => lane.kind === "steps");
    if (steps.length === 1 && header.lanes.length > 1) this.ruled = steps[0].id;
    const [from, to] = header.opens;
    this.sight = new Viewport(Math.max(1, header.end_ns), [from, Math.max(from + 1, to)], {
      changed: this.invalidate,
      turned: () => this.turn(),
      settled: () => {
        write(this);
        this.invalidate();
        void findGaps(this);
      },
      lifted: (px) => this.scrollTo(this.scroll + px),
    });
    this.scene = { ...NOTHING, end: this.end };
  }

  get end(): number {
    return this.sight.end;
  }

  get t0(): number {
    return this.sight.t0;
  }

  get t1(): number {
    return this.sight.t1;
  }

  get width(): number {
    return this.sight.width;
  }

  lane(id: number): Lane | undefined {
    return this.laneOf[id];
  }

  rankOf(lane: number): number {
    const group = this.laneOf[lane]?.group;
    return this.header.groups.find((item) => item.id === group)?.rank ?? rank() ?? 0;
  }

  show(tab: Tab): void {
    this.tab.value = tab;
    this.open.value = true;
  }

  // The picture

  /** Draw into a canvas from now on. */
  attach(canvas: HTMLCanvasElement): void {
    this.artist?.close();
    this.sent = {};
    this.drawing = false;
    this.artist = artist(canvas, this.run, this.header, (reported) => this.told(reported));
    this.recolor();
  }

  resize(width: number, height: number): void {
    const chosen = this.selected.peek();
    const start = chosen && this.standing(chosen);
    const inSight = start && start.y >= this.scroll && start.y < this.scroll + this.room;
    this.sight.width = width;
    this.height = height;
    this.ratio = Math.min(3, devicePixelRatio || 1);
    // The drawer does not cover the selection.
    this.scrollTo(inSight ? Math.max(this.scroll, start.y + start.high + BELOW - this.room) : this.scroll);
    this.frame(performance.now());
  }

  /** Visible height of the scrolled tracks. */
  get room(): number {
    return this.height - TOP - this.layout.peek().pinnedHeight;
  }

  /** The position of a span among these tracks; null if its track is hidden. */
  standing(event: Event): { y: number; high: number } | null {
    const box = this.layout.peek().lanes.find((item) => item.lane.id === event.lane);
    return box
      ? {
          y: box.y + box.pad + Math.max(0, box.rows.indexOf(event.row)) * box.rowHeight,
          high: box.rowHeight,
        }
      : null;
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
    this.artist?.recolor(
      { dark: theme() === "dark", tokens, how, only: this.kinds.peek() },
      how === "scope" && !source().isReport,
    );
    this.invalidate();
  }

  /** Highlight spans with this name. */
  light(by: Lit | null): void {
    this.lit = by;
    this.invalidate();
  }

  invalidate = (): void => {
    if (!this.pending) this.pending = requestAnimationFrame(this.frame);
    this.turn();
  };

  private told({ took, whole, waiting, error, empty }: Told): void {
    this.waiting = waiting;
    if (error !== (this.trouble.peek()?.message ?? null) && (error !== null || this.tilesFailed))
      this.trouble.value = error === null ? null : new Error(error);
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
    const moving = this.sight.advance(this.before ? Math.min(50, now - this.before) : 16);
    const known = this.details.peek();
    this.scene = {
      ...this.scene,
      t0: this.t0,
      t1: this.t1,
      width: this.width,
      height: this.height,
      ratio: this.ratio,
      scroll: this.scroll,
      moving,
      layout: this.layout.peek(),
      steps: this.steps,
      gaps: this.gaps.peek(),
      marks: this.marks.peek(),
      area: this.area.peek(),
      hover: this.hover.peek()?.hit ?? null,
      selected: this.selected.peek(),
      lit: this.lit,
      words: this.words,
      into: known?.into ?? NONE,
      out: known ? (known.out.length ? known.out : known.launched) : NONE,
    };
    this.send();
    this.before = moving ? now : 0;
    if (moving) this.invalidate();
  };

  /** Draw the scene: send the changes when the previous picture is done. */
  private send(): void {
    if (!this.artist || this.width <= 0) return;
    this.late = this.drawing;
    if (this.drawing) return;
    const change: Partial<Scene> = Object.fromEntries(
      Object.entries(this.scene).filter(([name, value]) => this.sent[name as keyof Scene] !== value),
    );
    this.sent = this.scene;
    this.drawing = true;
    this.artist.draw(change);
  }

  private turn(): void {
    const busy = this.sight.underway || this.answers > 0 || this.waiting || this.drawing || this.pending > 0;
    if (busy === this.busy) return;
    this.busy = busy;
    this.turned(busy);
  }

  /** What is at a position of the picture. */
  async at(x: number, y: number): Promise<Under> {
    return this.artist && y >= TOP ? this.artist.at(x, y) : { hit: null, counter: null };
  }

  /** An edge of a span near a position, to which a selection snaps. */
  async edge(x: number, y: number): Promise<number> {
    const [at, slack] = [this.sight.momentAt(x), ((this.t1 - this.t0) / Math.max(1, this.width)) * 6];
    const { hit } = await this.at(x, y);
    if (!hit || hit.count > 1) return at;
    if (Math.abs(hit.start - at) < slack) return hit.start;
    if (Math.abs(hit.start + hit.dur - at) < slack) return hit.start + hit.dur;
    return at;
  }

  /** The present picture. */
  async picture(): Promise<CanvasImageSource | null> {
    return this.artist && this.artist.picture();
  }

  // Lanes

  /**
   * The first arrangement: with many ranks only the selected one unfolded; tracks that only mark a recording, counters
   * without values and duplicate steps are hidden.
   */
  get usual(): string {
    const ranks = new Set(this.header.groups.map((group) => group.rank));
    const lanes = (group: number) => this.header.lanes.filter((lane) => lane.group === group && lane.id !== this.ruled);
    const text = (group: number) =>
      lanes(group).length > 0 &&
      lanes(group).every(
        (lane) => lane.kind === "spans" && (lane.note === "instant" || (lane.note === "other" && lane.events <= FEW)),
      );
    const marks = new Map(
      this.header.lanes
        .filter((lane) => lane.kind === "spans" && lane.label === "steps")
        .map((lane) => [lane.rank, lane.events]),
    );
    const twice = (lane: Lane) => lane.kind === "steps" && lane.events === marks.get(lane.rank);
    const hidden = this.header.lanes
      .filter((lane) => (lane.kind === "counter" && lane.min === 0 && lane.max === 0) || twice(lane))
      .map((lane) => lane.id);
    return formatArrangement({
      ...UNARRANGED,
      hidden,
      folded: this.header.groups
        .filter((group) => (ranks.size > 4 && group.rank !== rank()) || text(group.id))
        .map((group) => group.id),
    });
  }

  relayout(): void {
    const before = this.layout
      .peek()
      .heads.filter((head) => head.y <= this.scroll)
      .pop();
    this.layout.value = arrange(this.header, this.arrangement.peek(), {
      scopes: this.scopes.peek(),
      ruled: this.ruled,
      ranks: null,
      empty: (lane, row) => this.empty.has(`${lane.id} ${row}`),
    });
    // Tracks above may have changed height: the visible group stays where it is.
    const after = before && this.layout.peek().heads.find((head) => head.group.id === before.group.id);
    this.scrollTo(this.scroll + (after ? after.y - before.y : 0));
  }

  scrollTo(y: number): void {
    this.scroll = Math.max(0, Math.min(this.layout.peek().height + 60 - this.room, y));
    this.invalidate();
  }

  rearrange(change: Partial<Arrangement>, rest = true): void {
    this.arrangement.value = { ...this.arrangement.peek(), ...change };
    this.relayout();
    if (!rest) return;
    remember(
      `timeline.${this.run}`,
      formatArrangement(this.arrangement.peek()) === this.usual ? null : formatArrangement(this.arrangement.peek()),
    );
    write(this);
  }

  toggle(list: "pins" | "hidden" | "folded", id: number): void {
    const now = this.arrangement.peek()[list];
    this.rearrange({ [list]: now.includes(id) ? now.filter((item) => item !== id) : [...now, id] });
  }

  /** Put a track before another of its group (or after the last). */
  move(id: number, before: number | null): void {
    const group = this.lane(id)!.group;
    const layout = this.layout.peek();
    const pinned = layout.pinned.some((box) => box.lane.id === id);
    const ids = (pinned ? layout.pinned : layout.lanes)
      .map((box) => box.lane.id)
      .filter((item) => item !== id && (pinned || this.lane(item)!.group === group));
    const at = before === null ? ids.length : ids.indexOf(before);
    if (at < 0) return;
    ids.splice(at, 0, id);
    if (pinned) return this.rearrange({ pins: ids });
    const others = this.arrangement.peek().order.filter((item) => this.lane(item)?.group !== group);
    this.rearrange({ order: [...others, ...ids] });
  }

  // Asking

  async json<Answer>(path: string): Promise<Answer> {
    this.answers += 1;
    this.turn();
    try {
      return (await (await source().raw(this.run, path)).json()) as Answer;
    } finally {
      this.answers -= 1;
      // After the caller has continued.
      setTimeout(() => this.turn());
    }
  }

  close(): void {
    cancelAnimationFrame(this.pending);
    this.sight.close();
    this.pending = -1;
    this.artist?.close();
    this.artist = null;
  }
}

const NONE: Event[] = [];
/** A track with so few spans only marks that something was recorded. */
const FEW = 3;
