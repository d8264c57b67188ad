// page: {"order": 150, "group": "tools", "icon": "files", "en": "Files and problems", "zh": "文件与问题"}
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { kindOf } from "../colors";
import { info, useTable } from "../data";
import { Await, Bytes, Card, Chip, copyText, CopyButton, Count, Empty, InlineBar, Time, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { source, type Info } from "../source";
import { link } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import "./files.css";

const text = texts({
  en: {
    whole: "Everything in {name} was read: {rows} [row|rows] over {time}, and nothing was lost.", lost: "{name} was read with {problems} problems: {lost} [row is|rows are] missing because of them.", lostOne: "{name} was read with one problem: {lost} [row is|rows are] missing because of it.", remarkOne: "Everything in {name} was read; there is one remark about how.", remarks: "Everything in {name} was read; there are {problems} remarks about how.", bare: "{name} was read: {rows} [row|rows].",
    format: "format {format}", recorded: "recorded {at}", state: "still being recorded",
    source: "Source", path: "Path", framework: "Framework", kindFormat: "Format", began: "Began", length: "Length", ranks: "Ranks", ranksOf: "{here} of {all}", versions: "Versions", steps: "Steps", missing: "Missing ranks",
    tables: "Tables", tablesNote: "rows of the data model; each can be asked in SQL", kinds: "Spans by kind", counters: "Counters", countersNote: "samples of each", devices: "Devices", options: "How it was recorded", extra: "What else the source said",
    problems: "Problems and remarks", none: "Nothing was lost, and there is nothing to remark", noneHow: "What a reader cannot read, or reads in a way you should know of, stands here.", file: "File", where: "Where", what: "What", lostRows: "Rows lost", rank: "Rank", copyAll: "Copy all", table: "Table", rows: "Rows", name: "Name", unit: "Unit", samples: "Samples", download: "CSV", kind: "Kind", cores: "Cores", memory: "Memory", clock: "Clock", peak: "Peak", bandwidth: "Bandwidth", device: "Number", key: "Key", value: "Value", remark: "remark", nothing: "The source says nothing about it", problemsWhat: "problem|problems", query: "Ask in SQL", noDevices: "No device is described in this recording", copyPath: "Copy path", on: "on", off: "off",
  },
  zh: {
    whole: "{name} 已全部读取：{rows} 行，跨度 {time}，没有丢失。", lost: "读取 {name} 时有 {problems} 个问题：因此缺少 {lost} 行。", lostOne: "读取 {name} 时有一个问题：因此缺少 {lost} 行。", remarkOne: "{name} 已全部读取；有一条说明。", remarks: "{name} 已全部读取；有 {problems} 条说明。", bare: "{name} 已读取：{rows} 行。",
    format: "格式 {format}", recorded: "记录于 {at}", state: "仍在记录",
    source: "来源", path: "路径", framework: "框架", kindFormat: "格式", began: "开始", length: "长度", ranks: "Rank", ranksOf: "{all} 个中的 {here} 个", versions: "版本", steps: "迭代", missing: "缺少的 rank",
    tables: "表", tablesNote: "数据模型的行数；都可用 SQL 查询", kinds: "按类别的区间", counters: "计数器", countersNote: "各自的采样数", devices: "设备", options: "记录方式", extra: "来源的其他说明",
    problems: "问题与说明", none: "没有丢失，也没有需要说明的", noneHow: "读取器无法读取的内容，或以您应知道的方式读取的内容会列在这里。", file: "文件", where: "位置", what: "内容", lostRows: "丢失行数", rank: "Rank", copyAll: "全部复制", table: "表", rows: "行数", name: "名称", unit: "单位", samples: "采样数", download: "CSV", kind: "类别", cores: "核", memory: "内存", clock: "时钟", peak: "峰值", bandwidth: "带宽", device: "编号", key: "键", value: "值", remark: "说明", nothing: "来源没有注明", problemsWhat: "个问题", query: "用 SQL 查询", noDevices: "本次记录没有描述设备", copyPath: "复制路径", on: "开", off: "关",
  },
});

export default function Files() {
  const t = text();
  const run = info.value!;
  const problems = useTable("tables/problems", {}, { allRanks: true, allSteps: true });
  const rows = Object.values(run.tables).reduce((sum, count) => sum + count, 0);
  const length = Number(BigInt(run.end_ns) - BigInt(run.origin_ns));
  return (
    <>
      <Verdict facts={[fill(t.format, { format: run.format }), moment(run) && fill(t.recorded, { at: moment(run)! }), run.state === "live" && t.state]}>
        <Sentence run={run} problems={problems.data} rows={rows} length={length} />
      </Verdict>
      <Problems problems={problems} run={run} />
      <div class="filesgrid">
        <Card title={t.source}><Facts2 of={sourceFacts(run, length)} /></Card>
        <Card title={t.tables} note={t.tablesNote} flush><Counts of={run.tables} to={(name) => link({ page: "query", params: { sql: `select * from ${name} limit 1000` } })} csv={(name) => source().download(run.id, `tables/${name}`, {})} color={() => "var(--text-3)"} head={[t.table, t.rows]} /></Card>
        <Card title={t.kinds} flush><Counts of={run.kinds} to={(name) => link({ page: "query", params: { sql: `select name, count(*) as calls, sum(dur_ns) as total_ns\nfrom spans\nwhere kind = '${name}'\ngroup by name\norder by total_ns desc` } })} color={(name) => `var(--kind-${kindOf(name)})`} head={[t.kind, t.rows]} /></Card>
        <Card title={t.devices} flush>{run.devices.length ? <Devices run={run} /> : <Empty title={t.noDevices} />}</Card>
        <Card title={t.options} flush><Pairs of={run.options} id="options" /></Card>
        <Card title={t.extra} flush><Pairs of={run.extra} id="extra" /></Card>
        <Card title={t.counters} note={t.countersNote} flush class="wide2">
          {Object.keys(run.counters).length ? <Counts of={run.counters} to={(name) => link({ page: "query", params: { sql: `select at_ns, value, unit, rank\nfrom counters\nwhere name = '${name.replaceAll("'", "''")}'\norder by at_ns`, chart: "line", x: "at_ns", y: "value" } })} color={() => "var(--text-3)"} head={[t.name, t.samples]} /> : <Empty title={t.nothing} />}
        </Card>
      </div>
    </>
  );
}

/** When the recording began, where its clock says so: some count from the start of the machine. */
function moment(run: Info): string | null {
  const ms = Number(BigInt(run.origin_ns) / 1_000_000n);
  return ms > Date.UTC(2005, 0) ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC" : null;
}

function Sentence({ run, problems, rows, length }: { run: Info; problems: Table | null; rows: number; length: number }) {
  const t = text();
  const lost = problems ? problems.num("lost").reduce((sum, count) => sum + (count || 0), 0) : NaN;
  const values = { name: <b>{run.name}</b>, rows: <b><Count of={rows} /></b>, time: <b><Time ns={length} /></b>, problems: <b><Count of={run.problem_count} /></b>, lost: <b><Count of={lost} /></b> };
  if (run.problem_count === 0) return <Say of={rows ? t.whole : t.bare} {...values} />;
  const one = run.problem_count === 1;
  return <Say of={lost > 0 ? (one ? t.lostOne : t.lost) : one ? t.remarkOne : t.remarks} {...values} />;
}

function Problems({ problems, run }: { problems: ReturnType<typeof useTable>; run: Info }) {
  const t = text();
  const columns: Column[] = [
    { key: "lost", label: t.lostRows, width: "100px", show: (table, row) => (table.num("lost")[row] > 0 ? <Chip tone="bad"><Count of={table.num("lost")[row]} /></Chip> : <Chip>{t.remark}</Chip>) },
    { key: "what", label: t.what, as: "text", width: "minmax(300px, 4fr)" },
    { key: "file", label: t.file, as: "name", width: "minmax(140px, 1.5fr)" },
    { key: "where", label: t.where, as: "text", width: "minmax(100px, 1fr)" },
    ...(run.ranks.length > 1 ? [{ key: "rank", label: t.rank, width: "60px" }] : []),
  ];
  return (
    <Card title={t.problems} tools={problems.data && problems.data.rows > 0 && <CopyButton value={() => problems.data!.csv()} label={t.copyAll} />} flush>
      <Await of={problems} rows={2}>
        {(table) => (table.rows ? <Grid id="problems" table={table} columns={columns} search={["what", "file", "where"]} sort="-lost" what={t.problemsWhat} label={t.problems} onOpen={(rows, row) => void copyText(["file", "where", "what"].map((name) => rows.str(name)[row] ?? "").join(": "))} /> : <div class="bd"><Empty title={t.none} height={72}>{t.noneHow}</Empty></div>)}
      </Await>
    </Card>
  );
}

function sourceFacts(run: Info, length: number): [string, ComponentChildren][] {
  const t = text();
  const missing = run.world_size ? Array.from({ length: run.world_size }, (_, rank) => rank).filter((rank) => !run.ranks.includes(rank)) : [];
  return [
    [t.path, <span class="withcopy"><span class="mono cut" title={run.path}>{run.path}</span><CopyButton value={run.path} /></span>],
    [t.kindFormat, run.format],
    [t.framework, run.framework || "–"],
    [t.versions, Object.entries(run.versions).map(([name, version]) => `${name} ${version}`).join(" · ") || "–"],
    [t.began, moment(run) ?? "–"],
    [t.length, <Time ns={length} />],
    [t.ranks, run.world_size && run.world_size !== run.ranks.length ? fill(t.ranksOf, { here: run.ranks.length, all: run.world_size }) : String(run.ranks.length || "–")],
    ...(missing.length ? ([[t.missing, units.ranges(missing)]] as [string, ComponentChildren][]) : []),
    [t.steps, <Count of={run.tables.steps ?? NaN} />],
  ];
}

function Facts2({ of }: { of: [string, ComponentChildren][] }) {
  return <dl class="filefacts">{of.map(([label, value]) => [<dt key={label}>{label}</dt>, <dd key={`${label} value`}>{value}</dd>])}</dl>;
}

function Counts({ of, to, csv, color, head }: { of: Record<string, number>; to: (name: string) => string; csv?: (name: string) => string | null; color: (name: string) => string; head: [string, string] }) {
  const t = text();
  const entries = Object.entries(of).sort((a, b) => b[1] - a[1]);
  const most = entries[0]?.[1] || 1;
  const asks = !source().still;
  return (
    <div class="scroll">
      <table>
        <thead><tr><th>{head[0]}</th><th /><th>{head[1]}</th>{csv && asks && <th />}</tr></thead>
        <tbody>
          {entries.map(([name, count]) => (
            <tr key={name}>
              <td class="mono">{asks && count > 0 ? <a href={to(name)} title={t.query}>{name}</a> : name}</td>
              <td class="barcell"><InlineBar share={count / most} color={color(name)} /></td>
              <td><Count of={count} /></td>
              {csv && asks && <td>{count > 0 && csv(name) && <a href={csv(name)!} download>{t.download}</a>}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Devices({ run }: { run: Info }) {
  const t = text();
  const table = useMemo(() => {
    const number = (key: string) => run.devices.map((device) => (device[key] === null || device[key] === undefined ? NaN : Number(device[key])));
    return Table.of({
      name: run.devices.map((device) => device.name), kind: run.devices.map((device) => device.kind), rank: number("rank"), device: number("device"), cores: number("cores"), memory_bytes: number("memory_bytes"), clock_hz: number("clock_hz"), peak_flops: number("peak_flops"), peak_bandwidth: number("peak_bandwidth"),
    });
  }, [run]);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "text", width: "minmax(110px, 2fr)" }, { key: "kind", label: t.kind, as: "text", width: "56px" }, { key: "rank", label: t.rank, width: "56px" }, { key: "device", label: t.device, width: "66px" }, { key: "cores", label: t.cores, width: "56px" }, { key: "memory_bytes", label: t.memory, width: "78px" },
    { key: "clock_hz", label: t.clock, show: (rows, row) => <Hertz of={rows.num("clock_hz")[row]} /> }, { key: "peak_flops", label: t.peak, as: "flopsRate" }, { key: "peak_bandwidth", label: t.bandwidth, as: "rate" },
  ];
  return <Grid id="devices" bare table={table} columns={columns.filter((column) => ["name", "kind", "rank", "memory_bytes"].includes(column.key) || table.num(column.key).some((value) => !Number.isNaN(value)))} label={t.devices} />;
}

const Hertz = ({ of }: { of: number }) => (Number.isNaN(of) ? <>–</> : <span title={`${of} Hz`}>{units.count(Number((of / 1e6).toPrecision(4))).value}<span class="u">{units.THIN}MHz</span></span>);

/** Options and what else the source said: whatever is there, as text. */
function Pairs({ of, id }: { of: Record<string, unknown>; id: string }) {
  const t = text();
  const entries = Object.entries(of).filter(([, value]) => value !== null && value !== undefined && !(typeof value === "object" && Object.keys(value).length === 0));
  if (!entries.length) return <div class="bd"><Empty title={t.nothing} height={72} /></div>;
  const write = (name: string, value: unknown): ComponentChildren => {
    if (typeof value === "boolean") return value ? <Chip tone="good">{t.on}</Chip> : <span class="d3">{t.off}</span>;
    if (typeof value === "number" && name.endsWith("_bytes")) return <Bytes of={value} />;
    const said = typeof value === "object" ? JSON.stringify(value) : String(value);
    return <span class="mono cut" title={said}>{said}</span>;
  };
  return (
    <div class="scroll">
      <table id={`files-${id}`}>
        <tbody>{entries.map(([name, value]) => <tr key={name}><td class="mono">{name}</td><td class="said">{write(name, value)}</td></tr>)}</tbody>
      </table>
    </div>
  );
}
