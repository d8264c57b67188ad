/** What recording adds to a step and to its idle time, in words: the figures and the verdict are those of `overview`. */
import type { ComponentChildren } from "preact";
import { Share, Time } from "./parts/basics";
import type { Table } from "./table";
import { fill, Say, texts } from "./text";

const text = texts({
  en: {
    most: "{bare} per step unprofiled, {step} while recorded ({more}): idle time here is mostly profiling overhead.",
    part: "{bare} per step unprofiled, {step} while recorded ({more}): part of the idle time is profiling overhead.",
    left: "The {device} is idle {idle} while recorded, about {left} unprofiled.",
    slowed: "Recording {options} slows the host: without that the {device} may wait less.",
    how: "To find out, compare with a run recorded without, or record a few steps with {command}, which also times unprofiled steps.",
    steps: "{bare} unprofiled ({more} while recorded)", small: "{bare} unprofiled", unknown: "recording overhead not known", unprofiled: "unprofiled", while: "while recorded, {more}", besides: "{options} recorded",
    stacks: "stacks", shapes: "shapes", memory: "memory", comma: ", ", and: " and ",
  },
  zh: {
    most: "未记录时每个迭代 {bare}，记录时 {step}（{more}）：这里的空闲主要是记录开销。",
    part: "未记录时每个迭代 {bare}，记录时 {step}（{more}）：一部分空闲是记录开销。",
    left: "{device} 记录时空闲 {idle}，未记录时约 {left}。",
    slowed: "记录{options}会拖慢主机：不记录时 {device} 的等待可能更少。",
    how: "要弄清楚，请与不记录这些内容的训练对比，或用 {command} 只记录几个迭代，它还会给未记录的迭代计时。",
    steps: "未记录时 {bare}（记录时 {more}）", small: "未记录时 {bare}", unknown: "记录开销未知", unprofiled: "未记录时", while: "记录时，{more}", besides: "记录了{options}",
    stacks: "调用栈", shapes: "形状", memory: "内存", comma: "、", and: "和",
  },
});

export interface Overhead {
  /** The share of idle time that is left is less than half of the recorded one. */
  most: boolean;
  bare: number;
  step: number;
  idle: number;
  left: number;
}

/** Where idle time is plainly longer for being recorded: the step and its idle time with and without. `row` is of `overview`. */
export function overheadOf(overview: Table, row: number): Overhead | null {
  const verdict = verdictOf(overview, row);
  if (verdict !== "most of the idle time" && verdict !== "part of the idle time") return null;
  const value = (name: string) => overview.num(name)[row];
  return { most: verdict === "most of the idle time", bare: value("unprofiled_step_ns"), step: value("step_ns"), idle: 1 - value("busy_share"), left: value("idle_unprofiled_share") };
}

function verdictOf(overview: Table, row: number): string | null {
  return row >= 0 && row < overview.rows ? (overview.str("overhead")[row] ?? null) : null;
}

/** +55 % */
function more(bare: number, step: number): string {
  const percent = Math.round((step / bare - 1) * 100);
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent)} %`;
}

/** The step with and without recording, and what that means for its idle time. */
export function OverheadSentence({ of, device }: { of: Overhead; device: string }) {
  const t = text();
  return (
    <>
      <Say of={of.most ? t.most : t.part} bare={<b><Time ns={of.bare} /></b>} step={<b><Time ns={of.step} /></b>} more={<b>{more(of.bare, of.step)}</b>} />{" "}
      <Say of={t.left} device={device} idle={<b><Share of={of.idle} /></b>} left={<b><Share of={of.left} /></b>} />
    </>
  );
}

/** What was recorded that slows the host, where nobody knows by how much; null where nothing was, or it is known. */
export function SlowedSentence({ overview, row = 0, device }: { overview: Table; row?: number; device: string }) {
  const t = text();
  if (verdictOf(overview, row) !== "likely") return null;
  return <Say of={t.slowed} options={options(overview, row)} device={device} />;
}

function options(overview: Table, row: number): string {
  const t = text();
  const names = (overview.str("slowed_by")[row] ?? "").split(", ").map((one) => t[one as "stacks"] ?? one);
  return names.length > 1 ? names.slice(0, -1).join(t.comma) + t.and + names.at(-1) : names[0];
}

/** How much longer steps are for being recorded, where idle time is, too. */
export function recordedTag(overview: Table, row: number): string | null {
  const over = overheadOf(overview, row);
  return over && fill(text().while, { more: more(over.bare, over.step) });
}

/** In a few words, what a share of lost time is of; null where that goes without saying. */
export function overheadTag(overview: Table, row: number): string | null {
  const t = text();
  if (overheadOf(overview, row)) return t.unprofiled;
  return verdictOf(overview, row) === "likely" ? fill(t.besides, { options: options(overview, row) }) : null;
}

/** A paragraph for whatever states that a device waits for its host. */
export function OverheadNote({ overview, row = 0, device }: { overview: Table | null; row?: number; device: string }) {
  const t = text();
  if (!overview) return null;
  const over = overheadOf(overview, row);
  if (!over && verdictOf(overview, row) !== "likely") return null;
  return (
    <p class="d2 small overhead">
      {over ? <OverheadSentence of={over} device={device} /> : <><SlowedSentence overview={overview} row={row} device={device} /> <Say of={t.how} command={<code class="mono">stepscope run --steps 10:20</code>} /></>}
    </p>
  );
}

/** The unprofiled step beside the recorded one, where the sentence does not have it already. */
export function overheadFact(overview: Table, row: number, host: boolean): ComponentChildren {
  const t = text();
  const verdict = verdictOf(overview, row);
  const [bare, step] = [overview.num("unprofiled_step_ns")[row], overview.num("step_ns")[row]];
  if (verdict === "steps") return <Say of={t.steps} bare={<Time ns={bare} />} more={more(bare, step)} />;
  if (verdict === "small") return <Say of={t.small} bare={<Time ns={bare} />} />;
  return verdict === null && host ? t.unknown : null;
}
