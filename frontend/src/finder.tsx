/** The palette itself: everything that has a name, with its figure. */
import pages from "pages";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { color } from "./colors";
import { context, counting, info, rank, useAnswer, useTable } from "./data";
import { openHelp } from "./help";
import { copyText, Icon, Swatch } from "./parts/basics";
import { source, type Run } from "./source";
import { go, language, link, place, setLanguage, setTheme, theme } from "./state";
import type { Table } from "./table";
import { fill, texts } from "./text";
import * as units from "./units";

const text = texts({
  en: {
    find: "Find a page, step, operator, kernel, run or command", pages: "Pages", steps: "Steps", operators: "Operators", kernels: "Kernels", runs: "Runs", commands: "Commands",
    step: "Step {step}", none: "Nothing has this name", keys: "↑ ↓ choose · Enter goes · Ctrl Enter shows it on the timeline · Esc closes", more: "{count} more", dark: "Dark theme", light: "Light theme", other: "中文", otherNote: "language", copy: "Copy link to this view", help: "Keys and words", allRuns: "All runs", export: "Export as {format}", problems: "{count} problems",
    perStep: "per step", wait: "input wait", exposed: "exposed", peak: "peak", samples: "samples", loading: "Reading operators and kernels…",
  },
  zh: {
    find: "查找页面、迭代、算子、内核、训练或命令", pages: "页面", steps: "迭代", operators: "算子", kernels: "内核", runs: "训练", commands: "命令",
    step: "迭代 {step}", none: "没有这个名称", keys: "↑ ↓ 选择 · 回车前往 · Ctrl 回车在时间线上显示 · Esc 关闭", more: "另外 {count} 项", dark: "深色主题", light: "浅色主题", other: "English", otherNote: "语言", copy: "复制此视图的链接", help: "按键与术语", allRuns: "全部训练", export: "导出为 {format}", problems: "{count} 个问题",
    perStep: "每迭代", wait: "等待输入", exposed: "未隐藏", peak: "峰值", samples: "采样", loading: "正在读取算子和内核…",
  },
});

interface Item {
  group: "pages" | "steps" | "operators" | "kernels" | "runs" | "commands";
  key: string;
  name: string;
  figure: string;
  icon?: string;
  color?: string;
  code?: boolean;
  /** Also found by these words. */
  also?: string;
  act: () => void;
  /** Where it is on the timeline. */
  timeline?: () => Promise<{ t0: number; t1: number; span?: string } | null>;
}

const EXPORTS = { report: "HTML", chrome: "Chrome trace", perfetto: "Perfetto", speedscope: "speedscope", parquet: "Parquet", csv: "CSV" };
const SHOWN = 6;
const ORDER: Item["group"][] = ["pages", "steps", "operators", "kernels", "runs", "commands"];

export function Finder({ close }: { close: () => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const [at, setAt] = useState(0);
  const before = useRef(document.activeElement as HTMLElement | null);
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const open = place.value.run !== null && info.value !== null;
  const overview = useTable("overview", counting(), { skip: !open });
  const steps = useTable("step_trace", { columns: "step,start_ns,end_ns,total_ns" }, { skip: !open });
  const types = useTable("operator_types", {}, { skip: !open });
  const kernels = useTable("kernels", {}, { skip: !open });
  const runs = useAnswer<Run[]>("\nruns", () => source().runs());
  // At once: whoever types fast loses no letter.
  useLayoutEffect(() => {
    input.current?.focus();
    const outside = (event: Event) => !list.current?.contains(event.target as Node) && close();
    document.addEventListener("pointerdown", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      if (document.activeElement === document.body || list.current?.contains(document.activeElement)) before.current?.focus?.();
    };
  }, []);
  const items = useMemo(() => [...pageItems(overview.data, runs.data), ...stepItems(steps.data), ...typeItems(types.data), ...kernelItems(kernels.data), ...runItems(runs.data), ...commandItems()], [overview.data, steps.data, types.data, kernels.data, runs.data, language(), theme()]);
  const groups = useMemo(() => found(items, find), [items, find]);
  const flat = groups.flatMap((group) => group.items);
  const now = Math.min(at, flat.length - 1);
  useEffect(() => list.current?.querySelector(".on")?.scrollIntoView({ block: "nearest" }), [now, groups]);
  const take = async (item: Item, onTimeline: boolean) => {
    close();
    const where = onTimeline && item.timeline ? await item.timeline() : null;
    if (where) go({ page: "timeline", params: where });
    else item.act();
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by !== undefined) setAt(Math.abs(by) === 1 ? (now + by + flat.length) % Math.max(1, flat.length) : Math.max(0, Math.min(flat.length - 1, now + by)));
    else if (event.key === "Enter" && flat[now]) void take(flat[now], event.ctrlKey || event.metaKey);
    else if (event.key === "Escape") close();
    else if (event.key !== "Tab") return;
    event.preventDefault();
    event.stopPropagation();
  };
  let index = -1;
  return (
    <div class="palette" ref={list} role="dialog" aria-label={t.find} onKeyDown={keys}>
      <label class="palettefind">
        <Icon name="search" size={16} />
        <input
          ref={input} type="text" placeholder={t.find} value={find} spellcheck={false} role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label={t.find} aria-activedescendant={flat.length ? `palette-${now}` : undefined}
          onInput={(event) => { setFind(event.currentTarget.value); setAt(0); }}
        />
        <span class="kbd">Esc</span>
      </label>
      <div class="palettelist" id="palette-list" role="listbox" aria-label={t.find}>
        {groups.map((group) => (
          <div key={group.name} role="group" aria-label={t[group.name]}>
            <h3>{t[group.name]}{group.left > 0 && <span class="d3"> {fill(t.more, { count: units.count(group.left).value })}</span>}</h3>
            {group.items.map((item) => {
              index += 1;
              const mine = index;
              return (
                <div
                  key={item.key} id={`palette-${mine}`} role="option" aria-selected={mine === now} class={`found ${mine === now ? "on" : ""}`}
                  onPointerMove={() => mine !== now && setAt(mine)} onClick={(event) => void take(item, event.ctrlKey || event.metaKey)}
                >
                  {item.color ? <Swatch color={item.color} /> : <Icon name={item.icon ?? "right"} size={14} />}
                  <span class={`cut ${item.code ? "mono" : ""}`} title={item.name}>{item.name}</span>
                  <span class="sp" />
                  <span class="d3 nowrap">{item.figure}</span>
                </div>
              );
            })}
          </div>
        ))}
        {!flat.length && <p class="d2 nomatch">{open && types.waiting ? t.loading : t.none}</p>}
      </div>
      <p class="palettekeys d3">{t.keys}</p>
    </div>
  );
}

interface Group {
  name: Item["group"];
  items: Item[];
  left: number;
}

/** Per group the best; without a word, the first of each. */
function found(items: Item[], find: string): Group[] {
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  const scored = items.map((item) => ({ item, score: words.length ? score(item, words) : 1 })).filter((one) => one.score > 0);
  const groups = ORDER.map((name) => {
    const mine = scored.filter((one) => one.item.group === name).sort((a, b) => b.score - a.score);
    const limit = !words.length && name === "pages" ? 20 : SHOWN;
    return { name, items: mine.slice(0, limit).map((one) => one.item), left: Math.max(0, mine.length - limit), best: mine[0]?.score ?? 0 };
  }).filter((group) => group.items.length);
  // What fits best stands first, so that Enter takes it.
  return words.length ? groups.sort((a, b) => b.best - a.best || ORDER.indexOf(a.name) - ORDER.indexOf(b.name)) : groups;
}

/** Every word must be in it: as it stands, best as a whole part; else its letters in order. Of equals, what takes longest stands first. */
function score(item: Item, words: string[]): number {
  const name = `${item.name} ${item.also ?? ""}`.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const place = placeOf(name, word);
    if (place > 0) sum += name.length === word.length + 1 ? 12 : place;
    else {
      const gaps = letters(name, word);
      if (gaps < 0) return 0;
      sum += 2 / (1 + gaps);
    }
  }
  return sum;
}

const SEPARATORS = /[\s:_./<>(),]/;

/** 11 where the word is a whole part of the name, 8 where a part starts with it, 5 where it is inside of one, 0 where it is not there. */
function placeOf(name: string, word: string): number {
  let best = 0;
  for (let at = name.indexOf(word); at >= 0; at = name.indexOf(word, at + 1)) {
    const starts = at === 0 || SEPARATORS.test(name[at - 1]);
    const end = at + word.length;
    best = Math.max(best, !starts ? 5 : end === name.length || SEPARATORS.test(name[end]) ? 11 : 8);
  }
  return best;
}

/** How many letters lie between those of the word, found in order; -1 where they are not, or too far apart. */
function letters(name: string, word: string): number {
  let from = name.indexOf(word[0]);
  const begin = from;
  for (const letter of word) {
    from = name.indexOf(letter, from) + 1;
    if (!from) return -1;
  }
  const gaps = from - begin - word.length;
  return word.length < 3 || gaps > 2 * word.length + 4 ? -1 : gaps;
}

function pageItems(overview: Table | null, runs: Run[] | null): Item[] {
  const t = text();
  const now = place.value.run === null ? null : info.value;
  const value = (name: string) => (overview && overview.rows ? overview.num(name)[0] : NaN);
  const time = (ns: number) => (Number.isNaN(ns) ? "" : units.text(units.time(ns)));
  const count = (number: number | undefined) => (number ? units.count(number).value : "");
  const share = (part: number, what: string) => (Number.isNaN(part) ? "" : `${units.text(units.share(part))} ${what}`);
  const figures: Record<string, string> = now
    ? {
        overview: Number.isNaN(value("step_ns")) ? "" : `${time(value("step_ns"))} ${t.perStep}`, steps: count(now.tables.steps), operators: count(now.kinds.op), kernels: count(now.kinds.kernel), data: share(value("input_wait_share"), t.wait),
        communication: share(value("exposed_communication_share"), t.exposed), memory: Number.isNaN(value("peak_memory_bytes")) ? "" : `${units.text(units.bytes(value("peak_memory_bytes")))} ${t.peak}`, timeline: count(now.tables.spans),
        cpu: now.counters["run queue"] ? `${count(now.counters["run queue"])} ${t.samples}` : "", files: now.problem_count ? fill(t.problems, { count: now.problem_count }) : "",
      }
    : {};
  figures.runs = count(runs?.length);
  return pages
    .filter((page) => page.alone || now)
    .map((page) => ({ group: "pages", key: `page ${page.id}`, name: page[language()], also: `${page.en} ${page.zh} ${page.id}`, icon: page.icon, figure: figures[page.id] ?? "", act: () => (page.id === "runs" ? (location.hash = "#/") : go({ page: page.id })) }));
}

function stepItems(steps: Table | null): Item[] {
  if (!steps) return [];
  const t = text();
  const [step, from, to, total] = ["step", "start_ns", "end_ns", "total_ns"].map((name) => steps.num(name));
  return Array.from({ length: steps.rows }, (_, row) => ({
    group: "steps", key: `step ${row}`, name: fill(t.step, { step: step[row] }), also: `step ${step[row]}`, icon: "steps", figure: units.text(units.time(total[row])),
    act: () => go({ page: "steps", params: { sel: step[row] } }), timeline: async () => ({ t0: Math.round(from[row]), t1: Math.round(to[row]) }),
  }));
}

function typeItems(types: Table | null): Item[] {
  if (!types) return [];
  const [type, device, time] = [types.str("type"), types.str("device"), types.num("self_ns")];
  const first = device[0];
  return types.where((row) => type[row] !== null).sort((a, b) => time[b] - time[a]).map((row) => ({
    group: "operators", key: `type ${row}`, name: type[row]!, code: true, color: color(type[row]!), figure: `${units.text(units.time(time[row]))} · ${device[row]}`,
    act: () => go({ page: "operators", params: { sel: JSON.stringify([type[row]]), tab: device[row] === first ? null : device[row] } }), timeline: () => longest({ type: type[row]!, device: device[row] }),
  }));
}

function kernelItems(kernels: Table | null): Item[] {
  if (!kernels) return [];
  const [name, time] = [kernels.str("name"), kernels.num("total_ns")];
  // A kernel that several operators launch is one name here.
  const sums = new Map<string, number>();
  for (let row = 0; row < kernels.rows; row++) sums.set(name[row] ?? "", (sums.get(name[row] ?? "") ?? 0) + time[row]);
  return [...sums].sort((a, b) => b[1] - a[1]).map(([kernel, total]) => ({
    group: "kernels", key: `kernel ${kernel}`, name: kernel, code: true, color: color(kernel), figure: units.text(units.time(total)), act: () => go({ page: "kernels", params: { sel: JSON.stringify([kernel]) } }), timeline: () => longest({ kernel }),
  }));
}

/** The longest call, on the timeline. */
async function longest(which: Record<string, string | null>): Promise<{ t0: number; t1: number; span: string } | null> {
  const calls = await source().table(place.value.run!, "instances", { ...context(), ...which, sort: "dur_ns", descending: 1, limit: 1, columns: "span,start_ns,dur_ns" });
  if (!calls.rows) return null;
  const [from, length] = [calls.num("start_ns")[0], calls.num("dur_ns")[0]];
  return { t0: Math.round(from - length), t1: Math.round(from + 2 * length), span: calls.raw("span", 0) };
}

function runItems(runs: Run[] | null): Item[] {
  return (runs ?? []).map((run) => ({ group: "runs", key: `run ${run.id}`, name: run.name, also: run.path, icon: "runs", figure: `${run.format} · ${units.text(units.bytes(run.bytes))}`, act: () => go({ run: run.id }) }));
}

function commandItems(): Item[] {
  const t = text();
  const dark = theme() === "dark";
  const run = place.value.run;
  const command = (key: string, name: string, figure: string, icon: string, act: () => void, also = ""): Item => ({ group: "commands", key, name, figure, icon, act, also });
  const chosen = new URLSearchParams(Object.entries({ rank: rank(), steps: place.value.params.steps }).filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [name, String(value)]));
  return [
    command("theme", dark ? t.light : t.dark, "", dark ? "light" : "dark", () => setTheme(dark ? "light" : "dark"), "theme dark light 主题"),
    command("language", t.other, t.otherNote, "help", () => setLanguage(language() === "en" ? "zh" : "en"), "language english chinese 语言 中文"),
    command("copy", t.copy, "", "export", () => void copyText(location.href.split("#")[0] + link({})), "share url link"),
    command("help", t.help, "?", "help", openHelp, "help keys ?"),
    ...(run !== null && !source().still ? Object.entries(EXPORTS).map(([format, name]) => command(`export ${format}`, fill(t.export, { format: name }), "", "export", () => download(`api/runs/${encodeURIComponent(run)}/export/${format}?${chosen}`), "export download save")) : []),
  ];
}

function download(address: string): void {
  Object.assign(document.createElement("a"), { href: address, download: "" }).click();
}
