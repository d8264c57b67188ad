/** Draws the timeline: tiles, colors and the canvas, in a worker or on the page. */
import { cssOf, Tints, type Palette } from "./tints";
import { laneAt, rowAt, type Placed } from "./layout";
import { Painter } from "./paint";
import { levelOf } from "./tile_cover";
import { NOTHING, TOP, type Hit, type Lit, type Pen, type Scene } from "./scene";
import { Tiles, type Ask } from "./tiles";
import type { Header, Tile } from "./wire";

/** Sent to the page after each picture, and when tiles arrive. */
export interface Told {
  /** Drawing time in ms; null if nothing was drawn. */
  took: number | null;
  /** Whether the picture has all its tiles, none of them coarser. */
  whole: boolean;
  /** Whether tiles are being fetched. */
  waiting: boolean;
  error: string | null;
  /** Rows of the overlap known to be empty: "track row"; null if unchanged. */
  empty: string[] | null;
}

/** What is at a position of the picture. */
export interface Under {
  hit: Hit | null;
  counter: { lane: number; value: number } | null;
}

export class Stage {
  private scene: Scene = { ...NOTHING };
  private tiles: Tiles;
  private ink: Tints;
  private painter: Painter;
  private lights = new Lights();
  private known = -1;

  constructor(
    private pen: Pen,
    private header: Header,
    ask: Ask,
    private tell: (reported: Told) => void,
  ) {
    this.tiles = new Tiles(header, ask, () => this.tell(this.told(null)));
    this.ink = new Tints(this.tiles.names, header.kinds);
    this.painter = new Painter(pen, this.tiles, this.ink);
  }

  recolor(palette: Palette, scopes: boolean): void {
    this.tiles.beside(scopes ? "scope" : "");
    this.ink.refresh(palette);
    this.painter.labels.forget();
  }

  /** Draw with the changes. */
  draw(change: Partial<Scene>): void {
    const { scene, pen } = this;
    const begun = performance.now();
    Object.assign(scene, change);
    const [width, height] = [
      Math.max(1, Math.round(scene.width * scene.ratio)),
      Math.max(1, Math.round(scene.height * scene.ratio)),
    ];
    // Setting it clears the canvas.
    if (pen.canvas.width !== width) pen.canvas.width = width;
    if (pen.canvas.height !== height) pen.canvas.height = height;
    if (scene.width > 0) this.painter.draw(scene, this.lights.of(scene.lit, this.tiles.names.text));
    this.tell(this.told(performance.now() - begun));
  }

  private told(took: number | null): Told {
    const { header, tiles } = this;
    const known = tiles.bundles.filter((bundle) => tiles.get(bundle, header.top_level, 0)).length;
    const empty = known === this.known ? null : this.empty();
    this.known = known;
    return {
      took,
      whole: this.painter.whole && this.scene.layout.height > 0,
      waiting: tiles.waiting,
      error: tiles.error?.message ?? null,
      empty,
    };
  }

  private empty(): string[] {
    const result: string[] = [];
    for (const lane of this.header.lanes) {
      const tile =
        lane.kind === "overlap" ? this.tiles.get(this.tiles.bundle(lane.id), this.header.top_level, 0) : undefined;
      for (let row = 0; tile && row < lane.rows; row++) {
        const of = tile.row(lane.id, row);
        if (of >= 0 && tile.longs[of] === tile.longs[of + 1] && tile.buckets[of] === tile.buckets[of + 1])
          result.push(`${lane.id} ${row}`);
      }
    }
    return result;
  }

  // Lookup by position

  /** What is at a position of the last picture. */
  at(x: number, y: number): Under {
    const where = this.placedAt(y);
    if (!where) return { hit: null, counter: null };
    const { lane } = where.placed;
    const moment = this.scene.t0 + (x / Math.max(1, this.scene.width)) * (this.scene.t1 - this.scene.t0);
    if (lane.kind === "counter") {
      const value = this.valueAt(lane.id, moment);
      return { hit: null, counter: Number.isFinite(value) ? { lane: lane.id, value } : null };
    }
    return { hit: this.hit(where.placed, where.inside, moment), counter: null };
  }

  private placedAt(y: number): { placed: Placed; inside: number } | null {
    const { layout, scroll } = this.scene;
    if (y < TOP) return null;
    if (y < TOP + layout.pinnedHeight) {
      const box = laneAt(layout.pinned, y - TOP);
      return box && { placed: box, inside: y - TOP - box.y };
    }
    const inner = y - TOP - layout.pinnedHeight + scroll;
    const box = laneAt(layout.lanes, inner);
    return box && { placed: box, inside: inner - box.y };
  }

  private hit(box: Placed, inside: number, at: number): Hit | null {
    const row = rowAt(box, inside);
    if (row < 0) return null;
    if (row === box.rows[0]) {
      for (const also of box.also) {
        const result = this.eventAt(box.lane.id, also, at, 0);
        if (result) return result;
      }
    }
    return this.eventAt(box.lane.id, row, at, 2);
  }

  private tileAt(lane: number, moment: number): Tile | undefined {
    const bundle = this.tiles.bundle(lane);
    const level = levelOf(this.scene, this.tiles);
    const index = Math.floor(moment / this.tiles.span(level));
    return this.tiles.get(bundle, level, index) ?? this.tiles.coarser(bundle, level, index);
  }

  /** The span of a row at a timestamp, or within this many pixels. */
  private eventAt(lane: number, row: number, moment: number, near: number): Hit | null {
    const tile = this.tileAt(lane, moment);
    const of = tile?.row(lane, row) ?? -1;
    if (!tile || of < 0) return null;
    const slack = ((this.scene.t1 - this.scene.t0) / Math.max(1, this.scene.width)) * near;
    const result = (
      span: number,
      start: number,
      dur: number,
      name: number,
      kind: number,
      count: number,
      busy: number,
    ): Hit => ({
      span,
      lane,
      row,
      start,
      dur,
      name: this.tiles.names.text[name],
      kind: this.header.kinds[kind],
      count,
      busy,
      color: cssOf(this.ink.tint(name, kind)),
    });
    let best: Hit | null = null;
    let apart = slack;
    for (
      let event = tile.longFrom(of, moment - slack);
      event < tile.longs[of + 1] && tile.longStart[event] <= moment + slack;
      event++
    ) {
      const [start, dur] = [tile.longStart[event], tile.longDur[event]];
      const off = moment < start ? start - moment : Math.max(0, moment - start - dur);
      if (off > apart) continue;
      apart = off;
      best = result(tile.longSpan[event], start, dur, tile.longName[event], tile.longKind[event], 1, 1);
    }
    if (best && apart === 0) return best;
    for (
      let event = tile.bucketFrom(of, Math.max(0, Math.floor((moment - slack - tile.from) / tile.bucket)));
      event < tile.buckets[of + 1];
      event++
    ) {
      const start = tile.from + tile.bucketX[event] * tile.bucket;
      if (start > moment + slack) break;
      const off = moment < start ? start - moment : Math.max(0, moment - start - tile.bucket);
      if (off > apart || (best && best.count > 1 && off === apart)) continue;
      apart = off;
      best = result(
        tile.bucketSpan[event],
        start,
        tile.bucket,
        tile.bucketName[event],
        tile.bucketKind[event],
        tile.bucketCount[event],
        tile.bucketBusy[event] / 255,
      );
    }
    return best;
  }

  /** The value of a counter at a timestamp. */
  private valueAt(lane: number, moment: number): number {
    const tile = this.tileAt(lane, moment);
    const points = tile?.pointsOf(lane);
    if (!tile || !points) return NaN;
    let value = NaN;
    for (let point = points[0]; point < points[1] && tile.pointAt[point] <= moment; point++)
      value = tile.pointHigh[point];
    return value;
  }

  close(): void {
    this.tiles.close();
    this.tell = () => undefined;
  }
}

/** By name, whether it matches; cached. */
class Lights {
  private by: Lit | null = null;
  private test: (name: string) => boolean = () => false;
  private lit = new Uint8Array(256);
  private to = 0;

  of(by: Lit | null, names: string[]): Uint8Array | null {
    if (by !== this.by) {
      [this.by, this.to] = [by, 0];
      if (by) this.test = tester(by);
    }
    if (!by) return null;
    if (this.lit.length < names.length) {
      const grown = new Uint8Array(names.length * 2);
      grown.set(this.lit);
      this.lit = grown;
    }
    for (; this.to < names.length; this.to++) this.lit[this.to] = this.test(names[this.to]) ? 1 : 0;
    return this.lit;
  }
}

function tester(by: Lit): (name: string) => boolean {
  if ("name" in by) return (name) => name === by.name;
  if ("pattern" in by) {
    try {
      const regex = new RegExp(by.pattern, "i");
      return (name) => regex.test(name);
    } catch {
      return () => false;
    }
  }
  return (name) => {
    const low = name.toLowerCase();
    return by.words.every((word) => low.includes(word));
  };
}
