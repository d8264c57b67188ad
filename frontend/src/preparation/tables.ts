/** Tables of the data path from storage to the training. */
import type { Table } from "../table";
import type { Row } from "../verdict";

export interface InputTables {
  waits: Table | null;
  trace: Table;
  queues: Table;
  whole: Table;
  pipeline: Table;
  verdict: Row[];
  /** Share of the steps that the training waits for data; NaN if not recorded. */
  share: number;
  /** The same per step, on average. */
  wait: number;
  /** The median step of `overview`. */
  median: number;
}
