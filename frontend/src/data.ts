/** Hooks that fetch tables for pages. Results are cached, so that going back draws at once. */
import { useEffect, useState } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import type queries from "./queries.json";
import { source, type Info, type Params } from "./source";
import { param, place } from "./state";
import type { Table } from "./table";

export interface Fetched<Answer> {
  /** The result, or the previous one while a new one is loading (then `waiting` is true). */
  data: Answer | null;
  waiting: boolean;
  error: Error | null;
}

const MOST_RESULTS = 200;
const results = new Map<string, Promise<unknown>>();

const read = signal<Info | null>(null);

/** The open run. Null as soon as the address names another run. */
export const info = computed(() => (read.value?.id === place.value.run ? read.value : null));

/** The rank that the pages show: the one in the address if the run has it, else the first. */
export function rank(): number | null {
  const requested = param("rank");
  const ranks = info.value?.ranks ?? [];
  if (requested !== undefined && requested !== "all" && (ranks.length === 0 || ranks.includes(Number(requested))))
    return Number(requested);
  return ranks[0] ?? null;
}

/** How often the cached results of a run were dropped; "" is the list of runs. */
const dropCounts = signal<Record<string, number>>({});

/** Drop the cached results of a run: components that show them fetch again. */
export function dropResults(run: string): void {
  for (const key of results.keys()) if (key.startsWith(`${run}\n`)) results.delete(key);
  dropCounts.value = { ...dropCounts.value, [run]: (dropCounts.value[run] ?? 0) + 1 };
}

function cached<Answer>(key: string, question: () => Promise<Answer>): Promise<Answer> {
  const known = results.get(key) as Promise<Answer> | undefined;
  if (known) return known;
  const answer = question();
  results.set(key, answer);
  answer.catch(() => results.delete(key)); // so that it can be fetched again
  if (results.size > MOST_RESULTS) results.delete(results.keys().next().value!);
  return answer;
}

/** Fetch again when the key changes; a null key fetches nothing. */
export function useFetched<Answer>(key: string | null, question: () => Promise<Answer>): Fetched<Answer> {
  const [state, setState] = useState<Fetched<Answer> & { key: string | null }>({
    data: null,
    waiting: true,
    error: null,
    key: null,
  });
  const again = key === null ? 0 : dropCounts.value[key.split("\n", 1)[0]];
  useEffect(() => {
    if (key === null) return setState({ data: null, waiting: false, error: null, key });
    // An answer to an earlier request may come last: it is out of date.
    let newest = true;
    setState((old) => ({ ...old, waiting: true }));
    cached(key, question).then(
      (data) => newest && setState({ data, waiting: false, error: null, key }),
      (error: Error) => newest && setState({ data: null, waiting: false, error, key }),
    );
    return () => {
      newest = false;
    };
  }, [key, again]);
  return state.key === key ? state : { ...state, waiting: key !== null, error: null };
}

export interface Options {
  /** All ranks, not only the selected one. */
  allRanks?: boolean;
  /** All steps, whatever range is selected. */
  allSteps?: boolean;
  /** Do not fetch yet. */
  skip?: boolean;
}

/**
 * The steps that the pages show, as FIRST:LAST; undefined for all. A large run shows some unless the address names
 * others.
 */
export function shownSteps(): string | undefined {
  const requested = param("steps");
  return requested === "all" ? undefined : (requested ?? info.value?.part?.join(":"));
}

/** The value in the address that shows all steps. */
export function allStepsParam(): string | null {
  return info.value?.part ? "all" : null;
}

/** The parameters that the context bar adds to every request. */
export function context(options: Options = {}): Params {
  return { rank: options.allRanks ? null : rank(), steps: options.allSteps ? null : shownSteps() };
}

/**
 * Whether a slow first step counts: it does if the user selected a range of steps. For the analyses that exclude it.
 */
export function warmupParams(): Params {
  return { warmup: shownSteps() || param("warmup") === "keep" ? 0 : null };
}

/** The tables that pages fetch. queries.json declares them, with the parameters that a report contains. */
export type TableName = keyof typeof queries;

/** An analysis ("operators") or a raw table ("tables/steps") of the open run, for the selected rank and steps. */
export function useTable(name: TableName, params: Params = {}, options: Options = {}): Fetched<Table> {
  const run = place.value.run;
  const all = { ...context(options), ...params };
  const key = run === null || options.skip ? null : `${run}\n${name}\n${JSON.stringify(all)}`;
  return useFetched(key, () => source().table(run!, name, all));
}

/** The same as a promise: for rows that are fetched on demand. */
export function fetchTable(name: TableName, params: Params = {}, options: Options = {}): Promise<Table> {
  const run = place.value.run!;
  const all = { ...context(options), ...params };
  return cached(`${run}\n${name}\n${JSON.stringify(all)}`, () => source().table(run, name, all));
}

/**
 * SQL over the tables and analyses of the open run. The selected rank and steps do not apply: put them into the SQL.
 */
export function useQuery(sql: string | null): Fetched<Table> {
  const run = place.value.run;
  return useFetched(run === null || sql === null ? null : `${run}\nquery\n${sql}`, () => source().query(run!, sql!));
}

export function useInfo(run: string | null): Fetched<Info> {
  const fetched = useFetched(run === null ? null : `${run}\ninfo`, () => source().info(run!));
  useEffect(() => {
    read.value = fetched.data && fetched.data.id === run ? fetched.data : null;
  }, [fetched.data, run]);
  return fetched;
}
