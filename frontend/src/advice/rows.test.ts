import { expect, test } from "vitest";
import english from "../../../src/stepscope/model/strings/en.json";
import { Table } from "../table";
import { causeKey, culprits } from "./culprits";
import { adviceRows, byNeed, fallRows, identity, json, markdown, recoverable } from "./rows";

const LABELS = {
  gain: "Gain",
  after: "later",
  fix: "Fix",
  source: "Source",
  dismissed: "Dismissed",
  notChecked: "Not checked",
  ofUnprofiled: "{share} of the unprofiled step of {step}",
  ofRecorded: "{share} of the step of {step}",
  ofMean: "{share} of the mean step of {step}",
};

const COLUMNS = {
  position: [0, 1, 2],
  status: ["finding", "finding", "not checked"],
  rule: ["launch_bound", "synchronization", "input_wait"],
  severity: ["high", "low", null],
  code: ["advice-launch_bound", "made-up", "advice-not-checked"],
  parameters: [
    '{"device": "GPU", "idle": 0.676, "launches": 930, "host": 47010, "kernel": 5824}',
    "{}",
    '{"symptom": "The step waits.", "needs": "queues"}',
  ],
  culprit: [null, "aten::item", null],
  source: [null, "train.py:41", null],
  gain_ns: [33164504, 0, NaN],
  gain_share: [0.67, 0, NaN],
  of_step: ["unprofiled", "recorded", null],
  of_step_ns: [49500000, 57000000, NaN],
  later_ns: [NaN, 72810, NaN],
  snippet: ["model = torch.compile(model)", null, null],
  spans: [
    '[{"rank": 0, "step": 11, "start_ns": 1794723221448858382, "end_ns": 1794723221455970496}]',
    '[{"rank": 1, "step": null, "span": 17}]',
    null,
  ],
  not_checked: [null, null, "queues: record with --data"],
};
const rows = adviceRows(Table.of(COLUMNS));

test("times beyond 2^53 stay exact", () => {
  expect(rows[0].spots).toEqual([
    { rank: 0, step: 11, span: null, start: "1794723221448858382", end: "1794723221455970496" },
  ]);
  expect(rows[1].spots).toEqual([{ rank: 1, step: null, span: 17, start: null, end: null }]);
});

test("a finding is known by its rule, culprit and source", () => {
  expect(identity(rows[1])).toBe("synchronization\naten::item\ntrain.py:41");
  expect(identity({ rule: "launch_bound", culprit: null, source: null })).toBe(identity(rows[0]));
});

test("all fixes together save the first step time less the last", () => {
  const falls = fallRows(
    Table.of({ rule: ["a", "b"], step_before_ns: [100, 60], step_after_ns: [60, 55], gain_ns: [40, 5] }),
  );
  expect(recoverable(falls)).toEqual({ share: 0.45, before: 100, after: 55 });
  expect(recoverable([]).share).toBeNaN();
});

test("rules are grouped by what they need", () => {
  expect(byNeed(rows.slice(2)).map(([need, some]) => [need, some.length])).toEqual([["queues: record with --data", 1]]);
});

test("the export has title, gain, code and the reason of a dismissal", () => {
  const reasons = new Map([[identity(rows[1]), "known"]]);
  const text = markdown("run", rows, reasons, english, LABELS);
  expect(text.split("\n")[2]).toBe(
    "## GPU is idle 67.6 % of each step, waiting for 930 launches: the host takes 47.0 µs for each, the kernel 5.82 µs.",
  );
  expect(text).toContain("- Gain: 33.2 ms (67.0 % of the unprofiled step of 49.5 ms)");
  expect(text).toContain("```\nmodel = torch.compile(model)\n```");
  expect(text).toContain("- Gain: 72.8 µs later\n- Source: `train.py:41`\n- Dismissed: known");
  expect(text).toContain("- input_wait: queues: record with --data");
  const exported = (JSON.parse(json("run", rows, reasons, english)) as { advice: Record<string, unknown>[] }).advice;
  expect(exported.map((row) => [row.gain_ns, row.dismissed])).toEqual([
    [33164504, null],
    [0, "known"],
    [null, null],
  ]);
});

test("the culprit of a cause is the activity with the most idle time, as a share of all of it", () => {
  const gaps = Table.of({
    cause: ["host-bound", "host-bound", "host-bound", "sync"],
    host_activity: ["aten::normal_", "aten::mm", null, null],
    device: [0, 0, 0, 0],
    dur_ns: [60, 30, 10, 5],
  });
  expect([...culprits(gaps)]).toEqual([[causeKey("host-bound", 0), { activity: "aten::normal_", share: 0.6 }]]);
});
