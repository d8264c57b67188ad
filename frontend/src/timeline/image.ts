/** The picture as a file, with the names of the tracks beside it. */
import { css } from "../colors";
import { length } from "./measure";
import type { Timeline } from "./model";
import { RULER, TOP } from "./scene";

const NAMES = 200;

export async function save(of: Timeline, name: string): Promise<void> {
  const shown = (await of.picture()) as ImageBitmap | HTMLCanvasElement | null;
  if (!shown) return;
  const ratio = shown.width / Math.max(1, of.width);
  const whole = document.createElement("canvas");
  whole.width = shown.width + Math.round(NAMES * ratio);
  whole.height = shown.height;
  const context = whole.getContext("2d")!;
  const [surface, sunken, border, grid, text, text3, font] = [
    "--surface",
    "--sunken",
    "--border",
    "--grid",
    "--text",
    "--text-3",
    "--font",
  ].map(css);
  context.fillStyle = surface;
  context.fillRect(0, 0, whole.width, whole.height);
  context.drawImage(shown, Math.round(NAMES * ratio), 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const layout = of.layout.peek();
  const begin = TOP + layout.pinnedHeight;
  const write = (label: string, note: string, x: number, y: number, bold: boolean) => {
    context.font = `${bold ? "600 " : ""}12px ${font}`;
    context.fillStyle = text;
    context.fillText(label, x, y, NAMES - x - 8);
    const wide = Math.min(NAMES - x - 8, context.measureText(label).width);
    context.font = `12px ${font}`;
    context.fillStyle = text3;
    if (x + wide + 40 < NAMES) context.fillText(note, x + wide + 6, y, NAMES - x - wide - 14);
  };
  for (const box of layout.pinned) write(box.lane.label, box.lane.note, 26, TOP + box.y + 16, false);
  context.save();
  context.beginPath();
  context.rect(0, begin, NAMES, of.height - begin);
  context.clip();
  const offset = begin - of.scroll;
  for (const head of layout.heads) {
    context.fillStyle = sunken;
    context.fillRect(0, offset + head.y, NAMES, head.height);
    write(head.group.label, head.group.note, 12, offset + head.y + 17, true);
  }
  for (const box of layout.lanes) {
    write(box.lane.label, box.lane.note, 26, offset + box.y + 16, false);
    context.fillStyle = grid;
    context.fillRect(0, offset + box.y + box.height - 1, NAMES, 1);
  }
  context.restore();
  context.fillStyle = border;
  context.fillRect(NAMES - 1, 0, 1, of.height);
  const ruler = of.measured.peek();
  if (ruler && ruler.to !== null) {
    // The ruler over the picture, which is not part of the canvas.
    const x = (moment: number) =>
      NAMES + Math.max(0, Math.min(of.width, ((moment - of.t0) / (of.t1 - of.t0)) * of.width));
    const [left, right] = [x(Math.min(ruler.from, ruler.to)), x(Math.max(ruler.from, ruler.to))];
    const reply = length(of, Math.abs(ruler.to - ruler.from));
    [context.fillStyle, context.font] = [css("--accent"), `600 11px ${font}`];
    context.fillRect(left, TOP - RULER, 1, of.height);
    context.fillRect(right, TOP - RULER, 1, of.height);
    context.fillRect(left, TOP + 4, right - left, 2);
    const wide = context.measureText(reply).width + 12;
    context.fillRect((left + right - wide) / 2, TOP + 8, wide, 18);
    context.fillStyle = css("--on-accent");
    context.fillText(reply, (left + right - wide) / 2 + 6, TOP + 21);
  }
  const blob = await new Promise<Blob | null>((done) => whole.toBlob(done, "image/png"));
  if (!blob) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
