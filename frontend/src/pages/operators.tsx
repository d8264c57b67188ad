// page: {"order": 40, "group": "performance", "icon": "operators", "en": "Operators", "zh": "算子", "needs": ["op", "kernel", "copy"]}
import { useEffect, useMemo, useState } from "preact/hooks";
import { approve } from "../approved";
import { color, css, FAMILIES, family, token, type Family } from "../colors";
import { familyNames, familyOf, PLURAL, spoken } from "../families";
import { context, fetchTable, info, useTable } from "../data";
import { Await, Card, Chip, Empty, Segmented, Share, Spark, Swatch, Tabs, Time, Verdict } from "../parts/basics";
import { Calls, shapeText, typeText, type Which } from "../parts/calls";
import { Chart } from "../parts/chart";
import { Drawer } from "../parts/drawer";
import { Grid, MOST, type Column } from "../parts/grid";
import { Ring, type Slice } from "../parts/plots";
import { useRecordedSteps } from "../recorded";
import { source } from "../source";
import { go, param } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./operators.css";

const text = texts({
  en: {
    onDevice: "device time", onHost: "operator time on the host",
    useless: "{family} takes {share} of {time}; {math} only {small}.", uselessMany: "{family} take {share} of {time}; {math} only {small}.", useful: "{math} takes {share} of {time}, then {family} with {small}.", usefulMany: "{math} take {share} of {time}, then {family} with {small}.",
    alone: "{family} takes all of the {time}.", aloneMany: "{family} take all of the {time}.", noMath: "{family} takes {share} of {time}, {next} {small}.", noMathMany: "{family} take {share} of {time}, {next} {small}.",
    types: "{count} [operator type|operator types]", typesOne: "one operator type", calls: "{count} [call|calls]", callsKernels: "{count} [kernel|kernels] and copies, each a call: no operator is named after them", callsBoth: "{count} [call|calls], of kernels where no operator is known", whole: "{time} in all", steps: "{count} [step|steps]", stepsOne: "one step", all: "nothing left out",
    hostNote: "self time: without the operators inside",
    byFamily: "By family", byType: "By type", family: "Family", type: "Type", note: "all {count} [type|types], nothing dropped", topNote: "top {top}, the other {rest} together",
    pie: "Pie", bar: "Bar", treemap: "Treemap", chart: "Chart", group: "Group", rest: "{count} [other type|other types]", table: "Show as table",
    device: "Device", viewAll: "All", viewType: "Type", viewScope: "Scope", view: "View",
    byName: "Name", name: "Operator", scope: "Scope", count: "Calls", total: "Total", self: "Self", share: "Share", mean: "Mean", min: "Min", max: "Max", p95: "p95", trend: "Steps", shapes: "Shapes", dtypes: "Types", deviceTime: "On device", flops: "FLOPs", shapeCount: "Shapes",
    find: "operator|operators", whatType: "type|types", whatScope: "scope|scopes", only: "only {family}", noScope: "no scope",
    none: "No operators were recorded", noneHow: "Record a training with {flag}; it sees the operators of PyTorch, MindSpore, JAX and TensorFlow.",
    noScopes: "No scopes were recorded", noScopesHow: "Record again with modules, as {flag} does, to see the time by part of the model.",
    totals: "No operators were recorded. Of what is there, {name} takes the most: {time}.", totalsTitle: "Totals by name", totalsNote: "all of the recording; a row opens its spans", kind: "Kind", category: "Category", whatNames: "name|names", spans: "{count} [span|spans]",
    noDevice: "No work of a device was recorded",
    aicore: "AI Core", aicpu: "AI CPU", hostcpu: "Host CPU", gpu: "GPU", tpu: "TPU", cpu: "Host operators",
    unknown: "not known", elemOf: "of {all}",
  },
  zh: {
    onDevice: "设备时间", onHost: "主机算子时间",
    useless: "{family}占{time}的 {share}；{math}仅占 {small}。", uselessMany: "{family}占{time}的 {share}；{math}仅占 {small}。", useful: "{math}占{time}的 {share}；其次是{family}，占 {small}。", usefulMany: "{math}占{time}的 {share}；其次是{family}，占 {small}。",
    alone: "全部{time}都用于{family}。", aloneMany: "全部{time}都用于{family}。", noMath: "{family}占{time}的 {share}，{next}占 {small}。", noMathMany: "{family}占{time}的 {share}，{next}占 {small}。",
    types: "{count} 种算子", typesOne: "1 种算子", calls: "{count} 次调用", callsKernels: "{count} 个内核和拷贝，各算一次调用：没有同名算子", callsBoth: "{count} 次调用，算子未知处按内核计", whole: "共 {time}", steps: "{count} 个迭代", stepsOne: "1 个迭代", all: "没有遗漏",
    hostNote: "自身时间：不含内部算子",
    byFamily: "按类别", byType: "按类型", family: "类别", type: "类型", note: "全部 {count} 种类型，没有遗漏", topNote: "前 {top} 种，其余 {rest} 种合并",
    pie: "饼图", bar: "柱图", treemap: "矩形图", chart: "图表", group: "分组", rest: "其他 {count} 种", table: "以表格显示",
    device: "设备", viewAll: "全部", viewType: "类型", viewScope: "作用域", view: "视图",
    byName: "名称", name: "算子", scope: "作用域", count: "次数", total: "总时间", self: "自身", share: "占比", mean: "平均", min: "最小", max: "最大", p95: "p95", trend: "迭代", shapes: "形状", dtypes: "类型", deviceTime: "设备上", flops: "FLOPs", shapeCount: "形状数",
    find: "个算子", whatType: "种类型", whatScope: "个作用域", only: "仅{family}", noScope: "无作用域",
    none: "没有记录到算子", noneHow: "用 {flag} 记录训练；它能看到 PyTorch、MindSpore、JAX 和 TensorFlow 的算子。",
    noScopes: "没有记录作用域", noScopesHow: "用 {flag} 连同模块一起重新记录，即可按模型的各部分查看时间。",
    totals: "没有记录到算子。现有内容中 {name} 耗时最多：{time}。", totalsTitle: "按名称汇总", totalsNote: "整个记录；点击一行查看其区间", kind: "种类", category: "类别", whatNames: "个名称", spans: "{count} 个区间",
    noDevice: "没有记录到设备上的工作",
    aicore: "AI Core", aicpu: "AI CPU", hostcpu: "Host CPU", gpu: "GPU", tpu: "TPU", cpu: "主机算子",
    unknown: "未知", elemOf: "/ {all}",
  },
});

const MATH: Family[] = ["matmul", "conv", "attention"];
const DEVICES = ["aicore", "aicpu", "hostcpu", "gpu", "tpu", "cpu"] as const;
const TOP = 20;

const first = (words: string) => words.charAt(0).toUpperCase() + words.slice(1);

interface Sum {
  key: string;
  label: string;
  value: number;
  calls: number;
  share: number;
  color: string;
}

export default function Operators() {
  const t = text();
  const types = useTable("operator_types");
  const devices = useMemo(() => {
    const counts = new Map<string, number>();
    types.data?.str("device").forEach((device) => counts.set(device!, (counts.get(device!) ?? 0) + 1));
    return DEVICES.filter((device) => counts.has(device)).map((device) => ({ id: device as string, label: t[device], count: counts.get(device)! }));
  }, [types.data, t]);
  if (types.error || !types.data) return <><Verdict>{info.value?.name}</Verdict><Await of={types}>{() => null}</Await></>;
  if (!devices.length) return <Totals />;
  const asked = param("tab");
  const device = devices.find((one) => one.id === asked)?.id ?? devices[0].id;
  return (
    <div class={`oppage ${types.waiting ? "stale" : ""}`}>
      <Body types={types.data} device={device} devices={devices} />
    </div>
  );
}

/** What stands in for operators where no rule knows what the spans are: everything, by name. */
function Totals() {
  const t = text();
  const totals = useTable("totals");
  const how = <Say of={t.noneHow} flag={<span class="mono">stepscope run</span>} />;
  if (!totals.data?.rows) return <><Verdict>{t.none}</Verdict><Await of={totals}>{() => <Empty title={t.none}>{how}</Empty>}</Await></>;
  const table = totals.data;
  // A step holds everything else: it is no answer to what takes the time.
  const top = table.where((row) => table.str("kind")[row] !== "step")[0] ?? 0;
  const columns: Column[] = [
    { key: "name", label: t.byName, as: "name", color: (of, row) => color(of.str("name")[row] ?? ""), width: "minmax(220px, 4fr)" },
    { key: "kind", label: t.kind, as: "text", width: "minmax(80px, 1fr)" },
    { key: "category", label: t.category, as: "text", width: "minmax(80px, 1fr)" },
    { key: "calls", label: t.count },
    { key: "total_ns", label: t.total, bar: true, color: () => "var(--kind-host)" },
    { key: "self_ns", label: t.self },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.min },
    { key: "max_ns", label: t.max },
  ];
  const spansOf = (of: Table, row: number) => `select name, start_ns, dur_ns, self_ns, step, span, args from spans where kind = '${of.str("kind")[row]}' and name = '${(of.str("name")[row] ?? "").replaceAll("'", "''")}' order by start_ns`;
  return (
    <>
      <Verdict facts={[fill(t.spans, { count: units.count(table.num("calls").reduce((all, one) => all + one, 0)).value }), how]}>
        <Say of={t.totals} name={<b class="mono big">{table.str("name")[top]}</b>} time={<b><Time ns={table.num("total_ns")[top]} /></b>} />
      </Verdict>
      <Card title={t.totalsTitle} note={t.totalsNote} flush>
        <Grid id="totals" table={table} columns={columns} search={["name", "kind", "category"]} sort="-total_ns" what={t.whatNames} onOpen={source().still ? undefined : (of, row) => { approve(spansOf(of, row)); go({ page: "query", params: { sql: spansOf(of, row) } }); }} label={t.totalsTitle} />
      </Card>
    </>
  );
}

function Body({ types, device, devices }: { types: Table; device: string; devices: { id: string; label: string; count: number }[] }) {
  const t = text();
  const mine = useMemo(() => types.pick(types.where((row) => types.str("device")[row] === device)), [types, device]);
  const recorded = useRecordedSteps(device !== "cpu");
  // A type such as "fusion" does not tell what its operators do.
  const vague = useMemo(() => mine.str("type").some((type) => family(type ?? "") === "other" || /fusion/.test(type ?? "")), [mine]);
  const named = useTable("operators", { device }, { skip: !vague }).data ?? mine;
  const families = useMemo(() => sums(named, (row) => familyOf(named.str("type")[row], named.has("name") ? named.str("name")[row] : null), (key) => familyNames()[key as Family], (key) => `var(${token(key as Family)})`), [named, t]);
  const inFamily = useMemo(() => {
    const found = new Set<string>();
    for (let row = 0; row < named.rows; row++) found.add(`${familyOf(named.str("type")[row], named.has("name") ? named.str("name")[row] : null)} ${named.str("type")[row]}`);
    return found;
  }, [named]);
  const total = mine.num("self_ns").reduce((all, one) => all + one, 0);
  const calls = mine.num("calls").reduce((all, one) => all + one, 0);
  const counted = new Set(mine.str("calls_of").flatMap((one) => (one ?? "").split(", ")));
  const steps = useSteps();
  const view = param("view") ?? "type";
  const wanted = param("family") as Family | undefined;
  const set = (name: string, fallback: string) => (id: string) => go({ params: { [name]: id === fallback ? null : id, sel: null } });
  const tools = (
    <Segmented label={t.view} value={view} onChange={set("view", "type")} choices={[{ id: "all", label: t.viewAll }, { id: "type", label: t.viewType }, { id: "scope", label: t.viewScope }]} />
  );
  const chips = wanted && FAMILIES.includes(wanted) && (
    <Chip tone="acc" onRemove={() => go({ params: { family: null } })}>{fill(t.only, { family: familyNames()[wanted] })}</Chip>
  );
  return (
    <>
      <Verdict
        facts={[
          recorded,
          mine.rows === 1 ? t.typesOne : fill(t.types, { count: units.count(mine.rows).value }),
          fill(!counted.has("kernel") ? t.calls : counted.size === 1 ? t.callsKernels : t.callsBoth, { count: units.count(calls).value }),
          <Say of={t.whole} time={<Time ns={total} />} />,
          steps > 0 && (steps === 1 ? t.stepsOne : fill(t.steps, { count: units.count(steps).value })),
          device === "cpu" && t.hostNote,
        ]}
      >
        <Said families={families} total={total} host={device === "cpu"} />
      </Verdict>
      <Tabs label={t.device} choices={devices} value={device} onChange={(id) => go({ params: { tab: id === devices[0].id ? null : id, sel: null, family: null } })} />
      <Picture mine={mine} families={families} total={total} />
      <section class="card opcard">
        {view === "scope" ? <ScopeView device={device} wanted={wanted} tools={tools} chips={chips} /> : view === "all" ? <AllView device={device} wanted={wanted} tools={tools} chips={chips} /> : <TypeView mine={mine} inFamily={inFamily} device={device} wanted={wanted} tools={tools} chips={chips} />}
      </section>
    </>
  );
}

/** How many steps the figures are of. */
function useSteps(): number {
  const steps = useTable("tables/steps", { columns: "rank,step,start_ns,end_ns" });
  return new Set(steps.data?.num("step")).size;
}

function sums(table: Table, key: (row: number) => string, label: (key: string) => string, shade: (key: string) => string): Sum[] {
  const found = new Map<string, Sum>();
  const time = table.num("self_ns"), calls = table.num("calls"), share = table.num("share");
  for (let row = 0; row < table.rows; row++) {
    const name = key(row);
    let one = found.get(name);
    if (!one) found.set(name, (one = { key: name, label: label(name), value: 0, calls: 0, share: 0, get color() { return shade(name); } }));
    one.value += time[row];
    one.calls += calls[row];
    one.share += share[row];
  }
  return [...found.values()].sort((a, b) => b.value - a.value);
}

function Said({ families, total, host }: { families: Sum[]; total: number; host: boolean }) {
  const t = text();
  const words = spoken();
  const time = host ? t.onHost : t.onDevice;
  const [top, next] = families;
  const bold = (part: Sum) => <b><Share of={total ? part.value / total : NaN} /></b>;
  const many = PLURAL.includes(top.key as Family);
  const name = first(words[top.key as Family]);
  if (!next) return <Say of={many ? t.aloneMany : t.alone} family={name} time={time} />;
  const math = families.find((one) => MATH.includes(one.key as Family));
  if (!math) return <Say of={many ? t.noMathMany : t.noMath} family={name} share={bold(top)} time={time} next={words[next.key as Family]} small={bold(next)} />;
  if (math === top) return <Say of={many ? t.usefulMany : t.useful} math={name} share={bold(top)} time={time} family={words[next.key as Family]} small={bold(next)} />;
  return <Say of={many ? t.uselessMany : t.useless} family={name} share={bold(top)} time={time} math={words[math.key as Family]} small={bold(math)} />;
}

/** Families, or the twenty types that take the most; what is beyond them is one slice. */
function Picture({ mine, families, total }: { mine: Table; families: Sum[]; total: number }) {
  const t = text();
  const by = param("by") === "type" ? "type" : "family";
  const chart = param("chart") ?? "pie";
  const types = useMemo(() => sums(mine, (row) => mine.str("type")[row] ?? "", (key) => key, (key) => color(key)), [mine, css("--op-elem")]);
  const shown = useMemo(() => {
    if (by === "family") return families;
    if (types.length <= TOP + 1) return types;
    const rest = types.slice(TOP);
    const add = (of: (one: Sum) => number) => rest.reduce((all, one) => all + of(one), 0);
    return [...types.slice(0, TOP), { key: "", label: fill(t.rest, { count: rest.length }), value: add((one) => one.value), calls: add((one) => one.calls), share: add((one) => one.share), color: "var(--border-strong)" }];
  }, [by, families, types, t]);
  const pick = (one: Sum | undefined) => {
    if (!one) return;
    if (by === "family") go({ params: { family: param("family") === one.key ? null : one.key } });
    else if (one.key) go({ params: { sel: JSON.stringify([one.key]) } });
  };
  const note = by === "type" && types.length > TOP + 1 ? fill(t.topNote, { top: TOP, rest: types.length - TOP }) : fill(t.note, { count: mine.rows });
  const title = by === "family" ? t.byFamily : t.byType;
  const tools = (
    <>
      <Segmented label={t.group} value={by} onChange={(id) => go({ params: { by: id === "family" ? null : id } })} choices={[{ id: "family", label: t.family }, { id: "type", label: t.type }]} />
      <Segmented label={t.chart} value={chart} onChange={(id) => go({ params: { chart: id === "pie" ? null : id } })} choices={[{ id: "pie", label: t.pie }, { id: "bar", label: t.bar }, { id: "treemap", label: t.treemap }]} />
    </>
  );
  const summary = `${title}: ${shown.slice(0, 5).map((one) => `${one.label} ${units.text(units.share(total ? one.value / total : NaN))}`).join(", ")}`;
  const written = units.time(total);
  const most = Math.max(1, ...shown.map((one) => one.value));
  return (
    <Card title={title} note={note} tools={tools}>
      {chart === "bar" ? (
        <div class="opbars" role="img" aria-label={summary}>
          {shown.map((one) => (
            <button key={one.key} class="opbar" onClick={() => pick(one)} title={one.label}>
              <span class={`cut ${by === "type" && one.key ? "mono" : ""}`}>{one.label}</span>
              <span class="track"><i style={{ width: `${(one.value / most) * 100}%`, background: one.color }} /></span>
              <span class="r"><Time ns={one.value} /></span>
              <span class="r d2"><Share of={total ? one.value / total : NaN} /></span>
            </button>
          ))}
        </div>
      ) : chart === "treemap" ? (
        <Treemap mine={mine} shown={shown} by={by} total={total} label={summary} onPick={pick} />
      ) : (
        <div class="oppie">
          <Ring slices={shown.map((one): Slice => ({ name: one.label, value: one.value, color: one.color }))} total={written.value} unit={written.unit} label={summary} onPick={(name) => pick(shown.find((one) => one.label === name))} />
          <div class={`oplist ${by}`}>
            {shown.map((one) => (
              <button key={one.key} class={`one ${param("family") === one.key && by === "family" ? "on" : ""}`} onClick={() => pick(one)} title={one.label}>
                <Swatch color={one.color} />
                <span class={`cut ${by === "type" && one.key ? "mono" : ""}`}>{one.label}</span>
                <span class="r"><Time ns={one.value} /></span>
                <span class="r d2"><Share of={total ? one.value / total : NaN} /></span>
              </button>
            ))}
          </div>
        </div>
      )}
    </Card>
  );
}

function Treemap({ mine, shown, by, total, label, onPick }: { mine: Table; shown: Sum[]; by: string; total: number; label: string; onPick: (one: Sum | undefined) => void }) {
  const option = () => {
    const solid = (shade: string) => (shade.startsWith("var(") ? css(shade.slice(4, -1)) : shade);
    const inside = (key: string) => {
      const rows = mine.where((row) => family(mine.str("type")[row] ?? "") === key);
      return rows.map((row) => ({ name: mine.str("type")[row] ?? "", value: mine.num("self_ns")[row], itemStyle: { color: solid(color(mine.str("type")[row] ?? "")) } })).filter((one) => one.value > 0);
    };
    const data = shown.filter((one) => one.value > 0).map((one) => (by === "family" ? { name: one.label, key: one.key, itemStyle: { color: solid(one.color) }, children: inside(one.key) } : { name: one.label, key: one.key, value: one.value, itemStyle: { color: solid(one.color) } }));
    return {
      series: [{
        type: "treemap", data, left: 0, right: 0, top: 0, bottom: 0, roam: false, nodeClick: false, breadcrumb: { show: false },
        label: { show: true, color: css("--on-kind"), fontSize: 12, formatter: (item: { name: string }) => item.name.replace(/^aten::/, "") },
        upperLabel: { show: by === "family", height: 20, color: css("--text-2"), fontSize: 12 },
        itemStyle: { borderWidth: 1, gapWidth: 1, borderColor: css("--surface") },
        levels: by === "family" ? [{ itemStyle: { gapWidth: 3, borderWidth: 0, borderColor: css("--surface") }, upperLabel: { show: false } }, { itemStyle: { borderColor: css("--surface"), borderWidth: 2, gapWidth: 1 } }] : undefined,
      }],
    };
  };
  return (
    <Chart
      height={260}
      label={label}
      of={[mine, shown, by]}
      option={option}
      tip={(item) => item.name && <><b>{item.name}</b> {units.text(units.time(Number(item.value)))} · {units.text(units.share(Number(item.value) / total))}</>}
      onPick={(item) => (item.data?.key !== undefined ? onPick(shown.find((one) => one.key === item.data.key)) : go({ params: { sel: JSON.stringify([item.name]) } }))}
    />
  );
}

interface ViewProps {
  device: string;
  wanted?: Family;
  tools: preact.ComponentChildren;
  chips: preact.ComponentChildren;
}

const shade = (table: Table, row: number) => `var(${token(familyOf(table.str("type")[row], table.has("name") ? table.str("name")[row] : null))})`;

function figures(t: ReturnType<typeof text>, device: string): Column[] {
  return [
    { key: "calls", label: t.count, width: "minmax(64px, .7fr)" },
    ...(device === "cpu" ? [{ key: "self_ns", label: t.self }, { key: "total_ns", label: t.total, hide: true }] : [{ key: "total_ns", label: t.total }]),
    { key: "share", label: t.share, bar: true, color: shade, width: "minmax(120px, 1.5fr)" },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.min },
    { key: "p95_ns", label: t.p95 },
    { key: "max_ns", label: t.max },
  ];
}

/** p95 of the rows, from the analysis that has it: a column beside the others. */
function withP95(table: Table, spread: Table | null, keys: string[]): Table {
  const known = spread && joined.get(table);
  if (known?.spread === spread) return known.table;
  const made = joinP95(table, spread, keys);
  if (spread) joined.set(table, { spread, table: made });
  return made;
}

const joined = new WeakMap<Table, { spread: Table; table: Table }>();

function joinP95(table: Table, spread: Table | null, keys: string[]): Table {
  if (!spread) return table.with({ p95_ns: new Float64Array(table.rows).fill(NaN) });
  const key = (of: Table) => { const columns = keys.map((name) => of.str(name)); return (row: number) => columns.map((column) => column[row] ?? "\u0000").join("\n"); };
  const there = key(spread), here = key(table), value = spread.num("p95_ns");
  const known = new Map<string, number>();
  for (let row = 0; row < spread.rows; row++) known.set(there(row), value[row]);
  return table.with({ p95_ns: Float64Array.from({ length: table.rows }, (_, row) => known.get(here(row)) ?? NaN) });
}

function only(table: Table, wanted: Family | undefined): Table {
  return wanted ? table.pick(table.where((row) => familyOf(table.str("type")[row], table.str("name")[row]) === wanted)) : table;
}

/** Rows by type; a type opens to its operators, and an operator to its shapes. */
function TypeView({ mine, inFamily, device, wanted, tools, chips }: ViewProps & { mine: Table; inFamily: Set<string> }) {
  const t = text();
  const spread = useTable("durations", { by: "type", device });
  const steps = useTable("operator_steps", { device });
  const table = useMemo(() => withP95(wanted ? mine.pick(mine.where((row) => inFamily.has(`${wanted} ${mine.str("type")[row]}`))) : mine, spread.data, ["type"]), [mine, wanted, inFamily, spread.data]);
  const series = useMemo(() => {
    const found = new Map<string, number[]>();
    const data = steps.data;
    if (data) for (let row = 0; row < data.rows; row++) if (!Number.isNaN(data.num("step")[row])) {
      const type = data.str("type")[row] ?? "";
      const values = found.get(type) ?? [];
      values.push(data.num("self_ns")[row]);
      found.set(type, values);
    }
    return found;
  }, [steps.data]);
  const columns: Column[] = [
    { key: "type", label: t.type, as: "name", color: shade, width: "minmax(220px, 4.4fr)", show: (of, row) => <Label table={of} row={row} /> },
    ...figures(t, device),
    { key: "trend", label: t.trend, width: "72px", show: (of, row) => !of.has("name") && <Spark values={series.get(of.str("type")[row] ?? "") ?? []} zero /> },
  ];
  const below = async (of: Table, row: number) => {
    const type = of.str("type")[row];
    const shapes = await fetchTable("operators", { by_shape: true, device });
    const name = of.has("name") ? of.str("name")[row] : null;
    const scope = of.has("name") ? of.str("scope")[row] : null;
    const operators = name === null ? await fetchTable("operators", { device }) : null;
    const rows = operators?.where((one) => operators.str("type")[one] === type) ?? [];
    if (operators && rows.length > 1) {
      const spread = await fetchTable("durations", { by: "operator", device });
      return withP95(operators.pick(rows), spread, ["name", "type", "scope"]).with({ level: new Array(rows.length).fill("operator") });
    }
    const found = shapes.where((one) => shapes.str("type")[one] === type && (name === null || (shapes.str("name")[one] === name && shapes.str("scope")[one] === scope)));
    const spread = await fetchTable("durations", { by: "shape", device });
    return withP95(shapes.pick(found), spread, ["name", "type", "scope", "shapes", "dtypes"]).with({ level: new Array(found.length).fill("shape") });
  };
  return (
    <>
      <Grid
        id="types"
        table={table}
        columns={columns}
        search={["type"]}
        sort={device === "cpu" ? "-self_ns" : "-total_ns"}
        what={t.whatType}
        rowKey={rowKey}
        selected={param("sel")}
        onOpen={(of, row) => choose(of, row)}
        children={below}
        leaf={(of, row) => (of.has("level") && of.str("level")[row] === "shape")}
        tools={tools}
        chips={chips}
        label={t.viewType}
      />
      <Chosen table={table} device={device} />
    </>
  );
}

function Label({ table, row }: { table: Table; row: number }) {
  const level = table.has("level") ? table.str("level")[row] : null;
  if (level === "shape") {
    const shapes = table.str("shapes")[row];
    return <span class="name" title={`${shapes ?? ""} ${table.str("dtypes")[row] ?? ""}`}><span class="mono cut">{shapes ? shapeText(shapes) : text().unknown}</span><span class="d3 small nowrap">{typeText(table.str("dtypes")[row] ?? "[]")}</span></span>;
  }
  const said = level === "operator" ? (table.str("scope")[row] ?? table.str("name")[row] ?? "") : (table.str("type")[row] ?? "");
  const whole = level === "operator" ? `${table.str("name")[row]}\n${table.str("scope")[row] ?? ""}` : said;
  return <span class="name mono" title={whole}><Swatch color={shade(table, row)} /><span class={`cut ${level === "operator" ? "tail" : ""}`}><bdi>{said}</bdi></span></span>;
}

/** What names a row in the address: its type, then its name and scope, then its shapes and types. */
function rowKey(table: Table, row: number): string {
  const parts = ["type", "name", "scope"].filter((name) => table.has(name)).map((name) => table.str(name)[row]);
  if (table.has("level") && table.str("level")[row] === "shape") parts.push(table.str("shapes")[row], table.str("dtypes")[row]);
  return JSON.stringify(parts);
}

function choose(table: Table, row: number): void {
  const key = rowKey(table, row);
  go({ params: { sel: param("sel") === key ? null : key } });
}

function AllView({ device, wanted, tools, chips }: ViewProps) {
  const t = text();
  const from = { name: "operators", params: { device, limit: MOST } };
  const asked = useTable(from.name, from.params);
  const spread = useTable("durations", { by: "operator", device, limit: MOST });
  const table = useMemo(() => asked.data && withP95(only(asked.data, wanted), spread.data, ["name", "type", "scope"]), [asked.data, wanted, spread.data]);
  const same = useMemo(() => !table || table.str("name").every((name, row) => name === table.str("type")[row]), [table]);
  const scoped = !!table && !table.blank("scope");
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(200px, 2.6fr)" },
    { key: "type", label: t.type, as: "name", width: "minmax(120px, 1.4fr)", hide: same },
    { key: "scope", label: t.scope, as: "name", width: "minmax(140px, 2.4fr)", hide: !scoped, show: (of, row) => <span class="name mono" title={of.str("scope")[row] ?? ""}><span class="cut tail"><bdi>{of.str("scope")[row] ?? "–"}</bdi></span></span> },
    ...figures(t, device),
    { key: "device_ns", label: t.deviceTime, hide: device !== "cpu" },
    { key: "flops", label: t.flops, hide: true },
    { key: "shapes", label: t.shapes, hide: true, as: "name", show: (of, row) => <span class="name mono" title={of.str("shapes")[row] ?? ""}><span class="cut">{of.str("shapes")[row] ? shapeText(of.str("shapes")[row]!) : "–"}</span></span> },
    { key: "shape_count", label: t.shapeCount, hide: true },
  ];
  return (
    <Await of={asked} rows={12}>
      {() => table && (
        <>
          <Grid id="all" from={from} table={table} columns={columns} search={["name", "type", "scope", "shapes"]} sort={device === "cpu" ? "-self_ns" : "-total_ns"} what={t.find} rowKey={rowKey} selected={param("sel")} onOpen={choose} tools={tools} chips={chips} label={t.viewAll} />
          <Chosen table={table} device={device} />
        </>
      )}
    </Await>
  );
}

/** The tree of scopes: each row is the sum of the operators in it and below it. */
function ScopeView({ device, wanted, tools, chips }: ViewProps) {
  const t = text();
  const asked = useTable("operators", { device });
  const nodes = useMemo(() => asked.data && tree(only(asked.data, wanted)), [asked.data, wanted]);
  const searched = (param("scopes.find") ?? "") !== "" || (param("scopes.where") ?? "") !== "";
  const columns: Column[] = [
    { key: "label", label: t.scope, as: "name", width: "minmax(260px, 3.6fr)", show: (of, row) => <span class="name mono" title={of.str("scope")[row] ?? ""}>{of.str("type")[row] && <Swatch color={shade(of, row)} />}<span class={`cut ${searched ? "tail" : ""}`}><bdi>{searched ? (of.str("scope")[row] ?? of.str("label")[row]) : of.str("label")[row]}</bdi></span></span> },
    { key: "calls", label: t.count, width: "minmax(64px, .7fr)" },
    ...(device === "cpu" ? [{ key: "self_ns", label: t.self }] : [{ key: "total_ns", label: t.total }]),
    { key: "share", label: t.share, bar: true, color: (of, row) => (of.str("type")[row] ? shade(of, row) : "var(--kind-compute)"), width: "minmax(120px, 1.5fr)" },
    { key: "avg_ns", label: t.mean },
  ];
  return (
    <Await of={asked} rows={12}>
      {() => nodes && (nodes.scoped ? (
        <>
          <Grid
            id="scopes"
            table={searched ? nodes.flat() : nodes.root}
            columns={columns}
            search={["scope", "label"]}
            sort={device === "cpu" ? "-self_ns" : "-total_ns"}
            what={t.whatScope}
            rowKey={(of, row) => (of.str("type")[row] ? rowKey(of, row) : of.str("scope")[row] ?? "")}
            selected={param("sel")}
            children={(of, row) => nodes.below(of.str("scope")[row] ?? "")}
            leaf={(of, row) => of.str("type")[row] !== null}
            onOpen={(of, row) => of.str("type")[row] !== null && choose(of, row)}
            tools={tools}
            chips={chips}
            label={t.viewScope}
          />
          <Chosen table={asked.data!} device={device} />
        </>
      ) : (
        <>
          <div class="gridtools">{tools}{chips}</div>
          <Empty title={t.noScopes}><Say of={t.noScopesHow} flag={<span class="mono">stepscope run</span>} /></Empty>
        </>
      ))}
    </Await>
  );
}

function tree(table: Table): { scoped: boolean; root: Table; flat: () => Table; below: (scope: string) => Table } {
  const scope = table.str("scope");
  const inside = new Map<string, Map<string, number[]>>(); // below a scope: each next part, and the rows in it
  const own = new Map<string, number[]>();
  const put = (map: Map<string, number[]>, key: string, row: number) => void (map.get(key)?.push(row) ?? map.set(key, [row]));
  for (let row = 0; row < table.rows; row++) {
    const parts = scope[row]?.split("/") ?? [];
    put(own, parts.join("/"), row);
    for (let level = 0; level < parts.length; level++) {
      const above = parts.slice(0, level).join("/");
      if (!inside.has(above)) inside.set(above, new Map());
      put(inside.get(above)!, parts[level], row);
    }
  }
  const add = (rows: number[], name: string) => rows.reduce((all, row) => all + table.num(name)[row], 0);
  const below = (above: string): Table => made(above, [...(inside.get(above) ?? [])], own.get(above) ?? []);
  // Every scope at once, for the search.
  let all: Table | null = null;
  const flat = () => (all ??= made("", [...inside].flatMap(([above, parts]) => [...parts].map(([part, rows]): [string, number[]] => [above ? `${above}/${part}` : part, rows])), []));
  const made = (above: string, parts: [string, number[]][], direct: number[]): Table => {
    const rows = (of: (rows: number[]) => number, one: (row: number) => number) => [...parts.map(([, found]) => of(found)), ...direct.map(one)];
    const sum = (name: string) => rows((found) => add(found, name), (row) => table.num(name)[row]);
    const words = (of: (part: string) => string | null, column: string) => [...parts.map(([part]) => of(part)), ...direct.map((row) => table.str(column)[row])];
    return Table.of({
      label: words((part) => part, "name"),
      scope: words((part) => (above ? `${above}/${part}` : part), "scope"),
      name: words(() => null, "name"),
      type: words(() => null, "type"),
      calls: sum("calls"),
      total_ns: sum("total_ns"),
      self_ns: sum("self_ns"),
      share: sum("share"),
      avg_ns: rows((found) => add(found, "total_ns") / add(found, "calls"), (row) => table.num("avg_ns")[row]),
    });
  };
  return { scoped: inside.size > 0, root: below(""), flat, below };
}

/** The drawer of the row that the address names. */
function Chosen({ table, device }: { table: Table; device: string }) {
  const sel = param("sel");
  const parts = useMemo(() => { try { return sel ? (JSON.parse(sel) as (string | null)[]) : null; } catch { return null; } }, [sel]);
  const wantShapes = parts !== null && parts.length > 3;
  const [more, setMore] = useState<{ key: string; table: Table } | null>(null);
  const wanted = parts === null || (parts.length === 1 && table.has("type") && !table.has("name")) ? null : wantShapes ? "shapes" : parts.length === 1 ? "types" : "operators";
  const key = `${wanted} ${device} ${JSON.stringify(context())}`;
  useEffect(() => {
    if (!wanted || more?.key === key) return;
    const [name, params] = wanted === "types" ? ["operator_types", {}] : ["operators", wanted === "shapes" ? { by_shape: true, device } : { device }];
    void fetchTable(name as string, params as Record<string, string>).then((table) => setMore({ key, table }), () => undefined);
  }, [key, wanted]);
  if (!parts || !parts.length) return null;
  const of = wanted ? (more?.key === key ? more.table : null) : table;
  if (!of) return null;
  const columns = ["type", "name", "scope", "shapes", "dtypes"].slice(0, parts.length);
  const [row] = of.where((row) => columns.every((name, at) => of.str(name)[row] === parts[at]) && (!of.has("device") || of.str("device")[row] === device));
  if (row === undefined) return null;
  const [type, name, scope, shapes, dtypes] = parts;
  const which: Which = parts.length === 1 ? { device, type: type! } : { device, type: type ?? undefined, operator: name! };
  const kind = familyOf(type, name ?? null);
  const shadeOf = `var(${token(kind)})`;
  const keep = parts.length === 1 ? undefined : (calls: Table, at: number) => calls.str("scope")[at] === scope && (!wantShapes || (calls.str("shapes")[at] === shapes && calls.str("dtypes")[at] === dtypes));
  const host = device === "cpu";
  return (
    <Drawer key={sel} onClose={() => go({ params: { sel: null } })} title={<><Swatch color={shadeOf} /><b class="mono cut" title={name ?? type ?? ""}>{name ?? type}</b></>}>
      <Calls
        which={which}
        keep={keep}
        of={sel!}
        color={shadeOf}
        figures={{ total: of.num(host ? "self_ns" : "total_ns")[row], calls: of.num("calls")[row], mean: of.num("avg_ns")[row], share: of.num("share")[row] }}
        chips={
          <>
            <Chip>{familyNames()[kind]}</Chip>
            {type !== name && name && <Chip><span class="mono">{type}</span></Chip>}
            {scope && <Chip title={scope}><span class="mono cut">{scope}</span></Chip>}
            {shapes && <Chip title={shapes}><span class="mono cut">{shapeText(shapes)}</span></Chip>}
            {dtypes && <Chip title={dtypes}>{typeText(dtypes)}</Chip>}
          </>
        }
      />
    </Drawer>
  );
}
