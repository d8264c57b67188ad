import { expect, test } from "vitest";
import en from "../../src/stepscope/model/strings/en.json";
import zh from "../../src/stepscope/model/strings/zh.json";
import { messageParts, render } from "./messages";

const catalog = {
  wait: "{device:word} waits {wait:duration} of {calls:count} [call|calls]<, {note:word}>.",
  list: "Recording {options:list} slows the host.",
  range: "{idle:share} idle",
  "word:gpu": "GPU",
  "word:to": " to ",
  "word:comma": ", ",
  "word:and": " and ",
};

test("a part without its value is left out, a count of 1 is singular", () => {
  expect(render("wait", { device: "gpu", wait: 1_170_000, calls: 1 }, catalog)).toBe("GPU waits 1.17 ms of 1 call.");
  expect(render("wait", { device: "x", wait: 12, calls: 1200, note: "late" }, catalog)).toBe(
    "x waits 12 ns of 1,200 calls, late.",
  );
});

test("a list has commas and an and", () => {
  expect(render("list", { options: "stacks" }, catalog)).toBe("Recording stacks slows the host.");
  expect(render("list", { options: "stacks, shapes, memory" }, catalog)).toBe(
    "Recording stacks, shapes and memory slows the host.",
  );
});

test("a range is written once where both ends read the same", () => {
  expect(render("range", { idle: [0.25, 0.5] }, catalog)).toBe("25.0 % to 50.0 % idle");
  expect(render("range", { idle: [0.25, 0.25001] }, catalog)).toBe("25.0 % idle");
});

test("numbers are rounded as in Python: half way to the even digit", () => {
  const time = (ns: number) =>
    render("wait", { device: "gpu", wait: ns, calls: 2 }, catalog).split(" of ")[0].slice(10);
  expect([40_250, 40_350, 999_600, 60e9].map(time)).toEqual(["40.2 µs", "40.4 µs", "1.00 ms", "60.0 s"]);
});

test("numbers are parts of their own, for the page to mark", () => {
  expect(messageParts("range", { idle: 0.25 }, catalog)).toEqual([
    "",
    { value: 0.25, quantity: "share", parameter: "idle" },
    " idle",
  ]);
});

test("names are parts of their own, with the whole name on hover if they are shortened", () => {
  const texts = { ...catalog, code: "{share:share} goes to {kernel:name}" };
  expect(messageParts("code", { share: 0.5, kernel: "gemm", kernel_full: "void gemm<4>(int)" }, texts)).toEqual([
    "",
    { value: 0.5, quantity: "share", parameter: "share" },
    " goes to ",
    { name: "gemm", whole: "void gemm<4>(int)" },
    "",
  ]);
  expect(render("code", { share: 0.5, kernel: "gemm" }, texts)).toBe("50.0 % goes to gemm");
});

test("FLOPs and their rate have decimal prefixes, as in Python", () => {
  const rate = (value: number) => render("rate", { value }, { ...catalog, rate: "{value:rate}" });
  expect([0, 999, 999_600, 989.4e12, 2.5e16].map(rate)).toEqual([
    "0.00 FLOP/s",
    "999 FLOP/s",
    "1.00 MFLOP/s",
    "989 TFLOP/s",
    "25.0 PFLOP/s",
  ]);
});

test("Chinese has no space between Chinese characters", () => {
  const code = "device-idle-host-bound";
  const text = render(code, { device: "GPU", idle: 0.375, period: "each step" }, zh);
  expect(text).not.toMatch(/[\u4e00-\u9fff] [\u4e00-\u9fff]/);
  expect(text).toContain("37.5 %");
});

test("both catalogs have the same codes", () => {
  expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
});
