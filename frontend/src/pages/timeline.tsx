// page: {"order": 80, "group": "performance", "icon": "timeline", "en": "Timeline", "zh": "时间线"}
import "./timeline.css";
import { color, kindOf } from "../colors";
import { info, rank, useQuery, useTable } from "../data";
import { Await, Card, Empty, Facts, Quantity, Time, useWidth, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { tip, untip } from "../parts/tip";
import { source, type Info } from "../source";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    window: "In the {length} from {start} on, {count} spans ran.", many: "In the {length} from {start} on, more than {count} spans ran; the first {count} are shown.", span: "{name} took {dur}, from {start} on.", nothing: "Nothing ran in the {length} from {start} on.",
    still: "A report does not carry every span", stillHow: "open the run itself with stepscope view", later: "the timeline to pan and zoom comes with a later release", rankFact: "rank {rank}", wider: "Wider", narrower: "Narrower", earlier: "Earlier", laterOn: "Later", perfetto: "Open in Perfetto: download the run", chrome: "Chrome trace", exports: "Whole run elsewhere", exportsNote: "for ui.perfetto.dev, chrome://tracing and the like",
    lanes: "Lanes", lanesNote: "each lane is a thread or a stream; deeper calls below", details: "Span {span}", neighbours: "Spans in this window", what: "spans", name: "Name", kind: "Kind", start: "Start", startHelp: "from the beginning of the window; exact since the start of the recording on hover", dur: "Duration", self: "Self", step: "Step", track: "Lane", depth: "Depth", type: "Operator type", scope: "Scope", shapes: "Shapes", dtypes: "Types", bytes: "Bytes", flops: "FLOPs", noSpan: "There is no span {span} on rank {rank}", more: "{count} more lanes", launchedBy: "Launched by", parent: "Inside", empty: "Nothing here", emptyHow: "widen the window", category: "Source’s word",
  },
  zh: {
    window: "从 {start} 起的 {length} 内有 {count} 个区间。", many: "从 {start} 起的 {length} 内有超过 {count} 个区间；显示前 {count} 个。", span: "{name} 从 {start} 起，耗时 {dur}。", nothing: "从 {start} 起的 {length} 内没有任何运行。",
    still: "报告不包含全部区间", stillHow: "请用 stepscope view 打开该训练", later: "可平移缩放的时间线将在后续版本提供", rankFact: "rank {rank}", wider: "放大范围", narrower: "缩小范围", earlier: "更早", laterOn: "更晚", perfetto: "用 Perfetto 打开：下载该训练", chrome: "Chrome trace", exports: "在别处查看整个训练", exportsNote: "用于 ui.perfetto.dev、chrome://tracing 等",
    lanes: "泳道", lanesNote: "每条泳道是一个线程或流；内层调用在下方", details: "区间 {span}", neighbours: "此范围内的区间", what: "个区间", name: "名称", kind: "种类", start: "开始", startHelp: "相对窗口起点；悬停显示自记录开始的精确值", dur: "时长", self: "自身", step: "迭代", track: "泳道", depth: "深度", type: "算子类型", scope: "作用域", shapes: "形状", dtypes: "类型", bytes: "字节", flops: "FLOPs", noSpan: "rank {rank} 上没有区间 {span}", more: "另外 {count} 条泳道", launchedBy: "下发者", parent: "所在区间", empty: "这里没有内容", emptyHow: "请扩大范围", category: "来源用词",
  },
});

const MOST = 2000;

/** A moment of the page as the tables have it. */
function absolute(now: Info, ns: number): string {
  return String(BigInt(now.origin_ns) + BigInt(Math.round(ns)));
}

export default function Timeline() {
  const t = text();
  return source().still ? <Empty title={t.still}>{t.stillHow}</Empty> : <Window />;
}

function Window() {
  const t = text();
  const now = info.value!;
  const of = rank();
  const wanted = param("span");
  const own = useQuery(wanted !== undefined && /^\d+$/.test(wanted) ? `select * from spans where rank = ${of} and span = ${wanted}` : null);
  const steps = useTable("step_trace", { columns: "rank,step,start_ns,end_ns" });
  const at = own.data?.rows ? 0 : -1;
  const [t0, t1] = bounds(now, at < 0 ? null : own.data, steps.data);
  const ready = (wanted === undefined || own.data !== null || own.error !== null) && (param("t0") !== undefined || at >= 0 || steps.data !== null || steps.error !== null);
  const fields = "span, rank, track, kind, name, start_ns, dur_ns, self_ns, depth, step, op_type";
  const inside = useQuery(ready ? `select ${fields} from spans where rank = ${of} and start_ns < ${absolute(now, t1)} and start_ns + dur_ns >= ${absolute(now, t0)} and kind <> 'instant' order by start_ns, depth limit ${MOST}` : null);
  const tracks = useTable("tables/tracks", {}, { allSteps: true });
  const count = inside.data?.rows ?? 0;
  const length = <b><Time ns={t1 - t0} /></b>;
  const start = <b><Time ns={t0} /></b>;
  const move = (from: number, to: number) => go({ params: { t0: Math.round(from), t1: Math.round(to) } }, true);
  const wide = t1 - t0;
  return (
    <>
      <Verdict facts={[of !== null && fill(t.rankFact, { rank: of }), t.later]}>
        {wanted !== undefined && own.data?.rows ? (
          <Say of={t.span} name={<b>{own.data.str("name")[0]}</b>} dur={<b><Time ns={own.data.num("dur_ns")[0]} /></b>} start={<b><Time ns={own.data.num("start_ns")[0]} /></b>} />
        ) : inside.data ? (
          <Say of={count === 0 ? t.nothing : count >= MOST ? t.many : t.window} length={length} start={start} count={<b>{units.count(count).value}</b>} />
        ) : (
          "…"
        )}
      </Verdict>
      {wanted !== undefined && own.data && (own.data.rows ? <Details span={own.data} wanted={wanted} /> : <Empty title={fill(t.noSpan, { span: wanted, rank: of ?? "–" })} height={60} />)}
      <Card
        title={t.lanes}
        note={t.lanesNote}
        tools={
          <>
            <button class="btn sm" onClick={() => move(t0 - wide / 2, t1 - wide / 2)}>{t.earlier}</button>
            <button class="btn sm" onClick={() => move(t0 + wide / 2, t1 + wide / 2)}>{t.laterOn}</button>
            <button class="btn sm" onClick={() => move(t0 - wide / 2, t1 + wide / 2)}>{t.wider}</button>
            <button class="btn sm" onClick={() => move(t0 + wide / 4, t1 - wide / 4)} disabled={wide < 4}>{t.narrower}</button>
          </>
        }
      >
        <Await of={inside}>{(data) => (data.rows ? <Lanes data={data} tracks={tracks.data} from={t0} to={t1} chosen={wanted} /> : <Empty title={t.empty}>{t.emptyHow}</Empty>)}</Await>
      </Card>
      <Card title={t.neighbours} flush>
        <Await of={inside}>{(data) => <Neighbours data={data} tracks={tracks.data} chosen={wanted} from={t0} />}</Await>
      </Card>
      <Card title={t.exports} note={t.exportsNote}>
        <a class="btn" href={`api/runs/${encodeURIComponent(now.id)}/export/perfetto`} download>{t.perfetto}</a>{" "}
        <a class="btn" href={`api/runs/${encodeURIComponent(now.id)}/export/chrome`} download>{t.chrome}</a>
      </Card>
    </>
  );
}

/** The window of the address; else around the span; else the first step; else the beginning. */
function bounds(now: Info, span: Table | null, steps: Table | null): [number, number] {
  const [t0, t1] = [Number(param("t0") ?? NaN), Number(param("t1") ?? NaN)];
  if (Number.isFinite(t0) && Number.isFinite(t1) && t1 >= t0) return [t0, t1 > t0 ? t1 : t0 + 1];
  if (span) {
    const [start, dur] = [span.num("start_ns")[0], span.num("dur_ns")[0]];
    return [start - dur * 0.5 - 1000, start + dur * 1.5 + 1000];
  }
  if (steps?.rows) return [steps.num("start_ns")[0], steps.num("end_ns")[0]];
  return [0, Number(BigInt(now.end_ns) - BigInt(now.origin_ns)) || 1];
}

function Details({ span, wanted }: { span: Table; wanted: string }) {
  const t = text();
  const word = (name: string) => span.str(name)[0];
  const number = (name: string, as: units.Quantity) => Number.isFinite(span.num(name)[0]) && <Quantity value={span.num(name)[0]} as={as} />;
  const to = (name: string) => word(name) !== null && <a href={link({ params: { span: word(name), t0: null, t1: null } })}>{word(name)}</a>;
  const facts: [string, unknown][] = [
    [t.kind, word("kind")], [t.category, word("category")], [t.start, number("start_ns", "time")], [t.dur, number("dur_ns", "time")], [t.self, number("self_ns", "time")], [t.step, number("step", "count")],
    [t.type, word("op_type")], [t.scope, word("scope")], [t.shapes, word("shapes")], [t.dtypes, word("dtypes")], [t.bytes, number("bytes", "bytes")], [t.flops, number("flops", "flops")], [t.parent, to("parent")], [t.launchedBy, to("flow_in")],
  ];
  const said = facts.filter(([, value]) => value !== null && value !== false && value !== "") as [string, string][];
  const half = Math.ceil(said.length / 2);
  return (
    <Card title={<span class="mono">{word("name")}</span>} note={fill(t.details, { span: wanted })}>
      <div class="tl-span">
        <Facts of={said.slice(0, half)} />
        <Facts of={said.slice(half)} />
        {word("args") && <pre class="code">{word("args")}</pre>}
      </div>
    </Card>
  );
}

const LANES = 12;
const HIGH = 16;

function labels(tracks: Table | null): Map<number, string> {
  const found = new Map<number, string>();
  if (tracks) for (let row = 0; row < tracks.rows; row++) found.set(tracks.num("track")[row], [tracks.str("group")[row], tracks.str("label")[row]].filter(Boolean).join(" · "));
  return found;
}

function Lanes({ data, tracks, from, to, chosen }: { data: Table; tracks: Table | null; from: number; to: number; chosen?: string }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const names = labels(tracks);
  const byTrack = new Map<number, number[]>();
  data.where(() => true).forEach((row) => byTrack.set(data.num("track")[row], [...(byTrack.get(data.num("track")[row]) ?? []), row]));
  const shown = [...byTrack].sort((a, b) => b[1].length - a[1].length).slice(0, LANES);
  const inner = Math.max(1, width - 160);
  const x = (ns: number) => ((ns - from) / (to - from)) * inner;
  return (
    <div class="tl-lanes" ref={box}>
      {width > 0 && shown.map(([track, rows]) => {
        const low = Math.min(...rows.map((row) => data.num("depth")[row] || 0));
        const levels = Math.min(12, Math.max(...rows.map((row) => (data.num("depth")[row] || 0) - low)) + 1);
        return (
          <div key={track} class="tl-lane">
            <span class="who" title={names.get(track)}>{names.get(track) ?? track}</span>
            <svg width={inner} height={levels * HIGH} role="img" aria-label={names.get(track) ?? String(track)}>
              {rows.map((row) => {
                const level = (data.num("depth")[row] || 0) - low;
                if (level >= levels) return null;
                const left = Math.max(0, x(data.num("start_ns")[row]));
                const right = Math.min(inner, x(data.num("start_ns")[row] + data.num("dur_ns")[row]));
                const kind = kindOf(data.str("kind")[row] ?? "");
                const name = data.str("name")[row] ?? "";
                const id = data.str("span")[row];
                return (
                  <rect
                    key={row}
                    class={`click ${id === chosen ? "on" : ""}`}
                    x={left}
                    y={level * HIGH + 1}
                    width={Math.max(1, right - left)}
                    height={HIGH - 2}
                    fill={kind === "compute" ? color(data.str("op_type")[row] ?? name, true) : `var(--kind-${kind})`}
                    onClick={() => go({ params: { span: id } })}
                    onPointerMove={(event) => tip(event, <><b>{name}</b><br />{units.text(units.time(data.num("dur_ns")[row]))} · {data.str("kind")[row]}</>)}
                    onPointerLeave={untip}
                  />
                );
              })}
            </svg>
          </div>
        );
      })}
      {byTrack.size > LANES && <span class="d3 small">{fill(t.more, { count: byTrack.size - LANES })}</span>}
    </div>
  );
}

function Neighbours({ data, tracks, chosen, from }: { data: Table; tracks: Table | null; chosen?: string; from: number }) {
  const t = text();
  const names = labels(tracks);
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: (of, row) => { const kind = kindOf(of.str("kind")[row] ?? ""); return kind === "compute" ? color(of.str("op_type")[row] ?? of.str("name")[row] ?? "", true) : `var(--kind-${kind})`; } },
    { key: "kind", label: t.kind, as: "text", width: "110px" },
    { key: "start_ns", label: t.start, help: t.startHelp, show: (of, row) => { const at = of.num("start_ns")[row]; return <span title={units.exact(at, "time")}>{at < from ? "−" : "+"}{units.text(units.time(Math.abs(at - from)))}</span>; } },
    { key: "dur_ns", label: t.dur },
    { key: "self_ns", label: t.self },
    { key: "track", label: t.track, width: "minmax(140px, 1.6fr)", show: (of, row) => <span class="cut" title={names.get(of.num("track")[row])}>{names.get(of.num("track")[row]) ?? of.num("track")[row]}</span> },
    { key: "depth", label: t.depth, hide: true },
    { key: "step", label: t.step, width: "64px" },
  ];
  return <Grid id="spans" table={data} columns={columns} search={["name", "kind", "op_type"]} sort="start_ns" what={t.what} rowKey={(of, row) => of.str("span")[row] ?? ""} selected={chosen} onOpen={(of, row) => go({ params: { span: of.str("span")[row] } })} label={t.neighbours} />;
}
