import { expect, test } from "vitest";
import { Table } from "./table";

const table = Table.of({ name: ["mm", null, '=a,"b"'], total_ns: [5, NaN, 7], start_ns: [1, 2, 3] });

test("missing values are not zero", () => {
  expect([...table.num("total_ns")]).toEqual([5, NaN, 7]);
  expect(table.str("name")[1]).toBeNull();
  expect([...table.num("absent")]).toEqual([NaN, NaN, NaN]);
  expect(table.blank("absent")).toBe(true);
});

test("picked rows keep their values and order", () => {
  const picked = table.pick(table.where((row) => table.num("start_ns")[row] !== 2));
  expect([...picked.num("total_ns")]).toEqual([5, 7]);
  expect(picked.rows).toBe(2);
});

test("timestamps count from the origin, durations do not", () => {
  const columns = new Map([
    ["start_ns", BigInt64Array.of(1_700_000_000_000_000_123n)],
    ["dur_ns", BigInt64Array.of(9_007_199_254_740_993n)],
  ]);
  const read = new Table(columns, 1, 1, 1_700_000_000_000_000_000n);
  expect(read.num("start_ns")[0]).toBe(123);
  expect(read.raw("dur_ns", 0)).toBe("9007199254740993"); // more digits than a number has
});

test("a new column hides the old one of its name", () => {
  expect([...table.with({ total_ns: [1, 2, 3] }).num("total_ns")]).toEqual([1, 2, 3]);
  expect([...table.num("total_ns")]).toEqual([5, NaN, 7]);
});

test("CSV is quoted, and no cell is a formula", () => {
  const lines = table.csv(["name", "total_ns"]).split("\n");
  expect(lines[0]).toBe("name,total_ns");
  expect(lines[3]).toBe('"\'=a,""b""",7');
});
