/** Hooks that bring tables to pages. What was asked once is kept, so that going back draws at once. */
import { useEffect, useRef, useState } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { source, type Info, type Params } from "./source";
import { param, place } from "./state";
import type { Table } from "./table";

export interface Asked<Answer> {
  /** The answer, or the one before it while a new one comes (then `waiting` is true too). */
  data: Answer | null;
  waiting: boolean;
  error: Error | null;
}

const KEPT = 200;
const kept = new Map<string, Promise<unknown>>();

const read = signal<Info | null>(null);

/** The run that is open; every page reads it. Null from the moment that the address names another one. */
export const info = computed(() => (read.value?.id === place.value.run ? read.value : null));

/** The rank the pages show: the one in the address where the run has it, else the first. */
export function rank(): number | null {
  const said = param("rank");
  const ranks = info.value?.ranks ?? [];
  if (said !== undefined && said !== "all" && (ranks.length === 0 || ranks.includes(Number(said)))) return Number(said);
  return ranks[0] ?? null;
}

/** How often what was known of a run was forgotten; "" stands for the list of runs. */
const forgotten = signal<Record<string, number>>({});

/** What is known of a run is not true any more: whoever shows it asks again. */
export function forget(run: string): void {
  for (const key of kept.keys()) if (key.startsWith(`${run}\n`)) kept.delete(key);
  forgotten.value = { ...forgotten.value, [run]: (forgotten.value[run] ?? 0) + 1 };
}

function once<Answer>(key: string, question: () => Promise<Answer>): Promise<Answer> {
  const known = kept.get(key) as Promise<Answer> | undefined;
  if (known) return known;
  const answer = question();
  kept.set(key, answer);
  answer.catch(() => kept.delete(key)); // so that it can be asked again
  if (kept.size > KEPT) kept.delete(kept.keys().next().value!);
  return answer;
}

/** Ask again whenever the key changes; a null key asks nothing. */
export function useAnswer<Answer>(key: string | null, question: () => Promise<Answer>): Asked<Answer> {
  const [state, setState] = useState<Asked<Answer> & { key: string | null }>({ data: null, waiting: true, error: null, key: null });
  const latest = useRef<string | null>(null);
  const again = key === null ? 0 : forgotten.value[key.split("\n", 1)[0]];
  useEffect(() => {
    latest.current = key;
    if (key === null) return setState({ data: null, waiting: false, error: null, key });
    setState((old) => ({ ...old, waiting: true }));
    once(key, question).then(
      (data) => latest.current === key && setState({ data, waiting: false, error: null, key }),
      (error: Error) => latest.current === key && setState({ data: null, waiting: false, error, key }),
    );
  }, [key, again]);
  return state.key === key ? state : { ...state, waiting: key !== null, error: null };
}

export interface Options {
  /** Every rank, not only the chosen one. */
  allRanks?: boolean;
  /** Every step, whatever range is chosen. */
  allSteps?: boolean;
  /** Do not ask yet. */
  skip?: boolean;
}

/** The steps that the pages show, as FIRST:LAST; undefined for all. Of a large run some, unless the address says otherwise. */
export function ranged(): string | undefined {
  const said = param("steps");
  return said === "all" ? undefined : (said ?? info.value?.part?.join(":"));
}

/** What the address says where all steps are shown. */
export function everyStep(): string | null {
  return info.value?.part ? "all" : null;
}

/** The parameters that the context bar adds to every question. */
export function context(options: Options = {}): Params {
  return { rank: options.allRanks ? null : rank(), steps: options.allSteps ? null : ranged() };
}

/** Whether a slow first step counts: whoever chose a range of steps chose its first one, too. For the analyses that leave it out. */
export function counting(): Params {
  return { warmup: ranged() || param("warmup") === "keep" ? 0 : null };
}

/** An analysis ("operators") or a raw table ("tables/spans") of the open run, for the chosen rank and steps. */
export function useTable(name: string, params: Params = {}, options: Options = {}): Asked<Table> {
  const run = place.value.run;
  const all = { ...context(options), ...params };
  const key = run === null || options.skip ? null : `${run}\n${name}\n${JSON.stringify(all)}`;
  return useAnswer(key, () => source().table(run!, name, all));
}

/** The same, asked once, for what is wanted only now: the rows below a row. */
export function fetchTable(name: string, params: Params = {}, options: Options = {}): Promise<Table> {
  const run = place.value.run!;
  const all = { ...context(options), ...params };
  return once(`${run}\n${name}\n${JSON.stringify(all)}`, () => source().table(run, name, all));
}

/** SQL over the tables and analyses of the open run. It does not know of the chosen rank and steps: say so in the SQL. */
export function useQuery(sql: string | null): Asked<Table> {
  const run = place.value.run;
  return useAnswer(run === null || sql === null ? null : `${run}\nquery\n${sql}`, () => source().query(run!, sql!));
}

export function useInfo(run: string | null): Asked<Info> {
  const asked = useAnswer(run === null ? null : `${run}\ninfo`, () => source().info(run!));
  useEffect(() => {
    read.value = asked.data && asked.data.id === run ? asked.data : null;
  }, [asked.data, run]);
  return asked;
}
