/**
 * Colors of frames: of the family of an operator, of the package of a Python function, of the change between two
 * runs.
 */
import { css } from "../colors";
import { family, hasFamily, kindOf, shade, spanFamily, token } from "../hues";
import { theme } from "../state";
import { OTHER, sourceOf } from "./tree";

/** A fill, and the color of the text on it. */
export interface Tint {
  fill: string;
  ink: string;
  /** The fill as in canvas memory: red, green, blue and alpha, lowest byte first. */
  pixel: number;
}

const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true })!;
const resolved = new Map<string, [string, number]>();

/** A tint with plain colors: a color such as oklch(from …) is slow to parse, and viewers of SVG do not know it. */
function tinted(fill: string, ink: string): Tint {
  let color = resolved.get(fill);
  if (!color) {
    pen.fillStyle = fill;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
    color = [`rgb(${red},${green},${blue})`, (red | (green << 8) | (blue << 16) | (255 << 24)) >>> 0];
    resolved.set(fill, color);
  }
  return { fill: color[0], ink, pixel: color[1] };
}

const HUES = [
  "--op-matmul",
  "--op-conv",
  "--op-attention",
  "--op-elem",
  "--op-norm",
  "--op-reduce",
  "--op-cast",
  "--op-optim",
  "--op-index",
];
const FRAMES = new Set(["step", "thread", "annotation", "other"]);

const known = new Map<string, Tint>();

/** The color of a frame: the same for a name in every run, view and theme change. */
export function tintOf(kind: string, name: string | null): Tint {
  const key = `${theme()}\n${kind}\n${name}`;
  let tint = known.get(key);
  if (!tint) known.set(key, (tint = found(kind, name ?? "")));
  return tint;
}

function found(kind: string, name: string): Tint {
  if (kind === OTHER || FRAMES.has(kind)) return tinted(css("--sunken"), css("--text-2"));
  if (kind === "api") return tinted(css("--kind-host"), css(theme() === "dark" ? "--on-kind" : "--text"));
  const hue =
    kind === "python" || kind === "scope"
      ? HUES[hash(familyName(kind, name)) % HUES.length]
      : hasFamily(kind)
        ? token(kind === "op" || kind === "kernel" ? family(name) : spanFamily(name, null))
        : `--kind-${kindOf(kind)}`;
  const wait = hue === "--kind-wait";
  return tinted(wait ? css(hue) : shade(name, css(hue)), css(wait ? "--on-wait" : "--on-kind"));
}

/** What frames of one color share: the package of a function, the class or name of a module without its number. */
export function familyName(kind: string, name: string): string {
  if (kind === "scope")
    return name
      .replace(/^nn\.Module: /, "")
      .replace(/[._]?\d+$/, "")
      .toLowerCase();
  const source = sourceOf(name);
  if (!source) return /^<built-in|^\$builtins/.test(name) ? "built-in" : name.replace(/^\$/, "").split(/[.\s]/, 1)[0];
  const parts = source.file.split("/").filter(Boolean);
  const installed = parts.findIndex((part) => part === "site-packages" || /^python3\.\d+$/.test(part));
  const inside = parts.slice(installed + 1);
  return inside.length > 2 ? `${inside[0]}/${inside[1]}` : inside[0];
}

function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  return value >>> 0;
}

/** Red where this run takes longer, blue where it is shorter; gray without a change. −1 to 1; NaN: unknown. */
export function changeTint(change: number): Tint {
  const base = rgb(css("--kind-idle"));
  if (!Number.isFinite(change)) return tinted(css("--sunken"), css("--text-2"));
  // A change of 1 % is visible, one of 50 % has the full color.
  const strength = Math.min(1, Math.abs(change) * 2) * 0.85 + (Math.abs(change) >= 0.01 ? 0.15 : 0);
  const goal = rgb(css(change > 0 ? "--bad" : "--kind-compute"));
  const mixed = base.map((value, at) => Math.round(value + (goal[at] - value) * strength));
  const light = (0.2126 * mixed[0] + 0.7152 * mixed[1] + 0.0722 * mixed[2]) / 255;
  return tinted(`rgb(${mixed.join(" ")})`, light > 0.45 ? "#15181c" : "#ffffff");
}

function rgb(hex: string): number[] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
