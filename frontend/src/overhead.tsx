/** What recording adds to a step and to its idle time: figures of `overview`, sentences of `verdict`. */
import { warmupParams } from "./data";
import type { Table } from "./table";
import { fill, strings } from "./strings";
import { Messages, useVerdict } from "./verdict";

const text = strings("overhead");

export interface Overhead {
  /** Most of the idle time is overhead. */
  most: boolean;
  bare: number;
  step: number;
  idle: number;
  left: number;
  /** The range of `left`, as unprofiled steps vary. */
  low: number;
  high: number;
}

/**
 * The step and its idle time, recorded and unprofiled; null unless recording adds idle time. `row` is of `overview`.
 */
export function overheadOf(overview: Table, row: number): Overhead | null {
  const verdict = verdictOf(overview, row);
  if (verdict !== "most of the idle time" && verdict !== "part of the idle time") return null;
  const value = (name: string) => overview.num(name)[row];
  return {
    most: verdict === "most of the idle time",
    bare: value("unprofiled_step_ns"),
    step: value("step_ns"),
    idle: 1 - value("busy_share"),
    left: value("idle_unprofiled_share"),
    low: value("idle_unprofiled_low_share"),
    high: value("idle_unprofiled_high_share"),
  };
}

function verdictOf(overview: Table, row: number): string | null {
  return row >= 0 && row < overview.rows ? (overview.str("overhead")[row] ?? null) : null;
}

/** +55 % */
function more(bare: number, step: number): string {
  const percent = Math.round((step / bare - 1) * 100);
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent)} %`;
}

function options(overview: Table, row: number): string {
  const t = text();
  const names = (overview.str("slowed_by")[row] ?? "").split(", ").map((item) => t[item as "stacks"] ?? item);
  return names.length > 1 ? names.slice(0, -1).join(t.comma) + t.and + names.at(-1) : names[0];
}

/** By how much recording lengthens steps; null unless it adds idle time. */
export function recordedTag(overview: Table, row: number): string | null {
  const over = overheadOf(overview, row);
  return over && fill(text().while, { more: more(over.bare, over.step) });
}

/** The step that a share of lost time refers to; null if recording adds nothing. */
export function overheadTag(overview: Table, row: number): string | null {
  const t = text();
  if (overheadOf(overview, row)) return t.unprofiled;
  return verdictOf(overview, row) === "likely" ? fill(t.besides, { options: options(overview, row) }) : null;
}

/** What recording adds to the step and to its idle time, for pages that show how long a device waits for its host. */
export function OverheadNote() {
  const rows = useVerdict("overview", warmupParams()).data?.filter((row) => NOTES.test(row.code));
  return rows?.length ? (
    <p class="d2 small overhead">
      <Messages of={rows} />
    </p>
  ) : null;
}

const NOTES = /^recording-(overhead-(most|part)|idle|slows-host|measure)$/;
