/** The minimap: activity of devices and hosts over the whole run, with a brush over the visible range. */
import type { Tints } from "./tints";
import { MINI, sheet, type Pen, type Scene } from "./scene";
import type { Tiles } from "./tiles";
import { ofAll } from "./wire";

export class Minimap {
  private page = sheet();
  private key = "";

  constructor(
    private tiles: Tiles,
    private ink: Tints,
  ) {}

  draw(context: Pen, scene: Scene): void {
    const { ink, page } = this;
    const { width, ratio } = scene;
    const top = this.tiles.header.top_level;
    let known = 0;
    for (const bundle of this.tiles.bundles) if (this.tiles.get(bundle, top, 0)) known += 1;
    const key = `${width} ${ratio} ${known} ${ink.epoch} ${scene.steps.length}`;
    if (key !== this.key) {
      this.key = key;
      page.canvas.width = Math.max(1, Math.round(width * ratio));
      page.canvas.height = Math.round(MINI * ratio);
      this.fill(scene, page);
    }
    context.drawImage(page.canvas, 0, 0, width, MINI);
    const [from, to] = [(scene.t0 / scene.end) * width, (scene.t1 / scene.end) * width];
    const wide = Math.max(3, to - from);
    context.fillStyle = ink.surface;
    context.globalAlpha = 0.62;
    context.fillRect(0, 0, from, MINI - 1);
    context.fillRect(from + wide, 0, width - from - wide, MINI - 1);
    context.globalAlpha = 1;
    context.strokeStyle = context.fillStyle = ink.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from, 1, wide, MINI - 3);
    context.fillRect(from - 2, 22, 4, 18);
    context.fillRect(from + wide - 2, 22, 4, 18);
    context.fillStyle = ink.border;
    context.fillRect(0, MINI - 1, width, 1);
  }

  /** Without device or host work: everything but steps. */
  private anything(into: Float32Array): void {
    const { header } = this.tiles;
    for (const lane of header.lanes) {
      const tile = this.tiles.get(this.tiles.bundle(lane.id), header.top_level, 0);
      const of = lane.kind === "spans" ? (tile?.row(lane.id, 0) ?? -1) : -1;
      if (!tile || of < 0) continue;
      for (let at = tile.longs[of]; at < tile.longs[of + 1]; at++) {
        if (header.kinds[tile.longKind[at]] === "step") continue;
        const [from, to] = [tile.longStart[at] / tile.bucket, (tile.longStart[at] + tile.longDur[at]) / tile.bucket];
        for (let bucket = Math.max(0, Math.floor(from)); bucket < Math.min(into.length, to); bucket++)
          into[bucket] = Math.min(1, into[bucket] + Math.min(to, bucket + 1) - Math.max(from, bucket));
      }
      for (let at = tile.buckets[of]; at < tile.buckets[of + 1]; at++)
        into[tile.bucketX[at]] = Math.max(into[tile.bucketX[at]], tile.bucketBusy[at] / 255);
    }
  }

  private fill(scene: Scene, context: Pen): void {
    const { ink, tiles } = this;
    const { header } = tiles;
    const { width, ratio } = scene;
    const groups = new Map(header.groups.map((group) => [group.id, group]));
    const device = new Float32Array(header.buckets);
    const host = new Float32Array(header.buckets);
    const item = new Float32Array(header.buckets);
    const devices = new Set(header.lanes.filter((lane) => lane.kind === "overlap").map((lane) => lane.group));
    for (const lane of header.lanes) {
      const tile = tiles.get(tiles.bundle(lane.id), header.top_level, 0);
      if (
        !tile ||
        lane.kind === "counter" ||
        lane.kind === "steps" ||
        lane.kind === "path" ||
        lane.kind === "scope" ||
        ofAll(header, lane)
      )
        continue;
      const group = groups.get(lane.group)!;
      if (lane.kind === "spans" && devices.has(lane.group)) continue;
      const into = group.kind === "device" ? device : host;
      for (let row = 0; row < lane.rows; row++) {
        const of = tile.row(lane.id, row);
        if (of < 0) continue;
        item.fill(0);
        const counts = (kind: number) => !IDLE.has(header.kinds[kind]);
        for (let at = tile.longs[of]; at < tile.longs[of + 1]; at++) {
          if (!counts(tile.longKind[at])) continue;
          const [from, to] = [tile.longStart[at] / tile.bucket, (tile.longStart[at] + tile.longDur[at]) / tile.bucket];
          for (let bucket = Math.max(0, Math.floor(from)); bucket < Math.min(item.length, to); bucket++)
            item[bucket] += Math.min(to, bucket + 1) - Math.max(from, bucket);
        }
        for (let at = tile.buckets[of]; at < tile.buckets[of + 1]; at++)
          if (counts(tile.bucketKind[at])) item[tile.bucketX[at]] += tile.bucketBusy[at] / 255;
        for (let bucket = 0; bucket < item.length; bucket++)
          into[bucket] = Math.min(1, Math.max(into[bucket], item[bucket]));
      }
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = ink.surface;
    context.fillRect(0, 0, width, MINI);
    const bucket = (2 ** header.top_level / scene.end) * width;
    if (!device.some((value) => value > 0) && !host.some((value) => value > 0)) this.anything(host);
    const both = device.some((value) => value > 0);
    context.globalAlpha = 0.75;
    for (let at = 0; at < device.length; at++) {
      const x = at * bucket;
      if (x > width) break;
      context.fillStyle = ink.compute;
      if (device[at] > 0) context.fillRect(x, 42 - 26 * device[at], bucket + 0.4, 26 * device[at]);
      context.fillStyle = ink.host;
      const [base, high] = both ? [58, 12] : [58, 40];
      if (host[at] > 0) context.fillRect(x, base - high * host[at], bucket + 0.4, high * host[at]);
    }
    context.globalAlpha = 1;
    context.font = `11px ${ink.font}`;
    let room = -1;
    for (const step of scene.steps) {
      const x = (step.start / scene.end) * width;
      if (x < room) continue;
      context.fillStyle = ink.strong;
      context.fillRect(x, 0, 1, MINI);
      const text = `${scene.words.step.toLowerCase()} ${step.step}`;
      const wide = context.measureText(text).width;
      context.fillStyle = ink.text2;
      // Left of the line if there is no room on its right.
      if (x + 5 + wide <= width) context.fillText(text, x + 5, 12);
      else if (x - 5 - wide > room) context.fillText(text, x - 5 - wide, 12);
      room = x + wide + 14;
    }
  }
}

const IDLE = new Set(["step", "scope", "annotation", "free", "sync", "data", "instant", "other"]);
