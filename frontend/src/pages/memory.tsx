// page: {"order": 100, "group": "resources", "icon": "memory", "en": "Memory", "zh": "内存", "needs": ["allocations", "allocated", "reserved"]}
import { useMemo } from "preact/hooks";
import { color } from "../colors";
import { info, useTable, type Asked } from "../data";
import { Await, Bytes, Card, Chip, Count, Empty, InlineBar, Legend, Segmented, Swatch, Tabs, Tile, Tiles, Time, Verdict } from "../parts/basics";
import { Categories } from "../memory/categories";
import { Grid, type Column } from "../parts/grid";
import { Series, ZoomBar, type Band, type Line, type Range } from "../parts/series";
import { absolute, choose, chosen, stepBands } from "../range";
import { source } from "../source";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./memory.css";

const text = texts({
  en: {
    peak: "At the peak {peak} are allocated on {device}, {share} of its {capacity}, in step {step} when {op} runs.",
    peakNoOp: "At the peak {peak} are allocated on {device}, {share} of its {capacity}.",
    peakOnly: "At the peak {peak} are allocated on {device}, in step {step} when {op} runs.",
    peakBare: "At the peak {peak} are allocated on {device}.", opIn: "{op} in {scope}", scope: "Module",
    full: "{device} is nearly full: {reserved} of {capacity} are reserved, and at the peak {peak} of them are in use.",
    grows: "Memory grows: every one of {steps} steps leaves more allocated on {device} than it found, {growth} together. The peak is {peak}.",
    split: "{unused} of the {reserved} reserved on {device} lie unused even at the peak of {peak}.",
    none: "This recording has no memory in it",
    how: "Record with {flag}, or {python}; a trace of PyTorch's own profiler needs {torch}.",
    noBlocks: "No blocks were recorded, only the curve", noBlocksHow: "Which tensors are alive is known where allocations are recorded: PyTorch with {flag}.",
    moments: "{count} [moment|moments]", blocks: "{count} [block|blocks]", steps: "{count} [step|steps]", stepOne: "1 step", range: "from {from} to {to}",
    device: "Device", capacity: "Capacity", notSaid: "the recording does not say", peak_: "Peak allocated", ofCapacity: "{share} of capacity", static: "Static: parameters, states", staticNote: "there before and after", staticUnknown: "no blocks were recorded",
    reserved: "Reserved, at most", fragmentation: "Reserved, not used", atPeak: "at the peak: fragmentation", growth: "Growth", growthNote: "all of {count} [step|steps] together", growthOne: "in the one step", growthUnknown: "known within whole steps", free: "Free at the peak", freeNote: "capacity less allocated", afterReserved: "{free} beyond what is reserved",
    curve: "Memory over time", curveOrder: "Memory in order of execution", everyPixel: "lowest and highest of every pixel are drawn: no peak is hidden", all: "every moment is drawn", allocated: "allocated", reserved_: "reserved", static_: "static", limit: "limit",
    byTime: "By time", byOrder: "By order", byUse: "By category", axis: "Axis", scale: "Scale to the limit", forward: "FP", backward: "BP end", reset: "All of the time", timeline: "Show on the timeline", zoom: "Drag to zoom, click for the tensors alive then",
    alive: "Alive at {at}", aliveShort: "Alive then", perStep: "Peak of each step", byOp: "By operator", kept: "Never freed", largest: "Largest blocks", points: "Moments", views: "Views", toPeak: "Back to the peak",
    moment: "Moment", change: "Change", op: "Operator", from: "Allocated at", until: "Freed at", life: "Life", size: "Size", shape: "Shape", dtype: "Type", format: "Format", category: "Category", name: "Name", address: "Address", step: "Step", order: "Nth",
    blocks_: "Blocks", total: "Allocated in all", most: "Alive at once", keptBlocks: "Never freed", keptBytes: "Never freed, bytes", what: "block|blocks", before: "before the recording", outlived: "outlived it", noOp: "(none)", rest: "{count} [other|others]", unexplained: "static", composition: "What it is made of",
    byCategory: "by category", byOperator: "by the operator that allocated it", keptNote: "allocated during the recording and not freed before its end; those of the last step may just be in use", largestNote: "the {count} largest of {all} [block|blocks]", nothingKept: "Every block that was allocated was freed again", pick: "Show what was alive then",
  },
  zh: {
    peak: "峰值时 {device} 上分配了 {peak}，占其 {capacity} 的 {share}，在迭代 {step} 执行 {op} 时。",
    peakNoOp: "峰值时 {device} 上分配了 {peak}，占其 {capacity} 的 {share}。",
    peakOnly: "峰值时 {device} 上分配了 {peak}，在迭代 {step} 执行 {op} 时。",
    peakBare: "峰值时 {device} 上分配了 {peak}。", opIn: "{scope} 中的 {op}", scope: "模块",
    full: "{device} 几乎已满：{capacity} 中预留了 {reserved}，峰值时使用其中 {peak}。",
    grows: "内存在增长：{steps} 个迭代结束时 {device} 上都比开始时分配更多，共 {growth}。峰值为 {peak}。",
    split: "{device} 上预留的 {reserved} 中，即使在 {peak} 的峰值时也有 {unused} 未使用。",
    none: "本次记录没有内存数据",
    how: "用 {flag} 或 {python} 记录；PyTorch 自带性能工具的 trace 需要 {torch}。",
    noBlocks: "只记录了曲线，没有记录内存块", noBlocksHow: "只有记录了分配才知道哪些张量存活：PyTorch 用 {flag}。",
    moments: "{count} 个时刻", blocks: "{count} 个内存块", steps: "{count} 个迭代", stepOne: "1 个迭代", range: "从 {from} 到 {to}",
    device: "设备", capacity: "容量", notSaid: "记录中未注明", peak_: "分配峰值", ofCapacity: "容量的 {share}", static: "静态：参数、状态", staticNote: "记录前后都在", staticUnknown: "未记录内存块",
    reserved: "最大预留", fragmentation: "预留未用", atPeak: "峰值时：碎片", growth: "增长", growthNote: "{count} 个迭代合计", growthOne: "在唯一的迭代中", growthUnknown: "只有完整迭代内才知道", free: "峰值时空闲", freeNote: "容量减去已分配", afterReserved: "预留之外还有 {free}",
    curve: "内存随时间变化", curveOrder: "内存按执行顺序变化", everyPixel: "绘出每个像素的最低与最高值：不会隐藏峰值", all: "绘出每个时刻", allocated: "已分配", reserved_: "预留", static_: "静态", limit: "上限",
    byTime: "按时间", byOrder: "按顺序", byUse: "按类别", axis: "横轴", scale: "按上限缩放", forward: "FP", backward: "BP 终点", reset: "全部时间", timeline: "在时间线上显示", zoom: "拖动缩放，点击查看当时存活的张量",
    alive: "{at} 时存活", aliveShort: "当时存活", perStep: "各迭代峰值", byOp: "按算子", kept: "从未释放", largest: "最大的块", points: "时刻", views: "视图", toPeak: "回到峰值",
    moment: "时刻", change: "变化", op: "算子", from: "分配于", until: "释放于", life: "生命周期", size: "大小", shape: "形状", dtype: "类型", format: "格式", category: "类别", name: "名称", address: "地址", step: "迭代", order: "序号",
    blocks_: "块数", total: "累计分配", most: "同时存活", keptBlocks: "从未释放", keptBytes: "从未释放的字节", what: "块", before: "记录之前", outlived: "记录之后仍在", noOp: "（无）", rest: "其他 {count} 项", unexplained: "静态", composition: "组成",
    byCategory: "按类别", byOperator: "按分配它的算子", keptNote: "在记录期间分配且结束前未释放；最后一个迭代的块可能仍在使用", largestNote: "{all} 个块中最大的 {count} 个", nothingKept: "所有分配的块都已释放", pick: "显示当时存活的张量",
  },
});

const PIXELS = 1500;
const LARGEST = 1000;
const TABS = ["alive", "steps", "ops", "kept", "largest", "moments"] as const;
type Tab = (typeof TABS)[number];

export default function Memory() {
  const t = text();
  const peaks = useTable("memory_peaks");
  const blocks = info.value!.tables.allocations ?? 0;
  const devices = useMemo(() => (peaks.data ? highest(peaks.data) : []), [peaks.data]);
  if (peaks.error || !peaks.data) return <><Verdict>{t.curve}</Verdict><Await of={peaks} rows={12}>{() => null}</Await></>;
  if (!devices.length) {
    return (
      <>
        <Verdict>{t.none}</Verdict>
        <Card title={t.curve}>
          <Empty title={t.none} height={220}>
            <Say of={t.how} flag={<code class="mono">stepscope run --memory train.py</code>} python={<code class="mono">Profiler(profile_memory=True)</code>} torch={<code class="mono">profile_memory=True</code>} />
          </Empty>
        </Card>
      </>
    );
  }
  const device = devices.find((one) => one.device === param("device")) ?? devices[0];
  return <OfDevice key={device.device} devices={devices} device={device} peaks={peaks.data} blocks={blocks} />;
}

interface Peak {
  device: string;
  bytes: number;
  at: number;
  row: number;
}

/** The highest peak of each device: accelerators first, then by size. */
function highest(peaks: Table): Peak[] {
  const found = new Map<string, Peak>();
  const [bytes, at, device] = [peaks.num("peak_bytes"), peaks.num("peak_ns"), peaks.str("device")];
  for (let row = 0; row < peaks.rows; row++) {
    const name = device[row] ?? "";
    const known = found.get(name);
    if (!known || bytes[row] > known.bytes) found.set(name, { device: name, bytes: bytes[row], at: at[row], row });
  }
  return [...found.values()].sort((a, b) => Number(a.device.startsWith("cpu")) - Number(b.device.startsWith("cpu")) || b.bytes - a.bytes);
}

function OfDevice({ devices, device, peaks, blocks }: { devices: Peak[]; device: Peak; peaks: Table; blocks: number }) {
  const t = text();
  const order = param("axis") === "order";
  const layered = param("axis") === "category" && blocks > 0 && !source().still;
  const range = chosen();
  const about = { device: device.device, pixels: PIXELS, by_event: order };
  const whole = useTable("memory", about);
  const part = useTable("memory", { ...about, start_ns: range && absolute(range[0]), end_ns: range && absolute(range[1]) }, { skip: range === null });
  const trace = useTable("step_trace");
  const said = param("at");
  const moment = said !== undefined && Number.isFinite(Number(said)) ? Number(said) : device.at;
  const alive = useTable("live_tensors", { device: device.device, at_ns: absolute(moment) }, { skip: blocks === 0 });
  const mine = useMemo(() => peaks.pick(peaks.where((row) => peaks.str("device")[row] === device.device)), [peaks, device.device]);
  const chip = info.value!.devices.find((one) => `${one.kind} ${one.device}` === device.device);
  const capacity = Number(chip?.memory_bytes ?? NaN) || NaN;
  const atPeak = useMemo(() => (whole.data ? whole.data.where((row) => whole.data!.num("allocated_bytes")[row] === device.bytes)[0] : undefined), [whole.data]);
  const value = (name: string) => (atPeak === undefined ? NaN : whole.data!.num(name)[atPeak]);
  const left = mine.num("growth_bytes").filter((value) => !Number.isNaN(value));
  const figures: Figures = {
    device: device.device, capacity, peak: device.bytes, at: device.at, step: mine.num("step")[mine.num("peak_bytes").indexOf(device.bytes)],
    op: mine.str("op")[mine.num("peak_bytes").indexOf(device.bytes)], scope: mine.str("scope")[mine.num("peak_bytes").indexOf(device.bytes)], static: value("static_bytes"), reserved: most(mine.num("reserved_bytes")), reservedAtPeak: value("reserved_bytes"), growth: left.reduce((sum, value) => sum + value, left.length ? 0 : NaN), grows: left.length > 1 && left.every((value) => value > 0), steps: left.length,
  };
  const shown = range ? (part.data ?? whole.data) : whole.data;
  const bands = useMemo(() => stepBands(trace.data), [trace.data]);
  return (
    <>
      <Verdict
        facts={[
          chip?.name, whole.data && fill(t.moments, { count: units.count(events(whole.data)).value }), blocks > 0 && fill(t.blocks, { count: units.count(blocks).value }),
          bands.length > 0 && (bands.length === 1 ? t.stepOne : fill(t.steps, { count: units.count(bands.length).value })), range && fill(t.range, { from: units.text(units.time(range[0])), to: units.text(units.time(range[1])) }),
        ]}
      >
        <Sentence of={figures} />
      </Verdict>
      <Overview of={figures} curve={whole.data} />
      <Card
        title={order ? t.curveOrder : t.curve}
        note={shown && (events(shown) > shown.rows ? t.everyPixel : t.all)}
        tools={
          <>
            {range ? (
              <>
                <a class="small" href={link({ page: "timeline", params: { t0: Math.round(range[0]), t1: Math.round(range[1]) } })}>{t.timeline}</a>
                <Chip tone="acc" onRemove={() => choose(null)} title={t.reset}><Time ns={range[0]} /> – <Time ns={range[1]} /></Chip>
              </>
            ) : <span class="d3 small wide">{t.zoom}</span>}
            {devices.length > 1 && <Segmented label={t.device} value={device.device} onChange={(id) => go({ params: { device: id === devices[0].device ? null : id, at: null } })} choices={devices.map((one) => ({ id: one.device, label: one.device }))} />}
            <Segmented label={t.axis} value={order ? "order" : layered ? "category" : "time"} onChange={(id) => go({ params: { axis: id === "time" ? null : id } }, true)} choices={[{ id: "time", label: t.byTime }, { id: "category", label: t.byUse, off: blocks === 0 || source().still }, { id: "order", label: t.byOrder }]} />
          </>
        }
      >
        {layered ? <Categories device={device.device} range={range} whole={whole.data?.rows ? [whole.data.num("at_ns")[0], whole.data.num("at_ns")[whole.data.rows - 1]] : null} bands={bands} moment={moment} pixels={PIXELS} /> : <Await of={range && part.data ? part : whole} rows={8}>{() => <Curve shown={shown!} whole={whole.data ?? shown!} order={order} range={range} bands={bands} trace={trace.data} capacity={capacity} moment={moment} />}</Await>}
      </Card>
      <Details device={device} moment={moment} alive={alive} peaks={mine} blocks={blocks} shown={shown} figures={figures} />
    </>
  );
}

interface Figures {
  device: string;
  capacity: number;
  peak: number;
  at: number;
  step: number;
  op: string | null;
  /** The module in which it ran. */
  scope: string | null;
  static: number;
  reserved: number;
  reservedAtPeak: number;
  /** What the steps left behind, together, and whether each of them left something. */
  growth: number;
  grows: boolean;
  steps: number;
}

function most(values: Float64Array): number {
  return values.reduce((high, value) => (Number.isNaN(high) || value > high ? value : high), NaN);
}

/** How many moments there are, of which a curve may have only some. */
function events(curve: Table): number {
  const event = curve.num("event");
  return curve.rows ? event[curve.rows - 1] - event[0] + 1 : 0;
}

function Sentence({ of }: { of: Figures }) {
  const t = text();
  const unused = of.reservedAtPeak - of.peak;
  const values = {
    device: <b>{of.device}</b>, peak: <b><Bytes of={of.peak} /></b>, capacity: <b><Bytes of={of.capacity} /></b>, share: <b>{units.text(units.share(of.peak / of.capacity))}</b>, step: <b>{of.step}</b>, op: <b class="mono big">{of.scope ? fill(t.opIn, { op: of.op ?? "", scope: of.scope }) : of.op}</b>,
    reserved: <b><Bytes of={of.reserved} /></b>, growth: <b><Bytes of={of.growth} /></b>, steps: <b>{of.steps}</b>, unused: <b><Bytes of={unused} /></b>,
  };
  const known = of.op !== null && !Number.isNaN(of.step);
  if (of.reserved > 0.92 * of.capacity) return <Say of={t.full} {...values} />;
  if (of.grows) return <Say of={t.grows} {...values} />;
  if (of.reservedAtPeak > 0 && unused > 0.25 * of.reservedAtPeak) return <Say of={t.split} {...values} />;
  if (Number.isNaN(of.capacity)) return <Say of={known ? t.peakOnly : t.peakBare} {...values} />;
  return <Say of={known ? t.peak : t.peakNoOp} {...values} />;
}

function Overview({ of, curve }: { of: Figures; curve: Table | null }) {
  const t = text();
  const unused = of.reservedAtPeak > 0 ? of.reservedAtPeak - of.peak : NaN;
  const share = (part: number) => (Number.isNaN(part / of.capacity) ? undefined : fill(t.ofCapacity, { share: units.text(units.share(part / of.capacity)) }));
  return (
    <Tiles label={t.curve}>
      <Tile label={t.capacity} context={Number.isNaN(of.capacity) ? t.notSaid : of.device}><Bytes of={of.capacity} why={t.notSaid} /></Tile>
      <Tile label={t.peak_} context={share(of.peak)} spark={curve?.num("allocated_bytes")} to={{ params: { at: null, tab: null } }}><Bytes of={of.peak} /></Tile>
      <Tile label={t.free} context={Number.isNaN(of.capacity) ? t.notSaid : of.reserved > 0 ? fill(t.afterReserved, { free: units.text(units.bytes(of.capacity - of.reserved)) }) : t.freeNote}><Bytes of={of.capacity - of.peak} why={t.notSaid} /></Tile>
      <Tile label={t.static} context={Number.isNaN(of.static) ? t.staticUnknown : t.staticNote}><Bytes of={of.static} why={t.staticUnknown} /></Tile>
      <Tile label={t.reserved} context={of.reserved > 0 ? share(of.reserved) : t.notSaid}><Bytes of={of.reserved > 0 ? of.reserved : NaN} why={t.notSaid} /></Tile>
      <Tile label={t.fragmentation} context={Number.isNaN(unused) ? t.notSaid : t.atPeak} tone={unused > 0.25 * of.reservedAtPeak ? "warn" : undefined}><Bytes of={unused} why={t.notSaid} /></Tile>
      <Tile label={t.growth} context={of.steps > 1 ? fill(t.growthNote, { count: of.steps }) : of.steps ? t.growthOne : t.growthUnknown} tone={of.grows ? "bad" : undefined} to={{ params: { tab: "steps" } }}><Bytes of={of.growth} /></Tile>
    </Tiles>
  );
}

interface CurveProps {
  shown: Table;
  whole: Table;
  order: boolean;
  range: Range | null;
  bands: Band[];
  trace: Table | null;
  capacity: number;
  moment: number;
}

function Curve({ shown, whole, order, range, bands, trace, capacity, moment }: CurveProps) {
  const t = text();
  const axis = order ? "event" : "at_ns";
  const scaled = param("limit") === "1";
  const at = shown.num("at_ns");
  // In order of execution a moment of time is the place of the last event up to it.
  const place = (ns: number) => {
    if (!order) return ns;
    const [times, places] = [whole.num("at_ns"), whole.num("event")];
    let [low, high] = [0, whole.rows];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= ns) low = middle + 1;
      else high = middle;
    }
    return low ? places[low - 1] : (places[0] ?? 0) - 1;
  };
  const back = (chosen: Range | null): Range | null => {
    if (!order || !chosen) return chosen;
    const [times, places] = [whole.num("at_ns"), whole.num("event")];
    const inside = whole.where((row) => places[row] >= chosen[0] && places[row] <= chosen[1]);
    return inside.length > 1 ? [times[inside[0]], times[inside[inside.length - 1]]] : null;
  };
  const lines = useMemo(() => {
    const list: Line[] = [{ label: t.allocated, values: shown.num("allocated_bytes"), color: "--kind-compute", area: true, stepped: true }];
    const reserved = shown.num("reserved_bytes");
    if (reserved.some((value) => value > 0)) list.push({ label: t.reserved_, values: reserved, color: "--text-2", stepped: true, dashed: true });
    if (!shown.blank("static_bytes")) list.push({ label: t.static_, values: shown.num("static_bytes"), color: "--op-norm", stepped: true });
    return list;
  }, [shown, t]);
  const placed = useMemo(() => bands.map((band) => ({ ...band, from: place(band.from), to: place(band.to) })), [bands, order, whole]);
  const rules = useMemo(() => {
    if (!trace || trace.rows > 60) return [];
    const [fp, bp] = [trace.num("fp_start_ns"), trace.num("bp_end_ns")];
    const all = Array.from({ length: trace.rows }, (_, row) => [{ at: place(fp[row]), label: t.forward, dashed: true }, { at: place(bp[row]), label: t.backward, dashed: true }]).flat();
    return all.filter((rule) => Number.isFinite(rule.at)).sort((a, b) => a.at - b.at);
  }, [trace, order, whole, t]);
  const window: Range | null = range && [place(range[0]), place(range[1])];
  const levels = useMemo(() => (Number.isFinite(capacity) ? [{ at: capacity, label: `${t.limit} ${units.text(units.bytes(capacity))}` }] : []), [capacity, t]);
  const wholeX = whole.num(axis);
  return (
    <>
      <div class="curve-tools">
        <Legend of={lines.map((line) => ({ label: line.label, color: `var(${line.color})` }))} />
        <span class="sp" />
        {Number.isFinite(capacity) && (
          <label class="small d2"><input type="checkbox" checked={scaled} onChange={() => go({ params: { limit: scaled ? null : 1 } }, true)} /> {t.scale} ({units.text(units.bytes(capacity))})</label>
        )}
      </div>
      <Series
        x={shown.num(axis)} lines={lines} as="bytes" xAs={order ? "count" : "time"} height={270} bands={placed} bandLabels rules={rules} levels={levels} top={scaled ? capacity * 1.04 : undefined} selected={place(moment)}
        range={window ?? (wholeX.length ? [wholeX[0], wholeX[wholeX.length - 1]] : null)} onRange={(chosen) => choose(back(chosen))}
        onPick={(row) => go({ params: { at: at[row], tab: null } }, true)}
        label={order ? t.curveOrder : t.curve}
        tip={(row) => <Moment table={shown} row={row} />}
      />
      <ZoomBar x={wholeX} values={whole.num("allocated_bytes")} color="var(--kind-compute)" range={window} onRange={(chosen) => choose(back(chosen))} />
    </>
  );
}

function Moment({ table, row }: { table: Table; row: number }) {
  const t = text();
  const value = (name: string) => table.num(name)[row];
  const op = table.str("op")[row];
  const change = value("change_bytes");
  return (
    <>
      {op && <div><Swatch color={color(op)} /> <b class="mono">{op}</b></div>}
      <dl>
        <dt>{t.moment}</dt><dd><Time ns={value("at_ns")} /></dd>
        {change !== 0 && !Number.isNaN(change) && <><dt>{t.change}</dt><dd>{change > 0 ? "▲ +" : "▼ "}<Bytes of={change} /></dd></>}
        <dt>{t.allocated}</dt><dd><b><Bytes of={value("allocated_bytes")} /></b></dd>
        {value("reserved_bytes") > 0 && <><dt>{t.reserved_}</dt><dd><Bytes of={value("reserved_bytes")} /></dd></>}
        {!Number.isNaN(value("static_bytes")) && <><dt>{t.static_}</dt><dd><Bytes of={value("static_bytes")} /></dd></>}
      </dl>
    </>
  );
}

interface DetailsProps {
  device: Peak;
  moment: number;
  alive: Asked<Table>;
  peaks: Table;
  blocks: number;
  shown: Table | null;
  figures: Figures;
}

function Details({ device, moment, alive, peaks, blocks, shown, figures }: DetailsProps) {
  const t = text();
  const said = param("tab") as Tab | undefined;
  const tab = said && TABS.includes(said) ? said : "alive";
  const end = absolute(Number(BigInt(info.value!.end_ns) - BigInt(info.value!.origin_ns)));
  const ops = useTable("allocations_by_op", { device: device.device, by_scope: true }, { skip: blocks === 0 });
  const last = useTable("live_tensors", { device: device.device, at_ns: end }, { skip: blocks === 0 || tab !== "kept" });
  const largest = useTable("tables/allocations", { sort: "bytes", descending: 1, limit: LARGEST }, { skip: blocks === 0 || tab !== "largest" });
  const own = useMemo(() => largest.data && largest.data.pick(largest.data.where((row) => largest.data!.str("device")[row] === device.device)), [largest.data, device.device]);
  const kept = useMemo(() => last.data && last.data.pick(last.data.where((row) => Number.isNaN(last.data!.num("free_ns")[row]) && !Number.isNaN(last.data!.num("alloc_ns")[row]))), [last.data]);
  const title = fill(t.alive, { at: units.text(units.time(moment)) });
  const tabs = (
    <Tabs
      label={t.views} value={tab} onChange={(id) => go({ params: { tab: id === "alive" ? null : id } }, true)}
      choices={[{ id: "alive", label: title, count: alive.data?.rows }, { id: "steps", label: t.perStep, count: peaks.rows }, { id: "ops", label: t.byOp, count: ops.data?.rows }, { id: "kept", label: t.kept }, { id: "largest", label: t.largest }, { id: "moments", label: t.points }]}
    />
  );
  const none = <Card title={t.aliveShort}><Empty title={t.noBlocks}><Say of={t.noBlocksHow} flag={<code class="mono">--memory</code>} /></Empty></Card>;
  return (
    <>
      {tabs}
      {tab === "alive" && (blocks === 0 ? none : (
        <div class="alive">
          <Card title={t.composition} class="made">
            <Await of={alive} rows={8}>{(table) => <Composition table={table} fixed={figures.static} />}</Await>
          </Card>
          <Card title={title} tools={moment !== device.at && <button class="btn sm" onClick={() => go({ params: { at: null } }, true)}>{t.toPeak}</button>} flush>
            <Await of={alive}>{(table) => <Grid id="alive" table={table} columns={blockColumns(table)} search={["op", "scope", "name", "category", "shape", "dtype"].filter((name) => table.has(name))} sort="-bytes" what={t.what} label={title} />}</Await>
          </Card>
        </div>
      ))}
      {tab === "steps" && (
        <Card title={t.perStep} flush>
          <Grid
            id="peaks" table={peaks} label={t.perStep} sort="step"
            columns={[
              { key: "step", label: t.step }, { key: "peak_bytes", label: t.peak_, bar: true }, { key: "op", label: t.op, as: "name", color: (table, row) => color(table.str("op")[row] ?? "") }, { key: "scope", label: t.scope, as: "name", hide: peaks.blank("scope") },
              { key: "peak_ns", label: t.moment, show: (table, row) => <Go at={table.num("peak_ns")[row]} /> }, { key: "reserved_bytes", label: t.reserved }, { key: "static_bytes", label: t.static }, { key: "growth_bytes", label: t.growth },
            ]}
          />
        </Card>
      )}
      {tab === "ops" && (blocks === 0 ? none : (
        <Card title={t.byOp} flush>
          <Await of={ops}>
            {(table) => (
              <Grid
                id="ops" table={table} search={["op", "scope"]} sort="-allocated_bytes" label={t.byOp} onOpen={(of, row) => go({ params: { tab: "largest", "largest.find": of.str("op")[row] } })}
                columns={[
                  { key: "op", label: t.op, as: "name", color: (table, row) => color(table.str("op")[row] ?? "") }, { key: "scope", label: t.scope, as: "name", hide: table.blank("scope") }, { key: "blocks", label: t.blocks_ }, { key: "allocated_bytes", label: t.total, bar: true, color: (table, row) => color(table.str("op")[row] ?? "") },
                  { key: "peak_bytes", label: t.most }, { key: "largest_bytes", label: t.largest }, { key: "never_freed", label: t.keptBlocks }, { key: "never_freed_bytes", label: t.keptBytes },
                ]}
              />
            )}
          </Await>
        </Card>
      ))}
      {tab === "kept" && (blocks === 0 ? none : (
        <Card title={t.kept} note={t.keptNote} flush>
          <Await of={last}>{() => (kept!.rows ? <Grid id="kept" table={kept!} columns={blockColumns(kept!)} search={["op", "name", "category", "shape"]} sort="-bytes" what={t.what} label={t.kept} /> : <Empty title={t.nothingKept} />)}</Await>
        </Card>
      ))}
      {tab === "largest" && (blocks === 0 ? none : (
        <Card title={t.largest} note={largest.data && largest.data.total > LARGEST && fill(t.largestNote, { count: units.count(largest.data.rows).value, all: units.count(largest.data.total).value })} flush>
          <Await of={largest}>{() => <Grid id="largest" table={own!} columns={blockColumns(own!)} search={["op", "name", "category", "shape"]} sort="-bytes" what={t.what} label={t.largest} />}</Await>
        </Card>
      ))}
      {tab === "moments" && shown && (
        <Card title={t.points} note={events(shown) > shown.rows ? t.everyPixel : t.all} flush>
          <Grid
            id="moments" table={shown} search={["op"]} label={t.points}
            columns={[
              { key: "event", label: t.order }, { key: "at_ns", label: t.moment, show: (table, row) => <Go at={table.num("at_ns")[row]} /> }, { key: "allocated_bytes", label: t.allocated, bar: true }, { key: "change_bytes", label: t.change },
              { key: "op", label: t.op, as: "name", color: (table, row) => color(table.str("op")[row] ?? "") }, { key: "reserved_bytes", label: t.reserved_ }, { key: "static_bytes", label: t.static_, hide: true },
            ]}
          />
        </Card>
      )}
    </>
  );
}

/** A moment that shows on click what was alive then. */
function Go({ at }: { at: number }) {
  return Number.isNaN(at) ? <>–</> : <a href={link({ params: { at: Math.round(at), tab: null } })} title={text().pick}><Time ns={at} /></a>;
}

function blockColumns(table: Table): Column[] {
  const t = text();
  const timeline = (row: Table, at: number) => {
    const [from, to] = [row.num("alloc_ns")[at], row.num("free_ns")[at]];
    return link({ page: "timeline", params: { t0: Math.round(from), t1: Math.round(Number.isNaN(to) ? from + 1e6 : to) } });
  };
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name" },
    { key: "op", label: t.op, as: "name", color: (rows, row) => color(rows.str("op")[row] ?? "") },
    { key: "scope", label: t.scope, as: "name" },
    { key: "bytes", label: t.size, bar: true, color: (rows, row) => color(rows.str("op")[row] ?? "") },
    { key: "category", label: t.category, as: "text", width: "minmax(90px, 1fr)" },
    { key: "dtype", label: t.dtype, as: "text", width: "minmax(70px, .8fr)" },
    { key: "shape", label: t.shape, as: "name", width: "minmax(110px, 1.4fr)" },
    { key: "format", label: t.format, as: "text", width: "minmax(70px, .8fr)" },
    { key: "alloc_ns", label: t.from, show: (rows, row) => (Number.isNaN(rows.num("alloc_ns")[row]) ? <span class="d3">{t.before}</span> : <a href={timeline(rows, row)}><Time ns={rows.num("alloc_ns")[row]} /></a>) },
    { key: "free_ns", label: t.until, show: (rows, row) => (Number.isNaN(rows.num("free_ns")[row]) ? <span class="d3">{t.outlived}</span> : <Time ns={rows.num("free_ns")[row]} />) },
    { key: "life_ns", label: t.life },
    { key: "address", label: t.address, hide: true, show: (rows, row) => <span class="mono">0x{BigInt(rows.raw("address", row) || 0).toString(16)}</span> },
  ];
  return columns.filter((column) => ["op", "bytes", "alloc_ns", "free_ns"].includes(column.key) || (table.has(column.key) && !table.blank(column.key)));
}

/** The blocks alive, summed by category where it is known, else by operator; with the static part they are what is allocated. */
function Composition({ table, fixed }: { table: Table; fixed: number }) {
  const t = text();
  const by = table.blank("category") ? "op" : "category";
  const groups = useMemo(() => {
    const sums = new Map<string, { bytes: number; blocks: number }>();
    const [names, bytes] = [table.str(by), table.num("bytes")];
    for (let row = 0; row < table.rows; row++) {
      const sum = sums.get(names[row] ?? "") ?? { bytes: 0, blocks: 0 };
      sums.set(names[row] ?? "", { bytes: sum.bytes + bytes[row], blocks: sum.blocks + 1 });
    }
    return [...sums].sort((a, b) => b[1].bytes - a[1].bytes);
  }, [table, by]);
  const top = groups.slice(0, 12);
  const rest = groups.slice(12);
  const rows = top.map(([name, sum]) => ({ name: name || t.noOp, mono: name !== "", color: color(name), ...sum }));
  if (rest.length) rows.push({ name: fill(t.rest, { count: rest.length }), mono: false, color: "var(--text-3)", bytes: rest.reduce((all, [, sum]) => all + sum.bytes, 0), blocks: rest.reduce((all, [, sum]) => all + sum.blocks, 0) });
  if (fixed > 0) rows.push({ name: t.unexplained, mono: false, color: "var(--op-norm)", bytes: fixed, blocks: NaN });
  const high = Math.max(...rows.map((row) => row.bytes), 1);
  return (
    <>
      <p class="d3 small">{by === "op" ? t.byOperator : t.byCategory}</p>
      <div class="made-rows">
        {rows.map((row) => (
          <div key={row.name}>
            <span class={`cut ${row.mono ? "mono" : ""}`} title={row.name}>{row.name}</span>
            <InlineBar share={row.bytes / high} color={row.color} />
            <span class="r"><Bytes of={row.bytes} /></span>
            <span class="r d3 small">{Number.isNaN(row.blocks) ? "" : <Count of={row.blocks} />}</span>
          </div>
        ))}
      </div>
    </>
  );
}
