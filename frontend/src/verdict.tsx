/** Rows of the analysis `verdict`, as sentences. */
import type { ComponentChildren } from "preact";
import { type Fetched, type Options, useTable } from "./data";
import { Verdict } from "./parts/basics";
import { named } from "./parts/quantity";
import { messageParts, numberText, type Values } from "./messages";
import type { Params } from "./source";
import { messages } from "./strings";
import type { Table } from "./table";
import * as units from "./units";

export type Tone = "good" | "warn" | "bad" | undefined;

/** One conclusion. */
export interface Row {
  code: string;
  values: Values;
  severity: string | null;
  /** null: of all steps. */
  step: number | null;
  /** null: of all devices. */
  device: string | null;
}

const TONES: Record<string, Tone> = { info: "good", medium: "warn", high: "bad" };

/** The conclusions of one topic; the headline is the first. Without `allRanks`, those of the chosen rank. */
export function useVerdict(topic: string, params: Params = {}, options: Options = {}): Fetched<Row[]> {
  const fetched = useTable("verdict", { topic, ...params }, options);
  return { ...fetched, data: fetched.data && verdictRows(fetched.data) };
}

/** Rows of several ranks also have those of the whole run, without a rank: these come first. */
export function verdictRows(table: Table): Row[] {
  const [rank, step] = [table.num("rank"), table.num("step")];
  const rows = table.where((row) => Number.isNaN(rank[row]));
  return (rows.length ? rows : table.where(() => true)).map((row) => ({
    code: table.str("code")[row] ?? "",
    values: JSON.parse(table.str("parameters")[row] ?? "{}") as Values,
    severity: table.str("severity")[row],
    step: Number.isNaN(step[row]) ? null : step[row],
    device: table.str("device")[row],
  }));
}

export function tone(row: Row | undefined): Tone {
  return TONES[row?.severity ?? ""];
}

/** The note of a row of `communication-waits`: why waits are unknown, or how they are known. */
export function waitNote(row: Row | undefined): string | undefined {
  const note = row?.values.note;
  return note === undefined ? undefined : (messages()[`word:${String(note)}`] ?? String(note));
}

/** What tells sentences of one code apart: tests compare a sentence that several pages show. */
const IDENTITY = ["rank", "peer", "stage", "host", "operator", "kernel", "module", "queue", "device"];

function figureOf(of: Row, parameter: string): string {
  const identity = [of.device, of.step, ...IDENTITY.map((name) => of.values[name])].filter(
    (item) => item !== null && item !== undefined,
  );
  return [`${of.code}.${parameter}`, ...identity].join(" ");
}

/** The sentence of a row: its numbers and names in bold, with the exact value or the whole name on hover. */
export function Message({ of }: { of: Row }): ComponentChildren {
  return messageParts(of.code, of.values, messages()).map((part, at) => {
    if (typeof part === "string") return part;
    if ("name" in part)
      return (
        <b key={at} class="mono vname" title={part.whole}>
          {part.name}
        </b>
      );
    const exact = part.quantity === "change" ? undefined : units.exact(part.value, part.quantity);
    return (
      <b key={at}>
        <span class="q" title={exact} {...named(figureOf(of, part.parameter), part.value)}>
          {numberText(part)}
        </span>
      </b>
    );
  });
}

/** The headline of a page and the sentences after it. */
export function VerdictOf({ of, facts }: { of: Row[] | null; facts?: ComponentChildren[] }) {
  return (
    <Verdict facts={facts} more={of && of.length > 1 && <Messages of={of.slice(1)} />}>
      {of?.length ? <Message of={of[0]} /> : "…"}
    </Verdict>
  );
}

/** Sentences in a row. */
export function Messages({ of }: { of: Row[] }) {
  return (
    <>
      {of.map((row, at) => (
        <span key={row.code}>
          {at > 0 && messages()["word:between sentences"]}
          <Message of={row} />
        </span>
      ))}
    </>
  );
}
