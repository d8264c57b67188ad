/** Operators and the queues between them as a picture. */
import { useMemo } from "preact/hooks";
import { useWidth } from "../parts/basics";
import { minmaxPath } from "../parts/step_line";
import { go } from "../state";
import { Table } from "../table";
import { fill, strings } from "../strings";
import * as units from "../units";
import { samplesOf } from "./history";

const text = strings("data");

interface Node {
  row: number;
  /** Columns from the left, lines from the top. */
  column: number;
  line: number;
}

/** A tree from the operators that read storage, on the left, to the training on the right. */
function layered(table: Table): { nodes: Node[]; columns: number; lines: number } {
  const ids = table.num("op_id");
  const parent = table.num("parent");
  const rowOf = new Map(Array.from(ids, (id, row) => [id, row]));
  const children = new Map<number, number[]>();
  const roots: number[] = [];
  for (let row = 0; row < table.rows; row++) {
    const above = rowOf.get(parent[row]);
    if (above === undefined || above === row) roots.push(row);
    else children.set(above, [...(children.get(above) ?? []), row]);
  }
  const depth = new Map<number, number>();
  const line = new Map<number, number>();
  let lines = 0;
  const place = (row: number, deep: number) => {
    if (depth.has(row)) return; // a cycle, which no pipeline has
    depth.set(row, deep);
    const below = children.get(row) ?? [];
    for (const child of below) place(child, deep + 1);
    // A reader is centered between its inputs.
    const on = below.map((child) => line.get(child) ?? 0);
    line.set(row, on.length ? (Math.min(...on) + Math.max(...on)) / 2 : lines++);
  };
  for (const root of roots) place(root, 0);
  for (let row = 0; row < table.rows; row++) place(row, 0);
  const most = Math.max(0, ...depth.values());
  return {
    nodes: Array.from({ length: table.rows }, (_, row) => ({
      row,
      column: most - depth.get(row)!,
      line: line.get(row)!,
    })),
    columns: most + 1,
    lines,
  };
}

const BOX = { width: 116, least: 100, height: 100 };
const GAP = { queue: [84, 200], plain: 34 } as const;

export function Picture({ table, samples, chosen }: { table: Table; samples: Table | null; chosen: number }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const { nodes, columns, lines } = useMemo(() => layered(table), [table]);
  // Columns without a queue between them are close together; the queues share the rest.
  const queued = Array.from({ length: columns }, (_, column) =>
    nodes.some((node) => node.column === column && Number.isFinite(table.num("queue_share")[node.row])),
  );
  const count = queued.filter(Boolean).length || 1;
  const plain = GAP.plain * (columns - count);
  const wide = Math.max(BOX.least, Math.min(BOX.width, (width - 4 - plain - GAP.queue[0] * count) / (columns + 1)));
  const room = (width - 4 - wide * (columns + 1) - plain) / count;
  const gap = Math.max(GAP.queue[0], Math.min(GAP.queue[1], room));
  const left = [1];
  for (const item of queued) left.push(left[left.length - 1] + wide + (item ? gap : GAP.plain));
  const tall = BOX.height + 16;
  const [total, height] = [left[columns] + wide + 2, Math.max(1, lines) * tall - 14];
  const parents = table.num("parent");
  const rowOf = new Map(Array.from(table.num("op_id"), (id, row) => [id, row]));
  const at = (node: { column: number; line: number }): [number, number] => [left[node.column], 1 + node.line * tall];
  const roots = nodes.filter((node) => !rowOf.has(parents[node.row]));
  const train = { column: columns, line: roots.reduce((all, node) => all + node.line, 0) / Math.max(1, roots.length) };
  const [trainX, trainY] = at(train);
  const choose = (row: number) => go({ params: { sel: table.raw("op_id", row) } }, true);
  const keys = (row: number) => (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(row);
  };
  return (
    <div class="pipe" ref={box}>
      {width > 0 && (
        <svg width={Math.max(total, 10)} height={height} role="group" aria-label={t.pipeTitle}>
          {nodes.map((node) => {
            const reader = nodes.find((other) => rowOf.get(parents[node.row]) === other.row) ?? train;
            const [fromX, fromY] = at(node);
            const [toX, toY] = at(reader);
            return (
              <QueueShape
                key={node.row}
                table={table}
                row={node.row}
                samples={samples}
                from={[fromX + wide, fromY]}
                to={[toX, toY]}
                on={node.row === chosen}
                onPick={() => choose(node.row)}
                onKey={keys(node.row)}
                readerName={reader === train ? t.training : (table.str("op_type")[(reader as Node).row] ?? "")}
              />
            );
          })}
          {nodes.map((node) => {
            const [x, y] = at(node);
            const bad = table.str("verdict")[node.row] === "bottleneck";
            const workers = table.num("workers")[node.row];
            const cpu = (table.num("user_share")[node.row] || 0) + (table.num("system_share")[node.row] || 0);
            const measured = Number.isFinite(table.num("user_share")[node.row]);
            const name = table.str("op_type")[node.row] ?? "";
            return (
              <g key={node.row} transform={`translate(${x} ${y})`}>
                <title>{name}</title>
                <rect class={`box ${bad ? "bad" : ""}`} width={wide} height={BOX.height} rx="6" />
                <text class="op" x="10" y="20">
                  {name.length > 14 ? `${name.slice(0, 13)}…` : name}
                </text>
                <text x="10" y="39">
                  {workers === 0
                    ? t.noWorkers
                    : workers === 1
                      ? t.worker
                      : Number.isFinite(workers)
                        ? fill(t.workersN, { count: workers })
                        : ""}
                </text>
                {measured && (
                  <text x="10" y="57">
                    {fill(t.cpu, { share: units.text(units.share(cpu)) })}
                  </text>
                )}
                {bad && (
                  <text class="badword" x="10" y="88">
                    {t.bottleneck}
                  </text>
                )}
              </g>
            );
          })}
          <g transform={`translate(${trainX} ${trainY})`}>
            <rect class="box train" width={wide} height={BOX.height} rx="6" />
            <text class="op" x="10" y="20">
              {t.training}
            </text>
          </g>
        </svg>
      )}
    </div>
  );
}

const CELLS = 16;

interface QueueShapeProps {
  table: Table;
  row: number;
  samples: Table | null;
  from: [number, number];
  to: [number, number];
  on: boolean;
  onPick: () => void;
  onKey: (event: KeyboardEvent) => void;
  readerName: string;
}

/** The queue between an operator and its reader: one cell per slot, filled from the left; usage and history below. */
function QueueShape({ table, row, samples, from, to, on, onPick, onKey, readerName }: QueueShapeProps) {
  const t = text();
  const share = table.num("queue_share")[row];
  const capacity = table.num("queue_capacity")[row];
  const [y, wide] = [from[1] + 22, to[0] - from[0]];
  const bend = to[1] !== from[1];
  const arrow = (x: number, at: number) => (
    <path d={`M${x - 6} ${at - 4}L${x} ${at}L${x - 6} ${at + 4}`} class="wire" />
  );
  if (!Number.isFinite(share)) {
    const middle = from[0] + wide / 2;
    return (
      <g>
        <path
          class="wire"
          d={bend ? `M${from[0]} ${y}H${middle}V${to[1] + 22}H${to[0] - 2}` : `M${from[0]} ${y}H${to[0] - 2}`}
        />
        {arrow(to[0] - 1, to[1] + 22)}
      </g>
    );
  }
  const [left, right] = [from[0] + 12, Math.min(to[0] - (bend ? 26 : 14), from[0] + 220)];
  const cells = capacity > 0 && capacity <= CELLS ? capacity : 0;
  const inner = right - left - 6;
  const empty = ["bottleneck", "waits for input"].includes(table.str("verdict")[row] ?? "");
  const name = `${fill(t.intoQueue, { reader: readerName })}: ${units.text(units.share(share))}`;
  const turn = to[0] - 18;
  return (
    <g
      class={on ? "on" : ""}
      role="button"
      tabindex={0}
      aria-pressed={on}
      aria-label={name}
      onClick={onPick}
      onKeyDown={onKey}
    >
      <path
        class="wire"
        d={`M${from[0]} ${y}H${left}M${right} ${y}${bend ? `H${turn}V${to[1] + 22}` : ""}H${to[0] - 2}`}
      />
      {arrow(to[0] - 1, to[1] + 22)}
      <rect x={left - 4} y={y - 20} width={right - left + 8} height="82" fill="transparent" />
      {on && <rect class="halo" x={left - 2.5} y={y - 12.5} width={right - left + 5} height="25" rx="5" />}
      <rect class="frame" x={left} y={y - 10} width={right - left} height="20" rx="3" />
      {cells
        ? Array.from({ length: cells }, (_, cell) => (
            <rect
              key={cell}
              class={`cell ${cell < Math.round(share * cells) ? "filled" : ""}`}
              x={left + 3 + (cell * inner) / cells}
              y={y - 7}
              width={Math.max(1, inner / cells - 1)}
              height="14"
              rx="1"
            />
          ))
        : [
            <rect key="free" class="cell" x={left + 3} y={y - 7} width={inner} height="14" />,
            <rect
              key="filled"
              class="cell filled"
              x={left + 3}
              y={y - 7}
              width={inner * Math.min(1, share)}
              height="14"
            />,
          ]}
      <text x={(left + right) / 2} y={y + 27} text-anchor="middle">
        <tspan class="use">{fill(t.ofPlaces, { share: units.text(units.share(share)), places: capacity })}</tspan>
      </text>
      <Past
        samples={samples}
        id={table.num("op_id")[row]}
        capacity={capacity}
        x={left}
        y={y + 34}
        width={right - left}
        color={empty ? "var(--kind-wait)" : "var(--kind-compute)"}
      />
    </g>
  );
}

function Past({
  samples,
  id,
  capacity,
  x,
  y,
  width,
  color,
}: {
  samples: Table | null;
  id: number;
  capacity: number;
  x: number;
  y: number;
  width: number;
  color: string;
}) {
  const values = useMemo(
    () =>
      samples ? Float64Array.from(samplesOf(samples, id), (row) => samples.num("depth")[row]) : new Float64Array(),
    [samples, id],
  );
  if (values.length < 2) return null;
  const tall = 20;
  const most = Math.max(capacity || 1, 1);
  const path = minmaxPath(
    values,
    (at) => x + (at / (values.length - 1)) * width,
    (value) => y + tall - (Math.min(value, most) / most) * (tall - 2),
    width,
  );
  return <path d={path} fill="none" stroke={color} stroke-width="1.25" />;
}
