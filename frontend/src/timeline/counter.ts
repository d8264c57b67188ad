/** The track of a counter. */
import type { Tints } from "./tints";
import { amount } from "./labels";
import type { Placed } from "./layout";
import type { Pieces } from "./tile_cover";
import type { Pen, Scene } from "./scene";

let low = new Float32Array(0);
let high = new Float32Array(0);

/** A value over time: an area from zero with a line on top. Minimum and maximum of each pixel. */
export function counter(context: Pen, ink: Tints, pieces: Pieces, scene: Scene, box: Placed, y: number): void {
  const pixels = Math.round(scene.width * scene.ratio);
  if (low.length !== pixels) [low, high] = [new Float32Array(pixels), new Float32Array(pixels)];
  const max = box.lane.max || 1;
  const [top, bottom] = [y + 4, y + box.height - 3];
  const scale = pixels / (scene.t1 - scene.t0);
  let last = NaN;
  low.fill(NaN);
  for (const { tile, from, to } of pieces.found) {
    const points = tile?.pointsOf(box.lane.id);
    if (!tile || !points) continue;
    let filled = Math.max(0, Math.floor((Math.max(from, scene.t0) - scene.t0) * scale));
    const right = Math.min(pixels, Math.ceil((Math.min(to, scene.t1) - scene.t0) * scale));
    for (let point = points[0]; point < points[1]; point++) {
      const x = Math.floor((tile.pointAt[point] - scene.t0) * scale);
      if (x >= right) break;
      const [lowest, highest] = [tile.pointLow[point], tile.pointHigh[point]];
      if (x >= filled) {
        for (; filled < x; filled++) low[filled] = high[filled] = last;
        if (Number.isNaN(low[x])) {
          low[x] = Math.min(lowest, Number.isNaN(last) ? lowest : Math.min(last, lowest));
          high[x] = Math.max(highest, Number.isNaN(last) ? highest : last);
        }
        filled = x + 1;
      } else if (x === filled - 1 && x >= 0) {
        low[x] = Math.min(low[x], lowest);
        high[x] = Math.max(high[x], highest);
      }
      last = lowest === highest ? lowest : (lowest + highest) / 2;
    }
    for (; filled < right; filled++) low[filled] = high[filled] = last;
  }
  const place = (value: number) => bottom - (bottom - top) * Math.max(0, Math.min(1, value / max));
  const ratio = scene.ratio;
  for (let pass = 0; pass < 2; pass++) {
    context.fillStyle = ink.compute;
    context.globalAlpha = pass ? 1 : 0.14;
    for (let x = 0; x < pixels;) {
      if (Number.isNaN(low[x])) {
        x += 1;
        continue;
      }
      const from = x;
      const [under, over] = [low[x], high[x]];
      while (x < pixels && low[x] === under && high[x] === over) x += 1;
      const [up, down] = [place(over), place(under)];
      if (pass) context.fillRect(from / ratio, up - 0.6, (x - from) / ratio, Math.max(1.25, down - up + 1.25));
      else context.fillRect(from / ratio, up, (x - from) / ratio, bottom - up);
    }
  }
  context.globalAlpha = 1;
  const text = amount(box.lane.max ?? 0, box.lane.unit);
  if (box.height >= 24) {
    const wide = context.measureText(text).width;
    context.globalAlpha = 0.75;
    context.fillStyle = ink.surface;
    context.fillRect(2, y + 3, wide + 5, 12);
    context.globalAlpha = 1;
    context.fillStyle = ink.text3;
    context.fillText(text, 4, y + 13);
  }
}
