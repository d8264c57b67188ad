/** Arrows between a span, its causes and its effects. */
import type { Tints } from "./tints";
import { TOP, type Pen, type Scene } from "./scene";
import { place } from "./selection";

/** Arrows from the causes of the selected span, and to its effects. */
export function arrows(context: Pen, ink: Tints, scene: Scene, offset: number): void {
  if (!scene.selected || (!scene.into.length && !scene.out.length)) return;
  const begin = TOP + scene.layout.pinnedHeight;
  const current = place(scene, scene.selected, offset);
  if (!current) return;
  context.save();
  context.beginPath();
  context.rect(0, TOP, scene.width, scene.height - TOP);
  context.clip();
  context.strokeStyle = context.fillStyle = ink.text;
  context.lineWidth = 1.5;
  const arrow = (
    from: { x: number; y: number; w: number; h: number },
    to: { x: number; y: number; w: number; h: number },
  ) => {
    const down = to.y > from.y;
    const [x0, y0] = [
      Math.max(-20, Math.min(scene.width + 20, from.x + Math.min(from.w, 6) / 2)),
      Math.max(begin - 40, down ? from.y + from.h - 2 : from.y + 2),
    ];
    const [x1, y1] = [
      Math.max(-20, Math.min(scene.width + 20, to.x + Math.min(to.w, 6) / 2)),
      down ? to.y : to.y + to.h,
    ];
    const head = down ? -7 : 7;
    const middle = (y0 + y1 + head) / 2;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0, middle, x1, middle, x1, y1 + head);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 4, y1 + head);
    context.lineTo(x1 + 4, y1 + head);
    context.closePath();
    context.fill();
    context.beginPath();
    context.arc(x0, y0, 3, 0, 7);
    context.fill();
  };
  for (const item of scene.into) {
    const at = place(scene, item, offset);
    if (at) arrow(at, current);
  }
  for (const item of scene.out) {
    const at = place(scene, item, offset);
    if (at) arrow(current, at);
  }
  context.restore();
}
