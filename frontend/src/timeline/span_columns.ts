/** The spans that a report contains, as columns. */
import type { Table } from "../table";
import type { Event, Header, Lane } from "./wire";

export class SpanColumns {
  /** Positions of the spans in order of their start. */
  protected order: Uint32Array;
  private texts = new Map<string, (string | null)[]>();
  private numbers = new Map<string, Float64Array>();
  private bySpan = new Map<string, number>();
  protected lanes: Lane[] = [];
  readonly rows: number;

  constructor(
    readonly header: Header,
    private tables: Table[],
  ) {
    this.rows = tables.reduce((sum, table) => sum + table.rows, 0);
    for (const lane of header.lanes) this.lanes[lane.id] = lane;
    const [rank, span, start] = ["rank", "span", "start"].map((name) => this.num(name));
    for (let at = 0; at < this.rows; at++) this.bySpan.set(`${rank[at]} ${span[at]}`, at);
    this.order = Uint32Array.from({ length: this.rows }, (_, at) => at).sort((a, b) => start[a] - start[b] || a - b);
  }

  protected num(name: string): Float64Array {
    let known = this.numbers.get(name);
    if (!known) {
      known = new Float64Array(this.rows);
      let at = 0;
      for (const table of this.tables) {
        known.set(table.num(name), at);
        at += table.rows;
      }
      this.numbers.set(name, known);
    }
    return known;
  }

  protected str(name: string): (string | null)[] {
    let known = this.texts.get(name);
    if (!known) this.texts.set(name, (known = this.tables.flatMap((table) => table.str(name))));
    return known;
  }

  protected event(at: number): Event & { rank: number } {
    const [rank, span, lane, row, start, dur] = ["rank", "span", "lane", "row", "start", "dur"].map(
      (name) => this.num(name)[at],
    );
    return {
      rank,
      span,
      lane,
      row,
      start,
      dur,
      name: this.str("name")[at] ?? "",
      kind: this.str("kind")[at] ?? "other",
    };
  }

  protected find(rank: number, span: number): number {
    return Number.isFinite(span) ? (this.bySpan.get(`${rank} ${span}`) ?? -1) : -1;
  }
}
