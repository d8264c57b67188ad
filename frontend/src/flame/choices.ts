/** The view of the page in its address. */
import { info, shownSteps } from "../data";
import { onDevice } from "../device";
import { stepRange, useStepNumbers } from "../shell/step_range";
import { source, type Params } from "../source";
import { param } from "../state";

export type By = "host" | "device" | "modules";

export interface Choices {
  by: By;
  inTime: boolean;
  byThread: boolean;
  /** The thread in the order of time. */
  track: number | null;
  find: string;
  /** The function of the sandwich view. */
  fn: string | null;
  /** The other run. */
  other: string | null;
  perStep: boolean;
}

export function choices(): Choices {
  const by = param("by");
  const device = onDevice(info.value!);
  const inTime = param("order") === "time" && (by ?? "host") === "host";
  return {
    by: by === "modules" || (by === "device" && device) ? by : "host",
    inTime: inTime && !param("with"),
    byThread: param("threads") === "each",
    track: param("track") === undefined ? null : Number(param("track")),
    find: param("find") ?? "",
    fn: param("fn") ?? null,
    other: source().isReport ? null : (param("with") ?? null),
    perStep: param("per") === "step" && !source().isReport && !inTime,
  };
}

export function treeParams({ by, byThread }: Choices): Params {
  return { by: by === "host" ? null : by, by_thread: by === "host" && byThread ? true : null };
}

/** The steps of the page, and the range that selects them alone: without it, time outside of steps is included. */
export function useShownSteps(): { count: number; range: string | null } | null {
  const numbers = useStepNumbers();
  if (numbers === null) return null;
  const range = stepRange(shownSteps() ?? "");
  const shown = range ? numbers.filter((step) => step >= range[0] && step <= range[1]) : numbers;
  return { count: shown.length, range: shown.length ? `${shown[0]}:${shown[shown.length - 1]}` : null };
}
