/** Percentiles of each stage of a step. */
import { Table } from "../table";

export const PARTS = [
  {
    key: "fp_bp_ns",
    stage: "forward and backward",
    color: "var(--kind-compute)",
    word: "fpBp",
  },
  { key: "tail_ns", stage: "tail", color: "var(--kind-communication)", word: "tail" },
  {
    key: "interval_ns",
    stage: "interval",
    color: "var(--kind-wait)",
    word: "interval",
  },
] as const;

export const MARKS = ["p50", "p90", "p99"] as const;

/** The figures of one stage in `step_times`. */
export type Figures = Record<
  "steps" | "left_out" | "mean_ns" | "min_ns" | "p50_ns" | "p90_ns" | "p99_ns" | "max_ns" | "share",
  number
>;

export function figures(times: Table): Map<string, Figures> {
  const names = ["steps", "left_out", "mean_ns", "min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns", "share"] as const;
  return new Map(
    times
      .str("stage")
      .map((stage, row) => [
        stage ?? "",
        Object.fromEntries(names.map((name) => [name, times.num(name)[row]])) as Figures,
      ]),
  );
}
