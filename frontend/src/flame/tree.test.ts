import { expect, test } from "vitest";
import { Table } from "../table";
import {
  change,
  difference,
  frameAt,
  framesOf,
  inTime,
  leftHeavy,
  matches,
  OTHER,
  pathKeys,
  sourceOf,
  stackText,
} from "./tree";

/** main calls f (30) and g (60, of which f takes 20); 5 ns are of merged frames. */
const TREE = {
  name: ["main", "f", "g", "f", null],
  kind: ["python", "python", "op", "python", OTHER],
  parent: [NaN, 0, 0, 2, 0],
  depth: [0, 1, 1, 2, 1],
  total_ns: [100, 30, 60, 20, 5],
  self_ns: [5, 30, 40, 20, 5],
  calls: [1, 2, 1, 1, 9],
  start_ns: [0, 10, 40, 50, 5],
  span: [0, 1, 2, 3, 4],
  merged: [NaN, NaN, NaN, NaN, 3],
};
const tree = (more: Partial<typeof TREE> = {}) => framesOf(Table.of({ ...TREE, ...more }));

test("the largest child is on the left and merged frames are on the right", () => {
  const layout = leftHeavy(tree());
  expect([...layout.x]).toEqual([0, 60, 0, 0, 90]);
  expect(layout.whole).toBe(100);
  expect(layout.rows.map((rows) => [...rows])).toEqual([[0], [2, 1, 4], [3]]);
});

test("a point is inside the frame that covers it, or in none", () => {
  const layout = leftHeavy(tree());
  expect([frameAt(layout, 0, 99), frameAt(layout, 1, 59), frameAt(layout, 1, 60), frameAt(layout, 1, 96)]).toEqual([
    0, 2, 1, -1,
  ]);
  expect(frameAt(layout, 7, 1)).toBe(-1);
});

test("in the order of time frames are where they start", () => {
  const of = framesOf(Table.of({ ...TREE, end_ns: [100, 40, 100, 70, 9], start_ns: [0, 10, 40, 50, 5] }));
  const layout = inTime(of);
  expect([...layout.x]).toEqual([0, 10, 40, 50, 5]);
  expect([...layout.width]).toEqual([100, 30, 60, 20, 4]);
});

test("a match inside another match is not counted twice", () => {
  const of = tree({ name: ["main", "f", "f", "f", null] });
  expect(matches(of, "F")).toMatchObject({ count: 3, total: 90 });
  expect(matches(of, "/^ma/")).toMatchObject({ count: 1, total: 100 });
  expect(matches(of, "/(/")).toMatchObject({ count: 0 });
  expect(matches(of, " ")).toBeNull();
});

test("a stack is copied with the innermost frame first", () => {
  expect(stackText(tree(), 3)).toBe("f\ng\nmain");
});

test("the source of a Python frame is a file and a line", () => {
  expect(sourceOf("torch/nn/module.py(1532): _call_impl")).toEqual({
    file: "torch/nn/module.py",
    line: 1532,
    function: "_call_impl",
  });
  expect(sourceOf("$train.py:41 step")).toEqual({ file: "train.py", line: 41, function: "step" });
  expect(sourceOf("<built-in function len>")).toBeNull();
  expect(sourceOf("aten::mm")).toBeNull();
});

test("the key of a path does not depend on addresses or other frames", () => {
  const [a, b] = [tree({ name: ["main", "f at 0x7fd21e849f10", "g", "f", null] }), tree()];
  const again = pathKeys(tree({ name: ["main", "f at 0x00ffe849f10", "g", "f", null] }));
  expect(pathKeys(a)[1]).toBe(again[1]);
  expect(new Set(pathKeys(b)).size).toBe(5);
});

test("two runs are compared by path and per step", () => {
  const [a, b] = [tree({ merged: [NaN, NaN, NaN, NaN, 3] }), tree({ name: ["main", "h", "g", "f", null] })];
  const found = difference(a, 2, b, 1);
  expect(found.frames.name).toEqual(["main", "f", "g", "f", null, "h"]);
  expect([...found.here]).toEqual([50, 15, 30, 10, 2.5, NaN]);
  // f of main and h of main may be among the merged frames of the run that does not show them.
  expect([...found.there]).toEqual([100, NaN, 60, 20, 5, 30]);
  expect(found.frames.total[0]).toBe(75);
});

test("a frame that one run does not have at all is new", () => {
  const whole = (name: string[]) =>
    framesOf(
      Table.of({
        name,
        kind: ["python", "python"],
        parent: [NaN, 0],
        depth: [0, 1],
        total_ns: [100, 30],
        self_ns: [70, 30],
        calls: [1, 1],
        start_ns: [0, 1],
        span: [0, 1],
        merged: [NaN, NaN],
      }),
    );
  const found = difference(whole(["main", "f"]), 1, whole(["main", "g"]), 1);
  expect([...found.here]).toEqual([100, 30, 0]);
  expect([...found.there]).toEqual([100, 0, 30]);
});

test("a change is relative to the larger time", () => {
  expect([change(2, 1), change(1, 2), change(1, 0), change(0, 0)]).toEqual([0.5, -0.5, 1, 0]);
});
