/** The mean step of every rank or group as stacked bars, the longest first: one pixel or more per row. */
import { css } from "../colors";
import { useTable, warmupParams } from "../data";
import { Await, Card, Empty, Legend } from "../parts/basics";
import { Time } from "../parts/quantity";
import { strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Canvas } from "./canvas";
import { type Grouping, grouping, rowName, select } from "./choices";
import { useMemo } from "preact/hooks";

const text = strings("cluster");
const LAYERS = [
  { key: "compute_ns", color: "--kind-compute" },
  { key: "host_ns", color: "--kind-host" },
  { key: "collection_ns", color: "--kind-copy" },
  { key: "input_ns", color: "--kind-wait" },
  { key: "exposed_ns", color: "--kind-communication" },
] as const;
const [LEFT, BOTTOM, HEIGHT] = [52, 18, 244];

export function Bars({ places }: { places: Table }) {
  const t = text();
  const by = grouping(places);
  const asked = useTable("cluster_ranks", { by: by === "rank" ? null : by, ...warmupParams() }, { allRanks: true });
  return (
    <Card title={t.bars} note={t.barsNote}>
      <Legend of={LAYERS.map((layer) => ({ label: t[layer.key], color: `var(${layer.color})` }))} />
      <Await of={asked}>
        {(table) =>
          table.blank("own_ns") ? (
            <Empty title={t.ownMissing} height={160}>
              {t.noCellsHow}
            </Empty>
          ) : (
            <Stacks table={table} by={by} />
          )
        }
      </Await>
    </Card>
  );
}

function Stacks({ table, by }: { table: Table; by: Grouping }) {
  const t = text();
  const rows = useMemo(() => {
    const own = table.num("own_ns");
    const known = Array.from({ length: table.rows }, (_, row) => row).filter((row) => Number.isFinite(own[row]));
    return known.sort((a, b) => own[b] - own[a]);
  }, [table]);
  const most = useMemo(
    () => Math.max(1, ...rows.map((row) => LAYERS.reduce((sum, layer) => sum + (table.num(layer.key)[row] || 0), 0))),
    [rows, table],
  );
  const tall = HEIGHT - BOTTOM - 6;
  const wide = (width: number) => Math.min(24, (width - LEFT - 4) / rows.length);
  const at = (x: number, width: number) => {
    const place = Math.floor((x - LEFT) / wide(width));
    return place >= 0 && place < rows.length ? rows[place] : null;
  };
  const draw = (context: CanvasRenderingContext2D, width: number) => {
    const each = wide(width);
    const ticks = [0, 0.5, 1];
    context.textAlign = "right";
    for (const tick of ticks) {
      const y = 6 + tall * (1 - tick);
      context.fillStyle = css("--grid");
      context.fillRect(LEFT, Math.round(y), width - LEFT, 1);
      context.fillStyle = css("--text-3");
      context.fillText(units.text(units.time(most * tick)), LEFT - 6, y);
    }
    const colors = LAYERS.map((layer) => css(layer.color));
    const gap = each > 5 ? 1 : 0;
    rows.forEach((row, place) => {
      let y = 6 + tall;
      LAYERS.forEach((layer, index) => {
        const part = ((table.num(layer.key)[row] || 0) / most) * tall;
        context.fillStyle = colors[index];
        context.fillRect(LEFT + place * each, y - part, Math.max(each - gap, 0.5), part);
        y -= part;
      });
    });
    context.fillStyle = css("--text-3");
    context.textAlign = "left";
    const label = (row: number) => rowName(by, table.str("label")[row] ?? "");
    context.fillText(label(rows[0]), LEFT, HEIGHT - 7);
    if (rows.length * each > 260) {
      context.textAlign = "right";
      context.fillText(label(rows[rows.length - 1]), LEFT + rows.length * each, HEIGHT - 7);
    }
  };
  return (
    <Canvas
      height={HEIGHT}
      draw={draw}
      of={[rows, most, by]}
      label={t.bars}
      onPick={(x, _, width) => {
        const row = at(x, width);
        if (row !== null && by === "rank") select(table.num("rank")[row], null);
      }}
      say={(x, _, width) => {
        const row = at(x, width);
        if (row === null) return null;
        return (
          <>
            <b>{rowName(by, table.str("label")[row] ?? "")}</b>
            <dl>
              {[...LAYERS].reverse().map((layer) => [
                <dt key={layer.key}>{t[layer.key]}</dt>,
                <dd key={`${layer.key}v`}>
                  <Time ns={table.num(layer.key)[row]} />
                </dd>,
              ])}
            </dl>
          </>
        );
      }}
    />
  );
}
