/**
 * The stage of the timeline in a worker: tiles are fetched, unpacked and drawn here, so that the page stays responsive.
 */
import { request } from "../request";
import type { Palette } from "./tints";
import type { Scene } from "./scene";
import { Stage, type Told, type Under } from "./stage";
import type { Header } from "./wire";

/** Messages of the page. Answers carry the number of the request. */
export type Order =
  | { what: "begin"; canvas: OffscreenCanvas; header: Header; base: string }
  | { what: "recolor"; palette: Palette; scopes: boolean }
  | { what: "draw"; change: Partial<Scene> }
  | { what: "at"; number: number; x: number; y: number }
  | { what: "picture"; number: number };

export type Reply = { what: "told"; told: Told } | { what: "answer"; number: number; answer: Under | ImageBitmap };

let stage: Stage | null = null;
let canvas: OffscreenCanvas | null = null;
const reply = (text: Reply, give: Transferable[] = []) => (self as unknown as Worker).postMessage(text, give);

self.addEventListener("message", ({ data }: MessageEvent<Order>) => {
  if (data.what === "begin") {
    ({ canvas } = data);
    // Addresses are relative to the page, not to this script.
    const fetched = async (path: string, signal: AbortSignal) =>
      (await request(data.base + path, { signal })).arrayBuffer();
    stage = new Stage(
      canvas.getContext("2d", { alpha: false })!,
      data.header,
      Object.assign(fetched, { still: false }),
      (reported) => reply({ what: "told", told: reported }),
    );
  } else if (data.what === "recolor") stage!.recolor(data.palette, data.scopes);
  else if (data.what === "draw") stage!.draw(data.change);
  else if (data.what === "at") reply({ what: "answer", number: data.number, answer: stage!.at(data.x, data.y) });
  else
    void createImageBitmap(canvas!).then((answer) => reply({ what: "answer", number: data.number, answer }, [answer]));
});
