/** Answers requests of the timeline in a report, which has no server, from the spans that it contains. */
import type { Table } from "../table";
import { bound, SpanSums } from "./span_sums";
import type { Event, Header } from "./wire";

const DEVICE_WORK = new Set(["kernel", "copy", "set", "communication"]);
const JITTER = 2000; // as in intervals.py
const MANY = 200;
const WITHIN = 64;

type Words = URLSearchParams;

export class ReportSpans extends SpanSums {
  constructor(
    header: Header,
    tables: Table[],
    private path: Table | null,
    private gaps: Table | null,
  ) {
    super(header, tables);
  }

  answer(path: string): unknown {
    const [what, query] = path.split("?", 2);
    const words = new URLSearchParams(query);
    switch (what) {
      case "timeline/span":
        return this.details(Number(words.get("rank") ?? 0), Number(words.get("span")));
      case "timeline/search":
        return this.search(words);
      case "timeline/area":
        return this.area(words);
      case "timeline/near":
        return { event: this.near(words) };
      case "timeline/gaps":
        return { gaps: this.idle(words) };
      case "timeline/path":
        return { piece: this.piece(words) };
      case "timeline/events":
        return this.events(words);
      default:
        return null;
    }
  }

  // One span

  private details(rank: number, span: number): unknown {
    const at = this.find(rank, span);
    if (at < 0) return null;
    const event = this.event(at);
    const value = (name: string) => (Number.isFinite(this.num(name)[at]) ? this.num(name)[at] : null);
    const parents: Event[] = [];
    for (
      let up = this.find(rank, this.num("parent")[at]);
      up >= 0 && parents.length < MANY;
      up = this.find(rank, this.num("parent")[up])
    ) {
      const around = this.event(up);
      if (around.start + around.dur + JITTER >= event.start + event.dur) parents.push(around); // else it only overlaps
    }
    const arrows = this.arrows(at, rank, span, event);
    const same = [...this.order].filter(
      (item) => this.num("rank")[item] === rank && this.str("name")[item] === event.name,
    );
    const position = same.indexOf(at);
    const neighbor = (index: number) => (same[index] === undefined ? null : this.event(same[index]));
    const critical = this.critical(rank, [span, ...parents.map((item) => item.span)], event);
    return {
      ...event,
      self: value("self_ns"),
      step: value("step"),
      op_type: this.str("op_type")[at],
      scope: this.str("scope")[at],
      category: this.str("category")[at],
      shapes: parsed(this.str("shapes")[at]),
      dtypes: parsed(this.str("dtypes")[at]),
      flops: value("flops"),
      bytes: value("bytes"),
      correlation: value("correlation"),
      args: null,
      parents,
      arrows: arrows.slice(0, MANY),
      arrow_count: arrows.length,
      flows: { in: [], out: [], out_count: 0 },
      launched: [],
      operator: null,
      previous: neighbor(position - 1),
      next: neighbor(position + 1),
      same_name: same.length,
      same_name_before: position,
      ...critical,
    };
  }

  private arrows(at: number, rank: number, span: number, event: Event): unknown[] {
    const groups = new Map<number, [how: string, way: string]>();
    const [ranks, flow, op] = ["rank", "flow_in", "op"].map((name) => this.num(name));
    const kinds = this.str("kind");
    const how = (kind: string | null) => (DEVICE_WORK.has(kind ?? "") ? "launch" : kind === "op" ? "backward" : "flow");
    const cause = this.find(rank, flow[at]);
    const operator = this.find(rank, op[at]);
    if (cause >= 0 && cause !== at) groups.set(cause, [how(event.kind ?? ""), "in"]);
    else if (operator >= 0 && operator !== at) groups.set(operator, ["launch", "in"]);
    for (const item of this.order)
      if (ranks[item] === rank && item !== at && (flow[item] === span || op[item] === span))
        groups.set(item, [how(kinds[item]), "out"]);
    if (event.kind === "op" && ![...groups.values()].some(([what]) => what === "backward")) {
      // An operator that only wraps others: their links continue its own.
      const [start, dur, lane] = ["start", "dur", "lane"].map((name) => this.num(name));
      const inner = [...this.order].filter(
        (item) =>
          item !== at &&
          lane[item] === event.lane &&
          kinds[item] === "op" &&
          start[item] >= event.start &&
          start[item] + dur[item] <= event.start + event.dur,
      );
      if (inner.length && inner.length <= WITHIN) {
        const ids = new Set(inner.map((item) => this.num("span")[item]));
        for (const item of inner) {
          const from = this.find(rank, flow[item]);
          if (from >= 0 && from !== at && !ids.has(flow[item])) groups.set(from, ["backward", "in"]);
        }
        for (const item of this.order)
          if (ranks[item] === rank && kinds[item] === "op" && ids.has(flow[item]) && !inner.includes(item))
            groups.set(item, ["backward", "out"]);
      }
    }
    const call = this.num("call");
    if (Number.isFinite(call[at])) {
      const role = this.str("role")[at];
      for (const item of this.order)
        if (call[item] === call[at] && ranks[item] !== rank)
          groups.set(item, role === "together" ? ["collective", "with"] : ["transfer", role === "send" ? "out" : "in"]);
    }
    return [...groups].map(([one, [what, way]]) => {
      const other = this.event(one);
      return { ...other, how: what, way, delay: other.start - event.start };
    });
  }

  private critical(
    rank: number,
    spans: number[],
    event: Event,
  ): { critical_ns: number | null; critical: { kind: string; ns: number }[] } {
    if (!this.path) return { critical_ns: null, critical: [] };
    const [ranks, span, start, dur] = ["rank", "span", "start_ns", "dur_ns"].map((name) => this.path!.num(name));
    const kind = this.path.str("kind");
    const sums = new Map<string, number>();
    const wanted = new Set(spans);
    for (let at = 0; at < this.path.rows; at++) {
      if (ranks[at] !== rank || !wanted.has(span[at])) continue;
      const inside =
        span[at] === event.span
          ? dur[at]
          : kind[at] === "launch"
            ? 0
            : Math.min(start[at] + dur[at], event.start + event.dur) - Math.max(start[at], event.start);
      if (inside > 0) sums.set(kind[at]!, (sums.get(kind[at]!) ?? 0) + inside);
    }
    return {
      critical_ns: [...sums.values()].reduce((sum, ns) => sum + ns, 0),
      critical: [...sums].map(([name, ns]) => ({ kind: name, ns })),
    };
  }

  private piece(words: Words): unknown {
    if (!this.path) return null;
    const [rank, at] = [Number(words.get("rank") ?? 0), Number(words.get("at"))];
    const [ranks, span, start, dur] = ["rank", "span", "start_ns", "dur_ns"].map((name) => this.path!.num(name));
    for (let row = 0; row < this.path.rows; row++) {
      if (ranks[row] === rank && start[row] <= at && start[row] + dur[row] > at)
        return {
          kind: this.path.str("kind")[row],
          name: this.path.str("name")[row],
          span: this.find(rank, span[row]) < 0 ? null : span[row],
          start: start[row],
          dur: dur[row],
        };
    }
    return null;
  }

  // Several

  private search(words: Words): unknown {
    const text = (words.get("text") ?? "").trim();
    const kinds = new Set((words.get("kinds") ?? "").split(",").filter(Boolean));
    const rank = words.get("rank");
    const pattern = /^\/(.*?)\/?$/.exec(text);
    const regex = text.startsWith("/") && text.length > 1 && pattern ? new RegExp(pattern[1], "i") : null;
    const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
    const [ranks, start, dur] = ["rank", "start", "dur"].map((name) => this.num(name));
    const columns = ["name", "op_type", "scope"].map((name) => this.str(name));
    const kind = this.str("kind");
    const known = new Map<string, boolean>(); // few texts, many spans
    const matches = (value: string, word: string) => {
      const key = `${word}\n${value}`;
      let hit = known.get(key);
      if (hit === undefined) known.set(key, (hit = regex ? regex.test(value) : value.toLowerCase().includes(word)));
      return hit;
    };
    const matched = [...this.order].filter(
      (at) =>
        (rank === null || ranks[at] === Number(rank)) &&
        (!kinds.size || kinds.has(kind[at] ?? "")) &&
        (regex ? [""] : parts).every((word) =>
          columns.some((column) => column[at] !== null && matches(column[at]!, word)),
        ),
    );
    const before = (moment: number) => matched.filter((at) => start[at] < moment).length;
    const number = words.has("after")
      ? before(Number(words.get("after")) + 1)
      : words.has("before")
        ? before(Number(words.get("before"))) - 1
        : Number(words.get("number") ?? 0);
    const item = (index: number) =>
      matched[index] === undefined ? null : { ...this.event(matched[index]), ordinal: index };
    return {
      count: matched.length,
      total_ns: matched.reduce((sum, at) => sum + dur[at], 0),
      searched: ["name", "type", "scope"],
      first: item(0),
      found: item(number),
    };
  }

  private near(words: Words): Event | null {
    const [lane, row, at] = ["lane", "row", "at"].map((name) => Number(words.get(name)));
    const [lanes, rows, start, dur, span] = ["lane", "row", "start", "dur", "span"].map((name) => this.num(name));
    const current = [...this.order].filter((item) => lanes[item] === lane && rows[item] === row);
    const position = words.has("span") ? current.findIndex((item) => span[item] === Number(words.get("span"))) : -1;
    const direction = words.get("direction") ?? "at";
    let result: number | undefined;
    if (direction === "at")
      result = current
        .filter((item) => start[item] <= at && (start[item] + dur[item] > at || start[item] === at))
        .pop();
    else if (position >= 0) result = current[position + (direction === "next" ? 1 : -1)];
    else
      result =
        direction === "next"
          ? current.find((item) => start[item] > at)
          : current.filter((item) => start[item] < at).pop();
    return result === undefined ? null : this.event(result);
  }

  private idle(words: Words): unknown[] {
    const group = this.header.groups.find((item) => item.id === Number(words.get("group"))) as
      (Header["groups"][0] & { device?: number | null }) | undefined;
    if (!this.gaps || !group) return [];
    const { low, high } = bound(words);
    const [rank, device, start, dur] = ["rank", "device", "start_ns", "dur_ns"].map((name) => this.gaps!.num(name));
    const rows = this.gaps.where(
      (at) =>
        rank[at] === group.rank &&
        (device[at] === group.device || (Number.isNaN(device[at]) && group.device === null)) &&
        start[at] < high &&
        start[at] + dur[at] > low,
    );
    return rows
      .sort((a, b) => dur[b] - dur[a] || start[a] - start[b])
      .slice(0, MANY)
      .map((at) => ({
        start: start[at],
        dur: dur[at],
        cause: this.gaps!.str("cause")[at],
        host_activity: this.gaps!.str("host_activity")[at],
      }));
  }

  /** The spans within a range, as columns. */
  private events(words: Words): unknown {
    const { low, high } = bound(words);
    const rank = Number(words.get("rank") ?? 0);
    const wanted = words.get("lanes") ? new Set(words.get("lanes")!.split(",").map(Number)) : null;
    const [ranks, lane, start, dur] = ["rank", "lane", "start", "dur"].map((name) => this.num(name));
    const kind = this.str("kind");
    const rows = [...this.order]
      .filter(
        (at) =>
          ranks[at] === rank &&
          start[at] < high &&
          start[at] + dur[at] >= low &&
          kind[at] !== "instant" &&
          (!wanted || wanted.has(lane[at])),
      )
      .slice(0, Number(words.get("limit") ?? Infinity));
    const numbers = (name: string) =>
      rows.map((at) => (Number.isFinite(this.num(name)[at]) ? this.num(name)[at] : null));
    const texts = (name: string) => rows.map((at) => this.str(name)[at]);
    return {
      columns: {
        span: numbers("span"),
        rank: numbers("rank"),
        track: rows.map((at) => this.lanes[lane[at]]?.track ?? null),
        kind: texts("kind"),
        name: texts("name"),
        start_ns: numbers("start"),
        dur_ns: numbers("dur"),
        self_ns: numbers("self_ns"),
        depth: numbers("row"),
        step: numbers("step"),
        op_type: texts("op_type"),
      },
    };
  }
}

function parsed(text: string | null): unknown {
  if (text === null) return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
