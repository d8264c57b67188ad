/**
 * Sentences of the analysis `verdict`: a message code with parameters, rendered from the catalog of a language.
 * The catalogs are those of the Python package (src/stepscope/model/strings), and the rules those of
 * src/stepscope/model/strings/messages.py.
 */
import * as units from "./units";

export type Catalog = Record<string, string>;
export type Value = string | number | number[];
export type Values = Record<string, Value>;

/** Text of a sentence, one of its numbers, or a name in code (with the whole name, if it is shortened). */
export type Part = string | Figure | Name;
export interface Figure {
  value: number;
  quantity: units.Quantity | "change";
  /** Of which parameter; of a range, its first or last value. */
  parameter: string;
}
export interface Name {
  name: string;
  whole?: string;
}

const QUANTITIES: Record<string, units.Quantity | "change"> = {
  share: "share",
  duration: "time",
  bytes: "bytes",
  flops: "flops",
  rate: "flopsRate",
  count: "count",
  change: "change",
};

/** The sentence of a code as plain text. */
export function render(code: string, values: Values, catalog: Catalog): string {
  return messageParts(code, values, catalog)
    .map((part) => plainText(part).replaceAll(units.THIN, " "))
    .join("");
}

/** The sentence of a code as text and numbers, in order. */
export function messageParts(code: string, values: Values, catalog: Catalog): Part[] {
  const template = catalog[code].replace(/<([^<>]*)>/g, (_, part: string) =>
    [...part.matchAll(/\{(\w+)/g)].every(([, name]) => values[name] !== undefined) ? part : "",
  );
  const [first, ...pieces] = template.split(/\{(\w+)(?::(\w+))?\}/);
  const parts: Part[] = [first];
  for (let at = 0; at < pieces.length; at += 3) {
    const [name, form, literal] = pieces.slice(at, at + 3);
    const formatted =
      form === "name" ? [nameOf(values, name)] : valueParts(name, values[name], form ?? "text", catalog);
    const singular = formatted.length === 1 && plainText(formatted[0]) === "1";
    parts.push(
      ...formatted,
      literal.replace(/\[([^|\]]*)\|([^\]]*)\]/g, (_, item: string, many: string) => (singular ? item : many)),
    );
  }
  return joined(parts);
}

function nameOf(values: Values, key: string): Name {
  const whole = values[`${key}_full`];
  return { name: String(values[key]), ...(whole === undefined ? {} : { whole: String(whole) }) };
}

function valueParts(parameter: string, value: Value, form: string, catalog: Catalog): Part[] {
  const quantity = QUANTITIES[form];
  if (quantity) {
    const range = Array.isArray(value);
    const numbers = (range ? value : [value]).map((number, at) => ({
      value: Number(number),
      quantity,
      parameter: range ? `${parameter}[${at}]` : parameter,
    }));
    const different = numbers.filter((item, at) => !at || numberText(item) !== numberText(numbers[0]));
    return different.flatMap((number, at) => (at ? [catalog["word:to"], number] : [number]));
  }
  const word = (text: string) => catalog[`word:${text}`] ?? text;
  if (form === "word") return [word(String(value))];
  if (form !== "list") return [String(value)];
  const words = String(value).split(", ").map(word);
  const last = words.pop()!;
  return [words.length ? words.join(catalog["word:comma"]) + catalog["word:and"] + last : last];
}

/**
 * A number as the terminal writes it (src/stepscope/model/units.py), so that page and terminal show the same sentence.
 */
export function numberText({ value, quantity }: Omit<Figure, "parameter">): string {
  const size = Math.abs(value);
  switch (quantity) {
    case "share":
      return `${value > 0 && value < 0.0005 ? "<0.1" : rounded(value * 100, 1)}${units.THIN}%`;
    case "time":
      return duration(value);
    case "bytes":
      return size < 1000 ? `${rounded(value, 0)}${units.THIN}B` : decimal(value, "B");
    case "flops":
      return decimal(value, "FLOP");
    case "flopsRate":
      return decimal(value, "FLOP/s");
    case "change":
      return `${value < 0 ? "" : "+"}${rounded(value * 100, 0)}${units.THIN}%`;
    default:
      return Number.isInteger(value) ? units.count(value).value : threeDigits(value);
  }
}

function duration(value: number): string {
  const [factor, unit] = TIMES.find(([factor]) => Math.abs(value) >= factor * 0.9995) ?? [0, ""];
  return factor ? `${threeDigits(value / factor)}${units.THIN}${unit}` : `${rounded(value, 0)}${units.THIN}ns`;
}

function decimal(value: number, unit: string): string {
  const [factor, prefix] = DECIMAL.find(([factor]) => Math.abs(value) >= factor * 0.9995) ?? [1, ""];
  return `${threeDigits(value / factor)}${units.THIN}${prefix}${unit}`;
}

const DECIMAL: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
const TIMES: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
];
function threeDigits(value: number): string {
  const size = Math.abs(value);
  return rounded(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/**
 * A number with fixed places and groups. A value half way goes to the even digit, as in Python; toFixed takes the
 * larger.
 */
function rounded(value: number, places: number): string {
  const exact = Math.abs(value).toFixed(Math.min(100, places + 40));
  const cut = exact.indexOf(".") + 1 + places;
  const kept = places ? exact.slice(0, cut) : exact.slice(0, cut - 1);
  const half = /^50*$/.test(exact.slice(cut));
  const digits = half && Number(kept.at(-1)) % 2 === 0 ? kept : Math.abs(value).toFixed(places);
  const [whole, part] = digits.split(".");
  const grouped = units.count(Number(whole)).value;
  return `${value < 0 ? "-" : ""}${part === undefined ? grouped : `${grouped}.${part}`}`;
}

function plainText(part: Part): string {
  if (typeof part === "string") return part;
  return "name" in part ? part.name : numberText(part);
}

/** Neighboring texts as one, without spaces between Chinese characters. */
function joined(parts: Part[]): Part[] {
  const result: Part[] = [];
  for (const part of parts) {
    const last = result.at(-1);
    if (typeof part === "string" && typeof last === "string") result[result.length - 1] = last + part;
    else result.push(part);
  }
  const chinese = /(?<=[\u2e80-\u9fff\uff00-\uffef]) (?=[\u2e80-\u9fff\uff00-\uffef])/g;
  return result.map((part) => (typeof part === "string" ? part.replace(chinese, "") : part));
}
