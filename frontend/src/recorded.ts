/** Of how many steps a table of device work is, where that is not all of them. */
import { useTable } from "./data";
import { fill, texts } from "./text";
import * as units from "./units";

const text = texts({
  en: { some: "{known} of {count} [step|steps]: only their device work is completely recorded", none: "device work is not completely recorded: shares are not known" },
  zh: { some: "共 {count} 个迭代中的 {known} 个：仅这些迭代的设备侧任务记录完整", none: "设备侧任务记录不完整：占比未知" },
});

/** A fact beside the headline of a page of device work. */
export function useRecordedSteps(onDevice = true): string | false {
  const t = text();
  const overview = useTable("overview", { warmup: 0, columns: "rank,steps,device_steps,device_data" }, { skip: !onDevice }).data;
  if (!onDevice || !overview?.rows || !["partial", "none"].includes(overview.str("device_data")[0] ?? "")) return false;
  const [known, count] = [overview.num("device_steps")[0], overview.num("steps")[0]];
  return known ? fill(t.some, { known: units.count(known).value, count: units.count(count).value }) : t.none;
}
