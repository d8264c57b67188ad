/** Everything around a page: the context bar (run, rank, steps), the menu, the drawer's place, search and help. */
import pages, { type Page } from "pages";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { everyStep, forget, info, rank, ranged, useAnswer, useInfo, useTable } from "./data";
import { copyText, Empty, Icon, Loading, Trouble } from "./parts/basics";
import { Menu } from "./parts/menu";
import { Tip } from "./parts/tip";
import { filled, NOT_IN_REPORT } from "./reachable";
import { source, type Info, type Run } from "./source";
import { type Change, go, language, link, listed, param, place, setLanguage, setTheme, theme } from "./state";
import { fill, texts } from "./text";
import * as units from "./units";
import { Palette, openPalette } from "./palette";
import { Help, openHelp } from "./help";

const text = texts({
  en: {
    performance: "Performance", resources: "Resources", cluster: "Cluster", tools: "Tools",
    none: "none", find: "Find operator, step, page", rank: "Rank", steps: "Steps", allSteps: "All steps", run: "Run", pages: "Pages",
    first: "First", last: "Last", apply: "Apply", theme: "Theme", language: "Language", help: "Help", export: "Export",
    problem: "1 problem while reading", problems: "{count} problems while reading", live: "live", offline: "offline", skip: "Skip to the page",
    opening: "Opening {run}…", noRun: "This run is not here any more.", noPage: "There is no page “{page}”.", back: "All runs", recordedSteps: "Show the recorded steps", all: "all",
    export_report: "Report (HTML)", export_chrome: "Chrome trace (JSON)", export_perfetto: "Perfetto trace", export_speedscope: "speedscope (flame graphs)", export_parquet: "Parquet tables", export_csv: "CSV tables",
    broke: "This page stopped working", again: "Try again", reading: "Reading {run}: {percent} of {size}", readingFile: "Reading {run}: file {file} of {files}, {percent}", cancel: "Cancel", cancelled: "Reading was stopped.",
    part: "{spans} spans: this page is of steps {steps}, the timeline of all.", everything: "All {spans} spans: one analysis after the other, each of which may take minutes and many GB of memory.", only: "Steps {steps} only", timeline: "Timeline",
    compare: "Compare", rankOf: "{rank} of {count}", step: "{step}", filter: "Filter", noStep: "No step has this number", version: "stepscope · offline",
    badRank: "This run has no rank {rank}: it has rank {ranks}.", showRank: "Show rank {rank}", badRange: "“{steps}” is not a range of steps: write 2:5 for steps 2 to 5.", badSteps: "This run has no steps {steps}: it has steps {there}.", badStepsNone: "This run has no steps {steps}: no steps were recorded.", showAll: "Show all steps",
  },
  zh: {
    performance: "性能", resources: "资源", cluster: "集群", tools: "工具",
    none: "无", find: "查找算子、迭代、页面", rank: "Rank", steps: "迭代", allSteps: "全部迭代", run: "训练", pages: "页面",
    first: "起始", last: "结束", apply: "应用", theme: "主题", language: "语言", help: "帮助", export: "导出",
    problem: "读取时发现 1 个问题", problems: "读取时发现 {count} 个问题", live: "进行中", offline: "离线", skip: "跳到页面内容",
    opening: "正在打开 {run}…", noRun: "此训练已不存在。", noPage: "没有页面“{page}”。", back: "全部训练", recordedSteps: "显示记录的迭代", all: "全部",
    export_report: "报告（HTML）", export_chrome: "Chrome trace（JSON）", export_perfetto: "Perfetto trace", export_speedscope: "speedscope（火焰图）", export_parquet: "Parquet 表", export_csv: "CSV 表",
    broke: "此页面已停止工作", again: "重试", reading: "正在读取 {run}：{size} 的 {percent}", readingFile: "正在读取 {run}：第 {file} 个文件，共 {files} 个，{percent}", cancel: "取消", cancelled: "读取已停止。",
    part: "共 {spans} 个区间：此页面只含迭代 {steps}，时间线包含全部。", everything: "全部 {spans} 个区间：逐个分析，每个可能需要数分钟和大量内存。", only: "仅迭代 {steps}", timeline: "时间线",
    compare: "对比", rankOf: "{count} 中的 {rank}", step: "{step}", filter: "筛选", noStep: "没有此编号的迭代", version: "stepscope · 离线",
    badRank: "此训练没有 rank {rank}：它有 rank {ranks}。", showRank: "显示 rank {rank}", badRange: "“{steps}”不是迭代范围：例如 2:5 表示迭代 2 到 5。", badSteps: "此训练没有迭代 {steps}：它有迭代 {there}。", badStepsNone: "此训练没有迭代 {steps}：没有记录任何迭代。", showAll: "显示全部迭代",
  },
});

const GROUPS = ["", "performance", "resources", "cluster", "tools"] as const;
/** What shows all of a large run, whatever steps are chosen. */
const WHOLE = ["timeline", "files", "live"];
const EXPORTS = ["report", "chrome", "perfetto", "speedscope", "parquet", "csv"] as const;

export function Shell() {
  const t = text();
  const { run, page } = place.value;
  const asked = useInfo(run);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if ((event.key === "k" || event.key === "K") && (event.ctrlKey || event.metaKey)) openPalette();
      else if (event.key === "c" && (event.ctrlKey || event.metaKey) && exactValue()) void copyText(exactValue()!);
      else if (typing(event)) return;
      else if (event.key === "/") openPalette();
      else if (event.key === "?") openHelp();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  const found = pages.find((one) => one.id === page);
  // The page's code comes while the run is being opened, not after.
  useEffect(() => void found?.load().catch(() => undefined), [found]);
  useEffect(() => {
    const title = found ? found[language()] : "";
    document.title = [title, info.value?.name, "stepscope"].filter(Boolean).join(" · ");
  }, [found, info.value, language()]);
  return (
    <div class="app">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>{t.skip}</a>
      <Top info={run === null ? null : info.value} />
      <Nav current={page} info={run === null ? null : info.value} />
      <div class="main">
        <main class="page" id="main" tabIndex={-1} key={`${run}/${page}`}>
          {!found ? (
            <p>{fill(t.noPage, { page })} <a href="#/">{t.back}</a></p>
          ) : found.alone || run === null ? (
            <Opened page={run === null && !found.alone ? pages.find((one) => one.id === "runs")! : found} />
          ) : asked.error ? (
            <><Trouble error={asked.error} /><p>{place.value.params.step_name && <><a href={link({ params: { step_name: null } })}>{t.recordedSteps}</a> · </>}<a href="#/">{t.back}</a></p></>
          ) : info.value === null ? (
            <Reading run={run} />
          ) : (
            <Context now={info.value} page={page}>{info.value.part && !WHOLE.includes(page) && <Part now={info.value} />}<Opened page={found} /></Context>
          )}
        </main>
        <div id="side" />
      </div>
      <Palette />
      <Help />
      <Tip />
    </div>
  );
}

/** The page, unless the address names a rank or steps that the run does not have: then what is there instead, with the way to it. */
function Context({ now, page, children }: { now: Info; page: string; children: ComponentChildren }) {
  const t = text();
  const [given, asked] = [param("rank"), param("steps")];
  const badRank = given !== undefined && given !== "all" && now.ranks.length > 0 && !now.ranks.includes(Number(given));
  const range = asked === undefined || asked === "all" ? null : stepRange(asked);
  const numbers = useStepNumbers(badRank);
  if (WHOLE.includes(page)) return <>{children}</>;
  const wrong = (said: string, change: Change, way: string) => <Empty title={said} height={160}><a href={link(change)}>{way}</a></Empty>;
  if (badRank) return wrong(fill(t.badRank, { rank: given, ranks: units.ranges(now.ranks) }), { params: { rank: null } }, fill(t.showRank, { rank: now.ranks[0] }));
  const all = { params: { steps: everyStep() } };
  if (asked !== undefined && range === undefined) return wrong(fill(t.badRange, { steps: asked }), all, t.showAll);
  if (!range) return <>{children}</>;
  if (numbers === null) return <Loading rows={10} />;
  if (numbers.some((step) => step >= range[0] && step <= range[1])) return <>{children}</>;
  return wrong(fill(numbers.length ? t.badSteps : t.badStepsNone, { steps: span(...range), there: units.ranges(numbers) }), all, t.showAll);
}

/** First and last step of "2:5" or "3"; undefined where the text is neither. */
function stepRange(asked: string): [number, number] | undefined {
  const found = /^(\d{1,9})(?::(\d{1,9}))?$/.exec(asked);
  const [first, last] = [Number(found?.[1]), Number(found?.[2] ?? found?.[1])];
  return first <= last ? [first, last] : undefined;
}

/** Of a large run: which steps the page is of, and the way to others. */
function Part({ now }: { now: Info }) {
  const t = text();
  const range = ranged();
  const spans = units.count(now.tables.spans).value;
  const usual = span(now.part![0], now.part![1]);
  const to = range ? everyStep() : null;
  return (
    <p class="reading" role="note">
      {range ? fill(t.part, { spans, steps: span(...(range.split(":").map(Number) as [number, number])) }) : fill(t.everything, { spans })}
      <button class="aslink" title={range ? fill(t.everything, { spans }) : undefined} onClick={() => go({ params: { steps: to } })}>{range ? t.allSteps : fill(t.only, { steps: usual })}</button>
      <a href={link({ page: "timeline" })}>{t.timeline}</a>
    </p>
  );
}

/** While a large run is read: how far it is, and a way to stop. */
function Reading({ run }: { run: string }) {
  const t = text();
  const [at, setAt] = useState<{ done: number; total: number; file: number; files: number } | null>(null);
  useEffect(() => {
    let close: () => void = () => undefined;
    // What opens at once needs no second request.
    const timer = setTimeout(() => {
      close = source().listen(`api/runs/${encodeURIComponent(run)}/progress`, (event, data) => (event === "progress" ? setAt(data as typeof at) : close()));
    }, 400);
    return () => {
      clearTimeout(timer);
      close();
    };
  }, [run]);
  const percent = at?.total ? units.text(units.share(at.done / at.total)) : "0 %";
  const said = at?.total ? fill(at.files > 1 ? t.readingFile : t.reading, { run, percent, size: units.text(units.bytes(at.total)), file: at.file + 1, files: at.files }) : fill(t.opening, { run });
  return (
    <div>
      {at && (
        <p class="reading" role="status">
          {said}
          <progress max={at.total || 1} value={at.done} aria-label={said} />
          <button class="btn sm" onClick={() => void fetch(`api/runs/${encodeURIComponent(run)}/cancel`, { method: "POST" })}>{t.cancel}</button>
        </p>
      )}
      <Loading what={said} rows={10} />
    </div>
  );
}

/** The number that the pointer is on, or that a focused link holds, as it is: what Ctrl C copies where no text is selected. */
function exactValue(): string | null {
  if (getSelection()?.toString()) return null;
  const shown = document.querySelector<HTMLElement>(".q:hover") ?? document.activeElement?.closest("a, button")?.querySelector<HTMLElement>(".q");
  const said = /^[−-]?[\d,.e+-]+/.exec(shown?.title ?? "")?.[0];
  return said ? said.replaceAll(",", "").replace("−", "-") : null;
}

function typing(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return event.ctrlKey || event.metaKey || event.altKey || target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

const loaded = new Map<string, ComponentType>();

function Opened({ page }: { page: Page }) {
  const [, again] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    if (loaded.has(page.id)) return;
    page.load().then((module) => { loaded.set(page.id, module.default); again((n) => n + 1); }, setError);
  }, [page.id]);
  const Body = loaded.get(page.id);
  if (error) return <Trouble error={error} />;
  return Body ? <Guard key={page.id}><Body /></Guard> : <Loading />;
}

/** A page that fails says so, and the rest of the window goes on. */
class Guard extends Component<{ children: ComponentChildren }, { error: Error | null }> {
  override state = { error: null as Error | null };

  override componentDidCatch(error: Error) {
    console.error(error);
    this.setState({ error });
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return <><Trouble error={`${text().broke}: ${this.state.error.message}`} /><p><button class="btn" onClick={() => this.setState({ error: null })}>{text().again}</button></p></>;
  }
}

function Top({ info: now }: { info: Info | null }) {
  const t = text();
  const dark = theme() === "dark";
  const facts = now && [framework(now), now.devices.find((device) => device.kind !== "cpu")?.name ?? now.devices[0]?.name].filter(Boolean).join(" · ");
  return (
    <header class="top">
      <a class="logo" href="#/" aria-label="stepscope">
        <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" fill="var(--accent)">
          <rect x="1" y="3" width="8" height="3.5" rx="1" /><rect x="5" y="8.25" width="10" height="3.5" rx="1" /><rect x="12" y="13.5" width="7" height="3.5" rx="1" />
        </svg>
        <b>stepscope</b>
      </a>
      {now && (
        <>
          <Menu label={`${t.run}: ${now.name}`} button={<><span class="b cut" title={`${now.name}\n${now.path}`}>{now.name}</span><span class="k wide">{facts}</span></>}>
            {(close) => <Runs close={close} />}
          </Menu>
          <Ranks now={now} />
          <Steps now={now} />
        </>
      )}
      <div class="sp" />
      {now && now.problem_count > 0 && <a class="chip warn" href={link({ page: "files" })}>{now.problem_count === 1 ? t.problem : fill(t.problems, { count: units.count(now.problem_count).value })}</a>}
      {now?.state === "live" && <a class="chip good" href={link({ page: "live" })}>{t.live}</a>}
      <button class="pick search" onClick={openPalette}>
        <Icon name="search" size={14} /><span class="cut">{t.find}</span><span class="sp" /><span class="kbd">/</span>
      </button>
      {now && !source().still && <a class="pick" href={link({ page: "compare" })} aria-label={t.compare} title={t.compare}><Icon name="compare" size={14} /><span class="wide">{t.compare}</span></a>}
      {now && !source().still && (
        <Menu label={t.export} arrow={false} align="right" button={<><Icon name="export" size={14} /><span class="wide">{t.export}</span></>}>
          {() => EXPORTS.map((format) => <a key={format} class="item" href={`api/runs/${encodeURIComponent(now.id)}/export/${format}`} download>{t[`export_${format}`]}</a>)}
        </Menu>
      )}
      <button class="pick bare" aria-label={t.theme} title={t.theme} onClick={() => setTheme(dark ? "light" : "dark")}><Icon name={dark ? "light" : "dark"} size={15} /></button>
      <button class="pick bare" aria-label={t.language} title={t.language} onClick={() => setLanguage(language() === "en" ? "zh" : "en")}>{language() === "en" ? "EN" : "中"}</button>
      <button class="pick bare" aria-label={t.help} title={`${t.help} (?)`} onClick={openHelp}><Icon name="help" size={15} /></button>
    </header>
  );
}

const FRAMEWORKS: Record<string, string> = { pytorch: "PyTorch", torch: "PyTorch", mindspore: "MindSpore", jax: "JAX", tensorflow: "TensorFlow", python: "Python", cann: "CANN" };

export function framework(now: { framework: string; versions?: Record<string, string> }): string {
  const name = FRAMEWORKS[now.framework] ?? now.framework;
  const version = now.versions?.[now.framework] ?? now.versions?.torch ?? now.versions?.pytorch;
  // What follows a plus is how it was built: 2.11.0+cu130.
  return version && now.framework ? `${name} ${version.split("+")[0]}` : name;
}

function Ranks({ now }: { now: Info }) {
  const t = text();
  if (now.ranks.length === 0) return null;
  if (now.ranks.length === 1) return <span class="pick still"><span class="k">{t.rank}</span>{now.ranks[0]}</span>;
  const said = fill(t.rankOf, { rank: rank() ?? "–", count: now.ranks.length });
  return (
    <Menu label={`${t.rank} ${said}`} button={<><span class="k">{t.rank}</span>{rank()}<span class="k wide">/ {now.ranks.length}</span></>}>
      {(close) => <RankList ranks={now.ranks} close={close} />}
    </Menu>
  );
}

/** Thousands of ranks are typed, not scrolled through. */
function RankList({ ranks, close }: { ranks: number[]; close: () => void }) {
  const [find, setFind] = useState("");
  const shown = ranks.filter((one) => String(one).includes(find.trim())).slice(0, 200);
  return (
    <>
      {ranks.length > 20 && <input class="menufind" type="search" aria-label={text().filter} placeholder={text().filter} value={find} onInput={(event) => setFind(event.currentTarget.value)} />}
      {shown.map((one) => <button key={one} class={`item ${one === rank() ? "on" : ""}`} onClick={() => { go({ params: { rank: one } }); close(); }}>{one}</button>)}
    </>
  );
}

/** The numbers of the steps of the chosen rank, in order; null until they are known. */
export function useStepNumbers(skip = false): number[] | null {
  const none = skip || !info.value?.tables.steps;
  const asked = useTable("tables/steps", { columns: "rank,step" }, { allSteps: true, skip: none });
  return useMemo(() => (none ? [] : asked.data ? [...new Set(asked.data.num("step"))].sort((a, b) => a - b) : null), [none, asked.data]);
}

function Steps({ now }: { now: Info }) {
  const t = text();
  const numbers = useStepNumbers();
  if (!now.tables.steps) return null;
  const all = numbers?.length ? span(numbers[0], numbers[numbers.length - 1]) : "…";
  const chosen = stepRange(ranged() ?? "");
  return (
    <Menu label={`${t.steps}: ${ranged() ?? t.all}`} class={chosen ? "chosen" : ""} button={<><span class="k">{t.steps}</span>{chosen ? span(...chosen) : all}</>}>
      {(close) => (numbers?.length ? <StepRange steps={numbers} close={close} /> : null)}
    </Menu>
  );
}

function span(first: number, last: number = first): string {
  return first === last ? String(first) : `${first}–${last}`;
}

function Runs({ close }: { close: () => void }) {
  const asked = useAnswer<Run[]>("\nruns", () => source().runs());
  return (
    <>
      {asked.data?.slice(0, 40).map((run) => (
        <a key={run.id} class={`item ${run.id === (place.value.run && listed(place.value.run)) ? "on" : ""}`} href={link({ run: run.id, page: place.value.page })} title={run.path} onClick={() => { forget(run.id); close(); }}>
          <span class="cut">{run.name}</span><span class="sp" />{run.state === "live" && <span class="chip good">{text().live}</span>}<span class="d3 small">{run.format}</span>
        </a>
      ))}
      <a class="item" href="#/" onClick={close}>{text().back}</a>
    </>
  );
}

function StepRange({ steps, close }: { steps: number[]; close: () => void }) {
  const t = text();
  const [first, last] = stepRange(ranged() ?? "") ?? [steps[0], steps[steps.length - 1]];
  const [wrong, setWrong] = useState(false);
  const apply = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const [low, high] = [Number(form.get("first")), Number(form.get("last"))].sort((a, b) => a - b);
    if (!steps.some((step) => step >= low && step <= high)) return setWrong(true);
    go({ params: { steps: low <= steps[0] && high >= steps[steps.length - 1] ? everyStep() : `${low}:${high}` } });
    close();
  };
  return (
    <form class="steprange" onSubmit={apply}>
      <label>{t.first} <input name="first" type="number" min={steps[0]} max={steps[steps.length - 1]} defaultValue={String(first)} /></label>
      <label>{t.last} <input name="last" type="number" min={steps[0]} max={steps[steps.length - 1]} defaultValue={String(last)} /></label>
      <button class="btn sm pri">{t.apply}</button>
      <button class="btn sm" type="button" onClick={() => { go({ params: { steps: everyStep() } }); close(); }}>{t.allSteps}</button>
      {wrong && <span class="bad small" role="alert">{t.noStep}</span>}
    </form>
  );
}

function Nav({ current, info: now }: { current: string; info: Info | null }) {
  const t = text();
  const own = useRef<HTMLElement>(null);
  // In a narrow window the menu is a strip, of which the page that is open should be in sight.
  useEffect(() => own.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [current, now === null]);
  return (
    <nav class="nav" ref={own} aria-label={t.pages}>
      {GROUPS.map((group) => {
        const inside = pages.filter((page) => page.group === group && (page.alone || now) && !(source().still && NOT_IN_REPORT.includes(page.id)));
        if (!inside.length) return null;
        return [
          group && <h3 key={group}>{t[group]}</h3>,
          ...inside.map((page) => {
            const off = !page.alone && now !== null && !filled(page, now);
            return (
              <a key={page.id} class={`${page.id === current ? "on" : ""} ${off ? "off" : ""}`} href={page.alone && page.id === "runs" ? "#/" : link({ page: page.id })} aria-current={page.id === current ? "page" : undefined} title={page[language()]}>
                <Icon name={page.icon} /><span class="label">{page[language()]}</span>
                {off && <span class="n">{t.none}</span>}
              </a>
            );
          }),
        ];
      })}
      <div class="sp" />
      <span class="foot label">{t.version}</span>
    </nav>
  );
}
