/** The source of a report: the tables that `stepscope report` put into the page, each gzipped, unpacked when first asked for. */
import { Refusal, type Info, type Params, type Run, type Source } from "./source";
import { Table } from "./table";
import { Carried } from "./timeline/carried";
import type { Header } from "./timeline/wire";

interface Part {
  /** The element that holds the table; absent where it was left out. */
  at?: number;
  rows: number;
  bytes: number;
}

interface Contents {
  info: Info;
  page?: string;
  /** "operators?by_shape=1": a table by its question. Rank and steps are never part of it: every rank of the report is in every table. */
  parts: Record<string, Part>;
  limit: number;
}

export class StillSource implements Source {
  readonly still = true;
  private contents = JSON.parse(document.getElementById("contents")!.textContent!) as Contents;

  /** Where the report opens when its address names no page. */
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
    if (!part && Object.keys(KEEPS).some((one) => rest[one] !== undefined && rest[one] !== null)) return this.kept(name, params);
    if (!part) throw new Refusal(`This report does not carry ${key}: open the run itself with \`stepscope view\`.`, "usage", 404);
    if (part.at === undefined) {
      const size = (part.bytes / 1e6).toFixed(1);
      throw new Refusal(`${name} was left out (${part.rows} ${part.rows === 1 ? "row" : "rows"}, ${size} MB): make the report with a larger --max-size.`, "usage", 413);
    }
    const packed = document.getElementById(`part-${part.at}`)!.textContent!;
    const whole = Table.decode(await unpack(packed), BigInt(this.contents.info.origin_ns));
    if (rank === null || rank === undefined || rank === "" || !whole.has("rank") || this.contents.info.ranks.length < 2) return whole;
    const ranks = whole.num("rank");
    return whole.pick(whole.where((row) => ranks[row] === Number(rank)));
  }

  /** The rows that a parameter would keep, out of the table without it. */
  private async kept(name: string, params: Params): Promise<Table> {
    const [one, column] = Object.entries(KEEPS).find(([key]) => params[key] !== undefined && params[key] !== null)!;
    const { [one]: wanted, ...rest } = params;
    const whole = await this.table("", name, rest);
    if (!whole.has(column)) throw new Refusal(`This report does not carry ${question(name, params)}: open the run itself with \`stepscope view\`.`, "usage", 404);
    const values = whole.str(column);
    return whole.pick(whole.where((row) => values[row] === String(wanted)));
  }

  async query(): Promise<Table> {
    throw new Refusal("A report cannot be asked in SQL: open the run itself with `stepscope view`, or ask `stepscope query`.", "usage", 404);
  }

  download(): null {
    return null;
  }

  /** What the report carries beside tables is named as it is asked for. */
  async raw(_run: string, path: string): Promise<Response> {
    const part = this.contents.parts[path.replace(/&v=[^&]*/, "")];
    if (part?.at === undefined && path.startsWith("timeline/") && !path.startsWith("timeline/tiles/")) {
      const found = (await (this.spans ??= this.carried())).answer(path);
      if (found !== null) return new Response(JSON.stringify(found), { headers: { "Content-Type": "application/json" } });
    }
    if (part?.at === undefined) throw new Refusal("This report does not carry it: open the run itself with `stepscope view`.", "usage", 404);
    return new Response(await unpack(document.getElementById(`part-${part.at}`)!.textContent!));
  }

  /** The spans of the timeline, as many as the report has room for. */
  private spans: Promise<Carried> | null = null;

  private async carried(): Promise<Carried> {
    const header = (await (await this.raw("", "timeline")).json()) as Header;
    const tables: Table[] = [];
    for (let at = 0; this.contents.parts[`timeline/spans/${at}`]?.at !== undefined; at++) tables.push(Table.decode(await (await this.raw("", `timeline/spans/${at}`)).arrayBuffer(), 0n));
    const known = (name: string) => this.table("", name, {}).catch(() => null);
    return new Carried(header, tables, await known("critical_path"), await known("gaps"));
  }

  /** How many spans of the timeline can be searched and summed up here. */
  async carriedSpans(): Promise<number> {
    return (await (this.spans ??= this.carried())).rows;
  }

  listen(): () => void {
    return () => undefined;
  }
}

/** Parameters that only keep the rows with this value in a column. */
const KEEPS: Record<string, string> = { device: "device", operator: "name", type: "type", kernel: "kernel" };

/** Which rows and columns of an answer to send: a report has them all. */
const WHOLE = ["steps", "columns", "sort", "descending", "offset", "limit"];

/** The same text as web/report.py makes for the same question. */
function question(name: string, params: Params): string {
  const given = Object.entries(params)
    .filter(([key, value]) => value !== null && value !== undefined && value !== "" && !WHOLE.includes(key))
    .map(([key, value]) => `${key}=${value === true ? "1" : value === false ? "0" : value}`)
    .sort();
  return given.length ? `${name}?${given.join("&")}` : name;
}

async function unpack(base64: string): Promise<ArrayBuffer> {
  const packed = Uint8Array.from(atob(base64.trim()), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
