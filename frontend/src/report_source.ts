/** The source of a report: the tables inside the page, each gzipped, unpacked on first use. */
import { RequestError, type Info, type Params, type Run, type Source } from "./source";
import { Table } from "./table";
import { ReportSpans } from "./timeline/report_spans";
import type { Header } from "./timeline/wire";

interface Part {
  /** The element with the table; absent if the table was left out. */
  at?: number;
  rows: number;
  bytes: number;
}

interface Contents {
  info: Info;
  page?: string;
  /**
   * "operators?by_shape=1": a table by its query. Rank and steps are no part of it: every table has all ranks of the
   * report.
   */
  parts: Record<string, Part>;
  limit: number;
}

export class ReportSource implements Source {
  readonly isReport = true;
  private contents = JSON.parse(document.getElementById("contents")!.textContent!) as Contents;

  /** Where the report opens if its address names no page. */
  get start(): string {
    return `#/${encodeURIComponent(this.contents.info.id)}/${this.contents.page ?? "overview"}`;
  }

  async runs(): Promise<Run[]> {
    const { id, name, path, format } = this.contents.info;
    return [{ id, name, path, format, state: "finished", bytes: 0, modified_ns: 0 }];
  }

  async info(): Promise<Info> {
    return this.contents.info;
  }

  async table(_run: string, name: string, params: Params): Promise<Table> {
    const { rank, ...rest } = params;
    const key = question(name, rest);
    const part = this.contents.parts[key];
    if (!part && Object.keys(KEEPS).some((item) => rest[item] !== undefined && rest[item] !== null))
      return this.kept(name, params);
    if (!part)
      throw new RequestError(
        `This report does not carry ${key}: open the run itself with \`stepscope view\`.`,
        "usage",
        404,
      );
    if (part.at === undefined) {
      const size = (part.bytes / 1e6).toFixed(1);
      throw new RequestError(
        `${name} was left out (${part.rows} ${part.rows === 1 ? "row" : "rows"}, ${size} MB): make the report with a larger --max-size.`,
        "usage",
        413,
      );
    }
    const packed = document.getElementById(`part-${part.at}`)!.textContent!;
    const whole = Table.decode(await unpack(packed), BigInt(this.contents.info.origin_ns));
    if (rank === null || rank === undefined || rank === "" || !whole.has("rank") || this.contents.info.ranks.length < 2)
      return whole;
    const ranks = whole.num("rank");
    return whole.pick(whole.where((row) => ranks[row] === Number(rank)));
  }

  /** The rows with the value of a parameter, from the table without it. */
  private async kept(name: string, params: Params): Promise<Table> {
    const [one, column] = Object.entries(KEEPS).find(([key]) => params[key] !== undefined && params[key] !== null)!;
    const { [one]: wanted, ...rest } = params;
    const whole = await this.table("", name, rest);
    if (!whole.has(column))
      throw new RequestError(
        `This report does not carry ${question(name, params)}: open the run itself with \`stepscope view\`.`,
        "usage",
        404,
      );
    const values = whole.str(column);
    return whole.pick(whole.where((row) => values[row] === String(wanted)));
  }

  async query(): Promise<Table> {
    throw new RequestError(
      "A report cannot be asked in SQL: open the run itself with `stepscope view`, or ask `stepscope query`.",
      "usage",
      404,
    );
  }

  download(): null {
    return null;
  }

  /** Other data in the report is named like its request. */
  async raw(_run: string, path: string): Promise<Response> {
    const part = this.contents.parts[path.replace(/&v=[^&]*/, "")];
    if (part?.at === undefined && path.startsWith("timeline/") && !path.startsWith("timeline/tiles/")) {
      const result = (await (this.spans ??= this.carried())).answer(path);
      if (result !== null)
        return new Response(JSON.stringify(result), { headers: { "Content-Type": "application/json" } });
    }
    if (part?.at === undefined)
      throw new RequestError("This report does not carry it: open the run itself with `stepscope view`.", "usage", 404);
    return new Response(await unpack(document.getElementById(`part-${part.at}`)!.textContent!));
  }

  /** The spans of the timeline that fit into the report. */
  private spans: Promise<ReportSpans> | null = null;

  private async carried(): Promise<ReportSpans> {
    const header = (await (await this.raw("", "timeline")).json()) as Header;
    const tables: Table[] = [];
    for (let at = 0; this.contents.parts[`timeline/spans/${at}`]?.at !== undefined; at++)
      tables.push(Table.decode(await (await this.raw("", `timeline/spans/${at}`)).arrayBuffer(), 0n));
    const known = (name: string) => this.table("", name, {}).catch(() => null);
    return new ReportSpans(header, tables, await known("critical_path"), await known("gaps"));
  }

  /** The number of spans that can be searched and summed here. */
  async carriedSpans(): Promise<number> {
    return (await (this.spans ??= this.carried())).rows;
  }

  listen(): () => void {
    return () => undefined;
  }
}

/** Parameters that only select the rows with this value in a column. */
const KEEPS: Record<string, string> = {
  device: "device",
  operator: "name",
  type: "type",
  kernel: "kernel",
  topic: "topic",
};

/** Parameters that select rows and columns: a report has all of them. */
const WHOLE = ["steps", "columns", "sort", "descending", "offset", "limit"];

/** The same text as server/report.py makes for the same query. */
function question(name: string, params: Params): string {
  const pairs = Object.entries(params)
    .filter(([key, value]) => value !== null && value !== undefined && value !== "" && !WHOLE.includes(key))
    .map(([key, value]) => `${key}=${value === true ? "1" : value === false ? "0" : value}`)
    .sort();
  return pairs.length ? `${name}?${pairs.join("&")}` : name;
}

async function unpack(base64: string): Promise<ArrayBuffer> {
  const packed = Uint8Array.from(atob(base64.trim()), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
