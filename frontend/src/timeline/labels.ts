/** Names and values as they are written into the picture. */
import * as units from "../units";
import type { Pen } from "./scene";
import type { Names } from "./wire";

/** Texts that fit. */
export class Labels {
  private widths: number[] = [];
  private cut = new Map<number, { text: string; width: number }>();
  private short: string[] = [];

  constructor(
    private names: Names,
    private context: Pen,
  ) {}

  text(name: number): string {
    return (this.short[name] ??= shown(this.names.text[name]));
  }

  /** The name, or its beginning; "" if nothing useful fits. Of a scope the last part. */
  fit(name: number, room: number, scope: boolean): string {
    const whole = scope ? (this.short[name] ??= this.names.text[name].replace(/^.*\//, "")) : this.text(name);
    const width = (this.widths[name] ??= this.context.measureText(whole).width);
    if (width <= room) return whole;
    const most = Math.min(511, Math.floor((room / width) * whole.length));
    if (most < 3) return "";
    // Letters differ in width: the same beginning may fit with a little more room.
    for (let letters = most; letters >= 3; letters--) {
      const key = name * 512 + letters;
      let cut = this.cut.get(key);
      if (cut === undefined) {
        const text = `${whole.slice(0, letters)}…`;
        this.cut.set(key, (cut = { text, width: this.context.measureText(text).width }));
      }
      if (cut.width <= room) return cut.text;
    }
    return "";
  }

  forget(): void {
    this.widths = [];
    this.cut.clear();
  }
}

/**
 * Names that differ at the end: "Default/network/fc1-Dense/MatMul-op12", "torch/nn/modules/module.py(1532):
 * _call_impl".
 */
const PATH = /^[^\s/(]+(\/[^\s/(]+)+(\(\d+\): .*)?$/;

/** A Python frame, such as "train.py(12): <lambda>". */
const FRAME = /\(\d+\): /;

/** A name as written in a bar: without the parts that all names of its kind share. */
export function shown(name: string): string {
  let text = name.replace(/^autograd::engine::evaluate_function: /, "").replace(/^void /, "");
  if (/[<(]/.test(text) && /::|</.test(text) && !FRAME.test(text)) {
    const functor = /(\w*(?:Functor|_functor|Op)\w*)/.exec(text.slice(text.indexOf("<") + 1))?.[1];
    const plain = text
      .replace(/\(anonymous namespace\)::/g, "")
      .split(/[<(]/, 1)[0]
      .split("::")
      .pop()!;
    text = functor && plain && functor !== plain ? `${plain.replace(/_kernel$/, "")} · ${functor}` : plain || text;
  } else if (PATH.test(text)) text = text.replace(/^[^(]*\//, "");
  return text.length > 160 ? text.slice(0, 160) : text;
}

/** Units with a prefix: 3.20 GHz. */
const SI = new Set(["Hz", "W", "J", "V", "A", "bit/s", "FLOP/s"]);

/** The name of one unit. */
const ONE: Record<string, string> = {
  rows: "row",
  batches: "batch",
  processes: "process",
  threads: "thread",
  cores: "core",
};

/** A value of a counter, with its unit. */
export function amount(value: number, unit?: string | null): string {
  if (unit === "bytes") return units.text(units.bytes(value));
  if (unit === "bytes/s") return units.text(units.rate(value));
  if (unit === "share") return units.text(units.share(value));
  if (unit === "ns") return units.text(units.time(value));
  if (unit === "percent") return units.text(units.share(value / 100));
  const { value: number, unit: times } = units.short(value);
  if (unit === "1/s") return `${number}${units.THIN}${times}/s`;
  if (unit && SI.has(unit)) return `${number}${units.THIN}${times}${unit}`;
  return `${units.text({ value: number, unit: times })}${unit ? ` ${value === 1 ? (ONE[unit] ?? unit) : unit}` : ""}`;
}
