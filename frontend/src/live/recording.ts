/** What has arrived of a recording. */

/** One event: what each rank has written since the previous one. */
export interface News {
  now_ns: string;
  ranks: {
    rank: number | null;
    world_size: number | null;
    pid: number | null;
    program: string | null;
    framework: string | null;
    origin_ns: string;
    steps: { step: number[]; start_ns: number[]; dur_ns: number[] };
    steps_left_out: number;
    counters: { name: string; unit: string; at_ns: number[]; value: (number | null)[]; left_out: number }[];
    notices: string[];
  }[];
}

export interface Counter {
  name: string;
  unit: string;
  at: number[];
  value: number[];
  seen: number;
}

/** Data of one rank so far. Timestamps are ns since the recording of the first rank began. */
export interface Rank {
  rank: number;
  world: number | null;
  pid: number | null;
  program: string;
  framework: string;
  step: number[];
  start: number[];
  dur: number[];
  before: number;
  counters: Map<string, Counter>;
  notices: string[];
}

const STEPS = 4000;

const SAMPLES = 3000;

export class Recording {
  ranks = new Map<number, Rank>();
  origin: bigint | null = null;
  now = 0;
  samples = 0;

  /** Add new data. After a reconnect the server repeats everything: known data is skipped. */
  add(news: News): void {
    for (const one of news.ranks) {
      const began = BigInt(one.origin_ns);
      this.origin ??= began;
      const shift = Number(began - this.origin);
      const number = one.rank ?? 0;
      const rank: Rank = this.ranks.get(number) ?? {
        rank: number,
        world: one.world_size,
        pid: one.pid,
        program: one.program ?? "",
        framework: one.framework ?? "",
        step: [],
        start: [],
        dur: [],
        before: 0,
        counters: new Map(),
        notices: [],
      };
      this.ranks.set(number, rank);
      rank.notices = one.notices;
      rank.framework = one.framework || rank.framework;
      if (!rank.step.length) rank.before = one.steps_left_out;
      const last = rank.start.at(-1) ?? -Infinity;
      one.steps.start_ns.forEach((start, at) => {
        if (start + shift <= last) return;
        rank.step.push(one.steps.step[at]);
        rank.start.push(start + shift);
        rank.dur.push(one.steps.dur_ns[at]);
      });
      const over = rank.step.length - STEPS;
      if (over > 0) {
        for (const column of [rank.step, rank.start, rank.dur]) column.splice(0, over);
        rank.before += over;
      }
      for (const series of one.counters) {
        const key = `${series.name}\n${series.unit}`;
        const counter: Counter = rank.counters.get(key) ?? {
          name: series.name,
          unit: series.unit,
          at: [],
          value: [],
          seen: 0,
        };
        rank.counters.set(key, counter);
        const since = counter.at.at(-1) ?? -Infinity;
        series.at_ns.forEach((at, index) => {
          if (at + shift <= since) return;
          counter.at.push(at + shift);
          counter.value.push(series.value[index] ?? NaN);
          counter.seen += 1;
          this.samples += 1;
        });
        if (counter.at.length > SAMPLES) {
          counter.value.splice(0, counter.at.length - SAMPLES);
          counter.at.splice(0, counter.at.length - SAMPLES);
        }
      }
    }
    if (this.origin !== null) this.now = Number(BigInt(news.now_ns) - this.origin);
  }
}
