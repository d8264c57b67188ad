/** Selection, marks and the span under the pointer, drawn over the tracks. */
import type { Tints } from "./tints";
import type { Placed } from "./layout";
import { TOP, type Pen, type Scene } from "./scene";
import type { Event } from "./wire";

/** The present position of a span; null if its track is not visible. */
export function place(
  scene: Scene,
  event: Event,
  offset: number,
): { x: number; y: number; w: number; h: number; pinned: boolean } | null {
  const { layout } = scene;
  for (const list of [layout.pinned, layout.lanes]) {
    for (const box of list) {
      if (box.lane.id !== event.lane) continue;
      const at = box.rows.indexOf(event.row);
      if (at < 0) return null;
      const scale = scene.width / (scene.t1 - scene.t0);
      const x = (event.start - scene.t0) * scale;
      const h = Math.max(2, box.rowHeight - (box.rowHeight > 8 ? 2 : 0.5));
      return {
        x,
        w: Math.max(1.5, event.dur * scale),
        y: (box.pinned ? TOP : offset) + box.y + box.pad + at * box.rowHeight,
        h,
        pinned: box.pinned,
      };
    }
  }
  return null;
}

export function selection(context: Pen, ink: Tints, scene: Scene, lanes: Placed[], offset: number): void {
  const scale = scene.width / (scene.t1 - scene.t0);
  const pinned = lanes.length > 0 && lanes[0].pinned;
  for (const mark of scene.marks)
    if (mark.t0 !== scene.area?.t0 || mark.t1 !== scene.area.t1)
      band(
        context,
        scene,
        mark.t0,
        mark.t1,
        pinned ? TOP : TOP + scene.layout.pinnedHeight,
        scene.height,
        ink.warn,
        0.08,
      );
  if (scene.area) {
    const { t0, t1, lanes: some } = scene.area;
    const [from, to] = [Math.max(-2, (t0 - scene.t0) * scale), Math.min(scene.width + 2, (t1 - scene.t0) * scale)];
    context.fillStyle = ink.accent;
    context.globalAlpha = ink.dark ? 0.14 : 0.08;
    if (some) {
      for (const box of lanes)
        if (some.includes(box.lane.id)) context.fillRect(from, offset + box.y, to - from, box.height);
    } else {
      context.fillRect(from, pinned ? TOP : TOP + scene.layout.pinnedHeight, to - from, scene.height);
    }
    context.globalAlpha = 1;
  }
  outline(context, scene, scene.hover, offset, pinned, ink.text, 1);
  outline(context, scene, scene.selected, offset, pinned, ink.text, 2);
}

function band(
  context: Pen,
  scene: Scene,
  t0: number,
  t1: number,
  y: number,
  bottom: number,
  color: string,
  alpha: number,
): void {
  const scale = scene.width / (scene.t1 - scene.t0);
  const [from, to] = [Math.max(-2, (t0 - scene.t0) * scale), Math.min(scene.width + 2, (t1 - scene.t0) * scale)];
  if (to < 0 || from > scene.width) return;
  context.fillStyle = color;
  context.globalAlpha = alpha;
  context.fillRect(from, y, Math.max(1, to - from), bottom - y);
  context.globalAlpha = 1;
}

function outline(
  context: Pen,
  scene: Scene,
  event: Event | null,
  offset: number,
  pinned: boolean,
  color: string,
  line: number,
): void {
  if (!event) return;
  const at = place(scene, event, offset);
  if (!at || at.pinned !== pinned) return;
  const left = Math.max(-3, at.x);
  const right = Math.min(scene.width + 3, at.x + at.w);
  if (right < -2 || left > scene.width + 2) return;
  context.strokeStyle = color;
  context.lineWidth = line;
  context.strokeRect(left, at.y, Math.max(2, right - left), at.h);
}
