/** Tiles on demand: visible ones first, then their neighbors; the least recently used are dropped. */
import { Names, Tile, type Header, type Lane } from "./wire";

const ROWS = 16;
const AT_ONCE = 4;
const MOST_BYTES = 96e6;

/** Tracks that are fetched together. They are always the same, and so is the address of a tile. */
export interface Bundle {
  id: number;
  lanes: string;
}

export type Ask = { (path: string, signal: AbortSignal): Promise<ArrayBuffer>; still: boolean };

export class Tiles {
  readonly names = new Names();
  /** The bundle of each track. */
  readonly bundles: Bundle[] = [];
  private of: Bundle[] = [];
  private kept = new Map<string, Tile>();
  private bytes = 0;
  private asked = new Map<string, AbortController>();
  private wanted = new Map<string, () => string>();
  private failed = new Map<string, number>();
  error: Error | null = null;
  /** What to fetch beside names: "scope", or nothing. */
  private by = "";

  constructor(
    readonly header: Header,
    /** Fetches a tile; `still`: a missing tile will never be available. */
    private ask: Ask,
    /** Called when a tile arrived. */
    private came: () => void,
  ) {
    for (const lanes of header.bundles ?? bundled(header.lanes)) {
      const bundle = { id: this.bundles.length, lanes: lanes.join(",") };
      this.bundles.push(bundle);
      for (const lane of lanes) this.of[lane] = bundle;
    }
  }

  bundle(lane: number): Bundle {
    return this.of[lane];
  }

  /** The last index at a level. */
  last(level: number): number {
    return Math.floor(Math.max(0, this.header.end_ns - 1) / this.span(level));
  }

  span(level: number): number {
    return this.header.buckets * 2 ** level;
  }

  private key(bundle: Bundle, level: number, index: number): string {
    return `${this.by}${bundle.id} ${level} ${index}`;
  }

  /** Names with or without scopes; older tiles are drawn until the new ones arrive. */
  beside(by: "" | "scope"): void {
    this.by = by;
  }

  /** Before a picture: nothing is wanted yet. */
  begin(): void {
    this.wanted.clear();
  }

  get(bundle: Bundle, level: number, index: number): Tile | undefined {
    const match = this.kept.get(this.key(bundle, level, index));
    return match ?? (this.by ? this.kept.get(`${bundle.id} ${level} ${index}`) : undefined);
  }

  /** The picture needs this tile. */
  want(bundle: Bundle, level: number, index: number): void {
    if (index < 0 || level < 0 || index > this.last(level)) return;
    const key = this.key(bundle, level, index);
    const known = this.kept.get(key);
    if (known) {
      // The most recently used are last.
      this.kept.delete(key);
      this.kept.set(key, known);
      return;
    }
    if (this.asked.has(key) || (this.failed.get(key) ?? 0) > 2) return void this.wanted.set(key, NOTHING);
    this.wanted.set(
      key,
      () =>
        `timeline/tiles/${level}/${index}?lanes=${bundle.lanes}${this.by && `&by=${this.by}`}&v=${encodeURIComponent(this.header.version)}`,
    );
  }

  get waiting(): boolean {
    return this.asked.size > 0;
  }

  /** After the picture: fetch missing tiles, cancel those that are not visible any more. */
  end(): void {
    if (this.wanted.size > this.asked.size)
      for (const [key, asked] of this.asked) if (!this.wanted.has(key)) asked.abort();
    for (const [key, path] of this.wanted) {
      if (this.asked.size >= AT_ONCE) break;
      if (path !== NOTHING) void this.fetch(key, path());
    }
  }

  private async fetch(key: string, path: string): Promise<void> {
    const abort = new AbortController();
    this.asked.set(key, abort);
    this.wanted.set(key, NOTHING);
    try {
      const buffer = await this.ask(path, abort.signal);
      const tile = new Tile(buffer, this.names, this.header.buckets);
      this.kept.set(key, tile);
      this.bytes += tile.bytes;
      this.drop();
      this.error = null;
    } catch (error) {
      if (!abort.signal.aborted) {
        this.failed.set(key, this.ask.still ? 3 : (this.failed.get(key) ?? 0) + 1);
        if (!this.ask.still) this.error = error as Error;
      }
    } finally {
      this.asked.delete(key);
      this.came();
    }
  }

  private drop(): void {
    const top = ` ${this.header.top_level} `;
    for (const [key, tile] of this.kept) {
      if (this.bytes <= MOST_BYTES) break;
      if (key.includes(top)) continue; // drawn until finer tiles arrive
      this.kept.delete(key);
      this.bytes -= tile.bytes;
    }
  }

  /** A coarser tile to draw until the right one arrives: the finest available. */
  coarser(bundle: Bundle, level: number, index: number): Tile | undefined {
    for (let up = level + 1; up <= this.header.top_level; up++) {
      index = Math.floor(index / 2);
      const match = this.get(bundle, up, index);
      if (match) return match;
    }
    return undefined;
  }

  close(): void {
    for (const requested of this.asked.values()) requested.abort();
    this.kept.clear();
    this.came = () => undefined;
  }
}

/** Tracks of one group, at most ROWS rows together. */
function bundled(lanes: Lane[]): number[][] {
  const bundles: number[][] = [];
  let [rows, group] = [ROWS, -1];
  for (const lane of lanes) {
    const high = Math.max(1, lane.rows);
    if (rows + high > ROWS || lane.group !== group) {
      bundles.push([]);
      rows = 0;
    }
    bundles[bundles.length - 1].push(lane.id);
    rows += high;
    group = lane.group;
  }
  return bundles;
}

const NOTHING = (): string => "";
