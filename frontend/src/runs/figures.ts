/** Figures of each run, read when its row is in view. */
import { type Info, type Run, source } from "../source";
import type { Table } from "../table";
import { type Row, verdictRows } from "../verdict";
import { signal } from "@preact/signals";

// Figures of runs that were read. Kept as long as the files are unchanged.

export interface Figures {
  info: Info;
  overview: Table;
  row: number; // of the rank that the pages show first
  totals: Float64Array;
  verdict: Row[];
}

export type RunState = Figures | { error: string } | "asked";

export const figuresByRun = new Map<string, RunState>();

export const figuresVersion = signal(0);

export const waiting: Run[] = [];

let busy = 0;
const AT_ONCE = 2;

/** Larger runs are read on request: a list is no reason to read hundreds of gigabytes. */
export const LARGE_BYTES = 1e9;

export function keyOf(run: Run): string {
  return `${run.id} ${run.modified_ns}`;
}

export function queueRun(run: Run, first = false): void {
  if (figuresByRun.has(keyOf(run))) return;
  figuresByRun.set(keyOf(run), "asked");
  if (first) waiting.unshift(run);
  else waiting.push(run);
  readNext();
}

export function readNext(): void {
  while (busy < AT_ONCE && waiting.length) {
    const run = waiting.shift()!;
    busy += 1;
    readFigures(run)
      .then(
        (result) => figuresByRun.set(keyOf(run), result),
        (error: Error) => figuresByRun.set(keyOf(run), { error: error.message }),
      )
      .finally(() => {
        busy -= 1;
        figuresVersion.value += 1;
        readNext();
      });
  }
}

async function readFigures(run: Run): Promise<Figures> {
  const info = await source().info(run.id);
  const part = { steps: info.part?.join(":"), rank: info.ranks[0] }; // what its pages show first
  const counting = { warmup: info.part ? 0 : null };
  const overview = await source().table(run.id, "overview", { ...part, ...counting });
  const [trace, verdict] = await Promise.all([
    source().table(run.id, "step_trace", { ...part, columns: "rank,step,total_ns", limit: 2000 }),
    source().table(run.id, "verdict", { topic: "overview", ...part, ...counting }),
  ]);
  return { info, overview, row: 0, totals: trace.num("total_ns"), verdict: verdictRows(verdict) };
}
