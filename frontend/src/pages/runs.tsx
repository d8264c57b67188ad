// page: {"order": 0, "group": "", "icon": "runs", "en": "Runs", "zh": "训练列表", "alone": true}
import "./runs.css";
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { forget } from "../data";
import { deviceWord, finding, onDevice, type Case, type Finding } from "../finding";
import { overheadTag } from "../overhead";
import { Card, Chip, CopyButton, Loading, Share, Spark, Time, Trouble, Verdict } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { framework } from "../shell";
import { source, type Info, type Run } from "../source";
import { go, link, param } from "../state";
import { Table } from "../table";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    one: "{count} run is here.", some: "{count} runs are here.", live: "{count} of them is being recorded now.", lives: "{count} of them are being recorded now.", none: "No run is here yet.", losing: "{count} loses a fifth of its step time or more.", losings: "{count} lose a fifth of their step time or more.",
    fact_drop: "drop a trace file anywhere on this page to open it", fact_tick: "tick two runs to compare them", unreadable: "{count} cannot be read", lazy: "runs are read as they come into sight",
    ofSteps: "of steps {steps}", title: "Runs", runs: "run|runs", pick: "Compare", name: "Name", framework: "Framework", device: "Device", ranks: "Ranks", steps: "Steps", step: "Step time", trend: "Trend", compute: "Compute", communication: "Comm.", copy: "Copy", idle: "Idle", device_: "share of the device's time in steps", verdict: "Verdict", state: "State", size: "Size", date: "Changed", format: "Format", path: "Path",
    stateLive: "live", stateFinished: "finished", stateUnreadable: "unreadable", statePartial: "partial", openFile: "Open a file…", compare: "Compare", compareTwo: "Compare the two ticked runs", pickTwo: "tick two",
    case_launch: "waits for launches", case_input: "waits for input", case_communication: "exposed communication", case_sync: "synchronises", case_latency: "slow to start kernels", case_copying: "copies", case_idle: "idle", case_used: "well used", case_host: "CPU only", case_hostInput: "waits for input", case_hostCommunication: "exposed communication", case_unrecorded: "kernels not recorded", case_unknown: "no operators recorded", case_none: "no steps",
    read: "Read", readHow: "{size}: not read until asked for", waiting: "…", recording: "being recorded", wholeOne: "no step markers",
    dropHere: "Drop to open", dropHow: "Chrome JSON, XPlane, PyTorch traces, plain or gzip", uploading: "Sending {name}: {percent} of {size}", readingUpload: "Reading {name}…", cancel: "Cancel", refused: "{name}: {why}", folder: "A folder cannot be sent: pack it, or start stepscope view on it.",
    how1: "Record a training script that nobody edits:", how2: "or a few of its steps, with memory and shapes:", how3: "then look at what was recorded:", how4: "or drop a trace file on this page: Chrome JSON (PyTorch), XPlane (JAX, TensorFlow), plain or gzip.", recordTitle: "How to record",
    tick: "Tick {name} for comparison", ofRanks: "rank {rank}, the first of {count}", lost: "the server is gone; the list is as of then",
  },
  zh: {
    one: "这里有 {count} 个训练。", some: "这里有 {count} 个训练。", live: "其中 {count} 个正在记录。", lives: "其中 {count} 个正在记录。", none: "这里还没有训练。", losing: "{count} 个损失了五分之一以上的迭代时间。", losings: "{count} 个损失了五分之一以上的迭代时间。",
    fact_drop: "把 trace 文件拖到此页即可打开", fact_tick: "勾选两个训练进行对比", unreadable: "{count} 个无法读取", lazy: "训练滚动到可见时才读取",
    ofSteps: "迭代 {steps}", title: "训练列表", runs: "个训练", pick: "对比", name: "名称", framework: "框架", device: "设备", ranks: "Rank 数", steps: "迭代数", step: "迭代时间", trend: "走势", compute: "计算", communication: "通信", copy: "拷贝", idle: "空闲", device_: "占设备在迭代中的时间", verdict: "结论", state: "状态", size: "大小", date: "修改时间", format: "格式", path: "路径",
    stateLive: "进行中", stateFinished: "已结束", stateUnreadable: "无法读取", statePartial: "部分可读", openFile: "打开文件…", compare: "对比", compareTwo: "对比勾选的两个训练", pickTwo: "勾选两个",
    case_launch: "等待任务下发", case_input: "等待输入", case_communication: "未掩盖通信", case_sync: "同步等待", case_latency: "内核启动慢", case_copying: "拷贝", case_idle: "空闲", case_used: "利用充分", case_host: "仅 CPU", case_hostInput: "等待输入", case_hostCommunication: "未掩盖通信", case_unrecorded: "没有记录内核", case_unknown: "没有记录算子", case_none: "没有迭代",
    read: "读取", readHow: "{size}：需要时才读取", waiting: "…", recording: "正在记录", wholeOne: "没有迭代标记",
    dropHere: "松开以打开", dropHow: "Chrome JSON、XPlane、PyTorch trace，可为 gzip", uploading: "正在发送 {name}：{size} 的 {percent}", readingUpload: "正在读取 {name}…", cancel: "取消", refused: "{name}：{why}", folder: "不能发送文件夹：请打包，或对它运行 stepscope view。",
    how1: "记录一个无需修改的训练脚本：", how2: "或只记录若干迭代，含内存和形状：", how3: "然后查看记录：", how4: "或把 trace 文件拖到此页：Chrome JSON（PyTorch）、XPlane（JAX、TensorFlow），可为 gzip。", recordTitle: "如何记录",
    tick: "勾选 {name} 进行对比", ofRanks: "rank {rank}，{count} 个 rank 中的第一个", lost: "服务器已断开；列表为当时的状态",
  },
});

// ---- What is known of a run once it has been read. Kept as long as the files stay as they are.

interface Figures {
  info: Info;
  overview: Table;
  row: number; // of the rank that the pages show first
  totals: Float64Array;
  found: Finding;
}

type Known = Figures | { error: string } | "asked";

const known = new Map<string, Known>();
const news = signal(0);
const waiting: Run[] = [];
let busy = 0;

const AT_ONCE = 2;
/** Larger ones are read when someone asks: a list is no reason to read hundreds of gigabytes. */
const UNASKED = 1e9;

function keyOf(run: Run): string {
  return `${run.id} ${run.modified_ns}`;
}

function ask(run: Run, first = false): void {
  if (known.has(keyOf(run))) return;
  known.set(keyOf(run), "asked");
  if (first) waiting.unshift(run);
  else waiting.push(run);
  next();
}

function next(): void {
  while (busy < AT_ONCE && waiting.length) {
    const run = waiting.shift()!;
    busy += 1;
    figures(run)
      .then((found) => known.set(keyOf(run), found), (error: Error) => known.set(keyOf(run), { error: error.message }))
      .finally(() => {
        busy -= 1;
        news.value += 1;
        next();
      });
  }
}

async function figures(run: Run): Promise<Figures> {
  const info = await source().info(run.id);
  const part = { steps: info.part?.join(":"), rank: info.ranks[0] }; // what its pages show when it is opened
  const counting = { warmup: info.part ? 0 : null };
  const overview = await source().table(run.id, "overview", { ...part, ...counting });
  const row = 0;
  const [trace, causes] = await Promise.all([
    source().table(run.id, "step_trace", { ...part, columns: "rank,step,total_ns", limit: 2000 }),
    onDevice(info) ? source().table(run.id, "gap_causes", { ...part, ...counting }) : null,
  ]);
  return { info, overview, row, totals: trace.num("total_ns"), found: finding(overview, row, causes, onDevice(info)) };
}

/** A row that is drawn is in sight: its figures are asked for then. */
function Seen({ run }: { run: Run }) {
  useEffect(() => {
    if (run.state === "finished" && run.bytes <= UNASKED) ask(run);
  }, [keyOf(run)]);
  return null;
}

export default function Runs() {
  const t = text();
  const [list, setList] = useState<Run[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const load = () =>
    source().runs().then((runs) => {
      forget(""); // the menu of runs asks again
      setList(runs);
      setError(null);
    }, setError);
  useEffect(() => {
    void load();
    const close = source().listen("api/events", (event) => event === "runs" && void load());
    return () => {
      waiting.length = 0; // what was not begun is not read for a page that is gone
      for (const [key, value] of known) if (value === "asked") known.delete(key);
      close();
    };
  }, []);
  news.value; // drawn again as figures come
  const table = useMemo(() => (list ? rows(list) : null), [list, news.value]);
  if (!list || !table) return error ? <Trouble error={error} /> : <Loading rows={12} />;
  const live = list.filter((run) => run.state === "live").length;
  const read = list.map((run) => known.get(keyOf(run))).filter((one): one is Figures => one !== undefined && one !== "asked" && "info" in one);
  const losing = read.filter((one) => one.found.tone === "bad").length;
  const wrong = list.filter((run) => run.state === "unreadable").length;
  return (
    <div class="runs grid">
      <Verdict facts={[t.fact_drop, list.length > 1 && t.fact_tick, wrong > 0 && fill(t.unreadable, { count: wrong }), list.length > 30 && t.lazy]}>
        <Say of={list.length === 0 ? t.none : list.length === 1 ? t.one : t.some} count={<b>{units.count(list.length).value}</b>} />
        {live > 0 && <> <Say of={live === 1 ? t.live : t.lives} count={<b>{live}</b>} /></>}
        {losing > 0 && <> <Say of={losing === 1 ? t.losing : t.losings} count={<b>{losing}</b>} /></>}
      </Verdict>
      {error && <Trouble error={t.lost} />}
      <Upload>{(button) => (list.length ? <List list={list} table={table} button={button} /> : <HowToRecord button={button} />)}</Upload>
    </div>
  );
}

const PARTS = ["compute", "communication", "copy", "idle"] as const;

/** The grid's table: what the list says, and what is known of the runs that were read. */
function rows(list: Run[]): Table {
  const of = list.map((run) => {
    const found = known.get(keyOf(run));
    return found && found !== "asked" && "info" in found ? found : null;
  });
  const figure = (name: string) => of.map((one) => (one && one.overview.rows ? one.overview.num(name)[one.row] : NaN));
  return Table.of({
    at: list.map((_, at) => at),
    name: list.map((run) => run.name),
    path: list.map((run) => run.path),
    framework: list.map((run, at) => framework(of[at]?.info ?? { framework: run.framework ?? "" }) || null),
    device: list.map((run, at) => (of[at] ? chips(of[at]!.info) : (run.devices?.join(", ") ?? null)) || null),
    ranks: list.map((run, at) => of[at]?.info.ranks.length ?? run.ranks?.length ?? NaN),
    // All of them, also a slow first one that the figures leave out, and those of a large run that they are not of.
    steps: figure("steps").map((counted, at) => (of[at]?.info.part ? Math.max(...of[at]!.info.steps) : counted + figure("left_out")[at])),
    step_ns: figure("step_ns"),
    ...Object.fromEntries(PARTS.map((name) => [`${name}_share`, figure(`${name}_share`)])),
    verdict: of.map((one) => one?.found.case ?? null),
    state: list.map((run) => run.state),
    format: list.map((run) => run.format),
    bytes: list.map((run) => run.bytes || NaN),
    modified: list.map((run) => run.modified_ns || NaN),
  });
}

function chips(info: Info): string {
  const names = new Map<string, number>();
  const known = info.devices.flatMap((one) => (one.kind !== "cpu" && one.name ? [one.name] : []));
  for (const name of known) names.set(name, (names.get(name) ?? 0) + 1);
  const said = [...names].map(([name, count]) => (count > 1 ? `${count} × ${name}` : name)).join(", ");
  return said || deviceWord(info) || (onDevice(info) ? "" : "CPU");
}

function List({ list, table, button }: { list: Run[]; table: Table; button: ComponentChildren }) {
  const t = text();
  const picked = (param("pick") ?? "").split(",").filter((id) => list.some((run) => run.id === id));
  const toggle = (id: string) => {
    const next = picked.includes(id) ? picked.filter((one) => one !== id) : [...picked, id].slice(-2);
    go({ params: { pick: next.join(",") } }, true);
  };
  const runOf = (of: Table, row: number) => list[of.num("at")[row]];
  const found = (of: Table, row: number) => known.get(keyOf(runOf(of, row)));
  const whole = (of: Table, row: number) => {
    const one = found(of, row);
    return one && one !== "asked" && "info" in one ? one : null;
  };
  const columns: Column[] = [
    {
      key: "at", label: "", width: "32px", help: t.pick,
      show: (of, row) => {
        const run = runOf(of, row);
        return run.state === "finished" && <input type="checkbox" aria-label={fill(t.tick, { name: run.name })} checked={picked.includes(run.id)} onClick={(event) => event.stopPropagation()} onChange={() => toggle(run.id)} />;
      },
    },
    {
      key: "name", label: t.name, as: "text", width: "minmax(150px, 2.4fr)",
      show: (of, row) => {
        const run = runOf(of, row);
        return <span class="name" title={run.path}><Seen run={run} />{run.state === "unreadable" ? <span class="cut d2">{run.name}</span> : <a class="cut" href={link({ run: run.id, page: run.state === "live" ? "live" : "overview" })} onClick={(event) => event.stopPropagation()}>{run.name}</a>}</span>;
      },
    },
    { key: "framework", label: t.framework, as: "text", width: "minmax(96px, 1.1fr)" },
    { key: "device", label: t.device, as: "text", width: "minmax(90px, 1.2fr)" },
    { key: "ranks", label: t.ranks, width: "56px" },
    { key: "steps", label: t.steps, width: "60px" },
    {
      key: "step_ns", label: t.step, width: "minmax(124px, 1.3fr)",
      show: (of, row) => {
        const one = whole(of, row);
        if (!one) return pending(found(of, row));
        return (
          <span class="spark" title={one.info.ranks.length > 1 ? fill(t.ofRanks, { rank: one.info.ranks[0], count: one.info.ranks.length }) : undefined}>
            <Spark values={one.totals} width={48} />
            <Time ns={of.num("step_ns")[row]} />
          </span>
        );
      },
    },
    ...PARTS.map((name): Column => ({
      key: `${name}_share`, label: t[name], width: "64px", hide: name === "copy", help: t.device_,
      show: (of, row) => (whole(of, row) ? <Share of={of.num(`${name}_share`)[row]} /> : pending(found(of, row))),
    })),
    {
      key: "verdict", label: t.verdict, as: "text", width: "minmax(150px, 2fr)",
      show: (of, row) => <Said run={runOf(of, row)} of={found(of, row)} />,
    },
    {
      key: "state", label: t.state, as: "text", width: "88px",
      show: (of, row) => {
        const run = runOf(of, row);
        const failed = found(of, row);
        const error = run.error ?? (failed && failed !== "asked" && "error" in failed ? failed.error : undefined);
        if (error) return <Chip tone="bad" title={error}>{t.stateUnreadable}</Chip>;
        const missing = run.problems?.map((one) => `${one.file.split("/").pop()}: ${one.what}`) ?? [];
        if (missing.length) return <Chip tone="warn" title={missing.join("\n")}>{t.statePartial}</Chip>;
        return run.state === "live" ? <Chip tone="good">{t.stateLive}</Chip> : <span class="d2">{t.stateFinished}</span>;
      },
    },
    { key: "bytes", label: t.size, width: "76px" },
    { key: "modified", label: t.date, width: "128px", unfiltered: true, show: (of, row) => <span class="d2">{date(of.num("modified")[row])}</span> },
    { key: "format", label: t.format, as: "text", width: "80px", hide: true },
    { key: "path", label: t.path, as: "text", width: "minmax(160px, 2fr)", hide: true },
  ];
  const both = picked.length === 2;
  const tools = (
    <>
      <a class={`btn sm ${both ? "pri" : ""}`} aria-disabled={!both} title={t.compareTwo} href={both ? link({ run: picked[0], page: "compare", params: { with: picked[1] } }) : undefined}>
        {t.compare}{!both && <span class="d3">{t.pickTwo}</span>}
      </a>
      {button}
    </>
  );
  return (
    <section class="card">
      <Grid
        id="runs"
        table={table}
        columns={columns}
        what={t.runs}
        search={["name", "path", "framework", "device", "state", "format"]}
        sort="-modified"
        rowKey={(of, row) => runOf(of, row).id}
        onOpen={(of, row) => { const run = runOf(of, row); if (run.state !== "unreadable") go({ run: run.id, page: run.state === "live" ? "live" : "overview" }); }}
        tools={tools}
        height={list.length > 16 ? `min(calc(100vh - 188px), ${(list.length + 1) * 28 + 4}px)` : undefined}
        label={t.title}
      />
    </section>
  );
}

function pending(found: Known | undefined) {
  return <span class="d3">{found === "asked" ? text().waiting : units.MISSING}</span>;
}

/** Verdicts that a slower host makes worse. */
const WAITS: Case[] = ["launch", "sync", "latency", "idle", "used"];

/** The verdict in a few words. */
function Said({ run, of }: { run: Run; of: Known | undefined }) {
  const t = text();
  if (run.error) return <span class="why bad" title={run.error}>{run.error}</span>;
  if (run.state === "live") return <span class="d2">{t.recording}</span>;
  if (of === undefined && run.bytes > UNASKED)
    return <button class="btn sm" title={fill(t.readHow, { size: units.text(units.bytes(run.bytes)) })} onClick={(event) => { event.stopPropagation(); ask(run, true); news.value += 1; }}>{t.read}</button>;
  if (of === undefined || of === "asked") return pending(of);
  if ("error" in of) return <span class="why bad" title={of.error}>{of.error}</span>;
  const { found } = of;
  const plain: Case[] = ["unknown", "none", "host"];
  const whole = of.overview.rows > 0 && of.overview.str("steps_how")[of.row] === "whole";
  const tag = overheadTag(of.overview, of.row);
  return (
    <span class={`why ${found.tone ?? "d2"}`} title={tag ?? undefined}>
      {t[`case_${found.case}`]}
      {!plain.includes(found.case) && Number.isFinite(found.share) && <> <b><Share of={found.share} /></b></>}
      {tag && WAITS.includes(found.case) && <span class="d3"> · {tag}</span>}
      {whole && <span class="d3"> · {t.wholeOne}</span>}
      {of.info.part && <span class="d3"> · {fill(t.ofSteps, { steps: of.info.part.join("–") })}</span>}
    </span>
  );
}

function date(ns: number): string {
  if (!Number.isFinite(ns)) return units.MISSING;
  const at = new Date(ns / 1e6);
  const two = (number: number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

// ---- Files dropped on the page

interface Sending {
  name: string;
  size: number;
  sent: number;
  request: XMLHttpRequest;
}

/** Takes files dropped anywhere, or chosen with its button, which stands where the page wants it. */
function Upload({ children }: { children: (button: ComponentChildren) => ComponentChildren }) {
  const t = text();
  const [over, setOver] = useState(false);
  const [sending, setSending] = useState<Sending | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const depth = useRef(0);

  // Ranks of one job are dropped at once: they are sent one after another, and become a run when the last one has come.
  const send = ([file, ...others]: File[], together = Math.random().toString(36).slice(2)) => {
    if (!file) return;
    setRefused(null);
    // fetch does not tell how far a body is; this does.
    const request = new XMLHttpRequest();
    const state = { name: file.name, size: file.size, sent: 0, request };
    const fail = (why: string) => { setSending(null); setRefused(fill(t.refused, { name: file.name, why })); };
    request.upload.onprogress = (event) => setSending({ ...state, sent: event.loaded });
    request.onload = () => {
      let said: { id?: string; error?: string } = {};
      try {
        said = JSON.parse(request.responseText);
      } catch {
        /* an answer that is not ours: its status says enough */
      }
      if (request.status < 300 && others.length) send(others, together);
      else if (request.status < 300 && said.id) go({ run: said.id, page: "overview" });
      else fail(said.error ?? `${request.status} ${request.statusText}`);
    };
    request.onerror = () => fail(t.lost);
    request.onabort = () => setSending(null);
    request.open("POST", `api/uploads?name=${encodeURIComponent(file.name)}&together=${together}${others.length ? "&more=1" : ""}`);
    request.send(file);
    setSending(state);
  };

  useEffect(() => {
    const files = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const enter = (event: DragEvent) => { if (files(event)) { depth.current += 1; setOver(true); } };
    const leave = (event: DragEvent) => { if (files(event) && (depth.current -= 1) <= 0) { depth.current = 0; setOver(false); } };
    const move = (event: DragEvent) => { if (files(event)) event.preventDefault(); };
    const drop = (event: DragEvent) => {
      if (!files(event)) return;
      event.preventDefault();
      depth.current = 0;
      setOver(false);
      const item = event.dataTransfer!.items[0];
      if (item?.webkitGetAsEntry?.()?.isDirectory) setRefused(t.folder);
      else send([...event.dataTransfer!.files]);
    };
    window.addEventListener("dragenter", enter);
    window.addEventListener("dragleave", leave);
    window.addEventListener("dragover", move);
    window.addEventListener("drop", drop);
    return () => {
      window.removeEventListener("dragenter", enter);
      window.removeEventListener("dragleave", leave);
      window.removeEventListener("dragover", move);
      window.removeEventListener("drop", drop);
    };
  }, []);

  const done = sending !== null && sending.sent >= sending.size;
  return (
    <>
      {over && <div class="runs-drop" role="status"><b>{t.dropHere}</b><span class="d2">{t.dropHow}</span></div>}
      {refused && <Trouble error={refused} />}
      {sending && (
        <div class="runs-upload" role="status">
          <span>{done ? fill(t.readingUpload, { name: sending.name }) : fill(t.uploading, { name: sending.name, percent: units.text(units.share(sending.sent / (sending.size || 1))), size: units.text(units.bytes(sending.size)) })}</span>
          <progress max={sending.size || 1} value={done ? undefined : sending.sent} aria-label={sending.name} />
          <button class="btn sm" onClick={() => sending.request.abort()}>{t.cancel}</button>
        </div>
      )}
      {children(
        <label class="btn sm runs-open">
          {t.openFile}
          <input type="file" multiple disabled={sending !== null} onChange={(event) => { send([...event.currentTarget.files ?? []]); event.currentTarget.value = ""; }} />
        </label>,
      )}
    </>
  );
}

function HowToRecord({ button }: { button: ComponentChildren }) {
  const t = text();
  const line = (command: string) => <div class="codeline"><pre class="code">{command}</pre><CopyButton value={command} /></div>;
  return (
    <Card title={t.recordTitle} tools={button}>
      <div class="runs-how">
        <ol>
          <li>{t.how1}{line("stepscope run train.py")}</li>
          <li>{t.how2}{line("stepscope run --steps 10:20 --memory --shapes train.py")}</li>
          <li>{t.how3}{line("stepscope view data")}</li>
          <li>{t.how4}</li>
        </ol>
      </div>
    </Card>
  );
}
