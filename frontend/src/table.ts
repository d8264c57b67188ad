/** A table as columns: Arrow, decoded without an object per row. */
import { tableFromIPC, type Column as Arrow } from "@uwdata/flechette";

/** Timestamps: shown relative to the start of the recording. */
const MOMENT = /(^|_)(start|end|at|alloc|peak)_ns$/;

/** A column, or a function that decodes it: most pages show a part of the table. */
type Values = ArrayLike<unknown> | (() => ArrayLike<unknown>);

export class Table {
  readonly names: string[];
  readonly rows: number;
  /** All rows, if only some were fetched. */
  readonly total: number;
  private numbers = new Map<string, Float64Array>();
  private words = new Map<string, (string | null)[]>();

  constructor(
    private columns: Map<string, Values>,
    rows: number,
    total?: number,
    private origin = 0n,
  ) {
    this.names = [...columns.keys()];
    this.rows = rows;
    this.total = total ?? rows;
  }

  static decode(buffer: ArrayBuffer, origin: bigint, total?: number): Table {
    const arrow = tableFromIPC(buffer, { useBigInt: true });
    const columns = new Map<string, Values>();
    arrow.names.forEach((name, at) =>
      columns.set(String(name), () => decodeColumn(arrow.getChildAt(at) as Arrow<unknown>)),
    );
    return new Table(columns, arrow.numRows, total, origin);
  }

  /** From plain arrays: numbers (NaN where missing) or text. */
  static of(columns: Record<string, ArrayLike<number> | (string | null)[]>): Table {
    const entries = Object.entries(columns);
    return new Table(new Map(entries), entries[0]?.[1].length ?? 0);
  }

  private column(name: string): ArrayLike<unknown> | undefined {
    const match = this.columns.get(name);
    if (typeof match !== "function") return match;
    const made = match();
    this.columns.set(name, made);
    return made;
  }

  has(name: string): boolean {
    return this.columns.has(name);
  }

  /** A column as numbers; NaN where missing. Timestamps are ns since the origin of the run. */
  num(name: string): Float64Array {
    const known = this.numbers.get(name);
    if (known) return known;
    const column = this.column(name);
    const origin = this.isMoment(name) ? this.origin : 0n;
    const values = new Float64Array(this.rows).fill(NaN);
    if (column instanceof BigInt64Array) subtractOrigin(column, origin, values);
    else if (column) {
      for (let row = 0; row < this.rows; row++) {
        const value = column[row];
        if (value === null || value === undefined) continue;
        values[row] = typeof value === "bigint" ? Number(value - origin) : Number(value);
      }
    }
    this.numbers.set(name, values);
    return values;
  }

  /** free_ns of a block is a timestamp; of a step it is a duration. */
  private isMoment(name: string): boolean {
    return MOMENT.test(name) || (name === "free_ns" && this.columns.has("alloc_ns"));
  }

  /** A column as text; null where missing. */
  str(name: string): (string | null)[] {
    const known = this.words.get(name);
    if (known) return known;
    const column = this.column(name);
    const values: (string | null)[] = new Array(this.rows).fill(null);
    if (column) {
      for (let row = 0; row < this.rows; row++) {
        const value = column[row];
        if (value !== null && value !== undefined) values[row] = String(value);
      }
    }
    this.words.set(name, values);
    return values;
  }

  /** Whether a column holds text (or nothing at all). */
  isText(name: string): boolean {
    const column = this.column(name);
    if (!column) return false;
    for (let row = 0; row < this.rows; row++) {
      const value = column[row];
      if (value !== null && value !== undefined) return typeof value === "string";
    }
    return false;
  }

  /** The exact value, for copying. */
  raw(name: string, row: number): string {
    const value = this.column(name)?.[row];
    return value === null || value === undefined ? "" : String(value);
  }

  /** Whether every row of a column is empty. */
  blank(name: string): boolean {
    const column = this.column(name);
    if (!column) return true;
    for (let row = 0; row < this.rows; row++) if (column[row] !== null && column[row] !== undefined) return false;
    return true;
  }

  /** Rows for which a test holds, in order. */
  where(test: (row: number) => boolean): number[] {
    const result: number[] = [];
    for (let row = 0; row < this.rows; row++) if (test(row)) result.push(row);
    return result;
  }

  /** Some rows as a table. */
  pick(rows: ArrayLike<number>): Table {
    const picked = new Map<string, Values>();
    for (const name of this.names) picked.set(name, () => pickValues(this.column(name)!, rows));
    return new Table(picked, rows.length, rows.length, this.origin);
  }

  /** The same rows with additional or replaced columns: numbers (NaN where missing) or text. */
  with(more: Record<string, ArrayLike<unknown>>): Table {
    const entries = this.names.map((name): [string, Values] => [name, () => this.column(name)!]);
    const made = new Table(new Map([...entries, ...Object.entries(more)]), this.rows, this.total, this.origin);
    made.numbers = new Map([...this.numbers].filter(([name]) => !(name in more)));
    made.words = new Map([...this.words].filter(([name]) => !(name in more)));
    return made;
  }

  csv(names = this.names, rows?: ArrayLike<number>): string {
    const quote = (plain: string) => {
      const text = spreadsheetText(plain);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const order = rows ?? Array.from({ length: this.rows }, (_, row) => row);
    const lines = Array.from(order, (row) => names.map((name) => quote(this.raw(name, row))).join(","));
    return [names.map(quote).join(","), ...lines].join("\n") + "\n";
  }
}

/** Text that no spreadsheet runs as a formula and no terminal obeys: as in model/output/tables.py. */
function spreadsheetText(text: string): string {
  const visible = text.replace(
    /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (item) => `\\u${item.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return /^[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]/.test(visible) &&
    !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(visible)
    ? `'${visible}`
    : visible;
}

function pickValues(column: ArrayLike<unknown>, rows: ArrayLike<number>): ArrayLike<unknown> {
  return column instanceof BigInt64Array
    ? BigInt64Array.from(rows as ArrayLike<bigint & number>, (row) => column[row])
    : Array.from(rows, (row) => column[row]);
}

const UTF8 = [5, 20];
const decoder = new TextDecoder();

/** The values of a column. ASCII text is sliced from the whole: decoding each value takes ten times as long. */
function decodeColumn(column: Arrow<unknown>): ArrayLike<unknown> {
  const [batch, more] = column.data as unknown as {
    length: number;
    values: Uint8Array;
    offsets: Int32Array | BigInt64Array;
    validity: Uint8Array;
    nullCount: number;
  }[];
  if (!batch?.length || more || !UTF8.includes(column.type.typeId)) return column.toArray() as ArrayLike<unknown>;
  const { length, offsets, validity, nullCount } = batch;
  const wide = offsets instanceof BigInt64Array;
  const ends = wide ? new Int32Array(offsets.buffer, offsets.byteOffset, offsets.length * 2) : offsets;
  const step = wide ? 2 : 1; // no table here has 2 GB of text
  const [first, last] = [ends[0], ends[length * step]];
  const whole = decoder.decode(batch.values.subarray(first, last));
  if (whole.length !== last - first) return column.toArray() as ArrayLike<unknown>;
  const result: (string | null)[] = new Array(length);
  for (let row = 0; row < length; row++)
    result[row] =
      nullCount && !(validity[row >> 3] & (1 << (row % 8)))
        ? null
        : whole.slice(ends[row * step] - first, ends[(row + 1) * step] - first);
  return result;
}

/** Minus the origin, as floats: by halves, since a bigint per value is much slower. Exact up to 2^53. */
function subtractOrigin(column: BigInt64Array, origin: bigint, into: Float64Array): void {
  const parts = new Int32Array(column.buffer, column.byteOffset, column.length * 2);
  const [low, high] = new Int32Array(BigInt64Array.of(origin).buffer);
  for (let row = 0; row < column.length; row++)
    into[row] = (parts[2 * row + 1] - high) * 4294967296 + ((parts[2 * row] >>> 0) - (low >>> 0));
}
