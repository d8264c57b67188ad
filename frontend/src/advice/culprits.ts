/** What the host does while the device is idle: the activity with the most idle time of each cause. */
import type { Table } from "../table";

export interface Culprit {
  activity: string;
  /** Of the idle time of the cause. */
  share: number;
}

/** By cause and device, as in `causeKey`. Idle time without a known activity counts for the share. */
export function culprits(gaps: Table): Map<string, Culprit> {
  const [cause, activity] = [gaps.str("cause"), gaps.str("host_activity")];
  const [device, duration] = [gaps.num("device"), gaps.num("dur_ns")];
  const sums = new Map<string, Map<string, number>>();
  const totals = new Map<string, number>();
  for (let row = 0; row < gaps.rows; row++) {
    const key = causeKey(cause[row], device[row]);
    totals.set(key, (totals.get(key) ?? 0) + duration[row]);
    const name = activity[row];
    if (!name) continue;
    const of = sums.get(key) ?? new Map<string, number>();
    of.set(name, (of.get(name) ?? 0) + duration[row]);
    sums.set(key, of);
  }
  const found = new Map<string, Culprit>();
  for (const [key, of] of sums) {
    const [name, time] = [...of].reduce((most, one) => (one[1] > most[1] ? one : most));
    found.set(key, { activity: name, share: time / totals.get(key)! });
  }
  return found;
}

export function causeKey(cause: string | null, device: number): string {
  return `${cause}\n${Number.isNaN(device) ? "" : device}`;
}
