/** The headline of the page. */
import { info } from "../data";
import { Verdict } from "../parts/basics";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Message, type Row } from "../verdict";
import { sum } from "./figures";

const text = strings("communication");

export function Headline({ verdict, means, cells }: { verdict: Row[]; means: Table; cells: Table }) {
  const t = text();
  const now = info.value!;
  const missing = missingRanks();
  const list = units.ranges(missing).split(", ");
  const most = Math.max(0, ...means.num("steps"));
  const left = cells.rows - sum(means.num("steps"));
  const waits = verdict.find((row) => row.code === "communication-waits");
  const parallel = Object.entries((now.extra.parallel ?? {}) as Record<string, number>).map(
    ([name, size]) => `${name} ${size}`,
  );
  return (
    <Verdict
      facts={[
        now.world_size && now.world_size > 1
          ? fill(t.ranksOf, { count: now.ranks.length, world: now.world_size })
          : now.ranks.length === 1
            ? t.oneRank
            : fill(t.ranks, { count: now.ranks.length }),
        missing.length > 0 && (
          <span class="warn" title={list.join(", ")}>
            {fill(list.length > 8 ? t.missingMore : t.missing, {
              list: list.slice(0, 8).join(", "),
              count: list.length - 8,
            })}
          </span>
        ),
        means.rows > 0 && (most === 1 ? t.oneStep : fill(t.steps, { count: units.count(most).value })),
        left > 0 && t.leftOut,
        parallel.length > 0 && parallel.join(" · "),
        waits && <Message of={waits} />,
      ]}
    >
      {verdict.length ? <Message of={verdict[0]} /> : "…"}
    </Verdict>
  );
}

/** Ranks of the job that are not recorded. */
export function missingRanks(): number[] {
  const now = info.value!;
  const there = new Set(now.ranks);
  return Array.from({ length: now.world_size ?? 0 }, (_, one) => one).filter((one) => !there.has(one));
}
