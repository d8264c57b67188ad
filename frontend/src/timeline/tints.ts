/**
 * How a span is drawn. A tint is one number: red, green and blue as in canvas memory, and in the highest byte the
 * style.
 */
import { family, hasFamily, kindOf, shade, spanFamily, token, type Family } from "../hues";
import { sheet } from "./scene";
import type { Names, Tile } from "./wire";

/** Colors of the theme, and their use. */
export interface Palette {
  dark: boolean;
  tokens: Record<string, string>;
  how: Coloring;
  /** Selected kinds; others are pale. None: all. */
  only: string[];
}

/** The tokens of a palette. */
export const TOKENS = [
  ..."surface sunken border border-strong grid text text-2 text-3 accent on-accent on-kind font".split(" "),
  ..."kind-compute kind-host kind-copy kind-communication kind-wait kind-idle".split(" "),
  ..."matmul attention conv norm elem reduce cast optim index other".split(" ").map((family) => `op-${family}`),
].map((name) => `--${name}`);

export const COLORINGS = ["family", "kind", "scope", "duration"] as const;
export type Coloring = (typeof COLORINGS)[number];

/** Dark text on the fill. */
export const DARK = 1 << 24;
/** A frame with a light fill: a span that only names a range. */
export const FRAMED = 2 << 24;
/** Idle. */
export const HATCHED = 4 << 24;

const FRAMES = new Set(["step", "scope", "annotation"]);
/** Names that are no families: `WithLossCell` is a network, `Reduce_1_0` a collective. */
const VAGUE = new Set<Family>(["other", "reduce"]);
const HUES = [
  "--op-matmul",
  "--op-attention",
  "--op-conv",
  "--op-norm",
  "--op-elem",
  "--op-reduce",
  "--op-cast",
  "--op-optim",
  "--op-index",
];
const RAMP = 24;
const PALE = 0.18;

const pixel = sheet({ willReadFrequently: true });

const parsed = new Map<string, number>();

/** A CSS color as red | green << 8 | blue << 16. Cached: there are few, and reading one back is slow. */
function rgb(of: string): number {
  let known = parsed.get(of);
  if (known === undefined) {
    pixel.fillStyle = of;
    pixel.fillRect(0, 0, 1, 1);
    const [red, green, blue] = pixel.getImageData(0, 0, 1, 1).data;
    known = red | (green << 8) | (blue << 16);
    parsed.set(of, known);
  }
  return known;
}

export function cssOf(tint: number): string {
  return `rgb(${tint & 255} ${(tint >> 8) & 255} ${(tint >> 16) & 255})`;
}

function mixed(item: number, other: number, part: number): number {
  const mix = (shift: number) =>
    Math.round(((item >> shift) & 255) * part + ((other >> shift) & 255) * (1 - part)) << shift;
  return mix(0) | mix(8) | mix(16);
}

export class Tints {
  /** Counts changes: a tile tinted before the last one is tinted again. */
  epoch = 0;
  surface = "";
  sunken = "";
  border = "";
  strong = "";
  grid = "";
  text = "";
  text2 = "";
  text3 = "";
  accent = "";
  onAccent = "";
  onKind = "";
  host = "";
  compute = "";
  idle = "";
  warn = "";
  font = "";
  dark = false;
  private how: Coloring = "family";
  private tints = new Map<number, number>();
  private ramp = new Uint32Array(RAMP);
  private frame = 0;
  private free = 0;
  private base = 0;
  private kindTint = new Map<string, number>();
  private hues: number[] = [];
  private plain = 0;
  private tokens: Record<string, string> = {};
  private only = new Set<string>();
  /** Separates touching bars: the color furthest from the background. */
  edge = 0;

  constructor(
    private names: Names,
    private kinds: string[],
  ) {}

  /** The present colors of the theme. */
  refresh({ dark, tokens, how, only }: Palette): void {
    const css = (name: string) => tokens[name] ?? "";
    this.how = how;
    this.dark = dark;
    this.tokens = tokens;
    this.only = new Set(only);
    [this.surface, this.sunken, this.border, this.strong, this.grid] = [
      "--surface",
      "--sunken",
      "--border",
      "--border-strong",
      "--grid",
    ].map(css);
    [this.text, this.text2, this.text3, this.accent, this.onAccent, this.onKind] = [
      "--text",
      "--text-2",
      "--text-3",
      "--accent",
      "--on-accent",
      "--on-kind",
    ].map(css);
    [this.host, this.compute, this.idle, this.warn] = [
      "--kind-host",
      "--kind-compute",
      "--kind-idle",
      "--kind-wait",
    ].map(css);
    this.font = css("--font");
    this.base = rgb(this.surface);
    this.edge = rgb(this.text);
    this.frame = mixed(rgb(this.strong), rgb(this.sunken), 0.35) | FRAMED | (this.dark ? 0 : DARK);
    this.free = mixed(rgb(this.idle), rgb(this.sunken), 0.55) | HATCHED;
    // The longer, the further from the background.
    const [low, high] = [
      mixed(rgb(this.compute), rgb(this.surface), 0.22),
      mixed(rgb(this.compute), rgb(this.text), 0.6),
    ];
    for (let at = 0; at < RAMP; at++) this.ramp[at] = mixed(high, low, at / (RAMP - 1)) | (at < RAMP * 0.45 ? DARK : 0);
    this.hues = HUES.map((name) => rgb(css(name)));
    this.plain = rgb(css(token("other")));
    this.tints.clear();
    this.kindTint.clear();
    this.epoch += 1;
  }

  /** The tint of a name and kind, whatever the duration. */
  tint(name: number, kind: number): number {
    const key = name * 32 + kind;
    let known = this.tints.get(key);
    if (known === undefined) {
      known = this.make(
        this.names.text[name],
        this.kinds[kind] ?? "other",
        this.names.more[name],
        this.names.means[name],
      );
      if (!this.meant(kind))
        known = mixed(known, this.base, PALE) | (known & (FRAMED | HATCHED)) | (this.dark ? 0 : DARK);
      this.tints.set(key, known);
    }
    return known;
  }

  byDuration(ns: number): number {
    // From 100 ns to 100 ms.
    const at = Math.log10(Math.max(1, ns) / 100) / 6;
    return this.ramp[Math.max(0, Math.min(RAMP - 1, Math.floor(at * RAMP)))];
  }

  private ofKind(name: string): number {
    let known = this.kindTint.get(name);
    if (known === undefined) {
      known = rgb(this.tokens[`--kind-${name}`]) | (!this.dark && (name === "host" || name === "wait") ? DARK : 0);
      this.kindTint.set(name, known);
    }
    return known;
  }

  private make(name: string, kind: string, scope: string | null, means: string | null): number {
    if (kind === "free") return this.free;
    if (kind === "computing") return this.ofKind("compute");
    if (kind === "exposed") return this.ofKind("communication");
    if (kind === "hidden")
      return mixed(this.ofKind("communication"), this.base, 0.35) | FRAMED | (this.dark ? 0 : DARK);
    if (kind === "host" || kind === "wait") return this.ofKind(kind); // of the critical path
    if (kind === "launch") return mixed(this.ofKind("host"), this.base, 0.55) | DARK;
    if (this.how === "scope" && kind === "scope") return this.hues[hash(name) % HUES.length];
    if (FRAMES.has(kind) && (this.how !== "family" || VAGUE.has(family(name)))) return this.frame;
    if (this.how === "kind") return this.ofKind(kindOf(kind));
    if (this.how === "scope")
      return scope === null ? mixed(this.plain, this.base, 0.4) | DARK : this.hues[hash(scope) % HUES.length];
    if (!hasFamily(kind)) return kind === "python" ? this.shaded(name) : this.ofKind(kindOf(kind));
    const of = spanFamily(name, means);
    return of === "other" ? this.plain : rgb(shade(name, this.tokens[token(of)]));
  }

  /** Python frames have the color of the host; a shade separates neighbors. */
  private shaded(name: string): number {
    const host = this.ofKind("host");
    return mixed(host, this.base, 0.62 + 0.09 * (hash(name) % 5)) | (host & DARK);
  }

  private meant(kind: number): boolean {
    return !this.only.size || this.only.has(this.kinds[kind]);
  }

  paint(tile: Tile): void {
    if (tile.tinted === this.epoch) return;
    tile.tinted = this.epoch;
    const [long, bucket] = [tile.longName.length, tile.bucketName.length];
    tile.longTint ??= new Uint32Array(long);
    tile.bucketTint ??= new Uint32Array(bucket);
    const timed = this.how === "duration";
    for (let at = 0; at < long; at++) {
      const tint = this.tint(tile.longName[at], tile.longKind[at]);
      tile.longTint[at] =
        timed && tile.longSpan[at] >= 0 && !(tint & (FRAMED | HATCHED)) && this.meant(tile.longKind[at])
          ? this.byDuration(tile.longDur[at])
          : tint;
    }
    for (let at = 0; at < bucket; at++) {
      const tint = this.tint(tile.bucketName[at], tile.bucketKind[at]);
      tile.bucketTint[at] =
        timed && tile.bucketSpan[at] >= 0 && !(tint & (FRAMED | HATCHED)) && this.meant(tile.bucketKind[at])
          ? this.byDuration(((tile.bucketBusy[at] / 255) * tile.bucket) / Math.max(1, tile.bucketCount[at]))
          : tint;
    }
  }
}

function hash(text: string): number {
  let sum = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) sum = Math.imul(sum ^ text.charCodeAt(at), 0x01000193) >>> 0;
  return sum;
}
