/** Where tables come from: the server, or the report that contains them. */
import { request } from "./request";
import { Table } from "./table";

export { RequestError } from "./request";

export interface Run {
  id: string;
  name: string;
  path: string;
  format: string;
  state: "finished" | "live" | "unreadable";
  bytes: number;
  modified_ns: number;
  error?: string;
  /** Ranks of the run that cannot be read. */
  problems?: { rank: number | null; file: string; where: string; what: string; lost: number }[];
  /** Metadata of a recording, without opening it. */
  framework?: string;
  world_size?: number;
  ranks?: number[];
  devices?: string[];
}

export interface Device {
  rank: number;
  device: number | null;
  /** The chip is not always recorded. */
  name: string | null;
  kind: string;
  [more: string]: unknown;
}

export interface Problem {
  file: string;
  where: string;
  what: string;
}

export interface Info {
  id: string;
  name: string;
  path: string;
  format: string;
  state: Run["state"];
  framework: string;
  versions: Record<string, string>;
  world_size: number | null;
  ranks: number[];
  /** A summary of many ranks, without spans. */
  summary: boolean;
  options: Record<string, unknown>;
  extra: Record<string, unknown>;
  origin_ns: string;
  end_ns: string;
  tables: Record<string, number>;
  kinds: Record<string, number>;
  counters: Record<string, number>;
  devices: Device[];
  steps: number[];
  /** The first and last step that pages of a large run show by default. */
  part: [number, number] | null;
  problems: Problem[];
  problem_count: number;
}

export type Params = Record<string, string | number | boolean | null | undefined>;

export interface Source {
  /** The single-file report: it has only the tables that it contains. */
  readonly isReport: boolean;
  runs(): Promise<Run[]>;
  info(run: string): Promise<Info>;
  table(run: string, name: string, params: Params, signal?: AbortSignal): Promise<Table>;
  /** A table of the comparison of two sets of runs; times are relative to the first run. A report has no other runs. */
  compare?(baseline: string[], candidate: string[], name: string, params: Params): Promise<Table>;
  /** SQL over the tables and analyses; `part` restricts them to a rank and steps. */
  query(run: string, sql: string, part?: Params, signal?: AbortSignal): Promise<Table>;
  /** Download address of the table; null if there is none. */
  download(run: string, name: string, params: Params): string | null;
  /** Other data of a run: tracks and tiles of the timeline. */
  raw(run: string, path: string, signal?: AbortSignal): Promise<Response>;
  /** Of a report: the number of spans that it can search and sum. */
  carriedSpans?(): Promise<number>;
  /** Server-sent events; the returned function ends them. */
  listen(path: string, onEvent: (event: string, data: unknown) => void): () => void;
}

export class HttpSource implements Source {
  readonly isReport = false;
  private origins = new Map<string, bigint>();

  async runs(): Promise<Run[]> {
    const answer = await request("api/runs");
    return ((await answer.json()) as { runs: Run[] }).runs;
  }

  async info(run: string): Promise<Info> {
    const info = exactJson(await (await request(`api/runs/${encodeURIComponent(run)}`)).text()) as Info;
    this.origins.set(run, BigInt(info.origin_ns));
    return info;
  }

  async table(run: string, name: string, params: Params, signal?: AbortSignal): Promise<Table> {
    const answer = await request(this.address(run, name, params), { signal });
    const rows = answer.headers.get("X-Stepscope-Rows");
    return Table.decode(await answer.arrayBuffer(), await this.origin(run), rows === null ? undefined : Number(rows));
  }

  async compare(baseline: string[], candidate: string[], name: string, params: Params): Promise<Table> {
    const all = { baseline: baseline.join(), candidate: candidate.join(), ...params };
    const answer = await request(`api/compare/${name}?${queryText(all)}`);
    return Table.decode(await answer.arrayBuffer(), await this.origin(baseline[0]));
  }

  async query(run: string, sql: string, part: Params = {}, signal?: AbortSignal): Promise<Table> {
    const body = JSON.stringify({ sql, ...part });
    const headers = { "Content-Type": "application/json" };
    const answer = await request(`api/runs/${encodeURIComponent(run)}/query`, {
      method: "POST",
      body,
      headers,
      signal,
    });
    return Table.decode(await answer.arrayBuffer(), await this.origin(run));
  }

  download(run: string, name: string, params: Params): string {
    return this.address(run, name, { format: "csv", ...params });
  }

  raw(run: string, path: string, signal?: AbortSignal): Promise<Response> {
    return request(`api/runs/${encodeURIComponent(run)}/${path}`, { signal });
  }

  listen(path: string, onEvent: (event: string, data: unknown) => void): () => void {
    const stream = new EventSource(path);
    const pass = (event: MessageEvent<string>) => onEvent(event.type, JSON.parse(event.data));
    for (const name of ["runs", "state", "finished", "progress"]) stream.addEventListener(name, pass);
    return () => stream.close();
  }

  private async origin(run: string): Promise<bigint> {
    if (!this.origins.has(run)) await this.info(run);
    return this.origins.get(run)!;
  }

  /** "tables/spans" is a raw table, "operators" an analysis. */
  private address(run: string, name: string, params: Params): string {
    const path = name.startsWith("tables/") ? name : `analyses/${name}`;
    const text = queryText(params);
    return `api/runs/${encodeURIComponent(run)}/${path}${text ? `?${text}` : ""}`;
  }
}

/** The parameters of an address. */
function queryText(params: Params): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "")
      query.set(key, value === true ? "1" : value === false ? "0" : String(value));
  }
  return query.toString();
}

/** JSON whose integers beyond 2^53, such as times in ns, stay exact. */
export function exactJson(json: string): unknown {
  const keep = (_: string, value: unknown, written?: { source?: string }) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) ? (written?.source ?? value) : value;
  return JSON.parse(json, keep as (key: string, value: unknown) => unknown);
}

let current: Source = new HttpSource();

export function source(): Source {
  return current;
}

export function setSource(source: Source): void {
  current = source;
}
