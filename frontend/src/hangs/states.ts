/** What each rank did with a collective. */
import type { Table } from "../table";

export const STATES = ["not_called", "called", "completed", "unknown", "different"] as const;
export type State = (typeof STATES)[number];

/** Neighboring ranks in the same state. */
export interface Run {
  from: number;
  to: number;
  state: State;
}

/** Per collective: the ranks of its group as runs of equal states, by position in `ranks`. */
export function cells(pending: Table, ranks: number[]): Run[][] {
  const position = new Map(ranks.map((rank, at) => [rank, at]));
  return Array.from({ length: pending.rows }, (_, row) => {
    const states = new Array<State | undefined>(ranks.length);
    // A later state of the list is drawn over an earlier one: a rank that completed has also called.
    for (const state of ["called", "completed", "not_called", "unknown", "different"] as const) {
      for (const rank of (pending.str(state)[row] ?? "").split(",").filter(Boolean)) {
        const at = position.get(Number(rank));
        if (at !== undefined) states[at] = state;
      }
    }
    return runs(states);
  });
}

function runs(states: (State | undefined)[]): Run[] {
  const result: Run[] = [];
  states.forEach((state, at) => {
    if (state === undefined) return;
    const last = result[result.length - 1];
    if (last && last.to === at && last.state === state) last.to = at + 1;
    else result.push({ from: at, to: at + 1, state });
  });
  return result;
}
