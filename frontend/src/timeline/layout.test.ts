import { expect, test } from "vitest";
import { arrange, GROUP, laneAt, parseArrangement, rowAt, UNARRANGED, formatArrangement } from "./layout";
import type { Header, Lane } from "./wire";

const lane = (id: number, group: number, rows = 1) => ({ id, group, rows, kind: "spans", events: 500 }) as Lane;
const header = {
  groups: [
    { id: 0, rank: 0 },
    { id: 1, rank: 1 },
  ],
  lanes: [lane(0, 0), lane(1, 0, 3), lane(2, 1)],
} as unknown as Header;
const all = { scopes: 0, empty: () => false, ruled: -1, ranks: null };

test("tracks are stacked below the heads of their groups", () => {
  const layout = arrange(header, UNARRANGED, all);
  expect(layout.heads.map((head) => head.y)).toEqual([0, GROUP + 30 + 63]);
  expect(layout.lanes.map((placed) => [placed.y, placed.height])).toEqual([
    [GROUP, 30],
    [GROUP + 30, 3 * 19 + 6],
    [2 * GROUP + 30 + 63, 30],
  ]);
  expect(layout.height).toBe(2 * GROUP + 30 + 63 + 30);
});

test("pinned tracks are above, hidden ones and those of folded groups are absent", () => {
  const layout = arrange(header, { ...UNARRANGED, pins: [2], hidden: [0], folded: [1] }, all);
  expect(layout.pinned.map((placed) => placed.lane.id)).toEqual([2]);
  expect(layout.pinnedHeight).toBe(30);
  expect(layout.lanes.map((placed) => placed.lane.id)).toEqual([1]);
  expect(layout.heads.map((head) => [head.lanes, head.hidden, head.folded])).toEqual([
    [2, 1, false],
    [1, 0, true],
  ]);
});

test("a chosen order and height hold, other ranks are left out", () => {
  const layout = arrange(
    header,
    { ...UNARRANGED, order: [1, 0], sizes: { 0: 80, 1: 1 } },
    { ...all, ranks: new Set([0]) },
  );
  expect(layout.lanes.map((placed) => [placed.lane.id, placed.height])).toEqual([
    [1, 15], // three rows of 3 px
    [0, 80],
  ]);
});

test("the track and row at a height", () => {
  const { lanes } = arrange(header, UNARRANGED, all);
  expect(laneAt(lanes, GROUP - 1)).toBeNull();
  expect(laneAt(lanes, GROUP)?.lane.id).toBe(0);
  const high = laneAt(lanes, GROUP + 30 + 40)!;
  expect(high.lane.id).toBe(1);
  expect([0, 4, 4 + high.rowHeight, 62].map((y) => rowAt(high, y))).toEqual([-1, 0, 1, -1]);
});

test("an arrangement in an address is read back", () => {
  const by = { pins: [3, 5], hidden: [7], folded: [], order: [2, 1], sizes: { 4: 80 } };
  expect(formatArrangement(by)).toBe("p3,5.h7.o2,1.z4x80");
  expect(parseArrangement(formatArrangement(by))).toEqual(by);
  expect(parseArrangement("px.z4x-1.q9")).toEqual(UNARRANGED);
});
