/**
 * Where each rank is: one panel per pipeline stage, data parallelism from left to right, tensor parallelism from
 * top to bottom.
 */
import { css } from "../colors";
import { Card } from "../parts/basics";
import { heatRange } from "../parts/heat";
import { Time } from "../parts/quantity";
import { param } from "../state";
import { strings } from "../strings";
import type { Table } from "../table";
import { Canvas } from "./canvas";
import { DIMENSIONS, FIGURES, number, select, selection } from "./choices";
import { useMemo } from "preact/hooks";

const text = strings("cluster");
const [LEFT, GAP, CELL, MOST_TALL] = [44, 8, 14, 240];
/** Ranks in one line of data parallelism alone; more fill several lines. */
const LINE = 160;

interface Cell {
  rank: number;
  row: number; // of the map
  panel: number;
  x: number;
  y: number;
}

interface Layout {
  cells: Cell[];
  panels: number[];
  across: number;
  down: number;
}

/** Cells by their indices in the dimensions; ranks without any fill lines of one width. */
function layout(map: Table): Layout {
  const of = (name: string, row: number) => map.num(name)[row];
  const known = (name: string) => map.num(name).some(Number.isFinite);
  const [hasData, hasInner] = [known("dp"), known("tp") || known("cp") || known("ep")];
  const panels = [...new Set(Array.from(map.num("pp"), (stage) => (Number.isFinite(stage) ? stage : -1)))].sort(
    (a, b) => a - b,
  );
  const filled = new Map<number, number>();
  const share = Math.ceil(map.rows / panels.length);
  const line = Math.max(8, Math.ceil(Math.sqrt(share * 4) / 8) * 8);
  const inner = known("tp") ? "tp" : known("cp") ? "cp" : "ep";
  const inLine = hasData && (hasInner || Math.max(...Array.from(map.num("dp")).filter(Number.isFinite)) < LINE);
  const cells = Array.from({ length: map.rows }, (_, row) => {
    const stage = Number.isFinite(of("pp", row)) ? of("pp", row) : -1;
    const panel = panels.indexOf(stage);
    const place = filled.get(panel) ?? 0;
    filled.set(panel, place + 1);
    const placed = inLine && Number.isFinite(of("dp", row)) && (!hasInner || Number.isFinite(of(inner, row)));
    const [x, y] = placed ? [of("dp", row), hasInner ? of(inner, row) : 0] : [place % line, Math.floor(place / line)];
    return { rank: map.num("rank")[row], row, panel, x, y };
  });
  const most = (key: "x" | "y") => cells.reduce((high, cell) => Math.max(high, cell[key]), 0) + 1;
  return { cells, panels, across: most("x"), down: most("y") };
}

export function ParallelMap({ map, figures }: { map: Table; figures: Table }) {
  const t = text();
  const figure = FIGURES.find((one) => one.key === param("of")) ?? FIGURES[0];
  const key = figures.has(figure.key) ? figure.key : "own_ns";
  const made = useMemo(() => layout(map), [map]);
  const values = useMemo(() => {
    const of = new Map(Array.from(figures.num("rank"), (rank, row) => [rank, figures.num(key)[row]]));
    return Float64Array.from(made.cells, (cell) => of.get(cell.rank) ?? NaN);
  }, [figures, made, key]);
  const range = useMemo(() => heatRange(values), [values]);
  const tall = Math.max(
    2,
    Math.min(CELL, Math.floor((MOST_TALL - made.panels.length * GAP) / (made.panels.length * made.down))),
  );
  const height = made.panels.length * (made.down * tall + GAP) + 14;
  const wide = (width: number) => Math.max(0.5, Math.min(CELL * 5, (width - LEFT - 2) / made.across));
  const byPlace = useMemo(
    () => new Map(made.cells.map((cell, at) => [`${cell.panel}:${cell.x}:${cell.y}`, at])),
    [made],
  );
  const chosen = selection().rank;
  const draw = (context: CanvasRenderingContext2D, width: number) => {
    const each = wide(width);
    const gap = each > 4 && tall > 4 ? 1 : 0;
    const [fill, idle] = [css(figure.color), css("--border-strong")];
    context.fillStyle = css("--text-3");
    made.panels.forEach((stage, panel) => {
      const y = panel * (made.down * tall + GAP);
      context.fillText(stage < 0 ? "" : `PP ${stage}`, 0, y + Math.max(7, (made.down * tall) / 2));
    });
    made.cells.forEach((cell, at) => {
      const [x, y] = [LEFT + cell.x * each, cell.panel * (made.down * tall + GAP) + cell.y * tall];
      const value = values[at];
      if (Number.isFinite(value)) {
        context.globalAlpha =
          0.12 + 0.88 * Math.min(1, Math.max(0, (value - range.low) / (range.high - range.low || 1)));
        context.fillStyle = fill;
        context.fillRect(x, y, Math.max(0.5, each - gap), tall - gap);
        context.globalAlpha = 1;
      } else {
        context.strokeStyle = idle;
        context.strokeRect(x + 0.5, y + 0.5, Math.max(0.5, each - gap - 1), Math.max(0.5, tall - gap - 1));
      }
      if (cell.rank === chosen) {
        context.strokeStyle = css("--accent");
        context.lineWidth = 2;
        context.strokeRect(x - 1, y - 1, each + 1, tall + 1);
        context.lineWidth = 1;
      }
    });
    context.fillStyle = css("--text-3");
    const inner = DIMENSIONS.filter((name) => name !== "pp" && map.num(name).some(Number.isFinite));
    const axes =
      inner.includes("dp") && inner.length > 1
        ? `DP → · ${inner.find((name) => name !== "dp")!.toUpperCase()} ↓`
        : inner.includes("dp") && made.down === 1
          ? "DP →"
          : t.rankOrder;
    context.fillText(axes, LEFT, height - 6);
  };
  const at = (x: number, y: number, width: number) => {
    const panel = Math.floor(y / (made.down * tall + GAP));
    const place = `${panel}:${Math.floor((x - LEFT) / wide(width))}:${Math.floor((y - panel * (made.down * tall + GAP)) / tall)}`;
    return byPlace.get(place);
  };
  return (
    <Card title={t.map} note={map.str("how").some(Boolean) ? t[figure.key] : t.mapUnknown}>
      <Canvas
        height={height}
        draw={draw}
        of={[made, values, range, chosen]}
        label={t.map}
        onPick={(x, y, width) => {
          const cell = at(x, y, width);
          if (cell !== undefined) select(made.cells[cell].rank, null);
        }}
        say={(x, y, width) => {
          const cell = at(x, y, width);
          if (cell === undefined) return null;
          const { rank, row } = made.cells[cell];
          const host = map.str("host")[row];
          return (
            <>
              <b>
                {t.rank} {number(rank)}
                {host && ` · ${host}`}
              </b>
              <dl>
                {DIMENSIONS.filter((name) => Number.isFinite(map.num(name)[row])).map((name) => [
                  <dt key={name}>{name.toUpperCase()}</dt>,
                  <dd key={`${name}v`}>{number(map.num(name)[row])}</dd>,
                ])}
                <dt>{t[figure.key]}</dt>
                <dd>
                  <Time ns={values[cell]} why={t.notRecorded} />
                </dd>
              </dl>
            </>
          );
        }}
      />
    </Card>
  );
}
