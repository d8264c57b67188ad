/** Above the tracks: steps, and time within them. */
import * as units from "../units";
import type { Tints } from "./tints";
import { MINI, TOP, type Pen, type Scene, type Step } from "./scene";

const NUMBERS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });

/** Round distances between time marks. */
function tick(perPixel: number): number {
  const rough = perPixel * 90;
  const power = 10 ** Math.floor(Math.log10(Math.max(1e-3, rough)));
  const size = rough / power;
  return Math.max(1, (size <= 1 ? 1 : size <= 2 ? 2 : size <= 5 ? 5 : 10) * power);
}

/** Whether times count from the start of a step. */
export function inStep(scene: Scene): boolean {
  const { steps, t0, t1 } = scene;
  let widest = 0;
  for (let at = stepFrom(steps, t0); at < steps.length && steps[at].start < t1; at++)
    widest = Math.max(widest, Math.min(t1, steps[at].end) - Math.max(t0, steps[at].start));
  return widest > (t1 - t0) * 0.3;
}

/** The first step that ends after a timestamp. */
function stepFrom(steps: Step[], moment: number): number {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].end <= moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Calls `mark` for each visible time mark: its position, and the time since the start of its step or of the run. */
function each(scene: Scene, mark: (x: number, since: number, first: boolean, whole: boolean) => void): void {
  const { t0, t1, steps, width } = scene;
  const scale = width / (t1 - t0);
  const size = tick((t1 - t0) / width);
  const from = (start: number, end: number, first: boolean) => {
    const half = size / 2 >= 1 && size % 2 === 0 ? size / 2 : size / 5 >= 1 ? size / 5 : size;
    const low = Math.max(t0, start);
    for (let at = Math.ceil((low - start) / half - 1e-9); start + at * half < Math.min(end, t1); at++) {
      const since = at * half;
      mark(
        (start + since - t0) * scale,
        since,
        first && at === 0,
        Math.abs(since / size - Math.round(since / size)) < 1e-6,
      );
    }
  };
  if (!steps.length || !inStep(scene)) return from(0, Infinity, true);
  let at = stepFrom(steps, t0);
  if (steps[at] && steps[at].start > t0 && at > 0) from(steps[at - 1].start, steps[at].start, false);
  else if (steps[at] && steps[at].start > t0) from(0, steps[at].start, true);
  for (; at < steps.length && steps[at].start < t1; at++) from(steps[at].start, steps[at + 1]?.start ?? Infinity, true);
  if (at === steps.length && steps[at - 1].end <= t0) from(steps[at - 1].start, Infinity, false);
}

export function gridlines(context: Pen, ink: Tints, scene: Scene): void {
  context.fillStyle = ink.grid;
  each(scene, (x, _since, _first, whole) => {
    if (whole) context.fillRect(Math.round(x), TOP, 1, scene.height - TOP);
  });
}

export function ruler(context: Pen, ink: Tints, scene: Scene): void {
  const { width, t0, t1, steps } = scene;
  const scale = width / (t1 - t0);
  context.fillStyle = ink.surface;
  context.fillRect(0, 0, width, TOP);
  // Steps: longer ones are warmer
  const y = MINI + 2;
  let painted = -1;
  for (let at = stepFrom(steps, t0); at < steps.length && steps[at].start < t1; at++) {
    const step = steps[at];
    const [from, to] = [Math.max(0, (step.start - t0) * scale), Math.min(width, (step.end - t0) * scale)];
    if (to - painted < 1) continue; // several in one pixel
    painted = to;
    const slow = scene.median > 0 ? (step.end - step.start) / scene.median - 1 : 0;
    context.fillStyle = ink.sunken;
    context.fillRect(from, y, Math.max(1, to - from - 1.5), 17);
    if (slow > 0.05) {
      context.fillStyle = ink.warn;
      context.globalAlpha = Math.min(ink.dark ? 0.35 : 0.55, slow * 0.9); // so that the text is readable
      context.fillRect(from, y, Math.max(1, to - from - 1.5), 17);
      context.globalAlpha = 1;
    }
    if (to - from > 30) {
      context.fillStyle = slow > 0.05 ? ink.text : ink.text2;
      const whole = `${scene.words.step} ${step.step}  ·  ${units.text(units.time(step.end - step.start))}`;
      const text = context.measureText(whole).width <= to - from - 10 ? whole : String(step.step);
      if (context.measureText(text).width <= to - from - 6) context.fillText(text, from + 5, y + 12.5);
    }
  }
  // Time
  const size = tick((t1 - t0) / width);
  // The unit of the last mark; that of the distance if it needs too many digits.
  let last = size;
  each(scene, (_x, since, _first, whole) => {
    if (whole && since > last) last = since;
  });
  const unit = units.timeUnit(last / size > 1e6 ? size : last);
  // The start of a step is labeled before the step in front of it.
  const zeros: number[] = [];
  each(scene, (x, since, first) => {
    if (first && since === 0) zeros.push(x);
  });
  let [room, next] = [-100, 0];
  each(scene, (x, since, first, whole) => {
    context.fillStyle = whole ? ink.strong : ink.grid;
    context.fillRect(Math.round(x), whole ? TOP - 10 : TOP - 6, 1, whole ? 10 : 6);
    while (next < zeros.length && zeros[next] <= x) next++;
    if (!whole || x < room) return;
    const value = units.timeIn(since, unit);
    const text = `${NUMBERS.format(Number(value.toPrecision(9)))}${first || room < 0 ? ` ${unit}` : ""}`;
    const wide = context.measureText(text).width;
    if (Math.round(x) + 4 + wide > scene.width) return; // half a number is another number
    if (x + wide + 10 > (zeros[next] ?? Infinity) && since > 0) return;
    context.fillStyle = ink.text3;
    context.fillText(text, Math.round(x) + 4, TOP - 5);
    room = x + wide + 10;
  });
  context.fillStyle = ink.border;
  context.fillRect(0, TOP - 1, width, 1);
  for (const mark of scene.marks) {
    const [from, to] = [Math.max(-2, (mark.t0 - t0) * scale), Math.min(width + 2, (mark.t1 - t0) * scale)];
    if (to < 0 || from > width) continue;
    context.fillStyle = ink.warn;
    context.fillRect(from, TOP - 4, Math.max(2, to - from), 3);
    if (mark.text) {
      context.font = `600 11px ${ink.font}`;
      const wide = Math.min(220, context.measureText(mark.text).width + 12);
      context.fillStyle = ink.surface;
      context.fillRect(from, TOP - 20, wide, 16);
      context.strokeStyle = ink.warn;
      context.lineWidth = 1;
      context.strokeRect(from + 0.5, TOP - 19.5, wide - 1, 15);
      context.fillStyle = ink.text;
      context.save();
      context.beginPath();
      context.rect(from, TOP - 20, wide - 4, 16);
      context.clip();
      context.fillText(mark.text, from + 6, TOP - 8);
      context.restore();
      context.font = `11px ${ink.font}`;
    }
  }
  if (scene.area) {
    const [from, to] = [(scene.area.t0 - t0) * scale, (scene.area.t1 - t0) * scale];
    const low = scene.area.lanes ? TOP : scene.height;
    context.fillStyle = ink.accent;
    context.fillRect(from, TOP - 21, 1.5, low - TOP + 21);
    context.fillRect(to - 1.5, TOP - 21, 1.5, low - TOP + 21);
    const [left, right] = [Math.max(0, from), Math.min(width, to)];
    if (right > left) {
      context.fillRect(left, TOP - 21, right - left, 2);
      context.font = `600 11px ${ink.font}`;
      const text = units.text(units.time(scene.area.t1 - scene.area.t0));
      const wide = context.measureText(text).width + 12;
      const x = Math.max(0, Math.min(width - wide, (left + right) / 2 - wide / 2));
      context.fillRect(x, TOP - 20, wide, 16);
      context.fillStyle = ink.onAccent;
      context.fillText(text, x + 6, TOP - 8);
      context.font = `11px ${ink.font}`;
    }
  }
}
