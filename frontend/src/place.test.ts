import { expect, test } from "vitest";
import { isPlace, linkFrom, listed, parse } from "./place";

test("an address and its place are the same", () => {
  const place = parse("#/my%20run/steps?rank=3&steps=2:5");
  expect(place).toEqual({ run: "my run", page: "steps", params: { rank: "3", steps: "2:5" } });
  expect(linkFrom(place, {})).toBe("#/my%20run/steps?rank=3&steps=2:5");
});

test("without a page it is the overview, without a run the list of runs", () => {
  expect(parse("#/a").page).toBe("overview");
  expect(parse("").page).toBe("runs");
  expect(linkFrom(parse("#/a/steps"), { run: null, page: "runs" })).toBe("#/");
});

test("another page keeps rank and steps and drops the rest", () => {
  const now = parse("#/a/operators?rank=1&sort=total&steps=2:5");
  expect(linkFrom(now, { page: "kernels" })).toBe("#/a/kernels?rank=1&steps=2:5");
  expect(linkFrom(now, { run: "b" })).toBe("#/b/overview");
  expect(linkFrom(now, { params: { sort: null, view: "pie" } })).toBe("#/a/operators?rank=1&steps=2:5&view=pie");
});

test("the name of an element is no place", () => {
  expect(isPlace("#main")).toBe(false);
  expect(isPlace("#/")).toBe(true);
  expect(parse("#main").run).toBeNull();
});

test("a run with a chosen step marker is the run of the list", () => {
  const { run } = parse("#/a/steps?step_name=kernel:mm");
  expect(run).not.toBe("a");
  expect(listed(run!)).toBe("a");
});

test("an address typed by hand is read", () => {
  expect(parse("#/100%/steps").run).toBe("100%");
});
