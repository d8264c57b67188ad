/** Draws the timeline: a worker; or the page itself in a report and where a worker has no canvas. */
import script from "timeline-worker";
import { source } from "../source";
import type { Palette } from "./tints";
import type { Scene } from "./scene";
import { Stage, type Told, type Under } from "./stage";
import type { Header } from "./wire";
import type { Order, Reply } from "./worker";

export interface Renderer {
  recolor(palette: Palette, scopes: boolean): void;
  /** Draw with the changes; `told` is called afterwards. */
  draw(change: Partial<Scene>): void;
  at(x: number, y: number): Promise<Under>;
  /** The present picture. */
  picture(): Promise<CanvasImageSource>;
  close(): void;
}

/** Started with the page, so that it is ready when the tracks are known. */
let ready: Worker | null = null;
/** It could not be started. */
let broken = false;

export function prepare(): void {
  if (ready || broken || !script || source().isReport || !("transferControlToOffscreen" in HTMLCanvasElement.prototype))
    return;
  ready = new Worker(new URL(script, import.meta.url));
  ready.onerror = () => {
    broken = true;
    ready = null;
  };
}

export function artist(
  canvas: HTMLCanvasElement,
  run: string,
  header: Header,
  reported: (reported: Told) => void,
): Renderer {
  prepare();
  const worker = ready;
  ready = null;
  if (!worker) return near(canvas, run, header, reported);
  // A worker that fails to start leaves an unusable canvas: another one replaces it.
  const scene: Partial<Scene> = {};
  let colors: [Palette, boolean] | null = null;
  const failed = () => {
    worker.terminate();
    const fresh = canvas.cloneNode() as HTMLCanvasElement;
    canvas.replaceWith(fresh);
    now = near(fresh, run, header, reported);
    if (colors) now.recolor(...colors);
    if (scene.width) now.draw(scene);
  };
  let now = far(worker, canvas, run, header, reported, failed);
  return {
    recolor: (...by) => now.recolor(...(colors = by)),
    draw: (change) => {
      Object.assign(scene, change);
      now.draw(change);
    },
    at: (x, y) => now.at(x, y),
    picture: () => now.picture(),
    close: () => now.close(),
  };
}

function far(
  worker: Worker,
  canvas: HTMLCanvasElement,
  run: string,
  header: Header,
  reported: (reported: Told) => void,
  failed: () => void,
): Renderer {
  const requested = new Map<number, (answer: Under | ImageBitmap) => void>();
  let number = 0;
  const say = (order: Order, give: Transferable[] = []) => worker.postMessage(order, give);
  const question = (order: (number: number) => Order) =>
    new Promise<Under | ImageBitmap>((done) => {
      requested.set(++number, done);
      say(order(number));
    });
  worker.onmessage = ({ data }: MessageEvent<Reply>) => {
    if (data.what === "told") return reported(data.told);
    requested.get(data.number)?.(data.answer);
    requested.delete(data.number);
  };
  worker.onerror = failed;
  const offscreen = canvas.transferControlToOffscreen();
  say(
    {
      what: "begin",
      canvas: offscreen,
      header,
      base: new URL(`api/runs/${encodeURIComponent(run)}/`, document.baseURI).href,
    },
    [offscreen],
  );
  return {
    recolor: (palette, scopes) => say({ what: "recolor", palette, scopes }),
    draw: (change) => say({ what: "draw", change }),
    at: (x, y) => question((number) => ({ what: "at", number, x, y })) as Promise<Under>,
    picture: () => question((number) => ({ what: "picture", number })) as Promise<ImageBitmap>,
    close: () => worker.terminate(),
  };
}

function near(canvas: HTMLCanvasElement, run: string, header: Header, reported: (reported: Told) => void): Renderer {
  const from = source();
  const fetched = async (path: string, signal: AbortSignal) => (await from.raw(run, path, signal)).arrayBuffer();
  const stage = new Stage(
    canvas.getContext("2d", { alpha: false })!,
    header,
    Object.assign(fetched, { still: from.isReport }),
    reported,
  );
  return {
    recolor: (palette, scopes) => stage.recolor(palette, scopes),
    draw: (change) => stage.draw(change),
    at: async (x, y) => stage.at(x, y),
    picture: async () => canvas,
    close: () => stage.close(),
  };
}
