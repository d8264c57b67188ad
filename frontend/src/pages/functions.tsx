// page: {"order": 45, "group": "performance", "icon": "functions", "en": "Host calls", "zh": "主机调用", "needs": ["python", "annotation", "scope", "op", "api"]}
/** Where the host spends its time: functions, the paths of calls that lead to them, and the ranges that the user named. */
import { useMemo } from "preact/hooks";
import { info, useTable } from "../data";
import { Await, Empty, Loading, Share, Tabs, Trouble, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { go, param } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    most: "{name} takes the most host time itself: {share} of the time in all calls.", none: "No calls on the host were recorded.",
    noneHow: "Record with {flag} to see Python functions; operators and runtime calls come with any recording of PyTorch.",
    counted: "{count} [function|functions]", total: "{time} in all outermost calls", noPython: "no Python functions: record with --stack",
    parts: "Views", functions: "Functions", paths: "Call paths", annotations: "Annotations", what: "function|functions", whatPaths: "path|paths", whatRanges: "annotation|annotations",
    name: "Name", kind: "Kind", calls: "Calls", self: "Self", selfShare: "Self share", inAll: "Total", share: "Share", mean: "Mean", least: "Shortest", longest: "Longest", device: "Device time",
    deviceHelp: "Time of the device work that was launched while such a range was open", deviceWhy: "device work is not linked to its launches",
    pathsNote: "a row opens to the calls below it; paths under 0.1 % of the time are left out", noRanges: "No annotations were recorded", noRangesHow: "Name a range with stepscope.record_function, torch.profiler.record_function or jax.profiler.TraceAnnotation.",
  },
  zh: {
    most: "{name} 自身占用的主机时间最多：占全部调用时间的 {share}。", none: "没有记录主机上的调用。",
    noneHow: "加上 {flag} 记录即可看到 Python 函数；PyTorch 的任何记录都包含算子和运行时调用。",
    counted: "{count} 个函数", total: "最外层调用共 {time}", noPython: "没有 Python 函数：请用 --stack 记录",
    parts: "视图", functions: "函数", paths: "调用路径", annotations: "标注", what: "个函数", whatPaths: "条路径", whatRanges: "个标注",
    name: "名称", kind: "类别", calls: "次数", self: "自身", selfShare: "自身占比", inAll: "总时间", share: "占比", mean: "平均", least: "最短", longest: "最长", device: "设备时间",
    deviceHelp: "该范围打开期间下发的设备任务的时间", deviceWhy: "设备任务没有与其下发关联",
    pathsNote: "展开一行可看到其下的调用；不足 0.1 % 的路径不列出", noRanges: "没有记录标注", noRangesHow: "用 stepscope.record_function、torch.profiler.record_function 或 jax.profiler.TraceAnnotation 命名一个范围。",
  },
});

type View = "functions" | "paths" | "annotations";
/** Paths below this share of the time are not asked for: of a long recording there are hundreds of thousands. */
const LEAST = 0.001;

export default function Functions() {
  const t = text();
  const functions = useTable("hot_functions");
  const ranges = useTable("annotations");
  const view = (param("view") as View | undefined) ?? "functions";
  const error = functions.error ?? ranges.error;
  if (error) return <Trouble error={error} />;
  if (!functions.data || !ranges.data) return <Loading rows={12} />;
  const known = functions.data;
  if (!known.rows && !ranges.data.rows) return <><Verdict>{t.none}</Verdict><Empty title={t.none} height={200}><Say of={t.noneHow} flag={<span class="mono">--stack</span>} /></Empty></>;
  const outermost = known.rows && known.num("share")[0] > 0 ? known.num("total_ns")[0] / known.num("share")[0] : NaN;
  return (
    <>
      <Verdict
        facts={[
          fill(t.counted, { count: known.rows }),
          Number.isFinite(outermost) && fill(t.total, { time: units.text(units.time(outermost)) }),
          !info.value!.kinds.python && t.noPython,
        ]}
      >
        {known.rows ? <Say of={t.most} name={<b class="mono big">{known.str("name")[0]}</b>} share={<b><Share of={known.num("self_share")[0]} /></b>} /> : t.none}
      </Verdict>
      <Tabs
        choices={[{ id: "functions", label: t.functions, count: known.rows }, { id: "paths", label: t.paths }, { id: "annotations", label: t.annotations, count: ranges.data.rows }]}
        value={view}
        onChange={(id) => go({ params: { view: id === "functions" ? null : id } })}
        label={t.parts}
      />
      <section class="card">
        {view === "functions" && <Grid id="functions" table={known} columns={columns(t)} search={["name", "kind"]} sort="-self_ns" what={t.what} label={t.functions} height={tall(known)} />}
        {view === "paths" && <Paths />}
        {view === "annotations" && <Ranges table={ranges.data} />}
      </section>
    </>
  );
}

/** A long table fills the window; a short one is as high as its rows. */
function tall(table: Table): string | undefined {
  return table.rows > 18 ? "min(calc(100vh - 252px), 1200px)" : undefined;
}

function columns(t: ReturnType<typeof text>): Column[] {
  return [
    { key: "name", label: t.name, as: "name", width: "minmax(220px, 4fr)" },
    { key: "kind", label: t.kind, as: "text", width: "minmax(76px, .8fr)" },
    { key: "calls", label: t.calls },
    { key: "self_ns", label: t.self },
    { key: "self_share", label: t.selfShare, as: "share", bar: true, color: () => "var(--kind-host)", width: "minmax(120px, 1.4fr)" },
    { key: "total_ns", label: t.inAll },
    { key: "share", label: t.share },
  ];
}

/** The tree of calls: the outermost first, each opening to those that it makes. */
function Paths() {
  const t = text();
  const asked = useTable("hot_paths", { min_share: LEAST });
  const below = useMemo(() => {
    const found = new Map<number, number[]>();
    const parent = asked.data?.num("parent");
    for (let row = 0; parent && row < parent.length; row++) {
      const above = Number.isNaN(parent[row]) ? -1 : parent[row];
      if (!found.has(above)) found.set(above, []);
      found.get(above)!.push(row);
    }
    return found;
  }, [asked.data]);
  return (
    <Await of={asked} rows={12}>
      {(table) => (
        <>
          <p class="d3 small pathsnote">{t.pathsNote}</p>
          <Grid
            id="paths"
            table={table.pick(below.get(-1) ?? [])}
            columns={columns(t)}
            search={["name"]}
            sort="-total_ns"
            what={t.whatPaths}
            rowKey={(of, row) => of.raw("node", row)}
            children={(of, row) => table.pick(below.get(of.num("node")[row]) ?? [])}
            leaf={(of, row) => !below.has(of.num("node")[row])}
            label={t.paths}
            height="min(calc(100vh - 276px), 1200px)"
          />
        </>
      )}
    </Await>
  );
}

function Ranges({ table }: { table: Table }) {
  const t = text();
  if (!table.rows) return <Empty title={t.noRanges} height={160}>{t.noRangesHow}</Empty>;
  const own: Column[] = [
    { key: "name", label: t.name, as: "name", width: "minmax(220px, 4fr)" },
    { key: "calls", label: t.calls },
    { key: "total_ns", label: t.inAll },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.least },
    { key: "max_ns", label: t.longest },
    { key: "device_ns", label: t.device, help: t.deviceHelp, why: t.deviceWhy },
  ];
  return <Grid id="ranges" table={table} columns={own} search={["name"]} sort="-total_ns" what={t.whatRanges} label={t.annotations} height={tall(table)} />;
}
