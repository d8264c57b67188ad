/** One step of one pipeline: a line per stage with its computation, transfers and collectives (a Marey chart). */
import { css } from "../colors";
import { info, useTable } from "../data";
import { Await, Card, Chip, Legend } from "../parts/basics";
import { Time } from "../parts/quantity";
import { link, param } from "../state";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Canvas } from "./canvas";
import { number, selection } from "./choices";
import { useMemo } from "preact/hooks";

const text = strings("cluster");
const KINDS = [
  { key: "forward", color: "--kind-compute" },
  { key: "backward", color: "--kind-host" },
  { key: "send", color: "--kind-copy" },
  { key: "receive", color: "--kind-wait" },
  { key: "collective", color: "--kind-communication" },
  { key: "other", color: "--op-other" },
] as const;
const [LEFT, RIGHT, ROW, TOP, BOTTOM] = [92, 74, 26, 4, 20];

export function Pipeline({ map }: { map: Table }) {
  const has = new Set(Array.from(map.num("pp")).filter(Number.isFinite)).size > 1;
  const step = selection().step;
  const replica = Number(param("replica") ?? 0);
  const asked = useTable("pipeline_chart", { step, replica: replica || null }, { allRanks: true, skip: !has });
  if (!has) return null;
  return <Await of={asked}>{(table) => (table.rows ? <Chart table={table} /> : null)}</Await>;
}

function Chart({ table }: { table: Table }) {
  const t = text();
  const rows = useMemo(() => {
    const stages = new Map<number, { rank: number; stage: number; bubble: number }>();
    for (let row = 0; row < table.rows; row++)
      stages.set(table.num("rank")[row], {
        rank: table.num("rank")[row],
        stage: table.num("stage")[row],
        bubble: table.num("bubble_share")[row],
      });
    return [...stages.values()];
  }, [table]);
  const lineOf = useMemo(() => new Map(rows.map((row, at) => [row.rank, at])), [rows]);
  const tall = Math.max(6, Math.min(ROW, Math.floor(560 / rows.length)));
  const height = TOP + rows.length * tall + BOTTOM;
  const kinds = useMemo(() => table.str("kind"), [table]);
  const [low, high] = useMemo(
    () => [
      Math.min(0, ...table.num("start_ns").subarray(0, 1)),
      table.num("end_ns").reduce((most, end) => Math.max(most, end), 1),
    ],
    [table],
  );
  const scale = (width: number) => (width - LEFT - RIGHT) / (high - low || 1);
  const draw = (context: CanvasRenderingContext2D, width: number) => {
    const by = scale(width);
    const colors = new Map(KINDS.map((kind) => [kind.key as string, css(kind.color)]));
    rows.forEach((row, at) => {
      const y = TOP + at * tall;
      context.fillStyle = css("--sunken");
      context.fillRect(LEFT, y, width - LEFT - RIGHT, tall - 3);
      context.fillStyle = css("--text-2");
      context.textAlign = "left";
      if (tall >= 10) context.fillText(fill(t.stageRank, { stage: row.stage, rank: row.rank }), 0, y + tall / 2);
      context.textAlign = "right";
      context.fillStyle = css("--text-3");
      if (tall >= 10 && Number.isFinite(row.bubble))
        context.fillText(units.text(units.share(row.bubble)), width - 4, y + tall / 2);
    });
    // Waits first, so that work that overlaps them stays visible.
    const order = ["receive", "send", "collective", "other", "forward", "backward"];
    for (const kind of order) {
      context.fillStyle = colors.get(kind) ?? css("--op-other");
      for (let row = 0; row < table.rows; row++) {
        if (kinds[row] !== kind) continue;
        const y = TOP + lineOf.get(table.num("rank")[row])! * tall;
        const x = LEFT + (table.num("start_ns")[row] - low) * by;
        const wide = Math.max(0.75, (table.num("end_ns")[row] - table.num("start_ns")[row]) * by);
        context.fillRect(x, y, wide, tall - 3);
        const batch = table.num("micro_batch")[row];
        if (wide > 16 && tall >= 14 && Number.isFinite(batch)) {
          context.save();
          context.fillStyle = css("--on-kind");
          context.textAlign = "center";
          context.fillText(String(batch), x + wide / 2, y + (tall - 3) / 2);
          context.restore();
        }
      }
    }
    context.fillStyle = css("--text-3");
    context.textAlign = "center";
    for (const tick of [0, 0.25, 0.5, 0.75, 1])
      context.fillText(
        units.text(units.time(low + (high - low) * tick)),
        LEFT + (width - LEFT - RIGHT) * tick,
        height - 8,
      );
  };
  const at = (x: number, y: number, width: number) => {
    const row = rows[Math.floor((y - TOP) / tall)];
    if (!row) return null;
    const time = low + (x - LEFT) / scale(width);
    const slack = 2 / scale(width);
    let found: number | null = null;
    for (let one = 0; one < table.rows; one++)
      if (
        table.num("rank")[one] === row.rank &&
        table.num("start_ns")[one] - slack <= time &&
        table.num("end_ns")[one] + slack >= time
      )
        found = one;
    return found;
  };
  const step = table.num("step")[0];
  const shares = rows.map((row) => row.bubble).filter(Number.isFinite);
  const mean = shares.length ? shares.reduce((sum, share) => sum + share, 0) / shares.length : NaN;
  const first = rows[0];
  const start = table.num("step_start_ns")[0];
  return (
    <Card
      title={t.pipeline}
      note={fill(t.pipelineNote, { step: number(step), stages: rows.length })}
      tools={
        <span class="cluster-tools">
          {Number.isFinite(mean) && (
            <Chip tone={mean > 0.2 ? "bad" : mean > 0.05 ? "warn" : undefined}>
              {fill(t.bubble, { share: units.text(units.share(mean)) })}
            </Chip>
          )}
          <a
            href={link({
              page: "timeline",
              params: { rank: first.rank, t0: Math.round(start), t1: Math.round(start + table.num("step_ns")[0]) },
            })}
          >
            {t.toTimeline}
          </a>
          <Legend
            of={KINDS.filter((kind) => kinds.includes(kind.key)).map((kind) => ({
              label: t[kind.key],
              color: `var(${kind.color})`,
            }))}
          />
        </span>
      }
    >
      <Canvas
        height={height}
        draw={draw}
        of={[table, rows]}
        label={t.pipeline}
        say={(x, y, width) => {
          const row = at(x, y, width);
          if (row === null) return null;
          return (
            <>
              <b>{table.str("operation")[row]}</b>
              <dl>
                <dt>{t.rank}</dt>
                <dd>{number(table.num("rank")[row])}</dd>
                {Number.isFinite(table.num("micro_batch")[row]) && [
                  <dt key="batch">{t.microBatch}</dt>,
                  <dd key="batchv">{number(table.num("micro_batch")[row])}</dd>,
                ]}
                <dt>{t.time}</dt>
                <dd>
                  <Time ns={table.num("end_ns")[row] - table.num("start_ns")[row]} />
                </dd>
                {Number.isFinite(table.num("wait_ns")[row]) && [
                  <dt key="wait">{t.wait_ns}</dt>,
                  <dd key="waitv">
                    <Time ns={table.num("wait_ns")[row]} />
                  </dd>,
                ]}
              </dl>
            </>
          );
        }}
      />
      {(info.value!.tables.stage_operations ?? 0) === 0 && <p class="d3 small">{t.pipelineCalls}</p>}
    </Card>
  );
}
