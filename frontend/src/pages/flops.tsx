// page: {"order": 60, "group": "performance", "icon": "flops", "en": "FLOPs", "zh": "浮点运算", "needs": ["op", "kernel"]}
import { useMemo } from "preact/hooks";
import { color, css } from "../colors";
import { info, rank, useTable } from "../data";
import { Await, Card, Chip, Count, Empty, Quantity, Segmented, Share, Swatch, Tile, Tiles, Time, Verdict } from "../parts/basics";
import { shapeText, typeText } from "../parts/calls";
import { Chart, preload } from "../parts/chart";
import { Grid, type Column } from "../parts/grid";
import { said } from "../said";
import { go, link, param } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import { tip, untip } from "../parts/tip";
import * as units from "../units";
import "./operators.css";

const text = texts({
  en: {
    used: "Matrix work reaches {share} of the chip's peak: {rate} while it ran.", usedLow: "Matrix work reaches only {share} of the chip's peak: {rate} while it ran.",
    noPeak: "{flops} were counted, at {rate} while they ran; no peak is known to hold them against.", noTime: "{flops} were counted.",
    counted: "counted {how}", unknown: "{count} [call|calls] of unknown shape left out", peak: "peak: {source}", whole: "all counted",
    flops: "FLOPs", rate: "FLOP/s", utilization: "Utilization", time: "Time counted", operators: "Operators", calls: "{count} [call|calls]", perStep: "{flops} per step", ofSteps: "in {count} [step|steps]", stepsOne: "in one step",
    rateNote: "over the time of this work", timeNote: "of the work that was counted", unknownCalls: "Unknown calls", unknownNote: "neither recorded nor known from shapes",
    recorded: "as recorded", shapes: "from shapes of inputs", both: "partly recorded, partly from shapes of inputs", howTitle: "How it is counted",
    howText: "A multiply-add is two. Matrix products, convolutions and attention count, forward and backward; padding and masks save nothing. Utilization is the time the chip would need at its dense peak for the precision used, over the time it took.",
    byScope: "By scope", sankey: "Sankey", icicle: "Icicle", table: "Table", view: "View", depth: "Levels", model: "Whole model", root: "Root", others: "{count} [other|others]", scopeNote: "click to make a part the root",
    noScopes: "No scopes were recorded", noScopesHow: "Record again with modules, as {flag} does, to see FLOPs by part of the model.",
    name: "Operator", scope: "Scope", count: "Calls", share: "Share", took: "Time", precision: "Precision", how: "Counted", unknownColumn: "Unknown", device: "Device", source: "Peak",
    whatOps: "operator|operators", whatScopes: "scope|scopes", opsTitle: "By operator",
    roofline: "Roofline", roofNote: "each dot an operator with its shapes; larger took longer", intensity: "FLOP per byte", roofShapes: "bytes from shapes: the least possible, so a dot may belong further left", roofRecorded: "bytes as recorded",
    noBytes: "Bytes moved are not known", noBytesHow: "Record again with {flag}: from the shapes of inputs follows how much they must move.",
    noRoof: "no roof: {why}", memory: "bound by memory", compute: "bound by arithmetic", reached: "Reached", chipUnknown: "the chip's peak or bandwidth is not known", bandwidth: "{rate} memory",
    none: "No FLOPs are known of this run", noneRank: "No FLOPs are known of rank {rank}", noneHow: "Record again with {flag}, or with {other}, from which they follow.", asTable: "Rows", inputs: "Inputs", bound: "Bound", bytes: "Bytes", memoryRate: "Memory",
  },
  zh: {
    used: "矩阵运算达到芯片峰值的 {share}：运行期间为 {rate}。", usedLow: "矩阵运算仅达到芯片峰值的 {share}：运行期间为 {rate}。",
    noPeak: "共计 {flops}，运行期间为 {rate}；没有可比较的峰值。", noTime: "共计 {flops}。",
    counted: "计数方式：{how}", unknown: "{count} 次形状未知的调用未计入", peak: "峰值：{source}", whole: "全部计入",
    flops: "FLOPs", rate: "FLOP/s", utilization: "利用率", time: "计入的时间", operators: "算子", calls: "{count} 次调用", perStep: "每个迭代 {flops}", ofSteps: "{count} 个迭代中", stepsOne: "1 个迭代中",
    rateNote: "按这些工作的时间计算", timeNote: "所计入工作的时间", unknownCalls: "未知调用", unknownNote: "既未记录，也无法由形状得出",
    recorded: "按记录", shapes: "由输入形状得出", both: "部分按记录，部分由输入形状得出", howTitle: "如何计数",
    howText: "一次乘加计为二。矩阵乘、卷积和注意力计入，包括前向和反向；填充和掩码不减少计数。利用率是芯片以所用精度的稠密峰值所需的时间除以实际用时。",
    byScope: "按作用域", sankey: "桑基图", icicle: "冰柱图", table: "表格", view: "视图", depth: "层数", model: "整个模型", root: "根", others: "其他 {count} 个", scopeNote: "点击某部分将其设为根",
    noScopes: "没有记录作用域", noScopesHow: "用 {flag} 连同模块一起重新记录，即可按模型的各部分查看 FLOPs。",
    name: "算子", scope: "作用域", count: "次数", share: "占比", took: "时间", precision: "精度", how: "计数", unknownColumn: "未知", device: "设备", source: "峰值",
    whatOps: "个算子", whatScopes: "个作用域", opsTitle: "按算子",
    roofline: "屋顶线", roofNote: "每个点是一个算子及其形状；越大用时越长", intensity: "FLOP 每字节", roofShapes: "字节数由形状得出，是可能的最小值，点的实际位置可能更靠左", roofRecorded: "字节数按记录",
    noBytes: "搬运的字节数未知", noBytesHow: "加上 {flag} 重新记录：由输入形状可知必须搬运多少。",
    noRoof: "没有屋顶：{why}", memory: "受限于内存", compute: "受限于算力", reached: "达到", chipUnknown: "芯片的峰值或带宽未知", bandwidth: "{rate} 内存",
    none: "此训练的 FLOPs 未知", noneRank: "rank {rank} 的 FLOPs 未知", noneHow: "加上 {flag} 重新记录，或加上 {other}，由此可以得出。", asTable: "行", inputs: "输入", bound: "受限于", bytes: "字节", memoryRate: "内存",
  },
});

preload();

/** Layer 2 before layer 10. */
const natural = new Intl.Collator("en", { numeric: true }).compare;

export default function Flops() {
  const t = text();
  const scopes = useTable("flops_by_scope");
  const operators = useTable("flops");
  const steps = useTable("tables/steps", { columns: "rank,step,start_ns,end_ns" });
  if (!scopes.data || !operators.data) return <><Verdict>{info.value?.name}</Verdict><Await of={scopes.error ? scopes : operators}>{() => null}</Await></>;
  const [all] = scopes.data.where((row) => scopes.data!.num("depth")[row] === 0);
  const total = all === undefined ? NaN : scopes.data.num("flops")[all];
  if (!(total > 0)) {
    const none = info.value!.ranks.length > 1 ? fill(t.noneRank, { rank: rank() ?? "–" }) : t.none; // other ranks may have them
    return (
      <>
        <Verdict>{none}</Verdict>
        <Empty title={none}>
          <Say of={t.noneHow} flag={<span class="mono">--flops</span>} other={<span class="mono">--shapes</span>} />
        </Empty>
      </>
    );
  }
  const rate = scopes.data.num("flops_per_s")[all], used = scopes.data.num("utilization")[all];
  const unknown = scopes.data.num("unknown_calls")[all];
  const source = said(scopes.data.str("peak_source")[all]);
  const how = scopes.data.str("how")[all] ?? "";
  const told = how.includes("recorded") ? (how.includes("shapes") ? t.both : t.recorded) : t.shapes;
  const count = new Set(steps.data?.num("step")).size;
  const flops = (value: number) => <b><Quantity value={value} as="flops" /></b>;
  const speed = <b><Quantity value={rate} as="flopsRate" /></b>;
  return (
    <div class={`oppage ${scopes.waiting ? "stale" : ""}`}>
      <Verdict facts={[fill(t.counted, { how: told }), unknown > 0 ? fill(t.unknown, { count: units.count(unknown).value }) : t.whole, source && fill(t.peak, { source })]}>
        {Number.isFinite(used) ? <Say of={used < 0.4 ? t.usedLow : t.used} share={<b><Share of={used} /></b>} rate={speed} /> : Number.isFinite(rate) ? <Say of={t.noPeak} flops={flops(total)} rate={speed} /> : <Say of={t.noTime} flops={flops(total)} />}
      </Verdict>
      <Tiles label={t.model}>
        <Tile label={t.flops} context={count > 1 ? fill(t.ofSteps, { count: units.count(count).value }) : count === 1 ? t.stepsOne : undefined}><Quantity value={total} as="flops" /></Tile>
        <Tile label={t.rate} context={t.rateNote}><Quantity value={rate} as="flopsRate" /></Tile>
        <Tile label={t.utilization} context={<span title={source}>{source}</span>}><Share of={used} why={source} /></Tile>
        <Tile label={t.time} context={fill(t.calls, { count: units.count(scopes.data.num("calls")[all]).value })}><Time ns={scopes.data.num("time_ns")[all]} /></Tile>
        <Tile label={t.unknownCalls} context={t.unknownNote}><Count of={unknown} /></Tile>
      </Tiles>
      <Scopes data={scopes.data} />
      <Roofline />
      <Operators data={operators.data} />
      <Card title={t.howTitle}><p class="d2 prose">{t.howText}</p></Card>
    </div>
  );
}

interface Node {
  scope: string;
  label: string;
  flops: number;
  row: number;
  below: Node[];
  /** So many small parts together. */
  others: number;
}

/** The parts below a scope, the largest first; what is small stands together, never left out. */
function nodesBelow(data: Table, root: string, levels: number, widest: number): Node | null {
  const scope = data.str("scope"), depth = data.num("depth"), flops = data.num("flops");
  const children = new Map<string, number[]>();
  let start = -1;
  for (let row = 0; row < data.rows; row++) {
    const name = scope[row] ?? "";
    if (name === root) start = row;
    if (depth[row] === 0 || !(flops[row] > 0)) continue;
    const above = name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "";
    const list = children.get(above);
    if (list) list.push(row);
    else children.set(above, [row]);
  }
  if (start < 0) return null;
  const make = (row: number, level: number): Node => {
    const name = scope[row] ?? "";
    const rows = level < levels ? (children.get(name) ?? []).slice().sort((a, b) => flops[b] - flops[a] || natural(scope[a] ?? "", scope[b] ?? "")) : [];
    const shown = rows.length > widest ? rows.slice(0, widest - 1) : rows;
    const rest = rows.slice(shown.length);
    const below = shown.map((one) => make(one, level + 1));
    if (rest.length) below.push({ scope: `${name}/\u0000`, label: fill(text().others, { count: rest.length }), flops: rest.reduce((all, one) => all + flops[one], 0), row: -1, below: [], others: rest.length });
    return { scope: name, label: name ? name.slice(name.lastIndexOf("/") + 1) : text().model, flops: flops[row], row, below, others: 0 };
  };
  return make(start, 0);
}

function Scopes({ data }: { data: Table }) {
  const t = text();
  const usual = matchMedia("(max-width: 760px)").matches ? "icicle" : "sankey"; // whose words need room
  const view = param("view") ?? usual;
  const root = param("root") ?? "";
  const deepest = data.num("depth").reduce((most, one) => Math.max(most, one), 0);
  const here = root ? root.split("/").length : 0;
  const depth = Math.max(1, Math.min(Number(param("depth")) || 3, Math.max(1, deepest - here)));
  const node = useMemo(() => nodesBelow(data, root, depth, 14), [data, root, depth, t]) ?? nodesBelow(data, "", depth, 14);
  const reroot = (scope: string) => { if (!scope.includes("\u0000")) go({ params: { root: scope || null } }); };
  if (deepest === 0 || !node) return <Card title={t.byScope}><Empty title={t.noScopes}><Say of={t.noScopesHow} flag={<span class="mono">stepscope run</span>} /></Empty></Card>;
  const path = root ? root.split("/") : [];
  const tools = (
    <>
      {view !== "table" && (
        <label class="levels small d2">{t.depth} <input type="range" min={1} max={Math.max(1, deepest - here)} value={depth} onInput={(event) => go({ params: { depth: event.currentTarget.value } }, true)} /> <b>{depth}</b></label>
      )}
      <Segmented label={t.view} value={view} onChange={(id) => go({ params: { view: id === usual ? null : id } })} choices={[{ id: "sankey", label: t.sankey }, { id: "icicle", label: t.icicle }, { id: "table", label: t.table }]} />
    </>
  );
  const crumbs = (
    <nav class="crumbs" aria-label={t.root}>
      {["", ...path].map((_, at) => {
        const scope = path.slice(0, at).join("/");
        const label = at === 0 ? t.model : path[at - 1];
        return <span key={at}>{at > 0 && <span class="d3"> / </span>}{scope === root ? <b>{label}</b> : <a href={link({ params: { root: scope || null } })}>{label}</a>}</span>;
      })}
    </nav>
  );
  const summary = `${t.byScope}: ${node.below.slice(0, 5).map((one) => `${one.label} ${units.text(units.share(one.flops / node.flops))}`).join(", ")}`;
  return (
    <Card title={t.byScope} note={crumbs} tools={tools} flush={view === "table"}>
      {view === "table" ? <ScopeTable data={data} root={root} /> : view === "icicle" ? <Icicle node={node} depth={depth} data={data} label={summary} onPick={reroot} /> : <Sankey node={node} data={data} label={summary} onPick={reroot} />}
    </Card>
  );
}

function about(data: Table, node: { row: number; label: string; flops: number; scope: string }) {
  const t = text();
  const used = node.row < 0 ? NaN : data.num("utilization")[node.row];
  return (
    <>
      <b>{node.row < 0 ? node.label : node.scope || t.model}</b> {units.text(units.flops(node.flops))}
      {node.row >= 0 && <> · {units.text(units.share(data.num("share")[node.row]))} · {units.text(units.time(data.num("time_ns")[node.row]))}</>}
      {Number.isFinite(used) && <> · {t.utilization} {units.text(units.share(used))}</>}
    </>
  );
}

/** The better a part uses the chip, the fuller its colour. */
function fullness(data: Table, row: number): number {
  const used = row < 0 ? NaN : data.num("utilization")[row];
  return Number.isFinite(used) ? 0.25 + 0.75 * Math.min(1, Math.max(0, used)) : 0.6;
}

function Sankey({ node, data, label, onPick }: { node: Node; data: Table; label: string; onPick: (scope: string) => void }) {
  const flat: Node[] = [];
  const links: { source: string; target: string; value: number }[] = [];
  const walk = (one: Node) => {
    flat.push(one);
    for (const below of one.below) {
      links.push({ source: one.scope, target: below.scope, value: below.flops });
      walk(below);
    }
  };
  walk(node);
  const leaves = (one: Node): number => (one.below.length ? one.below.reduce((sum, below) => sum + leaves(below), 0) : 1);
  const height = Math.max(180, Math.min(720, leaves(node) * 26 + 20));
  const known = new Map(flat.map((one) => [one.scope, one]));
  return (
    <Chart
      height={height}
      label={label}
      of={[node, data]}
      option={() => ({
        series: [{
          type: "sankey", left: 4, right: 150, top: 8, bottom: 8, nodeWidth: 12, nodeGap: 12, draggable: false, nodeAlign: "left", layoutIterations: 0, emphasis: { focus: "adjacency" },
          data: flat.map((one) => ({ name: one.scope, itemStyle: { color: one.row < 0 ? css("--border-strong") : css("--kind-compute"), opacity: one.row < 0 ? 1 : fullness(data, one.row), borderWidth: 0 } })),
          links,
          lineStyle: { color: css("--kind-compute"), opacity: 0.14, curveness: 0.5 },
          label: { color: css("--text"), fontSize: 12, formatter: (item: { name: string }) => { const one = known.get(item.name)!; return `${one.label}  {d|${units.text(units.share(one.flops / node.flops))}}`; }, rich: { d: { color: css("--text-3"), fontSize: 11 } } },
        }],
      })}
      tip={(item) => {
        const one = known.get(item.dataType === "edge" ? item.data.target : item.name);
        return one && about(data, one);
      }}
      onPick={(item) => onPick(item.dataType === "edge" ? item.data.target : item.name)}
    />
  );
}

function Icicle({ node, depth, data, label, onPick }: { node: Node; depth: number; data: Table; label: string; onPick: (scope: string) => void }) {
  const cells: { node: Node; level: number; from: number; width: number }[] = [];
  const walk = (one: Node, level: number, from: number, width: number) => {
    cells.push({ node: one, level, from, width });
    let at = from;
    for (const below of one.below) {
      const part = (below.flops / one.flops) * width;
      if (part > 0.0005) walk(below, level + 1, at, part);
      at += part;
    }
  };
  walk(node, 0, 0, 1);
  return (
    <div class="icicle" style={{ height: `${(depth + 1) * 30}px` }} role="group" aria-label={label}>
      {cells.map(({ node: one, level, from, width }) => (
        <button
          key={`${level} ${one.scope}`}
          style={{ left: `${from * 100}%`, width: `${width * 100}%`, top: `${level * 30}px`, background: one.row < 0 ? "var(--border-strong)" : `color-mix(in srgb, var(--kind-compute) ${fullness(data, one.row) * 100}%, var(--surface))` }}
          class={`${fullness(data, one.row) > 0.75 && one.row >= 0 ? "deep" : ""} ${width > 0.03 ? "" : "thin"}`}
          title={one.row < 0 ? one.label : one.scope || text().model}
          aria-label={`${one.label} ${units.text(units.share(one.flops / node.flops))}`}
          onClick={() => { untip(); onPick(one.scope); }}
          onPointerMove={(event) => tip(event, about(data, one))}
          onPointerLeave={untip}
        >
          {width > 0.03 && <span class="cut">{one.label}</span>}
        </button>
      ))}
    </div>
  );
}

const FIGURES = (t: ReturnType<typeof text>): Column[] => [
  { key: "calls", label: t.count, width: "minmax(64px, .7fr)" },
  { key: "flops", label: t.flops, width: "minmax(96px, 1fr)" },
  { key: "share", label: t.share, bar: true, width: "minmax(120px, 1.5fr)" },
  { key: "time_ns", label: t.took },
  { key: "flops_per_s", label: t.rate, width: "minmax(104px, 1fr)" },
  { key: "utilization", label: t.utilization, width: "minmax(84px, 1fr)" },
];

function ScopeTable({ data, root }: { data: Table; root: string }) {
  const t = text();
  const below = (above: string) => {
    const level = above ? above.split("/").length + 1 : 1;
    return data.pick(data.where((row) => data.num("depth")[row] === level && (above === "" || (data.str("scope")[row] ?? "").startsWith(`${above}/`))));
  };
  const parents = useMemo(() => new Set(data.str("scope").flatMap((scope) => (scope?.includes("/") ? [scope.slice(0, scope.lastIndexOf("/"))] : []))), [data]);
  const searched = (param("scopes.find") ?? "") !== "";
  const table = useMemo(() => (searched ? data.pick(data.where((row) => data.num("depth")[row] > 0)) : below(root)), [data, root, searched]);
  const columns: Column[] = [
    { key: "scope", label: t.scope, as: "name", width: "minmax(240px, 3fr)", show: (of, row) => <span class="name mono" title={of.str("scope")[row] ?? ""}><span class={`cut ${searched ? "tail" : ""}`}><bdi>{searched ? of.str("scope")[row] : (of.str("scope")[row] ?? "").split("/").at(-1)}</bdi></span></span> },
    ...FIGURES(t),
    { key: "how", label: t.how, as: "said", hide: true },
    { key: "unknown_calls", label: t.unknownColumn, hide: true },
  ];
  return <Grid id="scopes" table={table} columns={columns} search={["scope"]} sort="-flops" what={t.whatScopes} rowKey={(of, row) => of.str("scope")[row] ?? ""} children={(of, row) => below(of.str("scope")[row] ?? "")} leaf={(of, row) => !parents.has(of.str("scope")[row] ?? "")} label={t.byScope} />;
}

function Operators({ data }: { data: Table }) {
  const t = text();
  const shade = (of: Table, row: number) => color(of.str("name")[row] ?? "", true);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(220px, 3fr)" },
    { key: "device", label: t.device, as: "text", hide: true },
    ...FIGURES(t).map((column) => (column.bar ? { ...column, color: shade } : column)),
    { key: "precision", label: t.precision, as: "text", width: "minmax(72px, .8fr)" },
    { key: "how", label: t.how, as: "said", width: "minmax(96px, 1fr)" },
    { key: "unknown_calls", label: t.unknownColumn, hide: true },
    { key: "peak_source", label: t.source, as: "said", hide: true },
  ];
  return (
    <section class="card opcard">
      <Grid tools={<h2 class="gridtitle">{t.opsTitle}</h2>} id="ops" table={data} columns={columns} search={["name"]} sort="-flops" what={t.whatOps} rowKey={(of, row) => of.str("name")[row] ?? ""} onOpen={(of, row) => go({ page: "operators", params: { tab: "cpu", sel: JSON.stringify([of.str("name")[row]]) } })} label={t.opsTitle} />
    </section>
  );
}

function Roofline() {
  const t = text();
  const asked = useTable("roofline");
  const rows = param("roof") === "table";
  return (
    <Card title={t.roofline} note={t.roofNote} flush={rows} tools={<Segmented label={t.view} value={rows ? "table" : "chart"} onChange={(id) => go({ params: { roof: id === "table" ? "table" : null } })} choices={[{ id: "chart", label: t.roofline }, { id: "table", label: t.asTable }]} />}>
      <Await of={asked} rows={8}>
        {(data) => (!data.rows ? <Empty title={t.noBytes}><Say of={t.noBytesHow} flag={<span class="mono">--shapes</span>} /></Empty> : rows ? <RoofRows data={data} /> : <Roof data={data} />)}
      </Await>
    </Card>
  );
}

function RoofRows({ data }: { data: Table }) {
  const t = text();
  const shade = (of: Table, row: number) => color(of.str("name")[row] ?? "", true);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(200px, 2fr)" },
    { key: "shapes", label: t.inputs, as: "name", width: "minmax(200px, 2.4fr)", show: (of, row) => <span class="name mono" title={of.str("shapes")[row] ?? ""}><span class="cut">{shapeText(of.str("shapes")[row] ?? "[]")}</span></span> },
    { key: "dtypes", label: t.precision, as: "name", width: "minmax(80px, 1fr)", hide: true, show: (of, row) => typeText(of.str("dtypes")[row] ?? "[]") },
    { key: "calls", label: t.count, width: "minmax(60px, .7fr)" }, { key: "flops", label: t.flops, width: "minmax(96px, 1fr)" }, { key: "bytes", label: t.bytes }, { key: "time_ns", label: t.took }, { key: "intensity", label: t.intensity, width: "minmax(96px, 1fr)" },
    { key: "flops_per_s", label: t.rate, width: "minmax(100px, 1fr)" }, { key: "reached_share", label: t.reached }, { key: "bound", label: t.bound, as: "said" },
  ];
  return <Grid id="roofrows" table={data} columns={columns} search={["name", "shapes"]} sort="-flops" label={t.roofline} />;
}

function Roof({ data }: { data: Table }) {
  const t = text();
  const x = data.num("intensity"), y = data.num("flops_per_s"), time = data.num("time_ns");
  const peak = data.num("peak_flops_per_s"), width = data.num("peak_bytes_per_s");
  const longest = time.reduce((most, one) => Math.max(most, one), 0);
  const roofs = useMemo(() => {
    const found = new Map<number, { peak: number; width: number; label: string }>();
    for (let row = 0; row < data.rows; row++) if (Number.isFinite(peak[row]) && Number.isFinite(width[row])) found.set(peak[row], { peak: peak[row], width: width[row], label: data.str("precision")[row] ?? "" });
    return [...found.values()].sort((a, b) => b.peak - a.peak);
  }, [data]);
  // From a power of ten on, so that two at least are written.
  const tenth = (value: number) => 10 ** Math.floor(Math.log10(value)) / 1.3;
  const low = tenth(Math.min(...x, ...roofs.map((roof) => roof.peak / roof.width / 5))), high = Math.max(...x, ...roofs.map((roof) => (roof.peak / roof.width) * 5)) * 2;
  const bottom = tenth(Math.min(...y)), top = Math.max(...y, ...roofs.map((roof) => roof.peak)) * 2;
  const names = [...new Set(data.str("name"))];
  const recorded = data.str("how").every((one) => one === "recorded");
  const axis = { axisLine: { lineStyle: { color: css("--border-strong") } }, axisTick: { show: false }, minorSplitLine: { show: false }, nameTextStyle: { color: css("--text-3"), fontSize: 11 } };
  const words = { showMinLabel: false, showMaxLabel: false, color: css("--text-3"), fontSize: 11 };
  return (
    <>
      <div class="roofwords">
        <span class="legend">{names.slice(0, 8).map((name) => <span key={name}><Swatch color={color(name ?? "")} /><span class="mono">{name}</span></span>)}</span>
        <span class="sp" />
        <span class="d3 small">{recorded ? t.roofRecorded : t.roofShapes}</span>
        {!roofs.length && <Chip tone="warn">{fill(t.noRoof, { why: t.chipUnknown })}</Chip>}
      </div>
      <Chart
        height={340}
        label={`${t.roofline}: ${data.rows}`}
        of={[data, roofs]}
        option={() => ({
          grid: { left: 84, right: 24, top: 16, bottom: 40 },
          xAxis: { ...axis, type: "log", min: low, max: high, name: t.intensity, nameLocation: "middle", nameGap: 26, splitLine: { show: false }, axisLabel: { ...words, formatter: (value: number) => units.count(value).value } },
          yAxis: { ...axis, axisLine: { show: false }, type: "log", min: bottom, max: top, splitLine: { lineStyle: { color: css("--grid") } }, axisLabel: { ...words, formatter: (value: number) => units.text(units.flopsRate(value)) } },
          series: [
            ...roofs.map((roof) => ({
              type: "line", silent: true, symbol: "none", lineStyle: { color: css("--text-3"), width: 1.5 }, z: 1,
              data: [[Math.max(low, bottom / roof.width), Math.max(low, bottom / roof.width) * roof.width], [roof.peak / roof.width, roof.peak], [high, roof.peak]],
              endLabel: { show: true, color: css("--text-2"), fontSize: 11, align: "right", verticalAlign: "bottom", offset: [-4, -4], formatter: `${roof.label} ${units.text(units.flopsRate(roof.peak))} · ${fill(t.bandwidth, { rate: units.text(units.rate(roof.width)) })}` },
            })),
            {
              type: "scatter", z: 2,
              data: Array.from({ length: data.rows }, (_, row) => ({ value: [x[row], y[row]], row, symbolSize: 6 + 16 * Math.sqrt(time[row] / (longest || 1)), itemStyle: { color: color(data.str("name")[row] ?? ""), opacity: 0.8, borderColor: css("--surface"), borderWidth: 1 } })),
            },
          ],
        })}
        tip={(item) => {
          const row = item.data?.row;
          if (row === undefined) return null;
          const bound = data.str("bound")[row];
          return (
            <>
              <b>{data.str("name")[row]}</b> <span class="mono">{shapeText(data.str("shapes")[row] ?? "[]")}</span><br />
              {units.text(units.flopsRate(y[row]))} · {units.count(x[row]).value} {t.intensity} · {units.text(units.time(time[row]))}
              {bound && <><br />{bound === "memory" ? t.memory : t.compute} · {t.reached} {units.text(units.share(data.num("reached_share")[row]))}</>}
            </>
          );
        }}
        onPick={(item) => item.data?.row !== undefined && go({ page: "operators", params: { tab: "cpu", sel: JSON.stringify([data.str("name")[item.data.row]]) } })}
      />
    </>
  );
}
