/** Whether data preparation keeps up, in one card. */
import { useTable } from "../data";
import { Await, Card, Chip, Empty, Share, Time } from "../parts/basics";
import { PageLink } from "../reachable";
import type { Info } from "../source";
import type { Table } from "../table";
import { fill, Say } from "../text";
import * as units from "../units";
import { text } from "./words";

export function Preparation({ now, overview }: { now: Info; overview: Table }) {
  const t = text();
  const queues = useTable("data_queues", { per_step: 0 });
  const share = overview.rows ? overview.num("input_wait_share")[0] : NaN;
  const recorded = (now.kinds.data ?? 0) > 0 || (now.tables.pipeline ?? 0) > 0 || (queues.data?.rows ?? 0) > 0;
  const slow = share >= 0.05;
  const chip = recorded && Number.isFinite(share) ? <Chip tone={slow ? (share >= 0.2 ? "bad" : "warn") : "good"}>{slow ? (share >= 0.2 ? t.slow : t.waits) : t.keepsUp}</Chip> : undefined;
  return (
    <Card title={t.preparation} tools={<>{chip}<PageLink to={{ page: "data" }}>{t.queues}</PageLink></>}>
      <Await of={queues} rows={3}>
        {(data) => {
          if (!recorded) return <Empty title={t.noData} height={84}><code class="mono">{t.noDataHow}</code></Empty>;
          const wait = overview.rows ? overview.num("input_wait_ns")[0] : NaN;
          const queue = data.rows ? 0 : -1;
          const [depth, capacity, empty, batches] = ["depth", "capacity", "empty", "batches"].map((name) => (queue < 0 ? NaN : data.num(name)[queue]));
          return (
            <>
              <p class="d2 small"><Say of={Number.isFinite(share) ? (slow ? t.notReady : t.readyAlways) : empty >= 0 ? t.queueOnly : t.notKnown} empty={<b>{units.count(empty).value}</b>} all={units.count(batches).value} wait={<b><Time ns={wait} /></b>} share={<b><Share of={share} /></b>} /></p>
              <div class="ov-flow">
                <div>{queue >= 0 ? data.str("queue")[queue] : t.loader}<b>{queue >= 0 ? (batches === 1 ? t.oneBatch : fill(t.batches, { count: units.count(batches).value })) : now.framework === "pytorch" ? "DataLoader" : t.notRecorded}</b></div>
                <span>→</span>
                <div class={Number.isFinite(depth) ? "" : "off"}>{t.queue}<b>{!Number.isFinite(depth) ? t.notRecorded : Number.isFinite(capacity) ? fill(t.ready, { depth: units.count(depth).value, capacity }) : fill(t.readyOnly, { depth: units.count(depth).value })}</b></div>
                <span>→</span>
                <div>{t.loop}<b>{Number.isFinite(wait) ? fill(t.waitedStep, { time: units.text(units.time(wait)) }) : queue >= 0 ? fill(t.waited, { time: units.text(units.time(data.num("wait_ns")[queue])) }) : <Share of={share} />}</b></div>
              </div>
              {Number.isFinite(share) && Number.isFinite(empty) && <p class="d3 small">{empty ? fill(t.emptyTimes, { count: units.count(empty).value, all: units.count(batches).value }) : t.neverEmpty}</p>}
            </>
          );
        }}
      </Await>
    </Card>
  );
}
