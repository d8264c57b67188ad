/** The figures of the job in one card. */
import { Tile, Tiles } from "../parts/basics";
import { Quantity, Share, Time } from "../parts/quantity";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import { number } from "./choices";

const text = strings("cluster");

export function Summary({ ranks, figures, slow }: { ranks: Table; figures: Table; slow: Table }) {
  const t = text();
  const states = ranks.str("state");
  const count = (state: string) => states.filter((one) => one === state).length;
  const gone = count("missing") + count("broken");
  const own = known(figures, "own_ns");
  const usual = middle(own);
  const losses = slow.num("loss_share").filter(Number.isFinite);
  const unsure = known(figures, "clock_uncertainty_ns");
  const memory = known(figures, "peak_memory_bytes");
  const kinds = slow.str("kind");
  const of = (kind: string) => kinds.filter((one) => one === kind).length;
  return (
    <Tiles label={t.tiles}>
      <Tile
        label={t.ranksTile}
        context={gone ? fill(t.ranksGone, { count: gone, shorter: count("shorter") }) : t.ranksWhole}
        tone={gone ? "warn" : undefined}
      >
        {number(ranks.rows - gone)}
        <span class="u"> / {number(ranks.rows)}</span>
      </Tile>
      <Tile label={t.ownTile} context={t.ownContext}>
        <Time ns={usual} why={t.ownMissing} />
      </Tile>
      <Tile label={t.spreadTile} context={t.spreadContext}>
        <Share of={own.length ? Math.max(...own) / usual - 1 : NaN} why={t.ownMissing} />
      </Tile>
      <Tile
        label={t.slowTile}
        context={fill(t.slowContext, { hosts: of("host"), links: of("link"), stages: of("stage") })}
        tone={slow.rows ? "bad" : "good"}
      >
        {number(of("rank"))}
      </Tile>
      <Tile label={t.lossTile} context={t.lossContext} tone={losses.length ? "bad" : undefined}>
        <Share of={losses.length ? Math.max(...losses) : slow.rows ? NaN : 0} why={t.lossMissing} />
      </Tile>
      <Tile label={t.memoryTile} context={t.memoryContext}>
        <Quantity value={memory.length ? Math.max(...memory) : NaN} as="bytes" why={t.memoryMissing} />
      </Tile>
      <Tile label={t.clockTile} context={t.clockContext}>
        <Time ns={unsure.length ? Math.max(...unsure) : NaN} why={t.clockMissing} />
      </Tile>
    </Tiles>
  );
}

function known(table: Table, key: string): number[] {
  return Array.from(table.num(key)).filter(Number.isFinite);
}

function middle(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length === 0 ? NaN : sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
