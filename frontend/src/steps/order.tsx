/** Stages and transfers of a step in order. */
import { Card, Chip, useWidth } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { textWidth } from "../parts/stage_bar";
import { tip, untip } from "../parts/tip";
import { link } from "../state";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import type { Tone } from "../verdict";
import type { Figures } from "./figures";
import type { Transfer } from "./transfers";
import { useState } from "preact/hooks";

const text = strings("steps");

const MOST_STREAMS = 10;

/** The step as a picture: stages on the first line, then one line per communication stream. */
export function StepOrder({
  trace,
  of,
  at,
  transfers,
  exposed,
  tone,
}: {
  trace: Table;
  of: Map<string, Figures>;
  at: number | null;
  transfers: Transfer[];
  exposed: number;
  tone: Tone;
}) {
  const t = text();
  const [all, setAll] = useState(false);
  const [box, width] = useWidth<HTMLDivElement>();
  const value = (key: string, stage: string) => (at === null ? (of.get(stage)?.mean_ns ?? NaN) : trace.num(key)[at]);
  const total = value("total_ns", "step");
  const [interval, fpBp, tail] = [
    value("interval_ns", "interval"),
    value("fp_bp_ns", "forward and backward"),
    value("tail_ns", "tail"),
  ];
  const divided = Number.isFinite(fpBp);
  const lanes = [...new Set(transfers.map((item) => item.stream))]
    .map((stream) => ({ stream, inside: transfers.filter((item) => item.stream === stream) }))
    .sort((a, b) => a.inside[0].start - b.inside[0].start);
  const last = transfers.reduce((most, item) => Math.max(most, item.start + item.dur), 0);
  const end = Math.max(total, last) || 1;
  const unit = units.timeUnit(end);
  const place = (ns: number) => `${((ns / end) * 100).toFixed(3)}%`;
  const noBackward = trace.blank("bp_end_ns");
  const marks = [
    divided && { at: interval, label: t.forwardStarts },
    divided && { at: interval + fpBp, label: noBackward ? t.forwardEnds : t.backwardEnds },
    transfers.length > 0 && { at: last, label: t.lastEnds },
    { at: total, label: t.stepEnds },
  ].filter((mark): mark is { at: number; label: string } => !!mark);
  const inner = Math.max(100, width - 190 - 84);
  const row = placeLabels(
    marks.map((mark) => ({ ...mark, text: units.time(mark.at, unit).value })),
    inner,
    end,
  );
  const deep = Math.max(0, ...row.map((mark) => mark.line)) + 1;
  const bars = [
    { name: t.interval, start: 0, ns: interval, tone: "interval" },
    { name: t.fpBp, start: interval, ns: fpBp, tone: "fpbp" },
    { name: t.tail, start: interval + fpBp, ns: tail, tone: "tail" },
  ];
  const shown = all ? lanes : lanes.slice(0, MOST_STREAMS);
  const title = at === null ? t.orderAverage : fill(t.order, { step: units.count(trace.num("step")[at]).value });
  const wide = (ns: number) => (ns / end) * inner;
  const [from, to] = at === null ? [NaN, NaN] : [trace.num("start_ns")[at], trace.num("end_ns")[at]];
  return (
    <Card
      title={title}
      note={
        transfers.length
          ? fill(t.orderNote, {
              count:
                transfers.length === 1
                  ? t.transferOne
                  : fill(t.transfersCount, { count: units.count(transfers.length).value }),
            })
          : t.orderNone
      }
      tools={
        <>
          {exposed > 0 && <Chip tone={tone}>{fill(t.exposed, { time: units.text(units.time(exposed)) })}</Chip>}
          {at !== null && (
            <a class="btn sm" href={link({ page: "timeline", params: { t0: Math.round(from), t1: Math.round(to) } })}>
              {t.open}
            </a>
          )}
        </>
      }
    >
      <div class="gantt" ref={box} role="group" aria-label={title}>
        <span />
        <span class="over" style={{ height: `${deep * 16 + 2}px` }}>
          {row.map((mark) => (
            <span key={mark.label} style={{ left: `${mark.left}px`, top: `${mark.line * 16}px` }}>
              {mark.label} <b title={units.exact(mark.at, "time")}>{mark.text}</b>
            </span>
          ))}
        </span>
        <span />
        <span class="rules" style={{ left: "190px", right: "84px", top: `${deep * 16 + 2}px` }}>
          {marks.map((mark) => (
            <i key={mark.label} style={{ left: place(mark.at) }} />
          ))}
        </span>
        <span class="who">{t.stages}</span>
        <span class="what stages">
          {!divided && (
            <i class="whole in" style={{ left: "0%", width: place(total) }}>
              <b>{units.text(units.time(total))}</b>
            </i>
          )}
          {divided &&
            bars.map(
              (bar) =>
                bar.ns > 0 && (
                  <i
                    key={bar.tone}
                    class={`${bar.tone} ${wide(bar.ns) > 60 ? "in" : ""}`}
                    style={{ left: place(bar.start), width: place(bar.ns) }}
                    onPointerMove={(event) =>
                      tip(
                        event,
                        <>
                          <b>{bar.name}</b>
                          <dl>
                            <dt>{t.starts}</dt>
                            <dd>
                              <Time ns={bar.start} />
                            </dd>
                            <dt>{t.ends}</dt>
                            <dd>
                              <Time ns={bar.start + bar.ns} />
                            </dd>
                            <dt>{t.takes}</dt>
                            <dd>
                              <Time ns={bar.ns} /> · <Share of={bar.ns / total} />
                            </dd>
                          </dl>
                        </>,
                      )
                    }
                    onPointerLeave={untip}
                  >
                    {wide(bar.ns) > 60 && (
                      <>
                        <b>{units.text(units.time(bar.ns))}</b>
                        {[` ${bar.name.toLowerCase()} · ${units.text(units.share(bar.ns / total))}`].find(
                          (more) => textWidth(units.text(units.time(bar.ns)) + more) + 20 < wide(bar.ns),
                        )}
                      </>
                    )}
                  </i>
                ),
            )}
          {end > total && (
            <i class="beyond hatch" style={{ left: place(total), width: place(end - total) }} title={t.beyond} />
          )}
        </span>
        <span class="took">
          <Time ns={total} unit={unit} />
        </span>
        {shown.map((lane) => [
          <span key={`${lane.stream} who`} class="who" title={lane.stream}>
            <span class="mono d3">{lane.stream}</span>
          </span>,
          <span key={`${lane.stream} what`} class="what">
            {lane.inside.map((item, which) => {
              const say = (event: PointerEvent) =>
                tip(
                  event,
                  <>
                    <b class="mono">{item.name}</b>
                    <dl>
                      <dt>{t.starts}</dt>
                      <dd>
                        <Time ns={item.start} />
                      </dd>
                      <dt>{t.takes}</dt>
                      <dd>
                        <Time ns={item.dur} />
                      </dd>
                      <dt>{t.hidden}</dt>
                      <dd>
                        <Time ns={item.hidden} />
                      </dd>
                      <dt>{t.exposedHead}</dt>
                      <dd>
                        <Time ns={item.exposed} />
                      </dd>
                      {Number.isFinite(item.bytes) && [
                        <dt key="b">{t.bytes}</dt>,
                        <dd key="c">{units.text(units.bytes(item.bytes))}</dd>,
                      ]}
                    </dl>
                  </>,
                );
              return [
                item.hidden > 0 && (
                  <i
                    key={`${which}h`}
                    class={`hidden ${wide(item.hidden) > 80 ? "in" : ""}`}
                    style={{ left: place(item.start), width: place(item.hidden) }}
                    onPointerMove={say}
                    onPointerLeave={untip}
                  >
                    {wide(item.hidden) > 80 && `${units.text(units.time(item.hidden))} ${t.hiddenShort}`}
                  </i>
                ),
                item.exposed > 0 && (
                  <i
                    key={`${which}e`}
                    class={`shown ${wide(item.exposed) > 90 ? "in" : ""}`}
                    style={{ left: place(item.start + item.hidden), width: place(item.exposed) }}
                    onPointerMove={say}
                    onPointerLeave={untip}
                  >
                    {wide(item.exposed) > 90 && (
                      <b>
                        {units.text(units.time(item.exposed))} {t.exposedShort}
                      </b>
                    )}
                  </i>
                ),
              ];
            })}
          </span>,
          <span key={`${lane.stream} took`} class="took">
            <Time ns={lane.inside.reduce((sum, item) => sum + item.dur, 0)} unit={unit} />
          </span>,
        ])}
        <span />
        <span class="scale">
          {units.ticks(0, units.timeIn(end, unit), 8).map((tick, which) => (
            <span
              key={tick}
              style={{
                left: place((tick / units.timeIn(end, unit)) * end),
                transform: which ? "translateX(-50%)" : undefined,
              }}
            >
              {+tick.toPrecision(6)}
              {which === 0 && ` ${unit}`}
            </span>
          ))}
        </span>
        <span />
      </div>
      {lanes.length > MOST_STREAMS && (
        <button class="aslink small" onClick={() => setAll(!all)}>
          {all ? t.fewerStreams : fill(t.moreStreams, { count: lanes.length - MOST_STREAMS })}
        </button>
      )}
    </Card>
  );
}

/** Labels above the picture, on as many lines as keep them apart. */
function placeLabels<Mark extends { at: number; label: string; text: string }>(
  marks: Mark[],
  inner: number,
  end: number,
): (Mark & { left: number; line: number })[] {
  const free: number[] = [];
  return [...marks]
    .sort((a, b) => a.at - b.at)
    .map((mark) => {
      // Chinese characters are about twice as wide.
      const wide = [...`${mark.label} ${mark.text}`].reduce((sum, letter) => sum + (letter > "⺀" ? 11 : 6), 8);
      const left = Math.max(0, Math.min(inner - wide, (mark.at / end) * inner - wide / 2));
      let line = free.findIndex((until) => until <= left);
      if (line < 0) line = free.length;
      free[line] = left + wide + 6;
      return { ...mark, left, line };
    });
}
