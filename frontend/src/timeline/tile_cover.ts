/** Tiles that show a track: its own, or coarser or finer ones until they arrive. */
import type { Tints } from "./tints";
import type { Scene } from "./scene";
import type { Bundle, Tiles } from "./tiles";
import type { Tile } from "./wire";

/** A range and the tile that draws it. */
export interface Piece {
  tile: Tile | null;
  from: number;
  to: number;
}

/** The level whose buckets are about one pixel. */
export function levelOf(scene: Scene, tiles: Tiles): number {
  const perPixel = (scene.t1 - scene.t0) / (scene.width * scene.ratio);
  return Math.max(0, Math.min(tiles.header.top_level, Math.floor(Math.log2(perPixel))));
}

export class Pieces {
  found: Piece[] = [];
  /** The number of tiles that the picture needs, and lacks. */
  missing = 0;
  private of = -1;

  constructor(
    private tiles: Tiles,
    private ink: Tints,
  ) {}

  /** Before each picture: new tiles may have arrived. */
  begin(): void {
    this.of = -1;
    this.missing = 0;
  }

  resolve(scene: Scene, lane: number): void {
    const { tiles } = this;
    const bundle = tiles.bundle(lane);
    if (bundle.id === this.of) return;
    this.of = bundle.id;
    this.found = [];
    const level = levelOf(scene, tiles);
    const span = tiles.span(level);
    const last = Math.min(tiles.last(level), Math.floor(scene.t1 / span));
    for (let index = Math.max(0, Math.floor(scene.t0 / span)); index <= last; index++) {
      tiles.want(bundle, level, index);
      this.stretch(bundle, level, index, span);
    }
  }

  private stretch(bundle: Bundle, level: number, index: number, span: number): void {
    const { tiles } = this;
    const [from, middle, to] = [index * span, (index + 0.5) * span, (index + 1) * span];
    const exact = tiles.get(bundle, level, index);
    if (exact) return this.add(exact, from, to);
    this.missing += 1;
    const [left, right] =
      level > 0 ? [tiles.get(bundle, level - 1, 2 * index), tiles.get(bundle, level - 1, 2 * index + 1)] : [];
    if (left && (right || middle >= tiles.header.end_ns)) {
      this.add(left, from, middle);
      if (right) this.add(right, middle, to);
    } else this.add(tiles.coarser(bundle, level, index) ?? null, from, to);
  }

  private add(tile: Tile | null, from: number, to: number): void {
    if (tile) this.ink.paint(tile);
    this.found.push({ tile, from, to });
  }
}
