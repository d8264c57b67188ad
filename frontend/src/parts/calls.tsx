/** What is known of the calls behind a row: how long, when, in which steps, with which shapes, by which kernels, from which line. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { color, css } from "../colors";
import { info, useTable } from "../data";
import { go, link, theme, type Change } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";
import { Await, Chip, Count, Empty, Share, Swatch, Time, useWidth } from "./basics";
import { Histogram, quantile } from "./plots";
import { Series } from "./series";
import { tip, untip } from "./tip";
import "./calls.css";

const text = texts({
  en: {
    total: "Total", self: "Self", calls: "Calls", mean: "Mean", share: "Share", duration: "Duration", p50: "p50", p95: "p95", max: "max",
    every: "Every call", everyNote: "{count} [call|calls]", some: "the first {some} of {all} [call|calls]", pieces: "Every kernel and copy", piecesNote: "{count} on the device", step: "Step", at: "At", noStep: "none", timeline: "Timeline",
    bySteps: "By step", stepsNote: "time in each step", slowest: "Slowest calls", shapes: "Shapes", shapeNone: "Shapes were not recorded",
    shapeFlag: "Record again with {flag} to see the shapes and types of its inputs.", kernels: "Kernels", kernelOne: "one kernel serves every call",
    kernelMany: "{count} kernels serve it", work: "Device work", from: "Called from", noStack: "Python stacks were not recorded",
    stackFlag: "Record again with {flag} to see which line calls it.", backward: "backward pass", noCaller: "No Python frame is known around these calls",
    delay: "Launch to start", delayNote: "median {delay}, longest {most}", none: "Nothing is known of its calls", dots: "Duration of every call over time", perStep: "Time in each step",
    more: "{count} more", stack: "Whole stack", operators: "Launched by", unknownOperator: "no operator known",
  },
  zh: {
    total: "总时间", self: "自身", calls: "次数", mean: "平均", share: "占比", duration: "耗时", p50: "p50", p95: "p95", max: "最大",
    every: "每次调用", everyNote: "{count} 次调用", some: "{all} 次调用中的前 {some} 次", pieces: "每个内核和拷贝", piecesNote: "设备上 {count} 个", step: "迭代", at: "时刻", noStep: "无", timeline: "时间线",
    bySteps: "按迭代", stepsNote: "各迭代中的时间", slowest: "最慢的调用", shapes: "形状", shapeNone: "未记录形状",
    shapeFlag: "加上 {flag} 重新记录，即可看到输入的形状和类型。", kernels: "内核", kernelOne: "所有调用都由一个内核完成",
    kernelMany: "由 {count} 个内核完成", work: "设备工作", from: "调用位置", noStack: "未记录 Python 调用栈",
    stackFlag: "加上 {flag} 重新记录，即可看到是哪一行调用的。", backward: "反向", noCaller: "这些调用周围没有已知的 Python 帧",
    delay: "启动到开始", delayNote: "中位数 {delay}，最长 {most}", none: "没有关于其调用的记录", dots: "每次调用的耗时随时间的变化", perStep: "各迭代中的时间",
    more: "还有 {count} 个", stack: "完整调用栈", operators: "由谁启动", unknownOperator: "算子未知",
  },
});

/** As many calls as one drawing takes; the analysis has them all. */
const MOST = 200_000;
const COLUMNS = "rank,device,number,step,span,start_ns,dur_ns,self_ns,name,type,scope,kernel,delay_ns,shapes,dtypes";

export interface Which {
  device?: string;
  operator?: string;
  type?: string;
  kernel?: string;
  [more: string]: string | undefined;
}

interface CallsProps {
  which: Which;
  /** Calls that are not of this row: another scope, other shapes. */
  keep?: (calls: Table, row: number) => boolean;
  /** Changes when `keep` does. */
  of: string;
  color: string;
  /** The figures of the row itself. */
  figures: { total: number; calls: number; mean: number; share: number };
  chips?: ComponentChildren;
}

/** The place of a call on the timeline, with a little around it. */
export function onTimeline(start: number, duration: number, span?: number): Change {
  const around = Math.max(duration * 4, 2000);
  return { page: "timeline", params: { t0: Math.max(0, Math.floor(start - around)), t1: Math.ceil(start + duration + around), span } };
}

export function Calls({ which, keep, of, color: shade, figures, chips }: CallsProps) {
  const t = text();
  const host = which.device === "cpu";
  const { device: _, ...anywhere } = which;
  const asked = useTable("instances", { ...(host ? anywhere : which), limit: MOST, columns: COLUMNS });
  return (
    <>
      {chips && <div class="chips">{chips}</div>}
      <div class="figures">
        <div><span class="d2 small">{t.total}</span><b><Time ns={figures.total} /></b></div>
        <div><span class="d2 small">{t.calls}</span><b><Count of={figures.calls} /></b></div>
        <div><span class="d2 small">{t.mean}</span><b><Time ns={figures.mean} /></b></div>
        <div><span class="d2 small">{t.share}</span><b><Share of={figures.share} /></b></div>
      </div>
      <Await of={asked} rows={8}>{(data) => <Found data={data} host={host} keep={keep} of={of} shade={shade} which={which} />}</Await>
    </>
  );
}

function Found({ data, host, keep, of, shade, which }: { data: Table; host: boolean; keep: CallsProps["keep"]; of: string; shade: string; which: Which }) {
  const t = text();
  const [calls, work] = useMemo(() => {
    const device = data.str("device");
    const wanted = data.pick(data.where((row) => (device[row] === "cpu") === host && (!keep || keep(data, row))));
    return [wanted, host ? data.pick(data.where((row) => device[row] !== "cpu")) : wanted];
  }, [data, of, host]);
  const times = calls.num("dur_ns");
  const sorted = useMemo(() => times.slice().sort(), [times]);
  if (!calls.rows) return <Empty title={t.none} />;
  const pieces = !host; // an operator may launch several
  const short = data.total > data.rows ? fill(t.some, { some: units.count(data.rows).value, all: units.count(data.total).value }) : fill(pieces ? t.piecesNote : t.everyNote, { count: units.count(calls.rows).value });
  return (
    <>
      <section>
        <h3>{t.duration}<span class="sp" /><span class="d2 small">{t.p50} <b><Time ns={quantile(sorted, 0.5)} /></b> · {t.p95} <b><Time ns={quantile(sorted, 0.95)} /></b> · {t.max} <b><Time ns={sorted[sorted.length - 1]} /></b></span></h3>
        <Histogram values={times} color={shade} label={t.duration} height={110} />
      </section>
      <section>
        <h3>{pieces ? t.pieces : t.every}<span class="sp" /><span class="d3 small">{short}</span></h3>
        <Dots calls={calls} color={shade} />
      </section>
      <Steps calls={calls} />
      <section>
        <h3>{t.slowest}</h3>
        <Slowest calls={calls} />
      </section>
      {!host && !calls.blank("delay_ns") && <Delay calls={calls} />}
      <Shapes calls={calls} />
      {which.kernel === undefined ? <Grouped table={work} by="kernel" title={t.kernels} one={t.kernelOne} many={t.kernelMany} page="kernels" /> : <Grouped table={calls} by="name" title={t.operators} one="" many="" page="operators" />}
      <Callers which={which} />
    </>
  );
}

/** Each call a dot: when it started and how long it took. A click goes to the timeline. */
function Dots({ calls, color: shade }: { calls: Table; color: string }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const steps = useTable("tables/steps", { columns: "rank,step,start_ns,end_ns" });
  const height = 108, left = 48, bottom = 18, top = 6, right = 6;
  const start = calls.num("start_ns"), duration = calls.num("dur_ns"), step = calls.num("step"), span = calls.num("span");
  const shown = useMemo(() => {
    let from = Infinity, to = -Infinity, low = Infinity, high = 0;
    for (let row = 0; row < calls.rows; row++) {
      from = Math.min(from, start[row]);
      to = Math.max(to, start[row]);
      low = Math.min(low, duration[row]);
      high = Math.max(high, duration[row]);
    }
    const room = (to - from) * 0.02 || 1;
    const known = new Set(step);
    const rules = steps.data ? Array.from({ length: steps.data.rows }, (_, row) => ({ at: steps.data!.num("start_ns")[row], end: steps.data!.num("end_ns")[row], step: steps.data!.num("step")[row] })).filter((one) => known.has(one.step)) : [];
    for (const one of rules) from = Math.min(from, one.at);
    const spread = high - low || high || 1;
    return { from: from - room, to: to + room, low: Math.max(0, low - spread * 0.08), high: high + spread * 0.08, rules };
  }, [calls, steps.data]);
  const x = (at: number) => left + ((at - shown.from) / (shown.to - shown.from)) * (width - left - right);
  const y = (time: number) => top + (1 - (time - shown.low) / (shown.high - shown.low)) * (height - top - bottom);
  const now = theme();
  useEffect(() => {
    const ink = canvas.current?.getContext("2d");
    if (!ink || !width) return;
    const ratio = devicePixelRatio;
    canvas.current!.width = width * ratio;
    canvas.current!.height = height * ratio;
    ink.scale(ratio, ratio);
    ink.font = `11px ${css("--font")}`;
    ink.strokeStyle = css("--grid");
    ink.fillStyle = css("--text-3");
    ink.textAlign = "right";
    const levels = units.ticks(shown.low, shown.high, 2);
    const labels = units.axisLabels(levels, "time", units.timeUnit(shown.high));
    for (const [at, value] of levels.entries()) {
      ink.beginPath();
      ink.moveTo(left, y(value));
      ink.lineTo(width - right, y(value));
      ink.stroke();
      ink.fillText(labels[at], left - 6, y(value) + 4);
    }
    ink.strokeStyle = css("--border-strong");
    ink.textAlign = "center";
    let free = -Infinity;
    for (const rule of shown.rules) {
      ink.beginPath();
      ink.moveTo(x(rule.at), top);
      ink.lineTo(x(rule.at), height - bottom);
      ink.stroke();
      const middle = (x(rule.at) + Math.min(x(rule.end), width - right)) / 2;
      const said = `${text().step.toLowerCase()} ${rule.step}`;
      const half = ink.measureText(said).width / 2;
      if (middle - half > free && middle + half < width) {
        ink.fillText(said, middle, height - 4);
        free = middle + half + 8;
      }
    }
    ink.fillStyle = shade.startsWith("var(") ? css(shade.slice(4, -1)) : shade;
    ink.globalAlpha = calls.rows > 5000 ? 0.25 : 0.7;
    const size = calls.rows > 2000 ? 2 : 3;
    for (let row = 0; row < calls.rows; row++) {
      if (size === 2) ink.fillRect(x(start[row]) - 1, y(duration[row]) - 1, 2, 2);
      else {
        ink.beginPath();
        ink.arc(x(start[row]), y(duration[row]), 2, 0, 7);
        ink.fill();
      }
    }
  }, [calls, width, shown, shade, now]);
  const nearest = (event: MouseEvent) => {
    const at = canvas.current!.getBoundingClientRect();
    let best = -1, far = 144;
    for (let row = 0; row < calls.rows; row++) {
      const distance = (x(start[row]) - event.clientX + at.left) ** 2 + (y(duration[row]) - event.clientY + at.top) ** 2;
      if (distance < far) [best, far] = [row, distance];
    }
    return best;
  };
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      <canvas
        ref={canvas}
        class="dots"
        style={{ width: `${width}px`, height: `${height}px` }}
        role="img"
        aria-label={text().dots}
        onPointerMove={(event) => {
          const row = nearest(event);
          if (row < 0) return untip();
          tip(event, <><b>{units.text(units.time(duration[row]))}</b> {Number.isNaN(step[row]) ? "" : `· ${text().step.toLowerCase()} ${step[row]}`} · {units.text(units.time(start[row]))}</>);
        }}
        onPointerLeave={untip}
        onClick={(event) => {
          const row = nearest(event);
          if (row < 0) return;
          untip();
          go(onTimeline(start[row], duration[row], span[row]));
        }}
      />
    </div>
  );
}

function Steps({ calls }: { calls: Table }) {
  const t = text();
  const [steps, sums] = useMemo(() => {
    const total = new Map<number, number>();
    const step = calls.num("step"), time = calls.num("dur_ns");
    for (let row = 0; row < calls.rows; row++) if (!Number.isNaN(step[row])) total.set(step[row], (total.get(step[row]) ?? 0) + time[row]);
    const order = [...total.keys()].sort((a, b) => a - b);
    return [order, order.map((one) => total.get(one)!)];
  }, [calls]);
  const lines = useMemo(() => [{ label: t.total, values: sums, color: "--text-2", area: true }], [sums]);
  if (steps.length < 2) return null;
  return (
    <section>
      <h3>{t.bySteps}<span class="sp" /><span class="d3 small">{t.stepsNote}</span></h3>
      <Series x={steps} lines={lines} as="time" xAs="count" height={84} label={t.perStep} />
    </section>
  );
}

function Slowest({ calls }: { calls: Table }) {
  const t = text();
  const time = calls.num("dur_ns"), start = calls.num("start_ns"), step = calls.num("step"), span = calls.num("span");
  const rows = useMemo(() => Array.from({ length: calls.rows }, (_, row) => row).sort((a, b) => time[b] - time[a] || a - b).slice(0, 5), [calls]);
  return (
    <table>
      <thead><tr><th>{t.step}</th><th>{t.at}</th><th>{t.duration}</th><th /></tr></thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row}>
            <td>{Number.isNaN(step[row]) ? <span class="d3">{t.noStep}</span> : step[row]}</td>
            <td><Time ns={start[row]} /></td>
            <td><Time ns={time[row]} /></td>
            <td><a href={link(onTimeline(start[row], time[row], span[row]))}>{t.timeline}</a></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Delay({ calls }: { calls: Table }) {
  const t = text();
  const sorted = calls.num("delay_ns").filter(Number.isFinite).sort();
  return (
    <section>
      <h3>{t.delay}<span class="sp" /><span class="d2 small"><Say of={t.delayNote} delay={<b><Time ns={quantile(sorted, 0.5)} /></b>} most={<b><Time ns={sorted[sorted.length - 1]} /></b>} /></span></h3>
      <Histogram values={sorted} label={t.delay} height={90} />
    </section>
  );
}

interface Part {
  key: string;
  note: string;
  calls: number;
  total: number;
}

function parts(table: Table, key: string, note?: string): Part[] {
  const found = new Map<string, Part>();
  const keys = table.str(key), notes = note ? table.str(note) : null, time = table.num("dur_ns");
  for (let row = 0; row < table.rows; row++) {
    if (keys[row] === null) continue;
    const name = `${keys[row]}\n${notes?.[row] ?? ""}`;
    let part = found.get(name);
    if (!part) found.set(name, (part = { key: keys[row]!, note: notes?.[row] ?? "", calls: 0, total: 0 }));
    part.calls += 1;
    part.total += time[row];
  }
  return [...found.values()].sort((a, b) => b.total - a.total);
}

function Shapes({ calls }: { calls: Table }) {
  const t = text();
  const found = useMemo(() => parts(calls, "shapes", "dtypes"), [calls]);
  return (
    <section>
      <h3>{t.shapes}{found.length > 1 && <span class="d3 small">{found.length}</span>}</h3>
      {found.length === 0 ? (
        <Empty title={t.shapeNone} height={64}><Say of={t.shapeFlag} flag={<span class="mono">--shapes</span>} /></Empty>
      ) : (
        <Parts found={found} show={(part) => <><span class="mono">{shapeText(part.key)}</span> <span class="d3">{typeText(part.note)}</span></>} title={(part) => `${part.key}\n${part.note}`} />
      )}
    </section>
  );
}

function Grouped({ table, by, title, one, many, page }: { table: Table; by: "kernel" | "name"; title: string; one: string; many: string; page: string }) {
  const found = useMemo(() => parts(table, by), [table, by]);
  if (!found.length) return null;
  const device = table.str("device")[0];
  const to = (part: Part): Change => (page === "kernels" ? { page, params: { sel: JSON.stringify([part.key]) } } : { page, params: { tab: device, view: "all", "all.find": part.key } });
  return (
    <section>
      <h3>{title}<span class="d3 small">{found.length === 1 ? one : fill(many, { count: found.length })}</span></h3>
      <Parts found={found} show={(part) => <><Swatch color={color(part.key, true)} /><a class="mono" href={link(to(part))}>{short(part.key)}</a></>} title={(part) => part.key} />
    </section>
  );
}

function Parts({ found, show, title }: { found: Part[]; show: (part: Part) => ComponentChildren; title: (part: Part) => string }) {
  const t = text();
  const [all, setAll] = useState(false);
  return (
    <>
      <ul class="parts">
        {(all ? found.slice(0, 200) : found.slice(0, 4)).map((part) => (
          <li key={`${part.key}\n${part.note}`} title={title(part)}>
            <span class="what">{show(part)}</span>
            <span class="d3 small nowrap"><Count of={part.calls} /> ×</span>
            <span class="r nowrap"><Time ns={part.total} /></span>
          </li>
        ))}
      </ul>
      {!all && found.length > 4 && <button class="aslink small" onClick={() => setAll(true)}>{fill(t.more, { count: found.length - 4 })}</button>}
    </>
  );
}

function Callers({ which }: { which: Which }) {
  const t = text();
  const recorded = (info.value?.kinds.python ?? 0) > 0;
  const { device, operator, type, kernel } = which;
  const asked = useTable("callers", { device, operator, type, kernel }, { skip: !recorded });
  return (
    <section>
      <h3>{t.from}</h3>
      {!recorded ? (
        <Empty title={t.noStack} height={72}><Say of={t.stackFlag} flag={<span class="mono">--stack</span>} /></Empty>
      ) : (
        <Await of={asked} rows={2}>
          {(data) => data.rows === 0 ? <Empty title={t.noCaller} height={56} /> : (
            <ul class="parts">
              {callSites(data).slice(0, 6).map((site) => (
                <li key={site.key} class="caller">
                  <details>
                    <summary title={site.leaf ? `${site.line}\n${site.leaf}` : site.line}><span class="mono cut">{site.line}</span>{site.leaf && <span class="mono cut d3">{site.leaf}</span>}{site.backward && <Chip>{t.backward}</Chip>}<span class="sp" /><Time ns={site.total} /></summary>
                    <pre class="code" aria-label={t.stack}>{site.stack}</pre>
                  </details>
                </li>
              ))}
            </ul>
          )}
        </Await>
      )}
    </section>
  );
}

interface CallSite {
  key: string;
  line: string;
  /** The innermost line, where it takes that to tell calls from one line apart. */
  leaf: string | null;
  backward: boolean;
  total: number;
  /** Of the calls that take longest. */
  stack: string;
}

/** The places that call, each once, the longest total first. */
function callSites(data: Table): CallSite[] {
  const [line, leaf, stack, total] = [data.str("line"), data.str("leaf"), data.str("stack"), data.num("total_ns")];
  const leaves = new Map<string, Set<string>>();
  for (let row = 0; row < data.rows; row++) leaves.set(line[row] ?? "", (leaves.get(line[row] ?? "") ?? new Set()).add(leaf[row] ?? ""));
  const found = new Map<string, CallSite>();
  for (let row = 0; row < data.rows; row++) {
    const own = line[row] ?? "";
    const inner = leaves.get(own)!.size > 1 && leaf[row] !== own ? leaf[row] : null;
    const backward = data.raw("backward", row) === "true";
    const key = `${own}\n${inner ?? ""}\n${backward}`;
    const site = found.get(key);
    if (site) site.total += total[row];
    else found.set(key, { key, line: own, leaf: inner, backward, total: total[row], stack: stack[row] ?? "" });
  }
  return [...found.values()].sort((a, b) => b.total - a.total);
}

/** [[8, 1024, 3072], []] is 8, 1024, 3072 and a scalar: [8, 1024, 3072] × scalar. */
export function shapeText(json: string): string {
  const inputs = parsed(json);
  if (!inputs) return json;
  const known = inputs.filter((one, at) => (Array.isArray(one) ? one.length > 0 : true) || at < 2);
  const words = known.map((one) => (Array.isArray(one) ? (one.length ? `[${one.map((part) => (Array.isArray(part) ? `[${part.join(", ")}]` : String(part))).join(", ")}]` : "scalar") : String(one)));
  const told: string[] = [];
  for (let at = 0; at < words.length; at++) {
    let times = 1;
    while (words[at + times] === words[at] && words[at] !== "scalar") times += 1;
    told.push(times > 1 ? `${words[at]} × ${times}` : words[at]);
    at += times - 1;
  }
  return told.join(" · ");
}

const SHORT: Record<string, string> = { float: "f32", double: "f64", "c10::BFloat16": "bf16", "c10::Half": "f16", "long int": "i64", long: "i64", int: "i32", bool: "bool", "unsigned char": "u8", "signed char": "i8", Scalar: "scalar", float32: "f32", float16: "f16", bfloat16: "bf16", float64: "f64", int32: "i32", int64: "i64" };

export function typeText(json: string): string {
  const types = parsed(json);
  if (!types) return json;
  return types.filter((one) => typeof one === "string" && one && one !== "Scalar" && one !== "ScalarList").map((one) => SHORT[String(one)] ?? String(one)).join(" × ");
}

function parsed(json: string): unknown[] | null {
  try {
    const found: unknown = JSON.parse(json);
    return Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

/** A kernel's name without what every kernel's has: namespaces and parameters. */
export function short(name: string): string {
  if (!/^void |::.*[<(]|\w\(.*\)$/.test(name)) return name;
  const bare = name.replace(/^void /, "").replace(/\(anonymous namespace\)::/g, "").replace(/\b(at|native|std|cuda|detail|c10|cub|internal)::/g, "");
  let depth = 0;
  for (let at = 0; at < bare.length; at++) {
    if (bare[at] === "<") depth += 1;
    else if (bare[at] === ">") depth -= 1;
    else if (bare[at] === "(" && depth === 0 && at > 0 && bare[at - 1] !== " ") return bare.slice(0, at);
  }
  return bare;
}
