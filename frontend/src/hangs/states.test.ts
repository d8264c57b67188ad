import { expect, test } from "vitest";
import { Table } from "../table";
import { cells } from "./states";

const pending = (columns: Record<string, string | null>) =>
  Table.of({
    ...Object.fromEntries(
      ["called", "completed", "not_called", "unknown", "different"].map((name) => [name, [columns[name] ?? null]]),
    ),
  });

test("neighbors in the same state are one run, and ranks outside of the group are left out", () => {
  expect(cells(pending({ called: "2,3,5", not_called: "4" }), [0, 2, 3, 4, 5])).toEqual([
    [
      { from: 1, to: 3, state: "called" },
      { from: 3, to: 4, state: "not_called" },
      { from: 4, to: 5, state: "called" },
    ],
  ]);
});

test("a rank that completed has also called", () => {
  expect(cells(pending({ called: "0,1", completed: "1" }), [0, 1])).toEqual([
    [
      { from: 0, to: 1, state: "called" },
      { from: 1, to: 2, state: "completed" },
    ],
  ]);
});
