import { describe, expect, test } from "vitest";
import * as units from "./units";

const text = (written: units.Written) => units.text(written).replaceAll(units.THIN, " ");

describe("durations", () => {
  test.each([
    [0, "0"],
    [1, "1.00 ns"],
    [999.4, "999 ns"],
    [999.6, "1.00 µs"], // never 1000 ns
    [47_812, "47.8 µs"],
    [1_170_000, "1.17 ms"],
    [3_200_000_000, "3.20 s"],
    [252_000_000_000, "4 min 12 s"],
    [7_380_000_000_000, "2 h 3 min"],
    [-1_170_000, "−1.17 ms"],
    [NaN, "–"],
  ])("%d ns is %s", (ns, expected) => expect(text(units.time(ns))).toBe(expected));

  test("a column has one unit", () => {
    expect(text(units.time(1_500, "ms"))).toBe("0.002 ms");
    expect(text(units.time(0, "ms"))).toBe("0 ms");
  });
});

describe("shares", () => {
  test.each([
    [0, "0 %"],
    [0.0004, "<0.1 %"],
    [0.0005, "0.1 %"],
    [0.654, "65.4 %"],
    [0.9996, ">99.9 %"], // not all of it
    [1, "100 %"],
    [-0.05, "−5.0 %"],
    [NaN, "–"],
  ])("%d is %s", (share, expected) => expect(text(units.share(share))).toBe(expected));
});

test("bytes are decimal, counts have groups", () => {
  expect(text(units.bytes(13_600_000_000))).toBe("13.6 GB");
  expect(text(units.bytes(999))).toBe("999 B");
  expect(text(units.count(99_990))).toBe("99,990");
  expect(text(units.count(-1_228))).toBe("−1,228");
});

test("the name of a column gives its quantity", () => {
  const quantities = ["dur_ns", "bytes", "bytes_per_s", "idle_share", "flops_per_s", "device_flops", "calls"].map(
    units.quantityOf,
  );
  expect(quantities).toEqual(["time", "bytes", "rate", "share", "flopsRate", "flops", "count"]);
});

test("ticks are round and inside the range", () => {
  expect(units.ticks(0, 10)).toEqual([0, 2, 4, 6, 8, 10]);
  expect(units.ticks(3, 3)).toEqual([3]);
  for (const [low, high] of [
    [0.3, 17],
    [-5, 5],
    [1e6, 1.1e6],
  ]) {
    const ticks = units.ticks(low, high);
    expect(ticks.length).toBeGreaterThan(1);
    expect(ticks.every((tick) => tick >= low - 1e-9 && tick <= high + 1e-9)).toBe(true);
  }
});

test("labels of an axis have one unit and differ", () => {
  expect(units.axisLabels([0, 500_000, 1_000_000], "time")).toEqual(["0", "0.5", "1 ms"]);
  expect(units.axisLabels([0, 122.5, 245], "count")).toEqual(["0", "122.5", "245"]);
});

test("numbers in order become ranges", () => {
  expect(units.ranges([2, 3, 4, 40])).toBe("2–4, 40");
  expect(units.ranges([])).toBe("");
});
