/** Tables of blocks, steps and operators. */
import { color } from "../colors";
import { type Fetched, info, useTable } from "../data";
import { Await, Card, Empty, Tabs } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Time } from "../parts/quantity";
import { absoluteTime } from "../time_range";
import { go, link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Composition } from "./composition";
import { sampleCount, type Figures, type Peak } from "./figures";
import { useMemo } from "preact/hooks";

const text = strings("memory");

const LARGEST = 1000;

const TABS = ["alive", "steps", "ops", "kept", "largest", "moments"] as const;

type Tab = (typeof TABS)[number];

interface DetailsProps {
  device: Peak;
  moment: number;
  alive: Fetched<Table>;
  peaks: Table;
  blocks: number;
  shown: Table | null;
  figures: Figures;
}

export function Details({ device, moment, alive, peaks, blocks, shown, figures }: DetailsProps) {
  const t = text();
  const requested = param("tab") as Tab | undefined;
  const tab = requested && TABS.includes(requested) ? requested : "alive";
  const end = absoluteTime(Number(BigInt(info.value!.end_ns) - BigInt(info.value!.origin_ns)));
  const ops = useTable("allocations_by_op", { device: device.device, by_scope: true }, { skip: blocks === 0 });
  const last = useTable(
    "live_tensors",
    { device: device.device, at_ns: end },
    { skip: blocks === 0 || tab !== "kept" },
  );
  const largest = useTable(
    "tables/allocations",
    { sort: "bytes", descending: 1, limit: LARGEST },
    { skip: blocks === 0 || tab !== "largest" },
  );
  const ownRows = useMemo(
    () =>
      largest.data &&
      largest.data.pick(largest.data.where((row) => largest.data!.str("device")[row] === device.device)),
    [largest.data, device.device],
  );
  const kept = useMemo(
    () =>
      last.data &&
      last.data.pick(
        last.data.where(
          (row) => Number.isNaN(last.data!.num("free_ns")[row]) && !Number.isNaN(last.data!.num("alloc_ns")[row]),
        ),
      ),
    [last.data],
  );
  const title = fill(t.alive, { at: units.text(units.time(moment)) });
  const tabs = (
    <Tabs
      label={t.views}
      value={tab}
      onChange={(id) => go({ params: { tab: id === "alive" ? null : id } }, true)}
      choices={[
        { id: "alive", label: title, count: alive.data?.rows },
        { id: "steps", label: t.perStep, count: peaks.rows },
        { id: "ops", label: t.byOp, count: ops.data?.rows },
        { id: "kept", label: t.kept },
        { id: "largest", label: t.largest },
        { id: "moments", label: t.points },
      ]}
    />
  );
  const none = (
    <Card title={t.aliveShort}>
      <Empty title={t.noBlocks}>
        <Sentence template={t.noBlocksHow} flag={<code class="mono">--memory</code>} />
      </Empty>
    </Card>
  );
  return (
    <>
      {tabs}
      {tab === "alive" &&
        (blocks === 0 ? (
          none
        ) : (
          <div class="alive">
            <Card title={t.composition} class="made">
              <Await of={alive} rows={8}>
                {(table) => <Composition table={table} fixed={figures.static} />}
              </Await>
            </Card>
            <Card
              title={title}
              tools={
                moment !== device.at && (
                  <button class="btn sm" onClick={() => go({ params: { at: null } }, true)}>
                    {t.toPeak}
                  </button>
                )
              }
              flush
            >
              <Await of={alive}>
                {(table) => (
                  <Grid
                    id="alive"
                    table={table}
                    columns={blockColumns(table)}
                    search={["op", "scope", "name", "category", "shape", "dtype"].filter((name) => table.has(name))}
                    sort="-bytes"
                    what={t.what}
                    label={title}
                  />
                )}
              </Await>
            </Card>
          </div>
        ))}
      {tab === "steps" && (
        <Card title={t.perStep} flush>
          <Grid
            id="peaks"
            table={peaks}
            label={t.perStep}
            sort="step"
            columns={[
              { key: "step", label: t.step },
              { key: "peak_bytes", label: t.peak_, bar: true },
              { key: "op", label: t.op, as: "name", color: (table, row) => color(table.str("op")[row] ?? "") },
              { key: "scope", label: t.scope, as: "name", hide: peaks.blank("scope") },
              { key: "peak_ns", label: t.moment, show: (table, row) => <Go at={table.num("peak_ns")[row]} /> },
              { key: "reserved_bytes", label: t.reserved },
              { key: "static_bytes", label: t.static },
              { key: "growth_bytes", label: t.growth },
            ]}
          />
        </Card>
      )}
      {tab === "ops" &&
        (blocks === 0 ? (
          none
        ) : (
          <Card title={t.byOp} flush>
            <Await of={ops}>
              {(table) => (
                <Grid
                  id="ops"
                  table={table}
                  search={["op", "scope"]}
                  sort="-allocated_bytes"
                  label={t.byOp}
                  onOpen={(of, row) => go({ params: { tab: "largest", "largest.find": of.str("op")[row] } })}
                  columns={[
                    { key: "op", label: t.op, as: "name", color: (table, row) => color(table.str("op")[row] ?? "") },
                    { key: "scope", label: t.scope, as: "name", hide: table.blank("scope") },
                    { key: "blocks", label: t.blocks_ },
                    {
                      key: "allocated_bytes",
                      label: t.total,
                      bar: true,
                      color: (table, row) => color(table.str("op")[row] ?? ""),
                    },
                    { key: "peak_bytes", label: t.most },
                    { key: "largest_bytes", label: t.largest },
                    { key: "never_freed", label: t.keptBlocks },
                    { key: "never_freed_bytes", label: t.keptBytes },
                  ]}
                />
              )}
            </Await>
          </Card>
        ))}
      {tab === "kept" &&
        (blocks === 0 ? (
          none
        ) : (
          <Card title={t.kept} note={t.keptNote} flush>
            <Await of={last}>
              {() =>
                kept!.rows ? (
                  <Grid
                    id="kept"
                    table={kept!}
                    columns={blockColumns(kept!)}
                    search={["op", "name", "category", "shape"]}
                    sort="-bytes"
                    what={t.what}
                    label={t.kept}
                  />
                ) : (
                  <Empty title={t.nothingKept} />
                )
              }
            </Await>
          </Card>
        ))}
      {tab === "largest" &&
        (blocks === 0 ? (
          none
        ) : (
          <Card
            title={t.largest}
            note={
              largest.data &&
              largest.data.total > LARGEST &&
              fill(t.largestNote, {
                count: units.count(largest.data.rows).value,
                all: units.count(largest.data.total).value,
              })
            }
            flush
          >
            <Await of={largest}>
              {() => (
                <Grid
                  id="largest"
                  table={ownRows!}
                  columns={blockColumns(ownRows!)}
                  search={["op", "name", "category", "shape"]}
                  sort="-bytes"
                  what={t.what}
                  label={t.largest}
                />
              )}
            </Await>
          </Card>
        ))}
      {tab === "moments" && shown && (
        <Card title={t.points} note={sampleCount(shown) > shown.rows ? t.everyPixel : t.all} flush>
          <Grid
            id="moments"
            table={shown}
            search={["op"]}
            label={t.points}
            columns={[
              { key: "event", label: t.order },
              { key: "at_ns", label: t.moment, show: (table, row) => <Go at={table.num("at_ns")[row]} /> },
              { key: "allocated_bytes", label: t.allocated, bar: true },
              { key: "change_bytes", label: t.change },
              { key: "op", label: t.op, as: "name", color: (table, row) => color(table.str("op")[row] ?? "") },
              { key: "reserved_bytes", label: t.reserved_ },
              { key: "static_bytes", label: t.static_, hide: true },
            ]}
          />
        </Card>
      )}
    </>
  );
}

/** A timestamp that shows its live tensors on click. */
function Go({ at }: { at: number }) {
  return Number.isNaN(at) ? (
    <>–</>
  ) : (
    <a href={link({ params: { at: Math.round(at), tab: null } })} title={text().pick}>
      <Time ns={at} />
    </a>
  );
}

function blockColumns(table: Table): Column[] {
  const t = text();
  const timeline = (row: Table, at: number) => {
    const [from, to] = [row.num("alloc_ns")[at], row.num("free_ns")[at]];
    return link({
      page: "timeline",
      params: { t0: Math.round(from), t1: Math.round(Number.isNaN(to) ? from + 1e6 : to) },
    });
  };
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name" },
    { key: "op", label: t.op, as: "name", color: (rows, row) => color(rows.str("op")[row] ?? "") },
    { key: "scope", label: t.scope, as: "name" },
    { key: "bytes", label: t.size, bar: true, color: (rows, row) => color(rows.str("op")[row] ?? "") },
    { key: "category", label: t.category, as: "text", width: "minmax(90px, 1fr)" },
    { key: "dtype", label: t.dtype, as: "text", width: "minmax(70px, .8fr)" },
    { key: "shape", label: t.shape, as: "name", width: "minmax(110px, 1.4fr)" },
    { key: "format", label: t.format, as: "text", width: "minmax(70px, .8fr)" },
    {
      key: "alloc_ns",
      label: t.from,
      show: (rows, row) =>
        Number.isNaN(rows.num("alloc_ns")[row]) ? (
          <span class="d3">{t.before}</span>
        ) : (
          <a href={timeline(rows, row)}>
            <Time ns={rows.num("alloc_ns")[row]} />
          </a>
        ),
    },
    {
      key: "free_ns",
      label: t.until,
      show: (rows, row) =>
        Number.isNaN(rows.num("free_ns")[row]) ? (
          <span class="d3">{t.outlived}</span>
        ) : (
          <Time ns={rows.num("free_ns")[row]} />
        ),
    },
    { key: "life_ns", label: t.life },
    {
      key: "address",
      label: t.address,
      hide: true,
      show: (rows, row) => <span class="mono">0x{BigInt(rows.raw("address", row) || 0).toString(16)}</span>,
    },
  ];
  return columns.filter(
    (column) =>
      ["op", "bytes", "alloc_ns", "free_ns"].includes(column.key) ||
      (table.has(column.key) && !table.blank(column.key)),
  );
}
