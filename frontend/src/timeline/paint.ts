/** The picture: what is drawn, in which order. */
import { arrows } from "./arrows";
import { Bars } from "./bars";
import type { Tints } from "./tints";
import { Labels } from "./labels";
import { GROUP, type Layout } from "./layout";
import { Minimap } from "./minimap";
import { levelOf, Pieces } from "./tile_cover";
import { gridlines, ruler } from "./ruler";
import { TOP, type Pen, type Scene } from "./scene";
import { selection } from "./selection";
import type { Tiles } from "./tiles";

const OVERVIEW = 64;

export class Painter {
  readonly labels: Labels;
  private pieces: Pieces;
  private bars: Bars;
  private minimap: Minimap;

  constructor(
    private context: Pen,
    private tiles: Tiles,
    private ink: Tints,
  ) {
    this.labels = new Labels(tiles.names, context);
    this.pieces = new Pieces(tiles, ink);
    this.bars = new Bars(context, ink, this.labels, this.pieces);
    this.minimap = new Minimap(tiles, ink);
  }

  /** Whether the last picture had all tiles. */
  get whole(): boolean {
    return this.pieces.missing === 0;
  }

  /** `lit` gives by name the spans with a line below. */
  draw(scene: Scene, lit: Uint8Array | null): void {
    const { context, ink, tiles } = this;
    const { width, height, ratio, layout } = scene;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `11px ${ink.font}`;
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.imageSmoothingEnabled = false;
    tiles.begin();
    this.pieces.begin();
    context.fillStyle = ink.surface;
    context.fillRect(0, 0, width, height);
    gridlines(context, ink, scene);
    const begin = TOP + layout.pinnedHeight;
    // Scrolled part
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
    this.bars.draw(scene, layout.lanes, offset, begin, height, lit);
    selection(context, ink, scene, layout.lanes, offset);
    context.restore();
    // Fixed part
    if (layout.pinned.length) {
      this.bars.draw(scene, layout.pinned, TOP, TOP, begin, lit);
      selection(context, ink, scene, layout.pinned, TOP);
      context.fillStyle = ink.strong;
      context.fillRect(0, begin - 1, width, 1);
    }
    arrows(context, ink, scene, offset);
    ruler(context, ink, scene);
    this.minimap.draw(context, scene);
    if (!scene.moving) this.beside(scene, layout, offset);
    // The whole run, for the minimap and until finer tiles arrive.
    for (let at = 0; at < Math.min(OVERVIEW, tiles.bundles.length); at++)
      tiles.want(tiles.bundles[at], tiles.header.top_level, 0);
    tiles.end();
  }

  /** After the visible tiles: those next to them. */
  private beside(scene: Scene, layout: Layout, offset: number): void {
    const level = levelOf(scene, this.tiles);
    const span = this.tiles.span(level);
    const [first, last] = [Math.floor(scene.t0 / span), Math.floor(scene.t1 / span)];
    let before = -1;
    for (const list of [layout.pinned, layout.lanes]) {
      for (const box of list) {
        const y = box.pinned ? TOP + box.y : offset + box.y;
        if (!box.pinned && (y > scene.height + 300 || y + box.height < TOP - 300)) continue;
        const bundle = this.tiles.bundle(box.lane.id);
        if (bundle.id === before) continue;
        before = bundle.id;
        this.tiles.want(bundle, this.tiles.header.top_level, 0);
        this.tiles.want(bundle, level, first - 1);
        this.tiles.want(bundle, level, last + 1);
        if (level < this.tiles.header.top_level)
          for (let index = Math.floor(first / 2); index <= Math.floor(last / 2); index++)
            this.tiles.want(bundle, level + 1, index);
        if (level > 0) {
          const middle = Math.floor((scene.t0 + scene.t1) / span);
          this.tiles.want(bundle, level - 1, middle);
        }
      }
    }
  }
}
