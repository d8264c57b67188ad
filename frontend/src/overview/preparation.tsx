/** Data preparation in one card. */
import { useTable } from "../data";
import { Await, Card, Chip, Empty } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { PageLink } from "../page_links";
import type { Info } from "../source";
import type { Table } from "../table";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import { Message, type Row, tone } from "../verdict";

const text = strings("overview");

/** `verdict` is the headline of the topic `input`. */
export function Preparation({ now, overview, verdict }: { now: Info; overview: Table; verdict?: Row }) {
  const t = text();
  const queues = useTable("data_queues", { per_step: 0 });
  const share = overview.rows ? overview.num("input_wait_share")[0] : NaN;
  const recorded = (now.kinds.data ?? 0) > 0 || (now.tables.pipeline ?? 0) > 0 || (queues.data?.rows ?? 0) > 0;
  const severity = verdict && tone(verdict);
  const chip =
    recorded && Number.isFinite(share) && severity ? (
      <Chip tone={severity}>{{ bad: t.slow, warn: t.waits, good: t.keepsUp }[severity]}</Chip>
    ) : undefined;
  return (
    <Card
      title={t.preparation}
      tools={
        <>
          {chip}
          <PageLink to={{ page: "data" }}>{t.queues}</PageLink>
        </>
      }
    >
      <Await of={queues} rows={3}>
        {(data) => {
          if (!recorded)
            return (
              <Empty title={t.noData} height={84}>
                <code class="mono">{t.noDataHow}</code>
              </Empty>
            );
          const wait = overview.rows ? overview.num("input_wait_ns")[0] : NaN;
          const queue = data.rows ? 0 : -1;
          const [depth, capacity, empty, batches] = ["depth", "capacity", "empty", "batches"].map((name) =>
            queue < 0 ? NaN : data.num(name)[queue],
          );
          return (
            <>
              <p class="d2 small">{verdict && <Message of={verdict} />}</p>
              <div class="ov-flow">
                <div>
                  {queue >= 0 ? data.str("queue")[queue] : t.loader}
                  <b>
                    {queue >= 0
                      ? batches === 1
                        ? t.oneBatch
                        : fill(t.batches, { count: units.count(batches).value })
                      : now.framework === "pytorch"
                        ? "DataLoader"
                        : t.notRecorded}
                  </b>
                </div>
                <span>→</span>
                <div class={Number.isFinite(depth) ? "" : "off"}>
                  {t.queue}
                  <b>
                    {!Number.isFinite(depth)
                      ? t.notRecorded
                      : Number.isFinite(capacity)
                        ? fill(t.ready, { depth: units.count(depth).value, capacity })
                        : fill(t.readyOnly, { depth: units.count(depth).value })}
                  </b>
                </div>
                <span>→</span>
                <div>
                  {t.loop}
                  <b>
                    {Number.isFinite(wait) ? (
                      <Sentence template={t.waitedStep} time={<Time ns={wait} figure="input_wait_ns" />} />
                    ) : queue >= 0 ? (
                      fill(t.waited, { time: units.text(units.time(data.num("wait_ns")[queue])) })
                    ) : (
                      <Share of={share} />
                    )}
                  </b>
                </div>
              </div>
              {Number.isFinite(share) && Number.isFinite(empty) && (
                <p class="d3 small">
                  {empty
                    ? fill(t.emptyTimes, { count: units.count(empty).value, all: units.count(batches).value })
                    : t.neverEmpty}
                </p>
              )}
            </>
          );
        }}
      </Await>
    </Card>
  );
}
