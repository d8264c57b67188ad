/** Calls of an operator over time and by step. */
import { css } from "../colors";
import { useTable } from "../data";
import { go, link, theme } from "../state";
import { Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { Time } from "./quantity";
import { useWidth } from "./basics";
import { onTimeline } from "./calls";
import { Histogram, quantile } from "./histogram";
import { Series } from "./series";
import { tip, untip } from "./tip";
import { useEffect, useMemo, useRef } from "preact/hooks";

const text = strings("calls");

/** Each call as a dot: start and duration. A click goes to the timeline. */
export function Dots({ calls, color: shade }: { calls: Table; color: string }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const steps = useTable("tables/steps", { columns: "rank,step,start_ns,end_ns" });
  const height = 108,
    left = 48,
    bottom = 18,
    top = 6,
    right = 6;
  const start = calls.num("start_ns"),
    duration = calls.num("dur_ns"),
    step = calls.num("step"),
    span = calls.num("span");
  const shown = useMemo(() => {
    let from = Infinity,
      to = -Infinity,
      low = Infinity,
      high = 0;
    for (let row = 0; row < calls.rows; row++) {
      from = Math.min(from, start[row]);
      to = Math.max(to, start[row]);
      low = Math.min(low, duration[row]);
      high = Math.max(high, duration[row]);
    }
    const room = (to - from) * 0.02 || 1;
    const known = new Set(step);
    const rules = steps.data
      ? Array.from({ length: steps.data.rows }, (_, row) => ({
          at: steps.data!.num("start_ns")[row],
          end: steps.data!.num("end_ns")[row],
          step: steps.data!.num("step")[row],
        })).filter((item) => known.has(item.step))
      : [];
    for (const item of rules) from = Math.min(from, item.at);
    const spread = high - low || high || 1;
    return {
      from: from - room,
      to: to + room,
      low: Math.max(0, low - spread * 0.08),
      high: high + spread * 0.08,
      rules,
    };
  }, [calls, steps.data]);
  const x = (at: number) => left + ((at - shown.from) / (shown.to - shown.from)) * (width - left - right);
  const y = (time: number) => top + (1 - (time - shown.low) / (shown.high - shown.low)) * (height - top - bottom);
  const now = theme();
  useEffect(() => {
    const ink = canvas.current?.getContext("2d");
    if (!ink || !width) return;
    const ratio = devicePixelRatio;
    canvas.current!.width = width * ratio;
    canvas.current!.height = height * ratio;
    ink.scale(ratio, ratio);
    ink.font = `11px ${css("--font")}`;
    ink.strokeStyle = css("--grid");
    ink.fillStyle = css("--text-3");
    ink.textAlign = "right";
    const levels = units.ticks(shown.low, shown.high, 2);
    const labels = units.axisLabels(levels, "time", units.timeUnit(shown.high));
    for (const [at, value] of levels.entries()) {
      ink.beginPath();
      ink.moveTo(left, y(value));
      ink.lineTo(width - right, y(value));
      ink.stroke();
      ink.fillText(labels[at], left - 6, y(value) + 4);
    }
    ink.strokeStyle = css("--border-strong");
    ink.textAlign = "center";
    let free = -Infinity;
    for (const rule of shown.rules) {
      ink.beginPath();
      ink.moveTo(x(rule.at), top);
      ink.lineTo(x(rule.at), height - bottom);
      ink.stroke();
      const middle = (x(rule.at) + Math.min(x(rule.end), width - right)) / 2;
      const title = `${text().step.toLowerCase()} ${rule.step}`;
      const half = ink.measureText(title).width / 2;
      if (middle - half > free && middle + half < width) {
        ink.fillText(title, middle, height - 4);
        free = middle + half + 8;
      }
    }
    ink.fillStyle = shade.startsWith("var(") ? css(shade.slice(4, -1)) : shade;
    ink.globalAlpha = calls.rows > 5000 ? 0.25 : 0.7;
    const size = calls.rows > 2000 ? 2 : 3;
    for (let row = 0; row < calls.rows; row++) {
      if (size === 2) ink.fillRect(x(start[row]) - 1, y(duration[row]) - 1, 2, 2);
      else {
        ink.beginPath();
        ink.arc(x(start[row]), y(duration[row]), 2, 0, 7);
        ink.fill();
      }
    }
  }, [calls, width, shown, shade, now]);
  const nearest = (event: MouseEvent) => {
    const at = canvas.current!.getBoundingClientRect();
    let best = -1,
      far = 144;
    for (let row = 0; row < calls.rows; row++) {
      const distance =
        (x(start[row]) - event.clientX + at.left) ** 2 + (y(duration[row]) - event.clientY + at.top) ** 2;
      if (distance < far) [best, far] = [row, distance];
    }
    return best;
  };
  return (
    <div ref={box} class="plot" style={{ height: `${height}px` }}>
      <canvas
        ref={canvas}
        class="dots"
        style={{ width: `${width}px`, height: `${height}px` }}
        role="img"
        aria-label={text().dots}
        onPointerMove={(event) => {
          const row = nearest(event);
          if (row < 0) return untip();
          tip(
            event,
            <>
              <b>{units.text(units.time(duration[row]))}</b>{" "}
              {Number.isNaN(step[row]) ? "" : `· ${text().step.toLowerCase()} ${step[row]}`} ·{" "}
              {units.text(units.time(start[row]))}
            </>,
          );
        }}
        onPointerLeave={untip}
        onClick={(event) => {
          const row = nearest(event);
          if (row < 0) return;
          untip();
          go(onTimeline(start[row], duration[row], span[row]));
        }}
      />
    </div>
  );
}

export function Steps({ calls }: { calls: Table }) {
  const t = text();
  const [steps, sums] = useMemo(() => {
    const total = new Map<number, number>();
    const step = calls.num("step"),
      time = calls.num("dur_ns");
    for (let row = 0; row < calls.rows; row++)
      if (!Number.isNaN(step[row])) total.set(step[row], (total.get(step[row]) ?? 0) + time[row]);
    const order = [...total.keys()].sort((a, b) => a - b);
    return [order, order.map((item) => total.get(item)!)];
  }, [calls]);
  const lines = useMemo(() => [{ label: t.total, values: sums, color: "--text-2", area: true }], [sums]);
  if (steps.length < 2) return null;
  return (
    <section>
      <h3>
        {t.bySteps}
        <span class="sp" />
        <span class="d3 small">{t.stepsNote}</span>
      </h3>
      <Series x={steps} lines={lines} as="time" xAs="count" height={84} label={t.perStep} />
    </section>
  );
}

export function Slowest({ calls }: { calls: Table }) {
  const t = text();
  const time = calls.num("dur_ns"),
    start = calls.num("start_ns"),
    step = calls.num("step"),
    span = calls.num("span");
  const rows = useMemo(
    () =>
      Array.from({ length: calls.rows }, (_, row) => row)
        .sort((a, b) => time[b] - time[a] || a - b)
        .slice(0, 5),
    [calls],
  );
  return (
    <table>
      <thead>
        <tr>
          <th>{t.step}</th>
          <th>{t.at}</th>
          <th>{t.duration}</th>
          <th />
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row}>
            <td>{Number.isNaN(step[row]) ? <span class="d3">{t.noStep}</span> : step[row]}</td>
            <td>
              <Time ns={start[row]} />
            </td>
            <td>
              <Time ns={time[row]} />
            </td>
            <td>
              <a href={link(onTimeline(start[row], time[row], span[row]))}>{t.timeline}</a>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Delay({ calls }: { calls: Table }) {
  const t = text();
  const sorted = calls.num("delay_ns").filter(Number.isFinite).sort();
  return (
    <section>
      <h3>
        {t.delay}
        <span class="sp" />
        <span class="d2 small">
          <Sentence
            template={t.delayNote}
            delay={
              <b>
                <Time ns={quantile(sorted, 0.5)} />
              </b>
            }
            most={
              <b>
                <Time ns={sorted[sorted.length - 1]} />
              </b>
            }
          />
        </span>
      </h3>
      <Histogram values={sorted} label={t.delay} height={90} />
    </section>
  );
}
