/** From the step of A to the step of B: each row begins where the row above ends. */
import { color } from "../colors";
import { Card, Empty, useWidth } from "../parts/basics";
import { Quantity } from "../parts/quantity";
import { tip, untip } from "../parts/tip";
import { messages, fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";

const text = strings("compare");

const ROW = 26;
const COLORS: [start: string, color: string][] = [
  ["exposed communication", "var(--kind-communication)"],
  ["idle: communication", "var(--kind-communication)"],
  ["idle: input", "var(--kind-wait)"],
  ["idle", "url(#cmp-idle)"],
  ["copy", "var(--kind-copy)"],
  ["host", "var(--kind-host)"],
];

interface Row {
  label: string;
  code: boolean;
  fill: string;
  from: number;
  to: number;
  a: number;
  b: number;
  share: number;
  total: boolean;
}

export function Waterfall({ of, missing }: { of: Table; missing: string }) {
  const t = text();
  return (
    <Card title={t.waterfall} note={t.waterfallNote} class="cmp-waterfall">
      {of.rows ? <Chart of={of} /> : <Empty title={t.notExplained}>{missing}</Empty>}
    </Card>
  );
}

function rowsOf(table: Table): Row[] {
  const t = text();
  const [part, operator, count] = [table.str("part"), table.str("operator"), table.num("operators")];
  const [a, b, share] = [table.num("a_ns"), table.num("b_ns"), table.num("share")];
  const sum = (values: Float64Array) => values.reduce((left, right) => left + right, 0);
  const word = (name: string) => messages()[`word:${name}`] ?? name;
  const plain = { code: false, total: true, share: NaN };
  let at = sum(a);
  const rows: Row[] = [{ ...plain, label: t.stepOfA, fill: "var(--text-2)", from: 0, to: at, a: at, b: NaN }];
  for (let row = 0; row < table.rows; row++) {
    const name = operator[row];
    const kind = COLORS.find(([start]) => part[row]?.startsWith(start))?.[1];
    const others = fill(count[row] === 1 ? t.oneOther : t.others, { count: String(count[row]) });
    rows.push({
      label: name ?? (part[row] === "compute" ? others : word(part[row] ?? "")),
      code: name !== null,
      fill: name ? color(name, true) : (kind ?? "var(--op-other)"),
      from: at,
      to: at + b[row] - a[row],
      a: a[row],
      b: b[row],
      share: share[row],
      total: false,
    });
    at += b[row] - a[row];
  }
  rows.push({ ...plain, label: t.stepOfB, fill: "var(--text-2)", from: 0, to: at, a: NaN, b: at });
  return rows;
}

function Chart({ of }: { of: Table }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const rows = rowsOf(of);
  const ends = rows.flatMap((row) => (row.total ? [row.to] : [row.from, row.to]));
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  // Where the change is small, the axis begins above zero, and the bars of the steps are cut.
  const pad = (most - least) * 0.08 || most * 0.02 || 1;
  const low = least - pad > most * 0.25 ? least - pad : 0;
  const [names, numbers, right] = [Math.min(280, Math.max(170, width * 0.3)), 140, 8];
  const inner = Math.max(40, width - names - numbers - right);
  const x = (value: number) => names + ((Math.max(value, low) - low) / (most + pad * 0.3 - low || 1)) * inner;
  const write = (value: number) => units.text(units.write(value, "time"));
  const height = rows.length * ROW + 4;
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={t.waterfall}>
          <pattern id="cmp-idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="6" height="6" fill="var(--sunken)" />
            <rect width="2.5" height="6" fill="var(--text-3)" />
          </pattern>
          {rows.map((row, at) => {
            const [from, to] = [Math.min(row.from, row.to), Math.max(row.from, row.to)];
            const [y, change] = [at * ROW + 4, row.to - row.from];
            const left = row.total ? x(low) : x(from);
            const size = Math.max(row.total ? 1 : 2, x(to) - left);
            const next = rows[at + 1];
            return (
              <g
                key={at}
                onPointerMove={(event) => tip(event, <Details row={row} write={write} />)}
                onPointerLeave={untip}
              >
                <rect x="0" y={y - 2} width={width} height={ROW} fill="transparent" />
                <text class={`cmp-name ${row.code ? "mono" : ""}`} x="0" y={y + 14} font-weight={row.total ? 600 : 400}>
                  <title>{row.label}</title>
                  {shortened(row.label, Math.floor((names - 10) / (row.code ? 7.3 : 6.6)))}
                </text>
                <rect x={left} y={y + 2} width={size} height={ROW - 8} rx="2" fill={row.fill} />
                {row.total && low > 0 && (
                  <path
                    d={`M${left + 8} ${y} l-5 ${(ROW - 4) / 2} l5 ${(ROW - 4) / 2}`}
                    stroke="var(--surface)"
                    stroke-width="3"
                    fill="none"
                  />
                )}
                {next && (
                  <line x1={x(row.to)} x2={x(row.to)} y1={y + ROW - 6} y2={y + ROW + 2} stroke="var(--border-strong)" />
                )}
                <text
                  class={`cmp-change ${row.total ? "d1" : tone(change, rows[0].to)}`}
                  x={width - right}
                  y={y + 14}
                  text-anchor="end"
                  font-weight={row.total ? 600 : 400}
                >
                  {row.total
                    ? write(row.to)
                    : change
                      ? `${change > 0 ? "▲" : "▼"} ${write(Math.abs(change))}${
                          Number.isFinite(row.share) && Math.abs(row.share) < 10
                            ? ` · ${units.text(units.share(Math.abs(row.share)))}`
                            : ""
                        }`
                      : "="}
                </text>
              </g>
            );
          })}
        </svg>
      )}
    </div>
  );
}

/** A change below this share of the step is not worth a color. */
const SMALL = 0.002;

function tone(change: number, step: number): string {
  return Math.abs(change) < SMALL * step ? "d3" : change > 0 ? "bad" : "good";
}

function Details({ row, write }: { row: Row; write: (value: number) => string }) {
  if (row.total)
    return (
      <>
        {row.label} <b>{write(row.to)}</b>
      </>
    );
  return (
    <>
      <b>{row.label}</b>
      <br />A {write(row.a)} · B {write(row.b)}
    </>
  );
}

function shortened(name: string, most: number): string {
  if (name.length <= most) return name;
  const tail = Math.floor(most / 3);
  return `${name.slice(0, most - tail - 1)}…${name.slice(-tail)}`;
}

/** ▲ 2.7 ms (2.3 %): red only if worse. */
export function Delta({ by, of, good = -1 }: { by: number; of?: number; good?: -1 | 0 | 1 }) {
  if (!Number.isFinite(by)) return <span class="d3">{units.MISSING}</span>;
  if (by === 0) return <span class="d3">=</span>;
  const tone = good === 0 ? "d2" : Math.sign(by) === good ? "good" : "bad";
  return (
    <span class={tone} title={units.exact(by, "time")}>
      {by > 0 ? "▲" : "▼"} <Quantity value={Math.abs(by)} as="time" />
      {of !== undefined && of > 0 && <span class="d3"> ({units.text(units.share(Math.abs(by / of)))})</span>}
    </span>
  );
}
