// page: {"order": 50, "group": "performance", "icon": "kernels", "en": "Kernels", "zh": "内核", "needs": ["kernel", "copy", "set"]}
import { useMemo } from "preact/hooks";
import { color, family, css } from "../colors";
import { counting, info, useTable } from "../data";
import { deviceWord } from "../finding";
import { OverheadNote } from "../overhead";
import { Await, Card, Chip, Count, Empty, Segmented, Share, Swatch, Tabs, Tile, Tiles, Time, Verdict } from "../parts/basics";
import { Calls, short } from "../parts/calls";
import { Drawer } from "../parts/drawer";
import { Grid, type Column } from "../parts/grid";
import { Ring } from "../parts/plots";
import { useRecordedSteps } from "../recorded";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import { familyNames } from "../families";
import "./operators.css";

const text = texts({
  en: {
    many: "{top} kernels take half of the {time} that kernels ran; the longest alone {share}.", one: "{name} alone takes {share} of the {time} that kernels ran.",
    onlyCopies: "No kernels were recorded, only copies and fills: {time}.", short: "{share} of the launches are of kernels shorter than their launch call: the device is fed by hand.",
    kernelCount: "{count} [kernel|kernels]", calls: "{count} [call|calls]", distinct: "{count} with their operators", copyNote: "copies and fills {time}", delays: "the device waited for the host at {share} of the recorded launches",
    kernels: "Kernels", copies: "Copies and fills", launches: "Launch delay", tab: "Part",
    top: "Top {top}", all: "all {count} [kernel|kernels]", rest: "{count} [other kernel|other kernels]", topNote: "the other {count} together", chart: "Chart", pie: "Pie", bar: "Bar", picture: "Time by kernel",
    name: "Activity", op: "Operator", stream: "Stream", device: "Device", count: "Calls", total: "Total", mean: "Mean", min: "Min", max: "Max", share: "Share", grid: "Grid", block: "Block", registers: "Registers", shared: "Shared mem.", sharedHelp: "Shared memory per block", occupancy: "Occupancy", ways: "Launches",
    noOccupancy: "not known: the profiler reckons with at most 48 KiB of shared memory per block", waysHelp: "In how many ways it was launched: grid, block, registers, shared memory. Those shown are of the most frequent.", occHelp: "Estimated achieved occupancy, weighted by duration",
    launch: "Launch call", delay: "Delay", delayMin: "Shortest", delayMax: "Longest", kernel: "Kernel", host: "Host-bound", shortCalls: "Shorter than call",
    delayHelp: "From the start of the launch call to the start of the kernel, on average", hostHelp: "Launches whose stream had nothing left to do: the device waited for the host", shortHelp: "Kernels that ran shorter than their launch call",
    what: "kernel|kernels", whatCopies: "copy or fill|copies and fills", whatLaunches: "launched kernel|launched kernels", find: "Kernel, operator or /regular expression/",
    none: "No kernels were recorded", noneHow: "This run has no work of a device. On a machine with one, record with {flag}.", noLaunches: "The source does not say which call launched what", noLaunchesHow: "PyTorch's profiler does, when it records CPU and CUDA activity together.", noCopies: "No copies and no fills were recorded",
    launched: "Launches", launchedNote: "{share} host-bound", waits: "Device waited for the host", tooShort: "Kernels shorter than their launch", longest: "Longest delay", of: "of {count}",
    scope: "Scope", rowsBy: "Rows", byOp: "By operator", byScope: "By scope", fam: "Family", open: "Operator page",
  },
  zh: {
    many: "{top} 个内核占了内核运行时间 {time} 的一半；最长的一个占 {share}。", one: "仅 {name} 就占了内核运行时间 {time} 的 {share}。",
    onlyCopies: "没有记录到内核，只有拷贝和填充：{time}。", short: "{share} 的启动所对应的内核比启动调用本身还短。",
    kernelCount: "{count} 个内核", calls: "{count} 次调用", distinct: "按算子区分为 {count} 行", copyNote: "拷贝和填充 {time}", delays: "记录的启动中有 {share} 设备在等待主机",
    kernels: "内核", copies: "拷贝与填充", launches: "启动延迟", tab: "部分",
    top: "前 {top}", all: "全部 {count} 个内核", rest: "其他 {count} 个内核", topNote: "其余 {count} 个合并", chart: "图表", pie: "饼图", bar: "柱图", picture: "各内核的时间",
    name: "活动", op: "算子", stream: "流", device: "设备", count: "次数", total: "总时间", mean: "平均", min: "最小", max: "最大", share: "占比", grid: "Grid", block: "Block", registers: "寄存器", shared: "共享内存", sharedHelp: "每个块的共享内存", occupancy: "占用率", ways: "启动方式",
    noOccupancy: "未知：性能工具按每个块最多 48 KiB 共享内存估计", waysHelp: "有多少种启动方式：grid、block、寄存器、共享内存。显示的是最常见的一种。", occHelp: "估计的实际占用率，按耗时加权",
    launch: "启动调用", delay: "延迟", delayMin: "最短", delayMax: "最长", kernel: "内核", host: "受限于主机", shortCalls: "短于调用",
    delayHelp: "从启动调用开始到内核开始的平均时间", hostHelp: "启动时流上已无工作：设备在等待主机", shortHelp: "比启动调用还短的内核",
    what: "个内核", whatCopies: "个拷贝与填充", whatLaunches: "个已启动的内核", find: "内核、算子或 /正则表达式/",
    none: "没有记录到内核", noneHow: "此训练没有设备上的工作。在有设备的机器上用 {flag} 记录。", noLaunches: "来源没有说明由哪个调用启动", noLaunchesHow: "PyTorch 的 profiler 同时记录 CPU 和 CUDA 活动时会说明。", noCopies: "没有记录到拷贝和填充",
    launched: "启动次数", launchedNote: "{share} 受限于主机", waits: "设备等待主机", tooShort: "短于启动调用的内核", longest: "最长延迟", of: "共 {count} 次",
    scope: "作用域", rowsBy: "行", byOp: "按算子", byScope: "按作用域", fam: "类别", open: "算子页面",
  },
});

const TOP = 15;
const shade = (table: Table, row: number) => color(table.str("name")[row] ?? "", true);

export default function Kernels() {
  const t = text();
  const scoped = param("by") === "scope" ? true : undefined;
  const kernels = useTable("kernels", { by_scope: scoped });
  const withCopies = useTable("kernels", { copies: true, by_scope: scoped });
  const launches = useTable("launches");
  const tab = param("tab") ?? "kernels";
  const overview = useTable("overview", counting(), { skip: tab !== "launches" });
  const copies = useMemo(() => {
    if (!withCopies.data || !kernels.data) return null;
    const known = new Set(Array.from({ length: kernels.data.rows }, (_, row) => rowKey(kernels.data!, row)));
    return withCopies.data.pick(withCopies.data.where((row) => !known.has(rowKey(withCopies.data!, row))));
  }, [withCopies.data, kernels.data]);
  const names = useMemo(() => (kernels.data ? byName(kernels.data) : []), [kernels.data]);
  const recorded = useRecordedSteps();
  if (!kernels.data || !copies) return <><Verdict>{info.value?.name}</Verdict><Await of={kernels.error ? kernels : withCopies}>{() => null}</Await></>;
  if (!kernels.data.rows && !copies.rows) return <><Verdict>{t.none}</Verdict><Empty title={t.none}><Say of={t.noneHow} flag={<span class="mono">stepscope run</span>} /></Empty></>;
  const total = names.reduce((all, one) => all + one.value, 0);
  const copied = copies.num("total_ns").reduce((all, one) => all + one, 0);
  const calls = kernels.data.num("calls").reduce((all, one) => all + one, 0);
  let half = 0;
  for (let sum = 0; half < names.length && sum < total / 2; half++) sum += names[half].value;
  const launched = launches.data ? add(launches.data, "calls") : 0;
  return (
    <div class={`oppage ${kernels.waiting ? "stale" : ""}`}>
      <Verdict
        facts={[
          recorded,
          names.length > 0 && fill(t.kernelCount, { count: units.count(names.length).value }),
          kernels.data.rows !== names.length && fill(t.distinct, { count: units.count(kernels.data.rows).value }),
          names.length > 0 && fill(t.calls, { count: units.count(calls).value }),
          copied > 0 && <Say of={t.copyNote} time={<Time ns={copied} />} />,
          launched > 0 && <Say of={t.delays} share={<Share of={add(launches.data!, "host_bound_calls") / launched} />} />,
        ]}
      >
        {!names.length ? <Say of={t.onlyCopies} time={<b><Time ns={copied} /></b>} /> : half <= 1 ? <Say of={t.one} name={<b class="mono vname" title={names[0].name}>{short(names[0].name).slice(0, 48)}</b>} share={<b><Share of={names[0].value / total} /></b>} time={<b><Time ns={total} /></b>} /> : <Say of={t.many} top={<b>{half}</b>} time={<b><Time ns={total} /></b>} share={<b><Share of={names[0].value / total} /></b>} />}
      </Verdict>
      <Tabs
        label={t.tab}
        value={tab}
        onChange={(id) => go({ params: { tab: id === "kernels" ? null : id, sel: null } })}
        choices={[{ id: "kernels", label: t.kernels, count: kernels.data.rows }, { id: "copies", label: t.copies, count: copies.rows }, { id: "launches", label: t.launches, count: launches.data?.rows }]}
      />
      {tab === "launches" ? (
        <><OverheadNote overview={overview.data} device={deviceWord(info.value!) ?? t.device} /><Await of={launches} rows={10}>{(data) => <Launches data={data} />}</Await></>
      ) : (
        <Activities table={tab === "copies" ? copies : kernels.data} id={tab} />
      )}
      <Chosen kernels={kernels.data} copies={copies} />
    </div>
  );
}

interface Named {
  name: string;
  value: number;
}

/** A kernel has a row per operator that launches it; here they stand together. */
function byName(table: Table): Named[] {
  const found = new Map<string, number>();
  for (let row = 0; row < table.rows; row++) found.set(table.str("name")[row] ?? "", (found.get(table.str("name")[row] ?? "") ?? 0) + table.num("total_ns")[row]);
  return [...found].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value);
}

const add = (table: Table, name: string) => table.num(name).reduce((all, one) => all + (one || 0), 0);

function rowKey(table: Table, row: number): string {
  const device = table.raw("device", row);
  const parts = [table.str("name")[row], table.str("op")[row], device];
  return JSON.stringify(param("by") === "scope" ? [...parts, table.str("scope")[row]] : parts);
}

function Activities({ table, id }: { table: Table; id: string }) {
  const t = text();
  const names = useMemo(() => byName(table), [table]);
  const total = names.reduce((all, one) => all + one.value, 0);
  const chart = param("chart") ?? "pie";
  const shown = useMemo(() => {
    const all = names.map((one) => ({ name: one.name, label: short(one.name), value: one.value, color: color(one.name) }));
    if (all.length <= TOP + 1) return all;
    return [...all.slice(0, TOP), { name: "", label: fill(t.rest, { count: all.length - TOP }), value: all.slice(TOP).reduce((sum, one) => sum + one.value, 0), color: "var(--border-strong)" }];
  }, [names, t, css("--op-elem")]);
  if (!table.rows) return <Empty title={id === "copies" ? t.noCopies : t.none} />;
  const several = new Set(table.num("device")).size > 1;
  const most = Math.max(1, ...shown.map((one) => one.value));
  const pick = (name: string) => name && go({ params: { sel: JSON.stringify([name]) } });
  const written = units.time(total);
  const title = shown.length > TOP ? fill(t.top, { top: TOP }) : t.picture;
  const note = shown.length > TOP ? fill(t.topNote, { count: names.length - TOP }) : fill(t.all, { count: names.length });
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, width: "minmax(200px, 4fr)", show: (of, row) => <span class="name mono" title={of.str("name")[row] ?? ""}><Swatch color={shade(of, row)} /><span class="cut">{short(of.str("name")[row] ?? "")}</span></span> },
    { key: "op", label: t.op, as: "name", width: "minmax(130px, 2.4fr)" },
    ...(param("by") === "scope" ? [{ key: "scope", label: t.scope, as: "name" as const, width: "minmax(140px, 2fr)", show: (of: Table, row: number) => <span class="name mono" title={of.str("scope")[row] ?? ""}><span class="cut tail"><bdi>{of.str("scope")[row] ?? "–"}</bdi></span></span> }] : []),
    { key: "device", label: t.device, hide: !several },
    { key: "stream", label: t.stream, as: "text", width: "minmax(64px, .6fr)", hide: true },
    { key: "calls", label: t.count, width: "minmax(56px, .6fr)" },
    { key: "total_ns", label: t.total, width: "minmax(70px, .8fr)" },
    { key: "share", label: t.share, bar: true, color: shade, width: "minmax(104px, 1fr)" },
    { key: "avg_ns", label: t.mean, width: "minmax(68px, .7fr)" },
    { key: "min_ns", label: t.min, width: "minmax(68px, .7fr)" },
    { key: "max_ns", label: t.max, width: "minmax(68px, .7fr)" },
    ...(id === "copies" ? [] : [
      { key: "grid", label: t.grid, as: "text" as const, width: "minmax(82px, .9fr)" },
      { key: "block", label: t.block, as: "text" as const, width: "minmax(76px, .8fr)" },
      { key: "registers", label: t.registers, hide: true, width: "minmax(76px, .7fr)" },
      { key: "shared_memory_bytes", label: t.shared, help: t.sharedHelp, width: "minmax(92px, .8fr)" },
      { key: "occupancy", label: t.occupancy, help: t.occHelp, why: t.noOccupancy, width: "minmax(80px, .8fr)" },
      { key: "launch_count", label: t.ways, help: t.waysHelp, hide: true },
    ]),
  ];
  const summary = `${title}: ${shown.slice(0, 5).map((one) => `${one.label} ${units.text(units.share(one.value / total))}`).join(", ")}`;
  return (
    <>
      <Card title={title} note={note} tools={<Segmented label={t.chart} value={chart} onChange={(value) => go({ params: { chart: value === "pie" ? null : value } })} choices={[{ id: "pie", label: t.pie }, { id: "bar", label: t.bar }]} />}>
        {chart === "bar" ? (
          <div class="opbars" role="img" aria-label={summary}>
            {shown.map((one) => (
              <button key={one.name} class="opbar wide" title={one.name} onClick={() => pick(one.name)}>
                <span class="mono cut">{one.label}</span>
                <span class="track"><i style={{ width: `${(one.value / most) * 100}%`, background: one.color }} /></span>
                <span class="r"><Time ns={one.value} /></span><span class="r d2"><Share of={one.value / total} /></span>
              </button>
            ))}
          </div>
        ) : (
          <div class="oppie">
            <Ring slices={shown.map((one) => ({ name: one.label, value: one.value, color: one.color }))} total={written.value} unit={written.unit} label={summary} onPick={(label) => pick(shown.find((one) => one.label === label)?.name ?? "")} />
            <div class="oplist kernels">
              {shown.map((one) => (
                <button key={one.name} class="one" onClick={() => pick(one.name)} title={one.name}>
                  <Swatch color={one.color} /><span class={`cut ${one.name ? "mono" : ""}`}>{one.label}</span>
                  <span class="r"><Time ns={one.value} /></span><span class="r d2"><Share of={one.value / total} /></span>
                </button>
              ))}
            </div>
          </div>
        )}
      </Card>
      <section class="card opcard">
        <Grid id={id} table={table} columns={columns} find={t.find} tools={<Segmented label={t.rowsBy} value={param("by") === "scope" ? "scope" : "op"} onChange={(value) => go({ params: { by: value === "scope" ? "scope" : null, sel: null } })} choices={[{ id: "op", label: t.byOp }, { id: "scope", label: t.byScope }]} />} search={["name", "op", "scope", "stream"]} sort="-total_ns" what={id === "copies" ? t.whatCopies : t.what} rowKey={rowKey} selected={param("sel")} onOpen={(of, row) => go({ params: { sel: param("sel") === rowKey(of, row) ? null : rowKey(of, row) } })} label={id === "copies" ? t.copies : t.kernels} />
      </section>
    </>
  );
}

function Launches({ data }: { data: Table }) {
  const t = text();
  if (!data.rows) return <Empty title={t.noLaunches}>{t.noLaunchesHow}</Empty>;
  const calls = add(data, "calls"), host = add(data, "host_bound_calls"), brief = add(data, "short_calls");
  const longest = data.num("delay_max_ns").reduce((most, one) => Math.max(most, one), 0);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", width: "minmax(240px, 4fr)", show: (of, row) => <span class="name mono" title={of.str("name")[row] ?? ""}><Swatch color={shade(of, row)} /><span class="cut">{short(of.str("name")[row] ?? "")}</span></span> },
    { key: "stream", label: t.stream, as: "text", width: "minmax(90px, .8fr)" },
    { key: "calls", label: t.count },
    { key: "launch_avg_ns", label: t.launch },
    { key: "delay_avg_ns", label: t.delay, help: t.delayHelp },
    { key: "delay_min_ns", label: t.delayMin },
    { key: "delay_max_ns", label: t.delayMax },
    { key: "kernel_avg_ns", label: t.kernel },
    { key: "host_bound_calls", label: t.host, help: t.hostHelp },
    { key: "short_calls", label: t.shortCalls, help: t.shortHelp, width: "minmax(120px, 1fr)" },
  ];
  return (
    <div class="oppage">
      <Tiles label={t.launches}>
        <Tile label={t.launched}><Count of={calls} /></Tile>
        <Tile label={t.waits} context={<><Count of={host} /> {fill(t.of, { count: units.count(calls).value })}</>} tone={host / calls > 0.5 ? "bad" : undefined}><Share of={host / calls} /></Tile>
        <Tile label={t.tooShort} context={<><Count of={brief} /> {fill(t.of, { count: units.count(calls).value })}</>}><Share of={brief / calls} /></Tile>
        <Tile label={t.longest}><Time ns={longest} /></Tile>
      </Tiles>
      <section class="card opcard">
        <Grid id="launches" table={data} columns={columns} search={["name", "stream"]} sort="-calls" what={t.whatLaunches} rowKey={(of, row) => JSON.stringify([of.str("name")[row]])} selected={param("sel")} onOpen={(of, row) => go({ params: { sel: JSON.stringify([of.str("name")[row]]) } })} label={t.launches} />
      </section>
    </div>
  );
}

function Chosen({ kernels, copies }: { kernels: Table; copies: Table }) {
  const t = text();
  const sel = param("sel");
  const parts = useMemo(() => { try { return sel ? (JSON.parse(sel) as (string | null)[]) : null; } catch { return null; } }, [sel]);
  if (!parts) return null;
  const [name, op, device, scope] = parts;
  const table = kernels.str("name").includes(name) ? kernels : copies;
  const rows = table.where((row) => table.str("name")[row] === name && (parts.length < 2 || (table.str("op")[row] === op && table.raw("device", row) === device && (parts.length < 4 || table.str("scope")[row] === scope))));
  if (!rows.length || name === null) return null;
  const of = table.pick(rows);
  const total = add(of, "total_ns"), calls = add(of, "calls");
  const shadeOf = color(name, true);
  const one = rows.length === 1 ? rows[0] : -1;
  return (
    <Drawer key={sel} onClose={() => go({ params: { sel: null } })} title={<><Swatch color={shadeOf} /><b class="mono cut" title={name}>{short(name)}</b></>}>
      <p class="mono d2 wrapname">{name}</p>
      <Calls
        which={{ kernel: name }}
        of={sel!}
        keep={parts.length < 2 ? undefined : (all, row) => all.str("type")[row] === (op ?? name) && all.raw("number", row) === device && (parts.length < 4 || all.str("scope")[row] === scope)}
        color={shadeOf}
        figures={{ total, calls, mean: total / calls, share: add(of, "share") }}
        chips={
          <>
            <Chip>{familyNames()[family(name)]}</Chip>
            {one >= 0 && table.str("op")[one] && <a class="chip" href={link({ page: "operators", params: { sel: JSON.stringify([table.str("op")[one]]) } })} title={t.open}><span class="mono">{table.str("op")[one]}</span></a>}
            {one >= 0 && table.str("grid")[one] && <Chip>{t.grid} {table.str("grid")[one]}</Chip>}
            {one >= 0 && table.str("block")[one] && <Chip>{t.block} {table.str("block")[one]}</Chip>}
            {one >= 0 && Number.isFinite(table.num("registers")[one]) && <Chip>{t.registers} {table.num("registers")[one]}</Chip>}
            {one >= 0 && Number.isFinite(table.num("occupancy")[one]) && <Chip>{t.occupancy} <Share of={table.num("occupancy")[one]} /></Chip>}
          </>
        }
      />
    </Drawer>
  );
}
