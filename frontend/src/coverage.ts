/** The number of steps that a table of device work covers, if not all. */
import { useTable } from "./data";
import { fill, strings } from "./strings";
import * as units from "./units";

const text = strings("coverage");

/** A fact beside the headline of a page with device work. */
export function useRecordedSteps(onDevice = true): string | false {
  const t = text();
  const overview = useTable(
    "overview",
    { warmup: 0, columns: "rank,steps,device_steps,device_data" },
    { skip: !onDevice },
  ).data;
  if (!onDevice || !overview?.rows || !["partial", "none"].includes(overview.str("device_data")[0] ?? "")) return false;
  const [known, count] = [overview.num("device_steps")[0], overview.num("steps")[0]];
  return known ? fill(t.some, { known: units.count(known).value, count: units.count(count).value }) : t.none;
}
