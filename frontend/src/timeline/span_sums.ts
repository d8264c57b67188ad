/** Sums over a range, from the spans that a report contains. */
import { SpanColumns } from "./span_columns";
import type { Header, Lane } from "./wire";

const FLAT = new Set(["kernel", "copy", "set"]);
/** Ranges and instants mark positions, not work. */
const NO_WORK = new Set(["step", "scope", "annotation", "instant"]);

export class SpanSums extends SpanColumns {
  protected area(words: URLSearchParams): unknown {
    const { low, high } = bound(words);
    const by = words.get("by") ?? "name";
    const wanted = new Set(
      words.get("lanes") ? words.get("lanes")!.split(",").map(Number) : this.header.lanes.map((lane) => lane.id),
    );
    const drawn = this.header.lanes.filter((lane) => lane.kind === "spans" && wanted.has(lane.id));
    const ids = new Set(drawn.map((lane) => lane.id));
    const [lane, start, dur, rank, parent] = ["lane", "start", "dur", "rank", "parent"].map((name) => this.num(name));
    const [names, kinds, types] = [this.str("name"), this.str("kind"), this.str("op_type")];
    const sums = new Map<
      string,
      {
        key: string;
        kind: string | null;
        lane: number | null;
        means: string | null;
        count: number;
        total: number;
        self: number;
        max: number;
      }
    >();
    const sum = (at: number) => {
      const key =
        by === "name"
          ? `${names[at]}\n${kinds[at]}\n${lane[at]}`
          : by === "kind"
            ? (kinds[at] ?? "")
            : String(lane[at]);
      let entry = sums.get(key);
      if (!entry)
        sums.set(
          key,
          (entry = {
            key: by === "name" ? (names[at] ?? "") : by === "kind" ? key : (this.lanes[lane[at]]?.label ?? ""),
            kind: by === "lane" ? null : kinds[at],
            lane: by === "kind" ? null : lane[at],
            means: by === "name" ? types[at] : null,
            count: 0,
            total: 0,
            self: 0,
            max: 0,
          }),
        );
      return entry;
    };
    for (const at of this.order) {
      if (!ids.has(lane[at])) continue;
      const end = start[at] + dur[at];
      if (start[at] >= high || !(end > low || (dur[at] === 0 && start[at] >= low))) continue;
      const [first, last] = [Math.max(start[at], low), Math.min(end, high)];
      const entry = sum(at);
      entry.count += 1;
      entry.total += last - first;
      entry.self += last - first;
      entry.max = Math.max(entry.max, last - first);
      const above =
        (this.lanes[lane[at]] as Lane & { nested?: boolean; tangled?: boolean }).nested ||
        (this.lanes[lane[at]] as Lane & { tangled?: boolean }).tangled
          ? this.find(rank[at], parent[at])
          : -1;
      if (above >= 0 && !FLAT.has(kinds[above] ?? ""))
        sum(above).self -= Math.max(0, Math.min(last, start[above] + dur[above]) - first);
    }
    const rows = [...sums.values()]
      .filter((item) => item.count > 0)
      .sort(
        (a, b) =>
          b.self - a.self ||
          b.count - a.count ||
          (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) ||
          (a.lane ?? 0) - (b.lane ?? 0),
      );
    const columns = {
      key: rows.map((item) => item.key),
      kind: rows.map((item) => item.kind),
      lane: rows.map((item) => item.lane),
      means: rows.map((item) => item.means),
      count: rows.map((item) => item.count),
      total_ns: rows.map((item) => item.total),
      self_ns: rows.map((item) => item.self),
      share: rows.map((item) => item.total / (high - low)),
      mean_ns: rows.map((item) => item.total / item.count),
      max_ns: rows.map((item) => item.max),
    };
    return {
      columns,
      groups: this.header.groups
        .filter((group) => drawn.some((item) => item.group === group.id))
        .map((group) => this.busy(group, low, high)),
    };
  }

  /** Busy time of a group, for a device also by kind of work; idle is the rest, minus time that is not recorded. */
  private busy(group: Header["groups"][0], low: number, high: number): Record<string, number> {
    const covered = this.covered(group, low, high);
    const all = covered.get("") ?? 0;
    covered.delete("");
    let unrecorded = 0;
    for (const [begin, end] of group.unrecorded ?? []) {
      const [from, to] = [Math.max(low, begin), Math.min(high, end)];
      if (to > from) unrecorded += to - from - (this.covered(group, from, to).get("") ?? 0);
    }
    return {
      group: group.id,
      busy_ns: all,
      idle_ns: high - low - all - unrecorded,
      unrecorded_ns: unrecorded,
      ...Object.fromEntries([...covered].map(([kind, ns]) => [`${kind}_ns`, ns])),
    };
  }

  /** Time with work of a group: all kinds under "", and of a device by kind. */
  private covered(group: Header["groups"][0], low: number, high: number): Map<string, number> {
    const ids = new Set(
      this.header.lanes.filter((lane) => lane.group === group.id && lane.kind === "spans").map((lane) => lane.id),
    );
    const [lane, start, dur] = ["lane", "start", "dur"].map((name) => this.num(name));
    const kinds = this.str("kind");
    const reach = new Map<string, number>();
    const covered = new Map<string, number>();
    for (const at of this.order) {
      if (!ids.has(lane[at]) || NO_WORK.has(kinds[at] ?? "")) continue;
      const [from, to] = [Math.max(low, start[at]), Math.min(high, start[at] + dur[at])];
      if (to <= from) continue;
      for (const key of group.kind === "device" ? ["", kinds[at]!] : [""]) {
        covered.set(key, (covered.get(key) ?? 0) + Math.max(0, to - Math.max(from, reach.get(key) ?? low)));
        reach.set(key, Math.max(to, reach.get(key) ?? low));
      }
    }
    return covered;
  }
}

export function bound(words: URLSearchParams): { low: number; high: number } {
  return { low: Number(words.get("t0") ?? 0), high: Number(words.get("t1") ?? Infinity) };
}
