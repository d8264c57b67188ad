/** The list of runs. */
import { deviceWord, onDevice } from "../device";
import { overheadTag } from "../overhead";
import { Chip, Spark } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Share, Time } from "../parts/quantity";
import { framework } from "../shell/framework";
import type { Info, Run } from "../source";
import { go, link, param } from "../state";
import { fill, strings, type Strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { type Row, tone } from "../verdict";
import { queueRun, type Figures, keyOf, figuresByRun, type RunState, figuresVersion, LARGE_BYTES } from "./figures";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

const text = strings("runs");

/** A row that is drawn is visible: its figures are fetched then. */
function FetchWhenVisible({ run }: { run: Run }) {
  useEffect(() => {
    if (run.state === "finished" && run.bytes <= LARGE_BYTES) queueRun(run);
  }, [keyOf(run)]);
  return null;
}

const PARTS = ["compute", "communication", "copy", "idle"] as const;

/** The table of the grid: the list, and figures of the runs that were read. */
export function runTable(list: Run[]): Table {
  const of = list.map((run) => {
    const match = figuresByRun.get(keyOf(run));
    return match && match !== "asked" && "info" in match ? match : null;
  });
  const figure = (name: string) =>
    of.map((item) => (item && item.overview.rows ? item.overview.num(name)[item.row] : NaN));
  return Table.of({
    at: list.map((_, at) => at),
    name: list.map((run) => run.name),
    path: list.map((run) => run.path),
    framework: list.map((run, at) => framework(of[at]?.info ?? { framework: run.framework ?? "" }) || null),
    device: list.map((run, at) => (of[at] ? chips(of[at]!.info) : (run.devices?.join(", ") ?? null)) || null),
    ranks: list.map((run, at) => of[at]?.info.ranks.length ?? run.ranks?.length ?? NaN),
    // All steps, including a slow first one and, in a large run, those that the figures do not cover.
    steps: figure("steps").map((counted, at) =>
      of[at]?.info.part ? Math.max(...of[at]!.info.steps) : counted + figure("left_out")[at],
    ),
    step_ns: figure("step_ns"),
    ...Object.fromEntries(PARTS.map((name) => [`${name}_share`, figure(`${name}_share`)])),
    verdict: of.map((item) => (item && mainVerdict(item)?.[0]) ?? null),
    state: list.map((run) => run.state),
    format: list.map((run) => run.format),
    bytes: list.map((run) => run.bytes || NaN),
    modified: list.map((run) => run.modified_ns || NaN),
  });
}

function chips(info: Info): string {
  const names = new Map<string, number>();
  const known = info.devices.flatMap((item) => (item.kind !== "cpu" && item.name ? [item.name] : []));
  for (const name of known) names.set(name, (names.get(name) ?? 0) + 1);
  const named = [...names].map(([name, count]) => (count > 1 ? `${count} × ${name}` : name)).join(", ");
  return named || deviceWord(info) || (onDevice(info) ? "" : "CPU");
}

export function List({ list, table, button }: { list: Run[]; table: Table; button: ComponentChildren }) {
  const t = text();
  const picked = (param("pick") ?? "").split(",").filter((id) => list.some((run) => run.id === id));
  const toggle = (id: string) => {
    const next = picked.includes(id) ? picked.filter((item) => item !== id) : [...picked, id].slice(-2);
    go({ params: { pick: next.join(",") } }, true);
  };
  const runOf = (of: Table, row: number) => list[of.num("at")[row]];
  const match = (of: Table, row: number) => figuresByRun.get(keyOf(runOf(of, row)));
  const whole = (of: Table, row: number) => {
    const item = match(of, row);
    return item && item !== "asked" && "info" in item ? item : null;
  };
  const columns: Column[] = [
    {
      key: "at",
      label: "",
      width: "32px",
      help: t.pick,
      show: (of, row) => {
        const run = runOf(of, row);
        return (
          run.state === "finished" && (
            <input
              type="checkbox"
              aria-label={fill(t.tick, { name: run.name })}
              checked={picked.includes(run.id)}
              onClick={(event) => event.stopPropagation()}
              onChange={() => toggle(run.id)}
            />
          )
        );
      },
    },
    {
      key: "name",
      label: t.name,
      as: "text",
      width: "minmax(150px, 2.4fr)",
      show: (of, row) => {
        const run = runOf(of, row);
        return (
          <span class="name" title={run.path}>
            <FetchWhenVisible run={run} />
            {run.state === "unreadable" ? (
              <span class="cut d2">{run.name}</span>
            ) : (
              <a
                class="cut"
                href={link({ run: run.id, page: run.state === "live" ? "live" : "overview" })}
                onClick={(event) => event.stopPropagation()}
              >
                {run.name}
              </a>
            )}
          </span>
        );
      },
    },
    { key: "framework", label: t.framework, as: "text", width: "minmax(96px, 1.1fr)" },
    { key: "device", label: t.device, as: "text", width: "minmax(90px, 1.2fr)" },
    { key: "ranks", label: t.ranks, width: "56px" },
    { key: "steps", label: t.steps, width: "60px" },
    {
      key: "step_ns",
      label: t.step,
      width: "minmax(124px, 1.3fr)",
      show: (of, row) => {
        const item = whole(of, row);
        if (!item) return pending(match(of, row));
        return (
          <span
            class="spark"
            title={
              item.info.ranks.length > 1
                ? fill(t.ofRanks, { rank: item.info.ranks[0], count: item.info.ranks.length })
                : undefined
            }
          >
            <Spark values={item.totals} width={48} />
            <Time ns={of.num("step_ns")[row]} figure="step_ns" />
          </span>
        );
      },
    },
    ...PARTS.map((name): Column => ({
      key: `${name}_share`,
      label: t[name],
      width: "64px",
      hide: name === "copy",
      help: t.device_,
      show: (of, row) =>
        whole(of, row) ? <Share of={of.num(`${name}_share`)[row]} figure={`${name}_share`} /> : pending(match(of, row)),
    })),
    {
      key: "verdict",
      label: t.verdict,
      as: "text",
      width: "minmax(150px, 2fr)",
      show: (of, row) => <VerdictLabel run={runOf(of, row)} of={match(of, row)} />,
    },
    {
      key: "state",
      label: t.state,
      as: "text",
      width: "88px",
      show: (of, row) => {
        const run = runOf(of, row);
        const failed = match(of, row);
        const error = run.error ?? (failed && failed !== "asked" && "error" in failed ? failed.error : undefined);
        if (error)
          return (
            <Chip tone="bad" title={error}>
              {t.stateUnreadable}
            </Chip>
          );
        const missing = run.problems?.map((item) => `${item.file.split("/").pop()}: ${item.what}`) ?? [];
        if (missing.length)
          return (
            <Chip tone="warn" title={missing.join("\n")}>
              {t.statePartial}
            </Chip>
          );
        return run.state === "live" ? (
          <Chip tone="good">{t.stateLive}</Chip>
        ) : (
          <span class="d2">{t.stateFinished}</span>
        );
      },
    },
    { key: "bytes", label: t.size, width: "76px" },
    {
      key: "modified",
      label: t.date,
      width: "128px",
      unfiltered: true,
      show: (of, row) => <span class="d2">{date(of.num("modified")[row])}</span>,
    },
    { key: "format", label: t.format, as: "text", width: "80px", hide: true },
    { key: "path", label: t.path, as: "text", width: "minmax(160px, 2fr)", hide: true },
  ];
  const both = picked.length === 2;
  const tools = (
    <>
      <a
        class={`btn sm ${both ? "pri" : ""}`}
        aria-disabled={!both}
        title={t.compareTwo}
        href={both ? link({ run: picked[0], page: "compare", params: { with: picked[1] } }) : undefined}
      >
        {t.compare}
        {!both && <span class="d3">{t.pickTwo}</span>}
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
        onOpen={(of, row) => {
          const run = runOf(of, row);
          if (run.state !== "unreadable") go({ run: run.id, page: run.state === "live" ? "live" : "overview" });
        }}
        tools={tools}
        height={list.length > 16 ? `min(calc(100vh - 188px), ${(list.length + 1) * 28 + 4}px)` : undefined}
        label={t.title}
      />
    </section>
  );
}

function pending(result: RunState | undefined) {
  return <span class="d3">{result === "asked" ? text().waiting : units.MISSING}</span>;
}

type Label = Extract<keyof Strings["runs"], `case_${string}`>;

/** The first conclusion of the overview that has a short label; profiling overhead only if there is no other. */
function mainVerdict(of: Figures): [label: Label, row: Row] | null {
  const t = text();
  const overhead = of.verdict.filter((row) => row.code.startsWith("recording-"));
  for (const row of [...of.verdict.filter((row) => !overhead.includes(row)), ...overhead]) {
    const label = `case_${row.code.replace(/^idle-cause/, "device-idle")}`;
    if (label in t) return [label as Label, row];
  }
  return null;
}

/** Figures of a conclusion that its label shows. */
const SHOWN = ["idle", "copy", "exposed", "wait", "compute"];

/** The verdict in a few words. */
function VerdictLabel({ run, of }: { run: Run; of: RunState | undefined }) {
  const t = text();
  if (run.error)
    return (
      <span class="why bad" title={run.error}>
        {run.error}
      </span>
    );
  if (run.state === "live") return <span class="d2">{t.recording}</span>;
  if (of === undefined && run.bytes > LARGE_BYTES)
    return (
      <button
        class="btn sm"
        title={fill(t.readHow, { size: units.text(units.bytes(run.bytes)) })}
        onClick={(event) => {
          event.stopPropagation();
          queueRun(run, true);
          figuresVersion.value += 1;
        }}
      >
        {t.read}
      </button>
    );
  if (of === undefined || of === "asked") return pending(of);
  if ("error" in of)
    return (
      <span class="why bad" title={of.error}>
        {of.error}
      </span>
    );
  const result = mainVerdict(of);
  if (!result) return pending(of);
  const [label, row] = result;
  const share = label === "case_host-compute" ? undefined : SHOWN.map((name) => row.values[name]).find(Number.isFinite);
  const whole = of.overview.rows > 0 && of.overview.str("steps_how")[of.row] === "whole";
  const tag = overheadTag(of.overview, of.row);
  return (
    <span class={`why ${tone(row) ?? "d2"}`} title={tag ?? undefined}>
      {t[label]}
      {share !== undefined && (
        <>
          {" "}
          <b>
            <Share of={Number(share)} />
          </b>
        </>
      )}
      {tag && /^case_device-(idle|busy)/.test(label) && <span class="d3"> · {tag}</span>}
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
