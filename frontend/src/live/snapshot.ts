/** Figures and charts of what has arrived. */
import { quantile } from "../parts/histogram";
import type { Line } from "../parts/series_marks";
import { fill, strings } from "../strings";
import * as units from "../units";
import { type Rank, Recording } from "./recording";

const text = strings("live");

const RECENT = 100;

interface LiveChart {
  key: string;
  title: "queues" | "cpu" | "process" | "memory" | "gpu";
  x: Float64Array;
  lines: Line[];
  as: units.Quantity;
}

const GROUPS: [title: LiveChart["title"], test: RegExp][] = [
  ["queues", /^queue /],
  ["gpu", /^(utilization|power) gpu /],
  ["cpu", /^cpu (user|system|io)$/],
  ["process", /^(process|data worker) \d+ cpu /],
  ["memory", /^(allocated|reserved) |^memory used|^process \d+ memory$/],
];

const COLORS = ["--kind-compute", "--kind-host", "--op-norm", "--op-index", "--kind-copy", "--op-optim"];

const QUANTITY: Record<string, units.Quantity> = { bytes: "bytes", "bytes/s": "rate", ns: "time", share: "share" };

export function quantity(unit: string): units.Quantity {
  return QUANTITY[unit] ?? "count";
}

export function snapshot(rank: Rank, ranks: Rank[], now: Recording) {
  const recent = rank.dur.slice(-RECENT);
  const sorted = Float64Array.from(recent).sort();
  const first = rank.start.length - recent.length;
  const last = rank.step.length - 1;
  const span = last >= 0 ? rank.start[last] + rank.dur[last] - rank.start[first] : NaN;
  const shown = ranks.slice(0, COLORS.length).filter((one) => one.start.length);
  const joined = alignSeries(shown.map((one) => ({ at: one.start, value: one.dur })));
  const counters = [...rank.counters.values()].map((one) => ({ ...one, at: one.at.slice(), value: one.value.slice() }));
  const charts: LiveChart[] = [];
  for (const [title, test] of GROUPS) {
    const mine = counters.filter((one) => test.test(one.name) && one.at.length > 1);
    for (const unit of new Set(mine.map((one) => one.unit))) {
      // The busiest first, if there are too many to distinguish.
      const own = mine
        .filter((one) => one.unit === unit)
        .sort((a, b) => b.value[b.value.length - 1] - a.value[a.value.length - 1])
        .slice(0, COLORS.length);
      const { x, values } = alignSeries(own);
      charts.push({
        key: `${title} ${unit}`,
        title,
        x,
        as: quantity(unit),
        lines: own.map((one, at) => ({
          label: one.name,
          values: values[at],
          color: COLORS[at],
          sparse: true,
          area: own.length === 1,
        })),
      });
    }
  }
  return {
    step: rank.step.slice(),
    dur: rank.dur.slice(),
    last,
    steps: rank.before + rank.step.length,
    before: rank.before,
    recent: recent.length,
    median: quantile(sorted, 0.5),
    pace: recent.length / (span / 1e9),
    now: now.now,
    samples: now.samples,
    notices: rank.notices,
    counters,
    charts,
    x: joined.x,
    lines: shown.map((one, at) => ({
      label: fill(text().stepOf, { rank: one.rank }),
      values: joined.values[at],
      color: COLORS[at],
      sparse: true,
    })),
  };
}

/** Several series of samples on one axis; NaN where one has no sample. */
function alignSeries(parts: { at: number[]; value: number[] }[]): { x: Float64Array; values: Float64Array[] } {
  const x = Float64Array.from(new Set(parts.flatMap((part) => part.at))).sort();
  const place = new Map(Array.from(x, (at, index) => [at, index]));
  const values = parts.map((part) => {
    const column = new Float64Array(x.length).fill(NaN);
    part.at.forEach((at, index) => (column[place.get(at)!] = part.value[index]));
    return column;
  });
  return { x, values };
}
