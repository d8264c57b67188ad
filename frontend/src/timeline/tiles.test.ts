import { expect, test } from "vitest";
import { Tiles, type Ask } from "./tiles";
import type { Header } from "./wire";

const header = {
  buckets: 1024,
  end_ns: 1024 * 8,
  top_level: 3,
  version: "1",
  lanes: [
    { id: 0, group: 0, rows: 10 },
    { id: 1, group: 0, rows: 6 },
    { id: 2, group: 0, rows: 1 },
    { id: 3, group: 1, rows: 1 },
  ],
} as unknown as Header;

function asking() {
  const paths: string[] = [];
  const ask: Ask = Object.assign(
    (path: string) => {
      paths.push(path);
      return new Promise<ArrayBuffer>(() => undefined);
    },
    { still: false },
  );
  return { paths, tiles: new Tiles(header, ask, () => undefined) };
}

test("a level halves the number of tiles", () => {
  const { tiles } = asking();
  expect([0, 1, 2, 3].map((level) => tiles.last(level))).toEqual([7, 3, 1, 0]);
  expect(tiles.span(2)).toBe(4096);
});

test("tracks of a group are asked for together, up to 16 rows", () => {
  expect(asking().tiles.bundles.map((bundle) => bundle.lanes)).toEqual(["0,1", "2", "3"]);
});

test("tiles outside the run are not asked for, others once and four at a time", () => {
  const { paths, tiles } = asking();
  for (let picture = 0; picture < 2; picture++) {
    tiles.begin();
    for (let index = -1; index < 10; index++) tiles.want(tiles.bundles[0], 0, index);
    tiles.end();
  }
  expect(paths).toEqual([0, 1, 2, 3].map((index) => `timeline/tiles/0/${index}?lanes=0,1&v=1`));
  expect(tiles.waiting).toBe(true);
});
