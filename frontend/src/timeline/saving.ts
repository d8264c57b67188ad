/** The picture as a file, with the names of the lanes beside it. */
import type { Timeline } from "./model";
import { TOP } from "./paint";

const NAMES = 200;

export async function save(of: Timeline, name: string): Promise<void> {
  const shown = document.querySelector<HTMLCanvasElement>(".tl-picture canvas");
  if (!shown) return;
  const ratio = shown.width / Math.max(1, of.width);
  const whole = document.createElement("canvas");
  whole.width = shown.width + Math.round(NAMES * ratio);
  whole.height = shown.height;
  const context = whole.getContext("2d")!;
  const { ink } = of;
  context.fillStyle = ink.surface;
  context.fillRect(0, 0, whole.width, whole.height);
  context.drawImage(shown, Math.round(NAMES * ratio), 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const layout = of.layout.peek();
  const begin = TOP + layout.pinnedHeight;
  const write = (text: string, note: string, x: number, y: number, bold: boolean) => {
    context.font = `${bold ? "600 " : ""}12px ${ink.font}`;
    context.fillStyle = ink.text;
    context.fillText(text, x, y, NAMES - x - 8);
    const wide = Math.min(NAMES - x - 8, context.measureText(text).width);
    context.font = `12px ${ink.font}`;
    context.fillStyle = ink.text3;
    if (x + wide + 40 < NAMES) context.fillText(note, x + wide + 6, y, NAMES - x - wide - 14);
  };
  for (const placed of layout.pinned) write(placed.lane.label, placed.lane.note, 26, TOP + placed.y + 16, false);
  context.save();
  context.beginPath();
  context.rect(0, begin, NAMES, of.height - begin);
  context.clip();
  const offset = begin - of.scroll;
  for (const head of layout.heads) {
    context.fillStyle = ink.sunken;
    context.fillRect(0, offset + head.y, NAMES, head.height);
    write(head.group.label, head.group.note, 12, offset + head.y + 17, true);
  }
  for (const placed of layout.lanes) {
    write(placed.lane.label, placed.lane.note, 26, offset + placed.y + 16, false);
    context.fillStyle = ink.grid;
    context.fillRect(0, offset + placed.y + placed.height - 1, NAMES, 1);
  }
  context.restore();
  context.fillStyle = ink.border;
  context.fillRect(NAMES - 1, 0, 1, of.height);
  const blob = await new Promise<Blob | null>((done) => whole.toBlob(done, "image/png"));
  if (!blob) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
