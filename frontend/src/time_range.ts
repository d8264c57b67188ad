/** The range of time that charts share, in the address as t0 and t1: ns since the start of the run. */
import { info } from "./data";
import type { Band, Range } from "./parts/series_marks";
import { go, param } from "./state";
import type { Table } from "./table";
import { fill, strings } from "./strings";

const text = strings("range");

export function selectedRange(): Range | null {
  const [from, to] = [param("t0"), param("t1")].map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && from < to ? [from, to] : null;
}

export function selectRange(range: Range | null): void {
  go({ params: { t0: range && Math.round(range[0]), t1: range && Math.round(range[1]) } }, true);
}

/** A time since the start of the run as the analyses expect it: absolute, to the nanosecond. */
export function absoluteTime(since: number): string {
  return String(BigInt(info.value!.origin_ns) + BigInt(Math.round(since)));
}

/** The steps of a table that has step, start_ns and end_ns. */
export function stepBands(steps: Table | null): Band[] {
  if (!steps) return [];
  const [from, to, step] = [steps.num("start_ns"), steps.num("end_ns"), steps.num("step")];
  const order = Array.from(from, (_, row) => row).sort((a, b) => from[a] - from[b]);
  return order.map((row) => ({ from: from[row], to: to[row], label: fill(text().step, { step: step[row] }) }));
}
