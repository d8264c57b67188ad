/** How quantities are written: three digits, a fitting unit, the exact value on hover. */

export interface Written {
  value: string;
  unit: string;
}

export const MISSING = "–";
/** A narrow space without a line break. */
export const THIN = "\u202f";

/** 47.8 µs, 1.17 ms, 66.4 ms, 3.20 s, 4 min 12 s. `unit` forces one unit for a whole column. */
export function time(ns: number, unit?: TimeUnit): Written {
  if (!Number.isFinite(ns)) return { value: MISSING, unit: "" };
  if (ns === 0 && !unit) return { value: "0", unit: "" };
  if (!unit && Math.abs(ns) >= 60e9) return minutes(ns);
  const name = unit ?? timeUnit(ns);
  return { value: digits(ns / TIME[name]), unit: name };
}

export type TimeUnit = "ns" | "µs" | "ms" | "s";
const TIME: Record<TimeUnit, number> = { ns: 1, µs: 1e3, ms: 1e6, s: 1e9 };

export function timeUnit(ns: number): TimeUnit {
  const size = Math.abs(ns);
  // 999.6 would be written as 1000: use the next unit.
  return size < 999.5 ? "ns" : size < 999.5e3 ? "µs" : size < 999.5e6 ? "ms" : "s";
}

export function timeIn(ns: number, unit: TimeUnit): number {
  return ns / TIME[unit];
}

function minutes(ns: number): Written {
  const seconds = Math.round(Math.abs(ns) / 1e9);
  const sign = ns < 0 ? "−" : "";
  const hours = Math.floor(seconds / 3600);
  if (hours) return { value: `${sign}${hours} h ${Math.floor((seconds % 3600) / 60)}`, unit: "min" };
  return { value: `${sign}${Math.floor(seconds / 60)} min ${seconds % 60}`, unit: "s" };
}

/** 65.4 %; below 0.05 % "<0.1"; 0 only for zero. */
export function share(part: number): Written {
  if (!Number.isFinite(part)) return { value: MISSING, unit: "" };
  const percent = part * 100;
  const size = Math.abs(percent);
  if (size > 0 && size < 0.05) return { value: `${percent < 0 ? "−" : ""}<0.1`, unit: "%" };
  // 99.96 % is not everything.
  if (size > 99.95 && size < 100) return { value: `${percent < 0 ? "−" : ""}>99.9`, unit: "%" };
  return { value: size === 0 || size === 100 ? minus(String(percent)) : minus(percent.toFixed(1)), unit: "%" };
}

/** Decimal, as disks and networks: 13.6 GB. */
export function bytes(count: number): Written {
  return scaled(count, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

export function rate(perSecond: number): Written {
  return scaled(perSecond, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
}

export function flops(count: number): Written {
  return scaled(count, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"]);
}

export function flopsRate(perSecond: number): Written {
  return scaled(perSecond, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"]);
}

/** 1,228; never 1.2K in a table. */
export function count(value: number): Written {
  if (!Number.isFinite(value)) return { value: MISSING, unit: "" };
  const whole = Number.isInteger(value);
  const text = whole ? String(Math.abs(value)) : digits(Math.abs(value));
  const [before, after] = text.split(".");
  const grouped = before.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return { value: (value < 0 ? "−" : "") + (after ? `${grouped}.${after}` : grouped), unit: "" };
}

/** 123 k; where space is short. */
export function short(value: number): Written {
  return scaled(value, ["", "k", "M", "G", "T"]);
}

export function text(written: Written): string {
  return written.unit ? `${written.value}${THIN}${written.unit}` : written.value;
}

function scaled(value: number, names: string[]): Written {
  if (!Number.isFinite(value)) return { value: MISSING, unit: "" };
  if (value === 0) return { value: "0", unit: "" };
  let at = 0;
  let size = Math.abs(value);
  while (size >= 999.5 && at < names.length - 1) {
    size /= 1000;
    at += 1;
  }
  const written = at === 0 && Number.isInteger(value) ? String(size) : digits(size);
  return { value: (value < 0 ? "−" : "") + written, unit: names[at] };
}

/** Three significant digits. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 999.5) return minus(Math.round(value).toString()).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const places = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.01 ? 2 : 3;
  return minus(value.toFixed(places));
}

function minus(text: string): string {
  return text.replace("-", "−");
}

/** The quantity of a column: its name contains the unit. */
export type Quantity = "time" | "bytes" | "share" | "rate" | "flops" | "flopsRate" | "count" | "text";

export function quantityOf(name: string): Quantity {
  if (name.endsWith("_ns")) return "time";
  if (name.endsWith("bytes_per_s")) return "rate";
  if (name.endsWith("_bytes") || name === "bytes") return "bytes";
  if (name.endsWith("share") || name === "utilization" || name === "occupancy") return "share";
  if (name.endsWith("flops_per_s")) return "flopsRate";
  if (name === "flops" || name.endsWith("_flops")) return "flops";
  return "count";
}

export function write(value: number, quantity: Quantity, unit?: TimeUnit): Written {
  switch (quantity) {
    case "time":
      return time(value, unit);
    case "bytes":
      return bytes(value);
    case "share":
      return share(value);
    case "rate":
      return rate(value);
    case "flops":
      return flops(value);
    case "flopsRate":
      return flopsRate(value);
    default:
      return count(value);
  }
}

/** The exact value, for hover and for copying. */
export function exact(value: number, quantity: Quantity): string {
  if (!Number.isFinite(value)) return "";
  const grouped = count(Number.isInteger(value) ? value : Number(value.toPrecision(15))).value;
  const whole = Number.isInteger(value) ? grouped : String(value);
  const unit = {
    time: "ns",
    bytes: "bytes",
    rate: "bytes/s",
    flops: "FLOP",
    flopsRate: "FLOP/s",
    share: "",
    count: "",
    text: "",
  }[quantity];
  return unit ? `${whole} ${unit}` : whole;
}

/** Round numbers to draw lines at, from low to high, about `wanted` of them. */
export function ticks(low: number, high: number, wanted = 5): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough)!;
  const first = Math.ceil(low / step);
  const last = Math.floor(high / step + 1e-9);
  if (last <= first && wanted < 20) return ticks(low, high, wanted + 1); // a single line shows no scale
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

/** Labels of an axis: in one unit, which the last label names, with enough digits to distinguish them. */
export function axisLabels(values: number[], as: Quantity, unit?: TimeUnit): string[] {
  const most = Math.max(...values.map(Math.abs));
  const small = as === "count" && most < 1e5;
  const name =
    as === "time" ? (unit ?? timeUnit(most)) : small ? "" : (as === "count" ? short(most) : write(most, as)).unit;
  const item =
    as === "time"
      ? TIME[name as TimeUnit]
      : as === "share"
        ? 0.01
        : small
          ? 1
          : 1000 ** Math.max(0, Math.floor(Math.log10(Math.max(1, most)) / 3 + 1e-9));
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) / item : 1;
  // Enough digits to distinguish them: 122.5 is not 123.
  let places = 0;
  while (places < 9 && Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6 * step * 10 ** places)
    places++;
  const [whole, part] = [
    (text: string) => text.split(".")[0].replace(/\B(?=(\d{3})+(?!\d))/g, ","),
    (text: string) => text.split(".")[1],
  ];
  return values.map((value, at) => {
    const number = String(+(value / item).toFixed(places));
    const written = minus(part(number) ? `${whole(number)}.${part(number)}` : whole(number));
    return at === values.length - 1 && name ? `${written} ${name}` : written;
  });
}

/** Integers in order as ranges: 2–33, 40. */
export function ranges(numbers: number[]): string {
  const result: [number, number][] = [];
  for (const item of numbers) {
    const last = result.at(-1);
    if (last && item === last[1] + 1) last[1] = item;
    else result.push([item, item]);
  }
  return result.map(([first, end]) => (first === end ? `${first}` : `${first}–${end}`)).join(", ");
}
