/** Rows of the analyses `advice`, `waterfall` and `floors`, and their export. */
import { render, type Catalog, type Value, type Values } from "../messages";
import { exactJson } from "../source";
import type { Table } from "../table";
import * as units from "../units";

/** A place on the timeline: a span, or a range of time. Times are absolute ns, as text. */
export interface Spot {
  rank: number;
  step: number | null;
  span: number | null;
  start: string | null;
  end: string | null;
}

export interface Evidence {
  analysis: string;
  arguments: Record<string, string | number | boolean>;
  rows: Record<string, string | number | null>;
  figures: Record<string, number>;
}

export interface Advice {
  position: number;
  status: "finding" | "statement" | "healthy" | "not checked";
  rule: string;
  ranks: string | null;
  severity: "high" | "medium" | "low" | null;
  code: string;
  parameters: Values;
  culprit: string | null;
  source: string | null;
  evidence: Evidence | null;
  /** NaN: none. */
  gain: number;
  gainShare: number;
  /** The step that the gain refers to. */
  ofStep: "unprofiled" | "recorded" | "mean" | null;
  ofStepTime: number;
  later: number;
  after: string | null;
  device: number;
  step: number;
  limitedBy: string | null;
  next: string | null;
  confidence: string | null;
  fixCode: string | null;
  snippet: string | null;
  link: string | null;
  spots: Spot[];
  notChecked: string | null;
  coverage: string | null;
}

export function adviceRows(table: Table): Advice[] {
  const text = (name: string, row: number) => table.str(name)[row];
  const number = (name: string, row: number) => table.num(name)[row];
  return Array.from({ length: table.rows }, (_, row) => ({
    position: number("position", row),
    status: text("status", row) as Advice["status"],
    rule: text("rule", row) ?? "",
    ranks: text("ranks", row),
    severity: text("severity", row) as Advice["severity"],
    code: text("code", row) ?? "",
    parameters: JSON.parse(text("parameters", row) ?? "{}") as Values,
    culprit: text("culprit", row),
    source: text("source", row),
    evidence: parsed<Evidence>(text("evidence", row)),
    gain: number("gain_ns", row),
    gainShare: number("gain_share", row),
    ofStep: text("of_step", row) as Advice["ofStep"],
    ofStepTime: number("of_step_ns", row),
    later: number("later_ns", row),
    after: text("after", row),
    device: number("device_ns", row),
    step: number("step_ns", row),
    limitedBy: text("limited_by", row),
    next: text("next_bottleneck", row),
    confidence: text("confidence", row),
    fixCode: text("fix_code", row),
    snippet: text("snippet", row),
    link: text("link", row),
    spots: spots(text("spans", row)),
    notChecked: text("not_checked", row),
    coverage: text("coverage", row),
  }));
}

function parsed<Of>(json: string | null): Of | null {
  return json === null ? null : (JSON.parse(json) as Of);
}

function spots(json: string | null): Spot[] {
  if (json === null) return [];
  const rows = exactJson(json) as Record<string, number | string | null>[];
  return rows.map(({ rank, step, span, start_ns, end_ns }) => ({
    rank: Number(rank),
    step: step === null || step === undefined ? null : Number(step),
    span: span === null || span === undefined ? null : Number(span),
    start: start_ns === null || start_ns === undefined ? null : String(start_ns),
    end: end_ns === null || end_ns === undefined ? null : String(end_ns),
  }));
}

/** What a finding is known by when it is dismissed. */
export function identity(of: { rule: string; culprit: string | null; source: string | null }): string {
  return [of.rule, of.culprit ?? "", of.source ?? ""].join("\n");
}

/** The title in the language of a catalog; sentences that it does not know are those of the row's code. */
export function titleText(of: Advice, catalog: Catalog): string {
  return catalog[of.code] ? render(of.code, of.parameters, catalog) : of.code;
}

export function fixText(of: Advice, catalog: Catalog): string | null {
  return of.fixCode && catalog[of.fixCode] ? render(of.fixCode, of.parameters, catalog) : null;
}

/** Rules by what they need to be checked. */
export function byNeed(rows: Advice[]): [string, Advice[]][] {
  const found = new Map<string, Advice[]>();
  for (const row of rows) found.set(row.notChecked ?? "", [...(found.get(row.notChecked ?? "") ?? []), row]);
  return [...found].sort((a, b) => b[1].length - a[1].length);
}

export interface Fall {
  rule: string;
  culprit: string | null;
  before: number;
  after: number;
  gain: number;
  share: number;
  bottleneck: string | null;
  ofStep: string | null;
}

export function fallRows(table: Table): Fall[] {
  return Array.from({ length: table.rows }, (_, row) => ({
    rule: table.str("rule")[row] ?? "",
    culprit: table.str("culprit")[row],
    before: table.num("step_before_ns")[row],
    after: table.num("step_after_ns")[row],
    gain: table.num("gain_ns")[row],
    share: table.num("gain_share")[row],
    bottleneck: table.str("bottleneck")[row],
    ofStep: table.str("of_step")[row],
  }));
}

/** The share of the step that all fixes together save; gains that overlap count once. NaN without findings. */
export function recoverable(rows: Fall[]): { share: number; before: number; after: number } {
  if (!rows.length) return { share: NaN, before: NaN, after: NaN };
  const [before, after] = [rows[0].before, rows[rows.length - 1].after];
  return { share: before > 0 ? (before - after) / before : NaN, before, after };
}

interface Labels {
  ofUnprofiled: string;
  ofRecorded: string;
  ofMean: string;
  gain: string;
  after: string;
  fix: string;
  source: string;
  dismissed: string;
  notChecked: string;
}

/** "26 % of the unprofiled step of 20.1 ms", as a template of `strings`. */
export function ofStepTemplate(of: Advice, t: Pick<Labels, "ofUnprofiled" | "ofRecorded" | "ofMean">): string {
  return of.ofStep === "unprofiled" ? t.ofUnprofiled : of.ofStep === "mean" ? t.ofMean : t.ofRecorded;
}

function gainOf(of: Advice, t: Labels): string {
  const [share, step] = [units.text(units.share(of.gainShare)), units.text(units.time(of.ofStepTime))];
  return ofStepTemplate(of, t).replace("{share}", share).replace("{step}", step);
}

/** The findings as Markdown, for an issue or a merge request. */
export function markdown(
  run: string,
  rows: Advice[],
  reasons: Map<string, string>,
  catalog: Catalog,
  t: Labels,
): string {
  const plain = (text: string) => text.replaceAll(units.THIN, " ");
  const lines = [`# ${run}`, ""];
  const told = rows.filter((row) => row.status !== "not checked");
  for (const row of told) {
    const reason = reasons.get(identity(row));
    lines.push(`## ${titleText(row, catalog)}`, "");
    if (row.status === "finding") {
      const figures = Number.isNaN(row.later)
        ? `${units.text(units.time(row.gain))} (${gainOf(row, t)})`
        : `${units.text(units.time(row.later))} ${t.after}`;
      lines.push(`- ${t.gain}: ${plain(figures)}`);
    }
    if (row.source) lines.push(`- ${t.source}: \`${row.source}\``);
    const fix = fixText(row, catalog);
    if (fix) lines.push(`- ${t.fix}: ${fix}`);
    if (row.link) lines.push(`- ${row.link}`);
    if (reason !== undefined) lines.push(`- ${t.dismissed}: ${reason || "–"}`);
    if (row.snippet) lines.push("", "```", row.snippet, "```");
    lines.push("");
  }
  const open = rows.filter((row) => row.status === "not checked");
  if (open.length) lines.push(`## ${t.notChecked}`, "", ...open.map((row) => `- ${row.rule}: ${row.notChecked}`), "");
  return lines.join("\n");
}

/** The same as JSON: the columns of the analysis, with the reason of a dismissal. */
export function json(run: string, rows: Advice[], reasons: Map<string, string>, catalog: Catalog): string {
  const value = (of: Value | number | null) => (typeof of === "number" && Number.isNaN(of) ? null : of);
  return JSON.stringify(
    {
      run,
      advice: rows.map((row) => ({
        status: row.status,
        rule: row.rule,
        severity: row.severity,
        title: titleText(row, catalog),
        culprit: row.culprit,
        source: row.source,
        gain_ns: value(row.gain),
        gain_share: value(row.gainShare),
        of_step: row.ofStep,
        of_step_ns: value(row.ofStepTime),
        later_ns: value(row.later),
        after: row.after,
        next_bottleneck: row.next,
        confidence: row.confidence,
        fix: fixText(row, catalog),
        snippet: row.snippet,
        link: row.link,
        evidence: row.evidence,
        spans: row.spots,
        not_checked: row.notChecked,
        dismissed: reasons.get(identity(row)) ?? null,
      })),
    },
    null,
    1,
  );
}
