/** What the analyses know of the way from storage to the training. */
import type { Table } from "../table";

export interface Recorded {
  waits: Table | null;
  trace: Table;
  queues: Table;
  whole: Table;
  pipeline: Table;
  /** Of the time in steps that the training waited for data; NaN where that was not recorded. */
  share: number;
  /** The same per step, on average. */
  wait: number;
  /** The median step, as `overview` has it. */
  median: number;
}
