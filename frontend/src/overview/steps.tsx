/** Every step as a bar: solid work, hatched wait. */
import { useMemo } from "preact/hooks";
import { type Fetched, useTable } from "../data";
import { Await, Card, Swatch, useWidth } from "../parts/basics";
import { Time } from "../parts/quantity";
import { tip, untip } from "../parts/tip";
import { go, link } from "../state";
import type { Table } from "../table";
import { fill, strings } from "../strings";
import * as units from "../units";
import type { SelectedStep } from "./selected_step";

const text = strings("overview");

const STACK = [
  ["computing_ns", "var(--kind-compute)"],
  ["copy_ns", "var(--kind-copy)"],
  ["device_exposed_ns", "var(--kind-communication)"],
] as const;

export function StepsCard({
  overview,
  overlap,
  chosen,
}: {
  overview: Table;
  overlap: Fetched<Table>;
  chosen: SelectedStep | null;
}) {
  const t = text();
  const trace = useTable("step_trace", { columns: "rank,step,start_ns,end_ns,total_ns" });
  const many = (overlap.data?.rows || trace.data?.rows || 0) > 10;
  return (
    <Card title={t.stepsTitle} note={t.stepsNote} tools={<a href={link({ page: "steps" })}>{t.stepTrace}</a>}>
      <Await of={overlap} rows={4}>
        {(data) =>
          data.rows === 0 ? (
            <Await of={trace}>{(rows) => <PlainSteps rows={rows} />}</Await>
          ) : many ? (
            <StepBars data={data} chosen={chosen} median={overview.num("step_ns")[0]} />
          ) : (
            <StepRows data={data} chosen={chosen} />
          )
        }
      </Await>
    </Card>
  );
}

const PLAIN = 10;

/** Steps of a recording without operators and kernels: only their length is known. */
function PlainSteps({ rows }: { rows: Table }) {
  const t = text();
  const totals = rows.num("total_ns");
  const most = Math.max(...totals);
  return (
    <>
      {Array.from(totals.slice(0, PLAIN), (total, at) => (
        <a key={at} class="ov-steprow" href={link({ page: "steps", params: { sel: rows.num("step")[at] } })}>
          <span class="no">{fill(t.stepName, { step: rows.num("step")[at] })}</span>
          <span class="track" style={{ width: `${(total / most) * 100}%` }}>
            <span class="bar">
              <i style={{ width: "100%", background: "var(--kind-host)" }} />
            </span>
          </span>
          <span class="r">
            <Time ns={total} />
          </span>
        </a>
      ))}
      {rows.rows > PLAIN && (
        <a class="small" href={link({ page: "steps" })}>
          {fill(t.moreSteps, { count: units.count(rows.rows - PLAIN).value })}
        </a>
      )}
    </>
  );
}

function StepRows({ data, chosen }: { data: Table; chosen: SelectedStep | null }) {
  const t = text();
  const [steps, totals, times, free] = [
    data.num("step"),
    data.num("total_ns"),
    data.num("device_ns"),
    data.num("free_ns"),
  ];
  const most = Math.max(...totals);
  return (
    <>
      {Array.from(steps, (step, row) => (
        <button
          key={step}
          class={`ov-steprow ${chosen?.row === row ? "on" : ""}`}
          aria-pressed={chosen?.row === row}
          onClick={() => go({ params: { sel: step } })}
        >
          <span class="no">{fill(t.stepName, { step })}</span>
          <span class="track" style={{ width: `${(totals[row] / most) * 100}%` }}>
            <span class="bar">
              {STACK.map(
                ([name, fillColor]) =>
                  data.num(name)[row] > 0 && (
                    <i
                      key={name}
                      style={{
                        width: `${(data.num(name)[row] / times[row]) * 100}%`,
                        background: fillColor,
                        padding: "0",
                      }}
                    />
                  ),
              )}
              {free[row] > 0 && (
                <i class="hatch" style={{ width: `${(free[row] / times[row]) * 100}%`, padding: "0" }} />
              )}
              {Number.isNaN(free[row]) && (
                <i
                  title={t.notRecordedStep}
                  style={{ width: "100%", background: "var(--border-strong)", padding: "0" }}
                />
              )}
            </span>
          </span>
          <span class="r">
            <Time ns={totals[row]} />
          </span>
        </button>
      ))}
    </>
  );
}

/** One stacked bar per step from zero; if there are more than fit, each bar is the longest of several. */
function StepBars({ data, chosen, median }: { data: Table; chosen: SelectedStep | null; median: number }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const height = 132,
    left = 44,
    right = 8,
    top = 12,
    bottom = 18;
  const inner = Math.max(1, width - left - right);
  const [steps, totals] = [data.num("step"), data.num("total_ns")];
  const each = Math.max(1, Math.ceil(data.rows / Math.max(1, Math.floor(inner / 3))));
  const shown = useMemo(() => {
    const rows: number[] = [];
    for (let from = 0; from < data.rows; from += each) {
      let most = from;
      for (let row = from; row < Math.min(data.rows, from + each); row++) if (totals[row] > totals[most]) most = row;
      rows.push(most);
    }
    return rows;
  }, [data, each]);
  const most = Math.max(...shown.map((row) => totals[row]));
  const wide = inner / shown.length;
  const gap = wide > 4 ? 1 : 0;
  const y = (ns: number) => top + (1 - ns / most) * (height - top - bottom);
  const at = (event: { clientX: number }) => {
    const from = box.current!.getBoundingClientRect().left + left;
    const bar = Math.floor((event.clientX - from) / wide);
    return bar >= 0 && bar < shown.length ? shown[bar] : -1;
  };
  const unit = units.timeUnit(most);
  const rectangle = (bar: number, bottom: number, top: number) => {
    const from = (left + bar * wide).toFixed(1);
    const to = (left + (bar + 1) * wide - gap).toFixed(1);
    return `M${from} ${bottom.toFixed(1)}H${to}V${top.toFixed(1)}H${from}z`;
  };
  const path = (names: string[], name: string) =>
    shown
      .map((row, bar) => {
        const under = names.reduce((sum, item) => sum + (data.num(item)[row] || 0), 0);
        const amount = data.num(name)[row];
        return amount > 0 ? rectangle(bar, y(under), y(under + amount)) : "";
      })
      .join("");
  const unknown = shown
    .map((row, bar) => (Number.isNaN(data.num("free_ns")[row]) ? rectangle(bar, y(0), y(totals[row])) : ""))
    .join("");
  const names = STACK.map(([name]) => name as string);
  const marked = chosen ? shown.findIndex((_, bar) => chosen.row >= bar * each && chosen.row < (bar + 1) * each) : -1;
  const move = (by: number) => {
    const to = Math.max(0, Math.min(data.rows - 1, (chosen?.row ?? 0) + by));
    go({ params: { sel: steps[to] } }, true);
  };
  return (
    <div
      ref={box}
      class="plot click"
      tabIndex={0}
      role="slider"
      aria-label={t.stepsTitle}
      aria-valuemin={steps[0]}
      aria-valuemax={steps[steps.length - 1]}
      aria-valuenow={chosen?.step}
      aria-valuetext={
        chosen ? `${fill(t.stepName, { step: chosen.step })}: ${units.text(units.time(totals[chosen.row]))}` : undefined
      }
      onKeyDown={(event) => {
        const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
        if (by) {
          move(by);
          event.preventDefault();
        }
      }}
      onClick={(event) => {
        const row = at(event);
        if (row >= 0) go({ params: { sel: steps[row] } });
      }}
      onPointerMove={(event) => {
        const row = at(event);
        if (row < 0) return untip();
        tip(
          event,
          <>
            <b>{fill(t.stepName, { step: steps[row] })}</b> {units.text(units.time(totals[row]))}
            <dl>
              {STACK.map(
                ([name, fillColor]) =>
                  data.num(name)[row] > 0 && [
                    <dt>
                      <Swatch color={fillColor} />
                    </dt>,
                    <dd>{units.text(units.time(data.num(name)[row]))}</dd>,
                  ],
              )}
              {Number.isNaN(data.num("free_ns")[row]) ? (
                <dd>{t.notRecordedStep}</dd>
              ) : (
                [
                  <dt>
                    <Swatch hatch />
                  </dt>,
                  <dd>{units.text(units.time(data.num("free_ns")[row]))}</dd>,
                ]
              )}
            </dl>
          </>,
        );
      }}
      onPointerLeave={untip}
    >
      {width > 0 && (
        <svg width={width} height={height} aria-hidden="true">
          <defs>
            <pattern id="ov-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect width="6" height="6" fill="var(--sunken)" />
              <rect width="1.5" height="6" fill="var(--kind-idle)" />
            </pattern>
          </defs>
          {units.ticks(0, units.timeIn(most, unit), 3).map((tick) => {
            const line = y(tick * (most / units.timeIn(most, unit)));
            return (
              <g key={tick}>
                <line class="gl" x1={left} x2={width - right} y1={line} y2={line} />
                <text class="axis" x={left - 6} y={line + 4} text-anchor="end">
                  {+tick.toPrecision(6)}
                  {tick === 0 ? ` ${unit}` : ""}
                </text>
              </g>
            );
          })}
          {STACK.map(([name, fillColor], at) => (
            <path key={name} d={path(names.slice(0, at), name)} fill={fillColor} />
          ))}
          <path
            d={path(names, "free_ns")}
            fill={wide >= 5 ? "url(#ov-hatch)" : "var(--kind-idle)"}
            fill-opacity={wide >= 5 ? 1 : 0.6}
          />
          <path d={unknown} fill="var(--border-strong)" />
          <line class="ru" x1={left} x2={width - right} y1={y(median)} y2={y(median)} stroke="var(--text-2)" />
          <text
            class="axis"
            x={width - right}
            y={y(median) - 4}
            text-anchor="end"
            paint-order="stroke"
            stroke="var(--surface)"
            stroke-width="3"
          >
            {t.medianLine} {units.text(units.time(median))}
          </text>
          {marked >= 0 && (
            <rect
              x={left + marked * wide - 1}
              y={top - 2}
              width={Math.max(4, wide - gap + 2)}
              height={height - bottom - top + 3}
              fill="none"
              stroke="var(--accent)"
              stroke-width="1.5"
            />
          )}
          <text class="axis" x={left} y={height - 4}>
            {steps[0]}
          </text>
          <text class="axis" x={width - right} y={height - 4} text-anchor="end">
            {steps[steps.length - 1]}
          </text>
          {each > 1 && (
            <text class="axis" x={(left + width - right) / 2} y={height - 4} text-anchor="middle">
              {fill(t.barOf, { count: each })}
            </text>
          )}
        </svg>
      )}
    </div>
  );
}
