// page: {"order": 110, "group": "cluster", "icon": "communication", "en": "Communication", "zh": "通信", "needs": ["communication", "links", "ranks"]}
/** What the ranks send one another, how long they wait for it, and which of them the others wait for. */
import { useMemo, useState } from "preact/hooks";
import { counting, info, rank as currentRank, useTable } from "../data";
import { Await, Card, Empty, Facts, Legend, Loading, Segmented, Share, Tile, Tiles, Time, Trouble, Verdict, Quantity } from "../parts/basics";
import { Drawer } from "../parts/drawer";
import { Grid, type Column } from "../parts/grid";
import { Heat, heatRange, Histogram, StepBars, type Part } from "../parts/plots";
import { tip, untip } from "../parts/tip";
import { said } from "../said";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./steps.css";
import "./communication.css";

const text = texts({
  en: {
    uneven: "Rank {rank} holds the others up: it computes {own} a step, the others {others} on average, and they wait {wait} for it.",
    unevenOnly: "Rank {rank} computes longest: {own} a step, the others {others} on average. Whether they wait for it is not known.",
    waiting: "{share} of the steps' time is communication that nothing hides. Of that the ranks spend {wait} a step waiting for one another.",
    split: "{share} of the steps' time is exposed communication. Of {time} of communication a step, data moves for {transit}, ranks wait {wait} for one another, and {idle} are idle.",
    exposed: "{share} of the steps' time is communication that nothing hides: {exposed} a step.",
    hidden: "Communication takes {time} a step, and computation hides {share} of it.",
    noSteps: "The ranks communicate for {time} in all. No steps were found to divide that by.",
    none: "The ranks that were recorded send nothing to one another.",
    exposedUnknown: "Communication takes {time} of a step. What hides it is not known: the work of the device is not recorded.",
    unplaced: "The ranks communicate for {time} in all, of which they wait {wait} for one another. How much of it computation hides is not known.",
    alone: "One rank, nothing to send.",
    ranksOf: "{count} of {world} [rank|ranks] recorded", ranks: "{count} [rank|ranks]", oneRank: "1 rank", missing: "not recorded: rank {list}", missingMore: "not recorded: ranks {list} and {count} [more range|more ranges]", steps: "{count} [step|steps]", oneStep: "1 step", leftOut: "a slow first step is left out of the averages",
    "no wait: one rank": "only one rank was recorded", "no wait: not known to be a collective": "what kind of call it is is not known", "no wait: the other side of the transfer is not known": "the other side of a transfer is not known", "wait at least: some ranks of the group are not recorded": "at least: some ranks of the group are not recorded", "no wait: the other ranks have no such call": "the other ranks have no such call", "no wait: the ranks' clocks differ, or calls are missing": "the ranks' clocks differ, or calls are missing", "wait as the recording says": "as the recording itself says",
    matched: "waits are known for {matched} of {calls} [call|calls]",
    tiles: "Communication in figures", timeTile: "Communication", timeContext: "a step and rank, on average", exposedTile: "Exposed", exposedContext: "{share} of the step", waitTile: "Waiting for other ranks", waitContext: "{share} of communication", transitTile: "Data in transit", idleTile: "Idle in communication", idleHint: "neither moving data nor waiting for another rank, as the recording says", bytesTile: "Sent or received", bytesContext: "{calls} [call|calls], all ranks", slowTile: "Slowest rank", slowContext: "{time} a step; fastest rank {rank}: {fast}", noBytes: "sizes were not recorded",
    heat: "Every rank and step", heatNote: "click a cell to choose it", metric: "What is shown", total: "Step time", computing: "Computing", exposedMetric: "Exposed", wait: "Wait", rank: "Rank", step: "Step", least: "least", most: "most", noRow: "This rank did not record this step", notKnown: "not known",
    stage_ns: "Stage", stage_ns_help: "As the recording says: the step without exposed receives", receive_ns: "Receive only", receive_ns_help: "As the recording says: receives that no computation hides", collective_ns: "Collectives only", collective_ns_help: "As the recording says: exposed communication without receives", computation_ns: "Not communicating", computation_ns_help: "As the recording says: the step without exposed communication, idle time included",
    chosen: "Rank {rank}, step {step}: {total}", toStep: "Step trace of rank {rank}", toTimeline: "Timeline", clear: "All steps",
    bars: "Ranks side by side", barsMean: "the average step of each", barsStep: "step {step}", free: "nothing", copy: "copies", exposedWord: "exposed communication", hostWord: "communication on the host, device idle", gone: "not recorded", goneStep: "did not record this step",
    everyStep: "Every step", everyNote: "click a step to choose it",
    ranksTable: "Step trace, rank by rank", rowsRanks: "rank|ranks", stepsHead: "Steps", interval: "Interval", fpBp: "Forward and backward", tail: "Tail", comm: "Communication", freeHead: "Nothing runs", copyHead: "Copies", show: "Show",
    ops: "Operators", which: "Which ranks", thisRank: "Rank {rank}", allRanks: "All ranks", rowsOps: "operator|operators", name: "Operator", collective: "Collective", group: "Group", calls: "Calls", totalHead: "Time", mean: "Mean", min: "Least", max: "Most", waitHead: "Wait", transitHead: "Transit", idleHead: "Idle", hiddenHead: "Hidden", exposedHead: "Exposed", bytes: "Bytes", bandwidth: "Bandwidth", matchedHead: "Matched", unsized: "Without size", note: "Note",
    durations: "How long each call takes", instances: "Calls", stream: "Stream", start: "Start", takes: "Takes", hiddenShare: "Hidden", timeline: "Timeline",
    links: "Links", linksNote: "bandwidth between each pair of ranks", strategy: "Parallel strategy", strategyNote: "how each operator is cut over the ranks of its stage", stage: "Stage", node: "Node", type: "Type", scope: "Scope", part: "Part", shards: "Shards of its inputs", pieces: "Pieces", role: "Put in for", inputs: "Reads", rowsStrategy: "operator|operators", src: "From", dst: "To", transport: "Transport", transfers: "Transfers", rowsLinks: "link|links",
    emptyOps: "No communication was recorded", emptyOne: "One process trains here. Record all ranks with stepscope run torchrun … or stepscope run msrun …, and open the folder that holds them.",
    emptyMany: "These ranks have no collectives, sends or receives in the recording. On a GPU record with activities that include it.",
  },
  zh: {
    uneven: "Rank {rank} 拖慢了其他 rank：它每个迭代计算 {own}，其他 rank 平均 {others}，并为它等待 {wait}。",
    unevenOnly: "Rank {rank} 计算最久：每个迭代 {own}，其他 rank 平均 {others}。它们是否为它等待尚不清楚。",
    waiting: "迭代时间的 {share} 是没有被掩盖的通信。其中各 rank 每个迭代有 {wait} 在互相等待。",
    split: "迭代时间的 {share} 是未掩盖的通信。每个迭代通信 {time}，其中传输数据 {transit}，各 rank 互相等待 {wait}，空闲 {idle}。",
    exposed: "迭代时间的 {share} 是没有被掩盖的通信：每个迭代 {exposed}。",
    hidden: "每个迭代通信 {time}，其中 {share} 被计算掩盖。",
    noSteps: "各 rank 共通信 {time}。没有找到可用于划分的迭代。",
    none: "已记录的各 rank 之间没有通信。",
    exposedUnknown: "每个迭代的通信耗时 {time}。没有记录设备侧任务，因此不知道其中多少被掩盖。",
    unplaced: "各 rank 的通信共 {time}，其中 {wait} 在互相等待。其中有多少被计算掩盖不得而知。",
    alone: "只有一个 rank，没有通信。",
    ranksOf: "{world} 个 rank 中记录了 {count} 个", ranks: "{count} 个 rank", oneRank: "1 个 rank", missing: "未记录：rank {list}", missingMore: "未记录：rank {list} 以及另外 {count} 段", steps: "{count} 个迭代", oneStep: "1 个迭代", leftOut: "较慢的第一个迭代不计入平均",
    "no wait: one rank": "只记录了一个 rank", "no wait: not known to be a collective": "不知道是哪种调用", "no wait: the other side of the transfer is not known": "不知道传输的另一端", "wait at least: some ranks of the group are not recorded": "至少如此：通信域中有些 rank 没有记录", "no wait: the other ranks have no such call": "其他 rank 没有这样的调用", "no wait: the ranks' clocks differ, or calls are missing": "各 rank 的时钟不一致，或缺少调用", "wait as the recording says": "取自记录本身",
    matched: "{calls} 次调用中有 {matched} 次已知等待时间",
    tiles: "通信概况", timeTile: "通信", timeContext: "每个迭代每个 rank 的平均", exposedTile: "未掩盖", exposedContext: "占迭代 {share}", waitTile: "等待其他 rank", waitContext: "占通信 {share}", transitTile: "传输数据", idleTile: "通信中空闲", idleHint: "据记录，既不传输数据也不等待其他 rank", bytesTile: "收发数据", bytesContext: "{calls} 次调用，全部 rank", slowTile: "最慢的 rank", slowContext: "每个迭代 {time}；最快 rank {rank}：{fast}", noBytes: "没有记录大小",
    stage_ns: "Stage 时间", stage_ns_help: "取自记录本身：迭代时间减去未被掩盖的接收时间", receive_ns: "仅接收", receive_ns_help: "取自记录本身：未被计算掩盖的接收时间", collective_ns: "仅集合通信", collective_ns_help: "取自记录本身：未被掩盖的通信时间，不含接收", computation_ns: "非通信时间", computation_ns_help: "取自记录本身：迭代时间减去未被掩盖的通信时间，含空闲",
    heat: "每个 rank 与迭代", heatNote: "点击单元格选择", metric: "显示内容", total: "迭代时间", computing: "计算", exposedMetric: "未掩盖", wait: "等待", rank: "Rank", step: "迭代", least: "最小", most: "最大", noRow: "此 rank 没有记录该迭代", notKnown: "未知",
    chosen: "Rank {rank}，迭代 {step}：{total}", toStep: "Rank {rank} 的迭代轨迹", toTimeline: "时间线", clear: "全部迭代",
    bars: "各 rank 对比", barsMean: "各自的平均迭代", barsStep: "迭代 {step}", free: "空闲", copy: "拷贝", exposedWord: "未掩盖的通信", hostWord: "主机通信，设备空闲", gone: "未记录", goneStep: "没有记录该迭代",
    everyStep: "每个迭代", everyNote: "点击选择一个迭代",
    ranksTable: "逐 rank 的迭代轨迹", rowsRanks: "个 rank", stepsHead: "迭代数", interval: "间隔", fpBp: "前向与反向", tail: "拖尾", comm: "通信", freeHead: "空闲", copyHead: "拷贝", show: "查看",
    ops: "算子", which: "哪些 rank", thisRank: "Rank {rank}", allRanks: "全部 rank", rowsOps: "个算子", name: "算子", collective: "集合通信", group: "通信域", calls: "次数", totalHead: "时间", mean: "平均", min: "最小", max: "最大", waitHead: "等待", transitHead: "传输", idleHead: "空闲", hiddenHead: "被掩盖", exposedHead: "未掩盖", bytes: "字节", bandwidth: "带宽", matchedHead: "已对应", unsized: "无大小", note: "说明",
    durations: "每次调用的耗时", instances: "调用", stream: "流", start: "开始", takes: "耗时", hiddenShare: "被掩盖", timeline: "时间线",
    links: "链路", linksNote: "每对 rank 之间的带宽", strategy: "并行策略", strategyNote: "每个算子在其 stage 的各 rank 间如何切分", stage: "Stage", node: "节点", type: "类型", scope: "作用域", part: "部分", shards: "输入的切分", pieces: "份数", role: "插入用于", inputs: "读取", rowsStrategy: "个算子", src: "从", dst: "到", transport: "传输方式", transfers: "传输次数", rowsLinks: "条链路",
    emptyOps: "没有记录通信", emptyOne: "这里只有一个进程在训练。请用 stepscope run torchrun … 或 stepscope run msrun … 记录全部 rank，并打开包含它们的文件夹。",
    emptyMany: "记录中这些 rank 没有集合通信、发送或接收。在 GPU 上请包含 GPU 活动进行记录。",
  },
});

const METRICS = [
  { key: "total_ns", word: "total", color: "--kind-compute" },
  { key: "computing_ns", word: "computing", color: "--kind-compute" },
  { key: "exposed_ns", word: "exposedMetric", color: "--kind-communication" },
  { key: "wait_ns", word: "wait", color: "--kind-wait" },
] as const;
const LAYERS = [
  { key: "computing_ns", word: "computing", color: "var(--kind-compute)" },
  { key: "device_exposed_ns", word: "exposedWord", color: "var(--kind-communication)" },
  { key: "copy_ns", word: "copy", color: "var(--kind-copy)" },
  { key: "host_exposed_ns", word: "hostWord", color: "color-mix(in srgb, var(--kind-communication) 45%, var(--surface))" },
  { key: "free_ns", word: "free", color: "" },
] as const;

/** A layer of a row: while the host communicates the device is idle, and that is drawn apart. */
function layerOf(table: Table, key: (typeof LAYERS)[number]["key"], row: number): number {
  return key === "free_ns" ? table.num("free_ns")[row] - table.num("host_exposed_ns")[row] : table.num(key)[row];
}

export default function Communication() {
  const t = text();
  const now = info.value!;
  const calls = useTable("communication", {}, { allRanks: true });
  const means = useTable("cluster_steps", { per_step: false, ...counting() }, { allRanks: true });
  const cells = useTable("cluster_steps", {}, { allRanks: true });
  const asked = [calls, means, cells];
  const error = asked.find((one) => one.error)?.error;
  if (error) return <Trouble error={error} />;
  if (asked.some((one) => one.data === null)) return <Loading rows={12} />;
  const ranks = now.ranks;
  const many = ranks.length > 1;
  if (!calls.data!.rows && !many && !("strategy_stages" in now.extra)) {
    return (
      <>
        <Verdict>{t.alone}</Verdict>
        <Empty title={t.emptyOps} height={200}>{t.emptyOne}</Empty>
      </>
    );
  }
  return (
    <div class="stack">
      <Sentence calls={calls.data!} means={means.data!} cells={cells.data!} />
      <Figures calls={calls.data!} means={means.data!} />
      {cells.data!.rows > 0 && (many ? <Cells cells={cells.data!} means={means.data!} /> : <Alone cells={cells.data!} />)}
      {means.data!.rows > 0 && many && <RankTable means={means.data!} />}
      {calls.data!.rows > 0 ? <Operators calls={calls.data!} /> : <Card title={t.ops}><Empty title={t.emptyOps} height={100}>{t.emptyMany}</Empty></Card>}
      {(now.tables.links ?? 0) > 0 && <Links />}
      {"strategy_stages" in now.extra && <Strategy />}
    </div>
  );
}

function sum(values: Float64Array): number {
  let all = 0;
  for (const value of values) if (Number.isFinite(value)) all += value;
  return all;
}

/** Of all ranks and steps together, from the rows of each rank: the mean of a column over the steps. */
function over(means: Table, column: string): number {
  const [value, steps] = [means.num(column), means.num("steps")];
  let [all, count] = [0, 0];
  for (let row = 0; row < means.rows; row++) {
    if (!Number.isFinite(value[row])) continue;
    all += value[row] * steps[row];
    count += steps[row];
  }
  return count ? all / count : NaN;
}

/** The rank that computes longest, if the others wait for it. */
function straggler(means: Table): { rank: number; own: number; others: number; wait: number } | null {
  const [computing, wait, ranks] = [means.num("computing_ns"), means.num("wait_ns"), means.num("rank")];
  if (means.rows < 2 || !computing.every(Number.isFinite)) return null;
  let slow = 0;
  for (let row = 1; row < means.rows; row++) if (computing[row] > computing[slow]) slow = row;
  const others = (sum(computing) - computing[slow]) / (means.rows - 1);
  const waits = [...wait].filter((value, row) => row !== slow && Number.isFinite(value));
  const mean = waits.reduce((all, value) => all + value, 0) / waits.length;
  const total = means.num("total_ns")[slow];
  // It must matter for the step, and the one that is waited for does not wait itself.
  if (computing[slow] < 1.1 * others || computing[slow] - others < 0.03 * total || wait[slow] > mean) return null;
  return { rank: ranks[slow], own: computing[slow], others, wait: mean };
}

/** Why a wait is not known, or how it is, in the reader's language. */
function reason(calls: Table): string {
  const notes = calls.str("note").filter((one) => one !== null);
  const note = notes.find((one) => one!.startsWith("no wait")) ?? notes[0] ?? "";
  const words = text() as Record<string, string>;
  return words[note] ?? note;
}

function Sentence({ calls, means, cells }: { calls: Table; means: Table; cells: Table }) {
  const t = text();
  const now = info.value!;
  const missing = gone();
  const time = (ns: number) => <b><Time ns={ns} /></b>;
  const [total, device, communication, exposed, wait, transit, idle] = ["total_ns", "device_ns", "communication_ns", "exposed_ns", "wait_ns", "transit_ns", "communication_idle_ns"].map((name) => over(means, name));
  const slow = straggler(means);
  const share = exposed / device;
  let said;
  if (!calls.rows) said = t.none;
  else if (!Number.isFinite(total)) said = <Say of={t.noSteps} time={time(sum(calls.num("total_ns")))} />;
  else if (!Number.isFinite(communication) && !calls.blank("wait_ns")) said = <Say of={t.unplaced} time={time(sum(calls.num("total_ns")))} wait={time(sum(calls.num("wait_ns")))} />;
  else if (!Number.isFinite(exposed)) said = <Say of={t.exposedUnknown} time={time(communication)} />;
  else if (slow) said = <Say of={Number.isFinite(slow.wait) ? t.uneven : t.unevenOnly} rank={<b>{slow.rank}</b>} own={time(slow.own)} others={time(slow.others)} wait={time(slow.wait)} />;
  else if (share > 0.05 && Number.isFinite(transit)) said = <Say of={t.split} share={<b><Share of={share} /></b>} time={time(communication)} transit={time(transit)} wait={time(wait)} idle={time(idle)} />;
  else if (share > 0.05 && wait > 0.1 * communication) said = <Say of={t.waiting} share={<b><Share of={share} /></b>} wait={time(wait)} />;
  else if (share > 0.05) said = <Say of={t.exposed} share={<b><Share of={share} /></b>} exposed={time(exposed)} />;
  else said = <Say of={t.hidden} time={time(communication)} share={<b><Share of={communication ? 1 - exposed / communication : NaN} /></b>} />;
  const list = units.ranges(missing).split(", ");
  const most = Math.max(0, ...means.num("steps"));
  const left = cells.rows - sum(means.num("steps"));
  const known = sum(calls.num("known_waits"));
  const parallel = Object.entries((now.extra.parallel ?? {}) as Record<string, number>).map(([name, size]) => `${name} ${size}`);
  return (
    <Verdict
      facts={[
        now.world_size && now.world_size > 1 ? fill(t.ranksOf, { count: now.ranks.length, world: now.world_size }) : now.ranks.length === 1 ? t.oneRank : fill(t.ranks, { count: now.ranks.length }),
        missing.length > 0 && <span class="warn" title={list.join(", ")}>{fill(list.length > 8 ? t.missingMore : t.missing, { list: list.slice(0, 8).join(", "), count: list.length - 8 })}</span>,
        means.rows > 0 && (most === 1 ? t.oneStep : fill(t.steps, { count: units.count(most).value })),
        left > 0 && t.leftOut,
        parallel.length > 0 && parallel.join(" · "),
        (now.ranks.length > 1 || known > 0) && calls.rows > 0 && <>{fill(t.matched, { matched: units.count(known).value, calls: units.count(sum(calls.num("calls"))).value })}{reason(calls) && ` (${reason(calls)})`}</>,
      ]}
    >
      {said}
    </Verdict>
  );
}

/** Ranks of the job that the recording does not have. */
function gone(): number[] {
  const now = info.value!;
  const there = new Set(now.ranks);
  return Array.from({ length: now.world_size ?? 0 }, (_, one) => one).filter((one) => !there.has(one));
}

function Figures({ calls, means }: { calls: Table; means: Table }) {
  const t = text();
  const [total, communication, exposed, wait, transit, idle] = ["device_ns", "communication_ns", "exposed_ns", "wait_ns", "transit_ns", "communication_idle_ns"].map((name) => over(means, name));
  const ofCommunication = (part: number) => <Say of={t.waitContext} share={<Share of={part / communication} />} />;
  const order = [...means.num("total_ns").keys()].sort((a, b) => means.num("total_ns")[b] - means.num("total_ns")[a]);
  const [slow, fast] = [order[0], order[order.length - 1]];
  const many = means.rows > 1;
  return (
    <Tiles label={t.tiles}>
      <Tile label={t.timeTile} context={t.timeContext}><Time ns={communication} /></Tile>
      <Tile label={t.exposedTile} context={Number.isFinite(exposed) && <Say of={t.exposedContext} share={<Share of={exposed / total} />} />} tone={exposed > 0.1 * total ? "bad" : undefined}><Time ns={exposed} /></Tile>
      {Number.isFinite(transit) && <Tile label={t.transitTile} context={ofCommunication(transit)}><Time ns={transit} /></Tile>}
      <Tile label={t.waitTile} context={Number.isFinite(wait) ? ofCommunication(wait) : reason(calls)}><Time ns={wait} why={reason(calls)} /></Tile>
      {Number.isFinite(idle) && <Tile label={t.idleTile} context={<span title={t.idleHint}>{ofCommunication(idle)}</span>} tone={idle > 0.1 * total ? "bad" : undefined}><Time ns={idle} /></Tile>}
      <Tile label={t.bytesTile} context={calls.blank("bytes") ? t.noBytes : fill(t.bytesContext, { calls: units.count(sum(calls.num("calls"))).value })}><Quantity value={calls.blank("bytes") ? NaN : sum(calls.num("bytes"))} as="bytes" why={t.noBytes} /></Tile>
      {many && <Tile label={t.slowTile} context={<Say of={t.slowContext} time={<Time ns={means.num("total_ns")[slow]} />} rank={means.num("rank")[fast]} fast={<Time ns={means.num("total_ns")[fast]} />} />} to={{ page: "steps", params: { rank: means.num("rank")[slow] } }}>{t.rank} {means.num("rank")[slow]}</Tile>}
    </Tiles>
  );
}

/** The chosen cell of the address: "3:152" is rank 3, step 152; ":152" that step of all ranks. */
function chosen(): { rank: number | null; step: number | null } {
  const [rank, step] = (param("sel") ?? "").split(":");
  return { rank: rank ? Number(rank) : null, step: step ? Number(step) : null };
}

function Cells({ cells, means }: { cells: Table; means: Table }) {
  const t = text();
  const metric = METRICS.find((one) => one.key === param("of")) ?? METRICS[0];
  const made = useMemo(() => {
    const ranks = [...new Set(cells.num("rank"))].sort((a, b) => a - b);
    const steps = Float64Array.from([...new Set(cells.num("step"))].sort((a, b) => a - b));
    const at = new Map<number, number>(); // rank and step to the row
    const [rowOf, columnOf] = [new Map(ranks.map((rank, row) => [rank, row])), new Map(Array.from(steps, (step, column) => [step, column]))];
    for (let row = 0; row < cells.rows; row++) at.set(rowOf.get(cells.num("rank")[row])! * steps.length + columnOf.get(cells.num("step")[row])!, row);
    return { ranks, steps, at };
  }, [cells]);
  const values = useMemo(() => {
    const all = new Float64Array(made.ranks.length * made.steps.length).fill(NaN);
    const column = cells.num(metric.key);
    for (const [place, row] of made.at) all[place] = column[row];
    return all;
  }, [made, metric.key]);
  const sel = chosen();
  const place = { row: sel.rank === null ? -1 : made.ranks.indexOf(sel.rank), column: sel.step === null ? -1 : made.steps.indexOf(sel.step) };
  const row = place.row < 0 || place.column < 0 ? undefined : made.at.get(place.row * made.steps.length + place.column);
  const range = useMemo(() => heatRange(values), [values]);
  const say = (atRow: number, column: number) => {
    const found = made.at.get(atRow * made.steps.length + column);
    return (
      <>
        <b>{t.rank} {made.ranks[atRow]} · {t.step} {units.count(made.steps[column]).value}</b>
        {found === undefined ? <p>{t.noRow}</p> : <dl>{METRICS.map((one) => [<dt key={one.key}>{t[one.word]}</dt>, <dd key={`${one.key}v`}><Time ns={cells.num(one.key)[found]} /></dd>])}</dl>}
      </>
    );
  };
  return (
    <>
      <Card
        title={t.heat}
        note={t.heatNote}
        tools={
          <span class="pair">
            <span class="scalebar"><Time ns={range.low} /><i style={{ background: `linear-gradient(to right, color-mix(in srgb, var(${metric.color}) 12%, transparent), var(${metric.color}))` }} />{range.high < range.most && "≥ "}<Time ns={range.high} /></span>
            <Segmented choices={METRICS.map((one) => ({ id: one.key as string, label: t[one.word], off: cells.blank(one.key) }))} value={metric.key as string} onChange={(id) => go({ params: { of: id === "total_ns" ? null : id } }, true)} label={t.metric} />
          </span>
        }
      >
        <Heat
          rows={made.ranks.map(String)}
          columns={made.steps}
          values={values}
          color={metric.color}
          selected={place.row >= 0 && place.column >= 0 ? place : null}
          onPick={(atRow, column) => go({ params: { sel: `${made.ranks[atRow]}:${made.steps[column]}` } })}
          say={say}
          rowTitle={t.rank}
          label={`${t.heat}: ${t[metric.word]}`}
        />
        {sel.step !== null && <div class="heatrow">
          {row !== undefined && (
            <>
              <b><Say of={t.chosen} rank={made.ranks[place.row]} step={units.count(made.steps[place.column]).value} total={<Time ns={cells.num("total_ns")[row]} />} /></b>
              {METRICS.slice(1).map((one) => Number.isFinite(cells.num(one.key)[row]) && <span key={one.key} class="d2">{t[one.word]} <Time ns={cells.num(one.key)[row]} /></span>)}
              <a href={link({ page: "steps", params: { rank: made.ranks[place.row], sel: made.steps[place.column] } })}>{fill(t.toStep, { rank: made.ranks[place.row] })}</a>
              <a href={link({ page: "timeline", params: { rank: made.ranks[place.row], t0: Math.round(cells.num("start_ns")[row]), t1: Math.round(cells.num("start_ns")[row] + cells.num("total_ns")[row]) } })}>{t.toTimeline}</a>
              <button class="aslink" onClick={() => go({ params: { sel: null } })}>{t.clear}</button>
            </>
          )}
          {sel.step !== null && row === undefined && <><span class="d2">{sel.rank === null ? fill(t.barsStep, { step: sel.step }) : t.noRow}</span><button class="aslink" onClick={() => go({ params: { sel: null } })}>{t.clear}</button></>}
        </div>}
      </Card>
      <Bars cells={cells} means={means} step={sel.step} on={sel.rank} />
    </>
  );
}

const MISSING = 32; // lines for ranks that were not recorded; beyond, the facts name them

/** What each rank does in the average step, or in the chosen one, on one scale. */
function Bars({ cells, means, step, on }: { cells: Table; means: Table; step: number | null; on: number | null }) {
  const t = text();
  const table = step === null ? means : cells;
  const rows = new Map<number, number>();
  for (let row = 0; row < table.rows; row++) if (step === null || table.num("step")[row] === step) rows.set(table.num("rank")[row], row);
  const lost = gone();
  const ranks = [...new Set([...info.value!.ranks, ...(lost.length <= MISSING ? lost : [])])].sort((a, b) => a - b);
  const longest = Math.max(1, ...[...rows.values()].flatMap((row) => [table.num("total_ns")[row], table.num("device_ns")[row] || 0]));
  return (
    <Card title={t.bars} note={step === null ? t.barsMean : fill(t.barsStep, { step })} tools={<Legend of={LAYERS.map((layer) => ({ label: t[layer.word], color: layer.color, hatch: !layer.color }))} />}>
      <div class="ranks" role="list" aria-label={t.bars}>
        {ranks.map((rank) => {
          const row = rows.get(rank);
          if (row === undefined) {
            return [<span key={`${rank} w`} class="who gone">{t.rank} {rank}</span>, <span key={`${rank} t`} class="track"><i class="hatch gone">{lost.includes(rank) ? t.gone : t.goneStep}</i></span>, <span key={`${rank} n`} class="took">–</span>];
          }
          const total = table.num("total_ns")[row];
          const say = (event: PointerEvent) => tip(event, <><b>{t.rank} {rank}</b><dl>{LAYERS.map((layer) => [<dt key={layer.key}>{t[layer.word]}</dt>, <dd key={`${layer.key}v`}><Time ns={layerOf(table, layer.key, row)} /></dd>])}<dt>{t.wait}</dt><dd><Time ns={table.num("wait_ns")[row]} /></dd></dl></>);
          const divided = Number.isFinite(table.num("computing_ns")[row]);
          return [
            <button key={`${rank} w`} class={`who ${rank === on ? "on" : ""}`} onClick={() => go({ page: "steps", params: { rank, sel: step } })}>{t.rank} {rank}</button>,
            <span key={`${rank} t`} class="track" role="listitem" aria-label={`${t.rank} ${rank} ${units.text(units.time(total))}`} onPointerMove={say} onPointerLeave={untip}>
              {divided
                ? LAYERS.map((layer) => { const part = layerOf(table, layer.key, row); return part > 0 && <i key={layer.key} class={layer.color ? "" : "hatch"} style={{ width: `${(part / longest) * 100}%`, background: layer.color || undefined }} />; })
                : <i style={{ width: `${(total / longest) * 100}%`, background: "var(--op-other)" }} />}
            </span>,
            <span key={`${rank} n`} class={`took ${rank === on ? "on" : ""}`}><Time ns={total} /></span>,
          ];
        })}
      </div>
    </Card>
  );
}

/** One rank: every step, with what it computes and what it only communicates. */
function Alone({ cells }: { cells: Table }) {
  const t = text();
  const [hovered, setHovered] = useState<number | null>(null);
  const steps = cells.num("step");
  const sel = chosen().step;
  const at = sel === null ? -1 : steps.indexOf(sel);
  const parts = useMemo<Part[]>(() => LAYERS.map((layer) => ({ label: t[layer.word], color: layer.color || "var(--kind-idle)", values: Float64Array.from(cells.num("step"), (_, row) => layerOf(cells, layer.key, row)) })), [cells, t]);
  return (
    <Card title={t.everyStep} note={t.everyNote} tools={<>{at >= 0 && <a class="btn sm" href={link({ page: "steps", params: { sel: steps[at] } })}>{fill(t.toStep, { rank: cells.num("rank")[at] })}</a>}<Legend of={parts.map((part) => ({ label: part.label, color: part.color }))} /></>} flush>
      <StepBars
        steps={steps}
        parts={parts}
        total={cells.num("total_ns")}
        selected={at < 0 ? null : at}
        hovered={hovered}
        onHover={setHovered}
        onPick={(place) => go({ params: { sel: place === null ? null : `:${steps[place]}` } })}
        say={(place) => <><b>{t.step} {units.count(steps[place]).value}</b><dl>{LAYERS.map((layer) => [<dt key={layer.key}>{t[layer.word]}</dt>, <dd key={`${layer.key}v`}><Time ns={layerOf(cells, layer.key, place)} /></dd>])}</dl></>}
        height={150}
        label={t.everyStep}
      />
    </Card>
  );
}

/** What the recording itself says of the time of a step: MindSpore's cluster analysis. */
const SAID = ["stage_ns", "receive_ns", "collective_ns", "computation_ns"] as const;

function RankTable({ means }: { means: Table }) {
  const t = text();
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "steps", label: t.stepsHead },
    { key: "total_ns", label: t.total, bar: true, color: () => "var(--border-strong)" },
    { key: "interval_ns", label: t.interval },
    { key: "fp_bp_ns", label: t.fpBp, width: "minmax(116px, 1fr)" },
    { key: "tail_ns", label: t.tail },
    { key: "computing_ns", label: t.computing, bar: true },
    { key: "communication_ns", label: t.comm },
    { key: "exposed_ns", label: t.exposedHead, bar: true, color: () => "var(--kind-communication)" },
    { key: "transit_ns", label: t.transitHead, hide: means.blank("transit_ns") },
    { key: "wait_ns", label: t.waitHead, bar: true, color: () => "var(--kind-wait)" },
    { key: "communication_idle_ns", label: t.idleTile, hide: means.blank("communication_idle_ns") },
    { key: "copy_ns", label: t.copyHead, hide: true },
    { key: "free_ns", label: t.freeHead },
    ...SAID.filter((key) => means.num(key).some(Number.isFinite)).map((key) => ({ key, label: t[key], help: t[`${key}_help`] })),
  ];
  return (
    <Card title={t.ranksTable} note={t.barsMean} flush>
      <Grid id="ranks" table={means} columns={columns} what={t.rowsRanks} sort="rank" rowKey={(table, row) => table.raw("rank", row)} onOpen={(table, row) => go({ page: "steps", params: { rank: table.raw("rank", row) } })} label={t.ranksTable} height={`${Math.min(12, means.rows + 1) * 28 + 4}px`} />
    </Card>
  );
}

function Operators({ calls }: { calls: Table }) {
  const t = text();
  const mine = currentRank();
  const all = param("ranks") !== "one" || info.value!.ranks.length === 1;
  const table = useMemo(() => (all ? calls : calls.pick(calls.where((row) => calls.num("rank")[row] === mine))), [calls, all, mine]);
  const key = (data: Table, row: number) => `${data.raw("rank", row)}:${data.raw("collective", row)}:${data.raw("group", row)}:${data.raw("name", row)}`;
  const open = param("op");
  const row = open === undefined ? -1 : Array.from({ length: calls.rows }, (_, one) => one).findIndex((one) => key(calls, one) === open);
  const warm = () => "var(--kind-communication)";
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count", width: "58px" },
    { key: "name", label: t.name, as: "name" },
    { key: "collective", label: t.collective, width: "minmax(90px, 1fr)" },
    { key: "group", label: t.group, hide: calls.blank("group") },
    { key: "calls", label: t.calls },
    { key: "total_ns", label: t.totalHead, bar: true, color: warm },
    { key: "wait_ns", label: t.waitHead, show: (data, at) => <Time ns={data.num("wait_ns")[at]} why={said(data.str("note")[at]) || undefined} /> },
    { key: "transit_ns", label: t.transitHead, hide: calls.blank("transit_ns") },
    { key: "idle_ns", label: t.idleHead, hide: calls.blank("idle_ns") },
    { key: "overlapped_ns", label: t.hiddenHead },
    { key: "exposed_ns", label: t.exposedHead, bar: true, color: warm },
    { key: "bytes", label: t.bytes },
    { key: "bytes_per_s", label: t.bandwidth },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.min, hide: true },
    { key: "max_ns", label: t.max, hide: true },
    { key: "matched", label: t.matchedHead, hide: true },
    { key: "unsized", label: t.unsized, hide: true },
    { key: "note", label: t.note, as: "said", hide: true },
  ];
  return (
    <Card title={t.ops} flush>
      <Grid
        id="ops"
        table={table}
        columns={columns}
        what={t.rowsOps}
        search={["name", "collective", "group"]}
        sort="-total_ns"
        rowKey={key}
        selected={open ?? null}
        onOpen={(data, at) => go({ params: { op: key(data, at) } })}
        tools={info.value!.ranks.length > 1 && <Segmented choices={[{ id: "all", label: t.allRanks }, { id: "one", label: fill(t.thisRank, { rank: mine ?? 0 }) }]} value={all ? "all" : "one"} onChange={(id) => go({ params: { ranks: id === "all" ? null : id } }, true)} label={t.which} />}
        label={t.ops}
      />
      {row >= 0 && <Details calls={calls} row={row} />}
    </Card>
  );
}

/** One operator of one rank: its figures, how long its calls take, and each call with its place on the timeline. */
function Details({ calls, row }: { calls: Table; row: number }) {
  const t = text();
  const rank = calls.num("rank")[row];
  const name = calls.str("name")[row] ?? "";
  const asked = useTable("reduces", { rank }, { allRanks: true });
  const number = (key: string, as: units.Quantity) => <Quantity value={calls.num(key)[row]} as={as} why={said(calls.str("note")[row]) || undefined} />;
  const columns: Column[] = [
    { key: "step", label: t.step, as: "count", width: "60px" },
    { key: "start_ns", label: t.start },
    { key: "dur_ns", label: t.takes, bar: true, color: () => "var(--kind-communication)" },
    { key: "overlapped_share", label: t.hiddenShare },
    { key: "timeline", label: "", width: "74px", show: (data, at) => <a href={link({ page: "timeline", params: { rank, t0: Math.round(data.num("start_ns")[at]), t1: Math.round(data.num("end_ns")[at]) } })}>{t.timeline}</a> },
  ];
  return (
    <Drawer title={<h2 class="mono cut" title={name}>{name}</h2>} onClose={() => go({ params: { op: null } })}>
      <Facts
        of={[
          [t.rank, rank], [t.collective, calls.str("collective")[row] ?? "–"], [t.group, calls.str("group")[row] ?? "–"],
          [t.calls, number("calls", "count")], [t.totalHead, number("total_ns", "time")], [t.waitHead, number("wait_ns", "time")], [t.transitHead, number("transit_ns", "time")], [t.idleHead, number("idle_ns", "time")], [t.hiddenHead, number("overlapped_ns", "time")], [t.exposedHead, number("exposed_ns", "time")],
          [t.bytes, number("bytes", "bytes")], [t.bandwidth, number("bytes_per_s", "rate")], [t.min, number("min_ns", "time")], [t.mean, number("avg_ns", "time")], [t.max, number("max_ns", "time")],
        ]}
      />
      {calls.str("note")[row] && <p class="d3 small">{said(calls.str("note")[row])}</p>}
      <Await of={asked}>
        {(table) => {
          const rows = table.where((one) => table.str("name")[one] === name);
          const own = table.pick(rows);
          return (
            <>
              <h3>{t.durations}</h3>
              <Histogram values={own.num("dur_ns")} color="var(--kind-communication)" label={t.durations} />
              <Grid id="calls" table={own} columns={columns} what={t.instances} sort="-dur_ns" label={t.instances} height="320px" bare />
            </>
          );
        }}
      </Await>
    </Drawer>
  );
}

function Links() {
  const t = text();
  const asked = useTable("links", {}, { allRanks: true });
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "src", label: t.src, as: "count" },
    { key: "dst", label: t.dst, as: "count" },
    { key: "transport", label: t.transport },
    { key: "transfers", label: t.transfers },
    { key: "bytes", label: t.bytes },
    { key: "total_ns", label: t.totalHead },
    { key: "bytes_per_s", label: t.bandwidth, bar: true, color: () => "var(--kind-communication)" },
  ];
  return (
    <Card title={t.links} note={t.linksNote} flush>
      <Await of={asked}>{(table) => <Grid id="links" table={table} columns={columns} what={t.rowsLinks} search={["transport"]} sort="-bytes" label={t.links} />}</Await>
    </Card>
  );
}

/** How the model is cut, where MindSpore said so; ranks without that file are not in it, and need not be. */
function Strategy() {
  const t = text();
  const asked = useTable("strategy", {}, { allRanks: true, allSteps: true });
  const columns: Column[] = [
    { key: "rank", label: t.rank, as: "count" },
    { key: "stage", label: t.stage, as: "count" },
    { key: "node", label: t.node },
    { key: "name", label: t.name },
    { key: "type", label: t.type },
    { key: "part", label: t.part },
    { key: "shards", label: t.shards },
    { key: "pieces", label: t.pieces },
    { key: "role", label: t.role },
    { key: "inputs", label: t.inputs },
  ];
  return (
    <Card title={t.strategy} note={t.strategyNote} flush>
      <Await of={asked}>{(table) => <Grid id="strategy" table={table} columns={columns} what={t.rowsStrategy} search={["name", "type", "shards"]} label={t.strategy} />}</Await>
    </Card>
  );
}
