/** Pages, steps, operators, kernels, runs and commands to search. */
import { color } from "../colors";
import { context, info, rank } from "../data";
import { openHelp } from "../help";
import { copyText } from "../parts/basics";
import { type Run, source } from "../source";
import { go, language, link, place, setTheme, theme } from "../state";
import { fill, strings, switchLanguage } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import type { Item } from "./match";
import pages from "pages";

const text = strings("search");
const titles = strings("pages");

const EXPORTS = {
  report: "HTML",
  chrome: "Chrome trace",
  perfetto: "Perfetto",
  speedscope: "speedscope",
  parquet: "Parquet",
  csv: "CSV",
};

export function pageItems(overview: Table | null, runs: Run[] | null): Item[] {
  const t = text();
  const now = place.value.run === null ? null : info.value;
  const value = (name: string) => (overview && overview.rows ? overview.num(name)[0] : NaN);
  const time = (ns: number) => (Number.isNaN(ns) ? "" : units.text(units.time(ns)));
  const count = (number: number | undefined) => (number ? units.count(number).value : "");
  const share = (part: number, what: string) => (Number.isNaN(part) ? "" : `${units.text(units.share(part))} ${what}`);
  const figures: Record<string, string> = now
    ? {
        overview: Number.isNaN(value("step_ns")) ? "" : `${time(value("step_ns"))} ${t.perStep}`,
        steps: count(now.tables.steps),
        operators: count(now.kinds.op),
        kernels: count(now.kinds.kernel),
        data: share(value("input_wait_share"), t.wait),
        communication: share(value("exposed_communication_share"), t.exposed),
        memory: Number.isNaN(value("peak_memory_bytes"))
          ? ""
          : `${units.text(units.bytes(value("peak_memory_bytes")))} ${t.peak}`,
        timeline: count(now.tables.spans),
        cpu: now.counters["run queue"] ? `${count(now.counters["run queue"])} ${t.samples}` : "",
        files: now.problem_count ? fill(t.problems, { count: now.problem_count }) : "",
      }
    : {};
  figures.runs = count(runs?.length);
  return pages
    .filter((page) => page.alone || now)
    .map((page) => ({
      group: "pages",
      key: `page ${page.id}`,
      name: titles()[page.id],
      also: page.id,
      icon: page.icon,
      figure: figures[page.id] ?? "",
      act: () => (page.id === "runs" ? (location.hash = "#/") : go({ page: page.id })),
    }));
}

export function stepItems(steps: Table | null): Item[] {
  if (!steps) return [];
  const t = text();
  const [step, from, to, total] = ["step", "start_ns", "end_ns", "total_ns"].map((name) => steps.num(name));
  return Array.from({ length: steps.rows }, (_, row) => ({
    group: "steps",
    key: `step ${row}`,
    name: fill(t.step, { step: step[row] }),
    also: `step ${step[row]}`,
    icon: "steps",
    figure: units.text(units.time(total[row])),
    act: () => go({ page: "steps", params: { sel: step[row] } }),
    timeline: async () => ({ t0: Math.round(from[row]), t1: Math.round(to[row]) }),
  }));
}

export function typeItems(types: Table | null): Item[] {
  if (!types) return [];
  const [type, device, time] = [types.str("type"), types.str("device"), types.num("self_ns")];
  const first = device[0];
  return types
    .where((row) => type[row] !== null)
    .sort((a, b) => time[b] - time[a])
    .map((row) => ({
      group: "operators",
      key: `type ${row}`,
      name: type[row]!,
      code: true,
      color: color(type[row]!),
      figure: `${units.text(units.time(time[row]))} · ${device[row]}`,
      act: () =>
        go({
          page: "operators",
          params: { sel: JSON.stringify([type[row]]), tab: device[row] === first ? null : device[row] },
        }),
      timeline: () => longest({ type: type[row]!, device: device[row] }),
    }));
}

export function kernelItems(kernels: Table | null): Item[] {
  if (!kernels) return [];
  const [name, time] = [kernels.str("name"), kernels.num("total_ns")];
  // A kernel that several operators launch is one item.
  const sums = new Map<string, number>();
  for (let row = 0; row < kernels.rows; row++) sums.set(name[row] ?? "", (sums.get(name[row] ?? "") ?? 0) + time[row]);
  return [...sums]
    .sort((a, b) => b[1] - a[1])
    .map(([kernel, total]) => ({
      group: "kernels",
      key: `kernel ${kernel}`,
      name: kernel,
      code: true,
      color: color(kernel),
      figure: units.text(units.time(total)),
      act: () => go({ page: "kernels", params: { sel: JSON.stringify([kernel]) } }),
      timeline: () => longest({ kernel }),
    }));
}

/** The longest call, on the timeline. */
async function longest(which: Record<string, string | null>): Promise<{ t0: number; t1: number; span: string } | null> {
  const calls = await source().table(place.value.run!, "instances", {
    ...context(),
    ...which,
    sort: "dur_ns",
    descending: 1,
    limit: 1,
    columns: "span,start_ns,dur_ns",
  });
  if (!calls.rows) return null;
  const [from, length] = [calls.num("start_ns")[0], calls.num("dur_ns")[0]];
  return { t0: Math.round(from - length), t1: Math.round(from + 2 * length), span: calls.raw("span", 0) };
}

export function runItems(runs: Run[] | null): Item[] {
  return (runs ?? []).map((run) => ({
    group: "runs",
    key: `run ${run.id}`,
    name: run.name,
    also: run.path,
    icon: "runs",
    figure: `${run.format} · ${units.text(units.bytes(run.bytes))}`,
    act: () => go({ run: run.id }),
  }));
}

export function commandItems(): Item[] {
  const t = text();
  const dark = theme() === "dark";
  const run = place.value.run;
  const command = (key: string, name: string, figure: string, icon: string, act: () => void, also = ""): Item => ({
    group: "commands",
    key,
    name,
    figure,
    icon,
    act,
    also,
  });
  const chosen = new URLSearchParams(
    Object.entries({ rank: rank(), steps: place.value.params.steps })
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => [name, String(value)]),
  );
  return [
    command(
      "theme",
      dark ? t.light : t.dark,
      "",
      dark ? "light" : "dark",
      () => setTheme(dark ? "light" : "dark"),
      "theme dark light 主题",
    ),
    command(
      "language",
      t.other,
      t.otherNote,
      "help",
      () => void switchLanguage(language() === "en" ? "zh" : "en"),
      "language english chinese 语言 中文",
    ),
    command(
      "copy",
      t.copy,
      "",
      "export",
      () => void copyText(location.href.split("#")[0] + link({})),
      "share url link",
    ),
    command("help", t.help, "?", "help", openHelp, "help keys ?"),
    ...(run !== null && !source().isReport
      ? Object.entries(EXPORTS).map(([format, name]) =>
          command(
            `export ${format}`,
            fill(t.export, { format: name }),
            "",
            "export",
            () => download(`api/runs/${encodeURIComponent(run)}/export/${format}?${chosen}`),
            "export download save",
          ),
        )
      : []),
  ];
}

function download(address: string): void {
  Object.assign(document.createElement("a"), { href: address, download: "" }).click();
}
