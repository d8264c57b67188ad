/** Visible tracks, their order and their position. */
import type { Group, Header, Lane } from "./wire";

/** The arrangement of the user; stored per run, and part of the address. */
export interface Arrangement {
  pins: number[];
  hidden: number[];
  folded: number[];
  /** Tracks in a chosen order; others follow in their place within the group. */
  order: number[];
  /** Heights of tracks in px. */
  sizes: Record<number, number>;
}

export const UNARRANGED: Arrangement = { pins: [], hidden: [], folded: [], order: [], sizes: {} };

export interface Placed {
  lane: Lane;
  group: Group;
  y: number;
  height: number;
  /** Visible rows of the track, and their height. */
  rows: number[];
  /** Rows that are also drawn in the first one: idle time, where nothing computes. */
  also: number[];
  rowHeight: number;
  pad: number;
  pinned: boolean;
}

export interface Head {
  group: Group;
  y: number;
  height: number;
  folded: boolean;
  lanes: number;
  hidden: number;
}

export interface Layout {
  pinned: Placed[];
  pinnedHeight: number;
  heads: Head[];
  lanes: Placed[];
  height: number;
}

export const GROUP = 26;
const NARROWEST = 3;

export interface Shown {
  /** Levels of scopes. */
  scopes: number;
  /** Rows known to be empty are left out. */
  empty: (lane: Lane, row: number) => boolean;
  /** The step track that the ruler shows: it is not shown again. */
  ruled: number;
  /** The ranks to show; null for all. */
  ranks: Set<number> | null;
}

export function arrange(header: Header, by: Arrangement, shown: Shown): Layout {
  const hidden = new Set(by.hidden);
  const pins = new Set(by.pins);
  const layout: Layout = { pinned: [], pinnedHeight: 0, heads: [], lanes: [], height: 0 };
  const groups = new Map(header.groups.map((group) => [group.id, group]));
  // In a group of many tracks, those with few spans are narrow.
  const many = new Map<number, number>();
  for (const lane of header.lanes) if (lane.kind === "spans") many.set(lane.group, (many.get(lane.group) ?? 0) + 1);
  const counters = new Map<number, number>();
  for (const lane of header.lanes)
    if (lane.kind === "counter") counters.set(lane.group, (counters.get(lane.group) ?? 0) + 1);
  const narrow = (lane: Lane) =>
    lane.kind === "spans" && lane.rows === 1 && lane.events < 100 && many.get(lane.group)! > 8;
  const place = (lane: Lane, y: number, pinned: boolean): Placed => {
    const [rows, also] = rowsOf(lane, shown);
    const usual =
      lane.kind === "counter"
        ? counters.get(lane.group)! > 5
          ? 30
          : 46
        : lane.kind === "scope" || lane.kind === "steps"
          ? rows.length * 20 + 4
          : lane.kind === "overlap"
            ? rows.length * 18 + 6
            : rows.length === 1
              ? narrow(lane)
                ? 20
                : 30
              : rows.length * 19 + 6;
    const least = lane.kind === "counter" ? 20 : Math.max(14, rows.length * NARROWEST + 6);
    const height = Math.max(least, by.sizes[lane.id] ?? usual);
    const pad = height < 24 ? 2 : 4;
    return {
      lane,
      group: groups.get(lane.group)!,
      y,
      height,
      rows,
      also,
      rowHeight: (height - pad - 2) / Math.max(1, rows.length),
      pad,
      pinned,
    };
  };
  for (const id of by.pins) {
    const lane = header.lanes.find((item) => item.id === id);
    if (!lane || hidden.has(id)) continue;
    const box = place(lane, layout.pinnedHeight, true);
    layout.pinned.push(box);
    layout.pinnedHeight += box.height;
  }
  const rank = new Map(by.order.map((id, at) => [id, at]));
  for (const group of header.groups) {
    if (shown.ranks && !shown.ranks.has(group.rank)) continue;
    const all = header.lanes.filter(
      (lane) =>
        lane.group === group.id &&
        lane.id !== shown.ruled &&
        (lane.kind === "counter" || rowsOf(lane, shown)[0].length > 0),
    );
    const current = all.filter((lane) => !hidden.has(lane.id) && !pins.has(lane.id));
    if (!all.length) continue;
    if (by.order.length)
      current.sort(
        (a, b) => (rank.get(a.id) ?? Infinity) - (rank.get(b.id) ?? Infinity) || all.indexOf(a) - all.indexOf(b),
      );
    const folded = by.folded.includes(group.id);
    layout.heads.push({
      group,
      y: layout.height,
      height: GROUP,
      folded,
      lanes: all.length,
      hidden: all.filter((lane) => hidden.has(lane.id)).length,
    });
    layout.height += GROUP;
    if (folded) continue;
    for (const lane of current) {
      const box = place(lane, layout.height, false);
      layout.lanes.push(box);
      layout.height += box.height;
    }
  }
  return layout;
}

function rowsOf(lane: Lane, shown: Shown): [number[], number[]] {
  const [rows, also]: [number[], number[]] = [[], []];
  if (lane.kind === "counter") return [rows, also];
  const count = lane.kind === "scope" ? Math.min(lane.rows, shown.scopes) : lane.rows;
  const labels = lane.kind === "overlap" ? (lane.row_labels ?? []) : [];
  for (let row = 0; row < count; row++) {
    if (labels.length && shown.empty(lane, row)) continue;
    // They exclude each other, so they share one line.
    if (rows.length && rows[0] === labels.indexOf("computing") && (labels[row] === "free" || labels[row] === "copy"))
      also.push(row);
    else rows.push(row);
  }
  return [rows, also];
}

/** The track at a height of the scrolled or the pinned part. */
export function laneAt(lanes: Placed[], y: number): Placed | null {
  let [low, high] = [0, lanes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lanes[middle].y <= y) low = middle + 1;
    else high = middle;
  }
  const result = lanes[low - 1];
  return result && y < result.y + result.height ? result : null;
}

/** The row at a height within a track; -1 between rows. */
export function rowAt(box: Placed, y: number): number {
  const at = Math.floor((y - box.pad) / box.rowHeight);
  return at >= 0 && at < box.rows.length ? box.rows[at] : -1;
}

const LISTS = ["pins", "hidden", "folded", "order"] as const;

/** "p3,5.h7.z4x80": short enough for an address. */
export function formatArrangement(by: Arrangement): string {
  const lists = LISTS.filter((name) => by[name].length).map((name) => `${name[0]}${by[name].join(",")}`);
  const sizes = Object.entries(by.sizes).map(([id, size]) => `${id}x${Math.round(size)}`);
  return [...lists, ...(sizes.length ? [`z${sizes.join(",")}`] : [])].join(".");
}

export function parseArrangement(text: string): Arrangement {
  const result: Arrangement = { pins: [], hidden: [], folded: [], order: [], sizes: {} };
  for (const part of text.split(".")) {
    const words = part.slice(1).split(",").filter(Boolean);
    const list = LISTS.find((name) => name[0] === part[0]);
    if (list) result[list] = words.map(Number).filter(Number.isInteger);
    else if (part[0] === "z")
      for (const word of words) {
        const [id, size] = word.split("x").map(Number);
        if (id >= 0 && size > 0) result.sizes[id] = size;
      }
  }
  return result;
}
