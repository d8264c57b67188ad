/** The step that the picture shows. */
import { param } from "../state";
import type { Table } from "../table";

export interface SelectedStep {
  step: number;
  row: number;
  how: "median" | "near" | "chosen" | "whole";
}

/** The step in the address; else the median one, or the one nearest to the median. */
export function selectedStep(overview: Table, overlap: Table | null): SelectedStep | null {
  if (!overlap || !overlap.rows || !overview.rows) return null;
  const [steps, totals] = [overlap.num("step"), overlap.num("total_ns")];
  const chosen = param("sel") === undefined ? -1 : steps.indexOf(Number(param("sel")));
  if (chosen >= 0) return { step: steps[chosen], row: chosen, how: "chosen" };
  const median = overview.num("step_ns")[0];
  // A step without device data has little to show.
  const free = overlap.num("free_ns");
  const known = overlap.where((at) => Number.isFinite(free[at]));
  const among = known.length ? known : overlap.where(() => true);
  let row = among[0];
  for (const at of among) if (Math.abs(totals[at] - median) < Math.abs(totals[row] - median)) row = at;
  const how =
    overview.str("steps_how")[0] === "whole"
      ? "whole"
      : overlap.rows === 1
        ? "chosen"
        : totals[row] === median
          ? "median"
          : "near";
  return { step: steps[row], row, how };
}
