/** Device activity over the whole recording, with allocated memory below. */
import { useMemo, useRef, useState } from "preact/hooks";
import { useTable } from "../data";
import { deviceWord, onDevice } from "../device";
import { Await, Card, Empty, useWidth } from "../parts/basics";
import { textWidth } from "../parts/stage_bar";
import { tip, untip } from "../parts/tip";
import type { Info } from "../source";
import { go, link } from "../state";
import type { Table } from "../table";
import { fill, strings } from "../strings";
import * as units from "../units";
import { columns } from "./columns";

const text = strings("overview");

export function Activity({ now }: { now: Info }) {
  const t = text();
  const activity = useTable("activity");
  const steps = useTable("step_trace", { columns: "rank,step,start_ns,end_ns,total_ns" });
  const bucket = activity.data?.rows ? units.text(units.time(activity.data.num("bucket_ns")[0])) : "…";
  const memory = activity.data ? !activity.data.blank("allocated_bytes") : true;
  return (
    <Card
      title={onDevice(now) ? t.activity : t.activityHost}
      note={activity.data?.rows === 0 ? undefined : fill(memory ? t.activityNote : t.activityNoMemory, { bucket })}
      tools={<a href={link({ page: "timeline" })}>{t.timeline}</a>}
    >
      <Await of={activity} rows={8}>
        {(data) =>
          data.rows ? (
            <ActivityPlot now={now} data={data} steps={steps.data} />
          ) : (
            <Empty title={t.noActivity}>{t.noActivityHow}</Empty>
          )
        }
      </Await>
    </Card>
  );
}

function ActivityPlot({ now, data, steps }: { now: Info; data: Table; steps: Table | null }) {
  const t = text();
  const [box, width] = useWidth<HTMLDivElement>();
  const [cursor, setCursor] = useState<number | null>(null);
  const drag = useRef<number | null>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  const devices = useMemo(() => [...new Set(Array.from(data.num("device"), String))], [data]);
  const lanes = devices.slice(0, 8).map((device) => data.where((row) => String(data.num("device")[row]) === device));
  const [at, wide, busy, allocated, reserved] = [
    data.num("at_ns"),
    data.num("bucket_ns"),
    data.num("busy_share"),
    data.num("allocated_bytes"),
    data.num("reserved_bytes"),
  ];
  const left = 56,
    right = 10,
    top = 20;
  const tall = lanes.length > 1 ? 44 : 84;
  const lower = lanes.length > 1 ? 0 : data.blank("allocated_bytes") ? 0 : 104;
  const height = top + lanes.length * (tall + 8) + (lower ? lower + 12 : 0) + 18;
  const first = lanes[0];
  const [from, to] = [at[first[0]], at[first[first.length - 1]] + wide[first[0]]];
  const inner = Math.max(1, width - left - right);
  const x = (ns: number) => left + ((ns - from) / (to - from)) * inner;
  const when = (event: { clientX: number }) => {
    const share = (event.clientX - box.current!.getBoundingClientRect().left - left) / inner;
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  };
  const indexAt = (ns: number) => Math.max(0, Math.min(first.length - 1, Math.floor((ns - from) / wide[first[0]])));
  const open = (t0: number, t1: number) => go({ page: "timeline", params: { t0: Math.round(t0), t1: Math.round(t1) } });
  const unit = units.timeUnit(to - from);
  // Since the start of the recording, as on other pages.
  const marks = units.ticks(units.timeIn(from, unit), units.timeIn(to, unit), Math.max(3, Math.floor(inner / 180)));
  const scale = (to - from) / units.timeIn(to - from, unit);
  const rules = steps
    ? Array.from(steps.num("start_ns"), (start, row) => ({
        x: x(start),
        name: fill(t.stepName, { step: steps.num("step")[row] }),
      })).filter((rule) => rule.x >= left - 1)
    : [];
  let free = -Infinity;
  const most = Math.max(0, ...first.map((row) => allocated[row]).filter(Number.isFinite));
  const held = Math.max(0, ...first.map((row) => reserved[row]).filter(Number.isFinite));
  const memoryTop = top + lanes.length * (tall + 8) + 8;
  // A reserved size far above the curve would flatten it: it is written, not drawn.
  const far = held > 8 * most && most > 0;
  const ceiling = (far ? most * 1.25 : Math.max(most, held) * 1.08) || 1;
  const y = (bytes: number) => memoryTop + (1 - bytes / ceiling) * lower;
  const peak = first.find((row) => allocated[row] === most);
  const curve = first.filter((row) => Number.isFinite(allocated[row]));
  const line = curve
    .map(
      (row, index) =>
        `${index ? "L" : "M"}${x(at[row]).toFixed(1)} ${y(allocated[row]).toFixed(1)}H${x(at[row] + wide[row]).toFixed(1)}`,
    )
    .join("");
  const tell = (event: { clientX: number; clientY: number }, index: number) => {
    const row = first[index];
    tip(
      event,
      <dl>
        <dt>{t.at}</dt>
        <dd>{units.text(units.time(at[row]))}</dd>
        {lanes.map((rows, lane) => [
          <dt key={`t${lane}`}>
            {lanes.length > 1
              ? fill(t.deviceNumber, { device: deviceWord(now) ?? t.device, number: devices[lane] })
              : onDevice(now)
                ? t.busy
                : t.busyHost}
          </dt>,
          <dd key={`d${lane}`}>
            <b>{units.text(units.share(busy[rows[index]]))}</b>
          </dd>,
        ])}
        {lower > 0 && [<dt key="ta">{t.allocated}</dt>, <dd key="da">{units.text(units.bytes(allocated[row]))}</dd>]}
        {lower > 0 &&
          Number.isFinite(reserved[row]) && [
            <dt key="tr">{t.reservedWord}</dt>,
            <dd key="dr">{units.text(units.bytes(reserved[row]))}</dd>,
          ]}
      </dl>,
    );
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25 }[event.key];
    if (by) {
      const next = Math.max(0, Math.min(first.length - 1, (cursor ?? -1) + by));
      setCursor(next);
      const place = box.current!.getBoundingClientRect();
      tell({ clientX: place.left + x(at[first[next]]), clientY: place.top + top }, next);
    } else if (event.key === "Enter" && cursor !== null)
      open(at[first[cursor]], at[first[cursor]] + wide[first[cursor]]);
    else if (event.key === "Escape") {
      setCursor(null);
      untip();
    } else return;
    event.preventDefault();
  };
  return (
    <div
      ref={box}
      class="ov-activity click"
      style={{ height: `${height}px` }}
      tabIndex={0}
      role="application"
      aria-label={`${onDevice(now) ? t.activity : t.activityHost}. ${t.openHere}`}
      onKeyDown={keys}
      onBlur={() => {
        setCursor(null);
        untip();
      }}
      onPointerDown={(event) => {
        drag.current = when(event);
        box.current!.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const moment = when(event);
        setCursor(indexAt(moment));
        tell(event, indexAt(moment));
        if (drag.current !== null && Math.abs(x(moment) - x(drag.current)) > 4)
          setRange([Math.min(drag.current, moment), Math.max(drag.current, moment)]);
      }}
      onPointerUp={(event) => {
        const row = first[indexAt(when(event))];
        if (range) open(range[0], range[1]);
        else if (drag.current !== null) open(at[row], at[row] + wide[row]);
        drag.current = null;
        setRange(null);
        untip();
      }}
      onPointerLeave={() => {
        if (drag.current === null) {
          setCursor(null);
          untip();
        }
      }}
    >
      {width > 0 && (
        <svg width={width} height={height} aria-hidden="true">
          {lanes.map((rows, lane) => {
            const base = top + lane * (tall + 8);
            return (
              <g key={lane}>
                <line class="gl" x1={left} x2={width - right} y1={base} y2={base} />
                <line class="ax" x1={left} x2={width - right} y1={base + tall + 0.5} y2={base + tall + 0.5} />
                <text class="axis" x={left - 6} y={base + 4} text-anchor="end">
                  {lanes.length > 1
                    ? fill(t.deviceNumber, { device: deviceWord(now) ?? "", number: devices[lane] })
                    : "100 %"}
                </text>
                {lanes.length === 1 && (
                  <text class="axis" x={left - 6} y={base + tall + 2} text-anchor="end">
                    0
                  </text>
                )}
                {columns(data, rows, x, base, tall).map(({ color, path }) => (
                  <path key={color} d={path} fill={color} />
                ))}
              </g>
            );
          })}
          {lower > 0 && (
            <g>
              {units.ticks(0, ceiling, 3).map((tick) => (
                <g key={tick}>
                  <line class="gl" x1={left} x2={width - right} y1={y(tick)} y2={y(tick)} />
                  <text class="axis" x={left - 6} y={y(tick) + 4} text-anchor="end">
                    {tick === 0 ? "0" : units.text(units.bytes(tick)).replace(/\.0+(?=\D)/, "")}
                  </text>
                </g>
              ))}
              {curve.length > 0 && (
                <path
                  d={`${line}V${y(0)}H${x(at[curve[0]]).toFixed(1)}z`}
                  fill="var(--kind-compute)"
                  fill-opacity=".12"
                />
              )}
              <path class="ln" d={line} stroke="var(--kind-compute)" />
              {held > 0 && !far && (
                <line class="ru" x1={left} x2={width - right} y1={y(held)} y2={y(held)} stroke="var(--text-2)" />
              )}
              {held > 0 && (
                <text class="axis" x={width - right} y={(far ? memoryTop + 8 : y(held)) - 4} text-anchor="end">
                  {fill(t.reserved, { bytes: units.text(units.bytes(held)) })}
                  {far && " ↑"}
                </text>
              )}
              {peak !== undefined && (
                <text
                  x={Math.min(x(at[peak]) + 12, width - 100)}
                  y={Math.min(y(most) + 11, memoryTop + lower - 4)}
                  font-size="11"
                  font-weight="600"
                  fill="var(--text)"
                  paint-order="stroke"
                  stroke="var(--surface)"
                  stroke-width="3"
                >
                  {fill(t.peakLabel, { bytes: units.text(units.bytes(most)) })}
                </text>
              )}
            </g>
          )}
          {rules.map((rule, index) => {
            const clear = rule.x > free && rule.x + textWidth(rule.name) < width;
            if (clear) free = rule.x + rule.name.length * 7 + 8;
            return rules.length > 80 && !clear ? null : (
              <g key={index}>
                <line
                  x1={rule.x}
                  x2={rule.x}
                  y1={clear ? 8 : top}
                  y2={height - 18}
                  stroke="var(--border-strong)"
                  stroke-opacity={clear ? 1 : 0.5}
                />
                {clear && (
                  <text class="axis" x={rule.x + 4} y={14}>
                    {rule.name}
                  </text>
                )}
              </g>
            );
          })}
          {marks.map((mark, index) => (
            <text
              key={mark}
              class="axis"
              x={x(mark * scale)}
              y={height - 4}
              text-anchor={index === 0 ? "start" : "middle"}
            >
              {+mark.toPrecision(9)}
              {index === 0 && ` ${unit}`}
            </text>
          ))}
          {range && (
            <rect
              class="ov-select"
              x={x(range[0])}
              width={x(range[1]) - x(range[0])}
              y={top}
              height={height - top - 18}
            />
          )}
          {cursor !== null && (
            <line
              x1={x(at[first[cursor]] + wide[first[0]] / 2)}
              x2={x(at[first[cursor]] + wide[first[0]] / 2)}
              y1={top}
              y2={height - 18}
              stroke="var(--text-3)"
              stroke-dasharray="3 3"
            />
          )}
        </svg>
      )}
    </div>
  );
}
