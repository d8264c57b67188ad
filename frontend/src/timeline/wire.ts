/** Data of a timeline: its tracks, and their tiles. Times are ns since the origin of the run. */

export interface Group {
  id: number;
  rank: number;
  label: string;
  note: string;
  kind: "device" | "process" | "run";
  busy_share?: number | null;
  /** Ranges without complete device data. */
  unrecorded?: [number, number][];
}

export interface Lane {
  id: number;
  group: number;
  rank: number;
  kind: "steps" | "path" | "scope" | "overlap" | "spans" | "counter";
  track: number | null;
  label: string;
  note: string;
  /** Lines of the track: levels of scopes, depths of calls. */
  rows: number;
  events: number;
  /** Meaning of each row, if they differ: of the overlap. */
  row_labels?: string[];
  unit?: string | null;
  min?: number | null;
  max?: number | null;
}

export interface Header {
  end_ns: number;
  top_level: number;
  /** Buckets of a tile. */
  buckets: number;
  version: string;
  events: number;
  /** The range that is shown first. */
  opens: [number, number];
  kinds: string[];
  groups: Group[];
  lanes: Lane[];
  /** Of a report: tracks that its tiles contain together. */
  bundles?: number[][];
}

/** Whether a track combines all devices of a rank that each have a track. */
export function ofAll(header: Header, lane: Lane): boolean {
  const owner = header.groups.find((group) => group.id === lane.group);
  return (
    lane.kind === "overlap" &&
    owner?.kind === "run" &&
    header.groups.some((group) => group.kind === "device" && group.rank === owner.rank)
  );
}

/** One span. */
export interface Event {
  span: number;
  lane: number;
  row: number;
  start: number;
  dur: number;
  name: string;
  kind?: string;
}

/** Every name once, for all tiles, so that a name is a number. */
export class Names {
  readonly text: string[] = [];
  /** The operator type, if it says more. */
  readonly means: (string | null)[] = [];
  /** Further texts: its scope, if requested. */
  readonly more: (string | null)[] = [];
  private known = new Map<string, number>();

  code(name: string, means: string | null, more: string | null): number {
    const key = more === null ? name : `${name}\n${more}`;
    let code = this.known.get(key);
    if (code === undefined) {
      code = this.text.length;
      this.text.push(name);
      this.means.push(means);
      this.more.push(more);
      this.known.set(key, code);
    }
    return code;
  }
}

interface Said {
  level: number;
  index: number;
  names: string[];
  means?: (string | null)[];
  scopes?: (string | null)[];
  lanes: { id: number; rows?: [number, number][]; points?: number }[];
}

/**
 * Visible data of some tracks in one range at one zoom. The arrays are those of the response; nothing is created per
 * span.
 */
export class Tile {
  readonly from: number;
  readonly to: number;
  readonly bucket: number;
  readonly bytes: number;
  readonly longStart: Float64Array;
  readonly longDur: Float64Array;
  readonly longName: Uint32Array;
  readonly longSpan: Int32Array;
  readonly longKind: Uint8Array;
  readonly bucketX: Uint16Array;
  readonly bucketBusy: Uint8Array;
  readonly bucketCount: Uint32Array;
  readonly bucketName: Uint32Array;
  readonly bucketSpan: Int32Array;
  readonly bucketKind: Uint8Array;
  readonly pointAt: Float64Array;
  readonly pointLow: Float64Array;
  readonly pointHigh: Float64Array;
  /** Tints; created on first use, and again when colors change. */
  longTint: Uint32Array | null = null;
  bucketTint: Uint32Array | null = null;
  tinted = -1;
  /** Rows of all tracks, one after the other: row r has longs[r] to longs[r + 1], and so on. */
  readonly longs: Int32Array;
  readonly buckets: Int32Array;
  private readonly points = new Map<number, [number, number]>();
  private readonly first = new Map<number, number>();
  private readonly rows = new Map<number, number>();

  constructor(buffer: ArrayBuffer, names: Names, buckets: number) {
    const length = new DataView(buffer).getUint32(0, true);
    const text = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as Said;
    this.bucket = 2 ** text.level;
    this.from = text.index * buckets * this.bucket;
    this.to = this.from + buckets * this.bucket;
    const rows = text.lanes.reduce((sum, lane) => sum + (lane.rows?.length ?? 0), 0);
    this.longs = new Int32Array(rows + 1);
    this.buckets = new Int32Array(rows + 1);
    let row = 0;
    let points = 0;
    for (const lane of text.lanes) {
      this.first.set(lane.id, row);
      this.rows.set(lane.id, lane.rows?.length ?? 0);
      for (const [long, bucket] of lane.rows ?? []) {
        this.longs[row + 1] = this.longs[row] + long;
        this.buckets[row + 1] = this.buckets[row] + bucket;
        row += 1;
      }
      if (lane.points !== undefined) this.points.set(lane.id, [points, (points += lane.points)]);
    }
    const [long, bucket] = [this.longs[rows], this.buckets[rows]];
    let at = 4 + length;
    const take = <Kind extends ArrayBufferView>(
      make: { new (buffer: ArrayBuffer, at: number, count: number): Kind; BYTES_PER_ELEMENT: number },
      count: number,
    ): Kind => {
      const result = new make(buffer, at, count);
      at += Math.ceil((count * make.BYTES_PER_ELEMENT) / 8) * 8;
      return result;
    };
    this.longStart = take(Float64Array, long);
    this.longDur = take(Float64Array, long);
    this.pointAt = take(Float64Array, points);
    this.pointLow = take(Float64Array, points);
    this.pointHigh = take(Float64Array, points);
    this.longName = take(Uint32Array, long);
    this.longSpan = take(Int32Array, long);
    this.bucketCount = take(Uint32Array, bucket);
    this.bucketName = take(Uint32Array, bucket);
    this.bucketSpan = take(Int32Array, bucket);
    this.bucketX = take(Uint16Array, bucket);
    this.longKind = take(Uint8Array, long);
    this.bucketBusy = take(Uint8Array, bucket);
    this.bucketKind = take(Uint8Array, bucket);
    this.bytes = buffer.byteLength + 4 * (long + bucket) + 500;
    const codes = Uint32Array.from(text.names, (name, at) =>
      names.code(name, text.means?.[at] ?? null, text.scopes?.[at] ?? null),
    );
    for (let event = 0; event < long; event++) this.longName[event] = codes[this.longName[event]];
    for (let event = 0; event < bucket; event++) this.bucketName[event] = codes[this.bucketName[event]];
  }

  /** The row of a track among all rows of the tile; -1 if the tile does not contain it. */
  row(lane: number, row: number): number {
    const first = this.first.get(lane);
    return first === undefined || row >= this.rows.get(lane)! ? -1 : first + row;
  }

  pointsOf(lane: number): [number, number] | undefined {
    return this.points.get(lane);
  }

  /** The first long span of a row that ends after a timestamp. They are in order of start; few overlap. */
  longFrom(row: number, moment: number): number {
    let [low, high] = [this.longs[row], this.longs[row + 1]];
    const begin = low;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.longStart[middle] <= moment) low = middle + 1;
      else high = middle;
    }
    return Math.max(begin, low - 1);
  }

  bucketFrom(row: number, x: number): number {
    let [low, high] = [this.buckets[row], this.buckets[row + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.bucketX[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
