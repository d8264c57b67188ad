/** What is known about a frame: in the tooltip, and below the graph for the selected one. */
import type { ComponentChildren } from "preact";
import { CopyButton } from "../parts/basics";
import { onTimeline } from "../parts/calls";
import { Count, Share, Time } from "../parts/quantity";
import { hasPage } from "../page_links";
import { go, link } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import { change, type Difference, type Frames, OTHER, pathTo, sourceOf, stackText } from "./tree";
import { type Tint } from "./tints";

const text = strings("flame");

/** The figures of a graph: the time that shares refer to, and the steps that values are divided by (0: not divided). */
export interface Figures {
  whole: number;
  steps: number;
  difference?: Difference;
}

function kindText(of: Frames, row: number): string {
  if (of.kind[row] !== OTHER) return of.kind[row];
  const count = of.merged[row];
  return fill(of.end ? text().otherCalls : text().otherPaths, { count: units.count(count).value });
}

export function TipOf({ of, row, figures, tint }: { of: Frames; row: number; figures: Figures; tint: Tint }) {
  const t = text();
  const source = sourceOf(of.name[row]);
  const per = figures.steps || 1;
  return (
    <div class="flame-tip">
      <b class="mono">
        <i class="sw" style={{ background: tint.fill }} />
        {source ? source.function : (of.name[row] ?? t.other)}
      </b>
      <span class="d3">{source ? `${source.file}:${source.line}` : kindText(of, row)}</span>
      <dl class="kv">
        {figures.difference ? (
          <Changed of={figures.difference} row={row} />
        ) : (
          <>
            <dt>{t.totalTime}</dt>
            <dd>
              {units.text(units.time(of.total[row] / per))} · {units.text(units.share(of.total[row] / figures.whole))}
            </dd>
            <dt>{t.self}</dt>
            <dd>
              {units.text(units.time(of.self[row] / per))} · {units.text(units.share(of.self[row] / figures.whole))}
            </dd>
            <dt>{t.calls}</dt>
            <dd>{units.text(units.count(rounded(of.calls[row] / per)))}</dd>
            {of.end && (
              <>
                <dt>{t.start}</dt>
                <dd>{units.text(units.time(of.start[row]))}</dd>
              </>
            )}
          </>
        )}
      </dl>
    </div>
  );
}

function Changed({ of, row }: { of: Difference; row: number }) {
  const t = text();
  const value = (ns: number) => (Number.isFinite(ns) ? units.text(units.time(ns)) : units.MISSING);
  const by = of.here[row] - of.there[row];
  return (
    <>
      <dt>{t.here}</dt>
      <dd>{value(of.here[row])}</dd>
      <dt>{t.there}</dt>
      <dd>{value(of.there[row])}</dd>
      <dt>{t.changed}</dt>
      <dd>
        {Number.isFinite(by)
          ? `${by > 0 ? "▲" : by < 0 ? "▼" : ""} ${units.text(units.time(Math.abs(by)))} · ${units.text(units.share(Math.abs(change(of.here[row], of.there[row]))))}`
          : t.unknown}
      </dd>
    </>
  );
}

function rounded(value: number): number {
  return Number.isInteger(value) ? value : Number(value.toPrecision(3));
}

interface SelectedProps {
  of: Frames;
  row: number;
  figures: Figures;
  onSelect: (row: number) => void;
}

/** The selected frame: figures, stack, and where to go from here. */
export function Selected({ of, row, figures, onSelect }: SelectedProps) {
  const t = text();
  const name = of.name[row];
  const source = sourceOf(name);
  const per = figures.steps || 1;
  const path = pathTo(of, row);
  return (
    <section class="card flame-selected" aria-label={name ?? t.other}>
      <header>
        <h2 class="mono cut" title={name ?? t.other}>
          {source ? source.function : (name ?? t.other)}
        </h2>
        <span class="note">{source ? `${source.file}:${source.line}` : kindText(of, row)}</span>
        <span class="sp" />
        <button class="btn sm" onClick={() => onSelect(-1)}>
          {t.unzoom}
        </button>
      </header>
      <div class="bd flame-facts">
        <dl class="kv">
          {figures.difference ? (
            <Changed of={figures.difference} row={row} />
          ) : (
            <Values of={of} row={row} per={per} whole={figures.whole} />
          )}
        </dl>
        <Actions of={of} row={row} />
        <ol class="flame-stack" aria-label={t.stack}>
          {path.map((at) => (
            <li key={at} class={at === row ? "on" : ""}>
              <button class="aslink mono cut" title={of.name[at] ?? t.other} onClick={() => onSelect(at)}>
                {of.name[at] ?? t.other}
              </button>
              {!figures.difference && (
                <span class="d3">
                  <Time ns={of.total[at] / per} />
                </span>
              )}
            </li>
          ))}
        </ol>
      </div>
    </section>
  );
}

function Values({ of, row, per, whole }: { of: Frames; row: number; per: number; whole: number }) {
  const t = text();
  const pair = (label: string, ns: number): ComponentChildren => (
    <>
      <dt>{label}</dt>
      <dd>
        <Time ns={ns / per} /> · <Share of={ns / whole} />
      </dd>
    </>
  );
  return (
    <>
      {pair(t.totalTime, of.total[row])}
      {pair(t.self, of.self[row])}
      <dt>{per > 1 ? t.callsPerStep : t.calls}</dt>
      <dd>
        <Count of={rounded(of.calls[row] / per)} />
      </dd>
    </>
  );
}

/** Links and buttons of a frame. */
function Actions({ of, row }: { of: Frames; row: number }) {
  const t = text();
  const name = of.name[row];
  const source = sourceOf(name);
  const place = timelineOf(of, row);
  return (
    <p class="flame-actions">
      <CopyButton value={() => stackText(of, row)} label={t.copyStack} />
      {source && <CopyButton value={`${source.file}:${source.line}`} label={t.copyLine} />}
      {name !== null && (
        <button class="btn sm" onClick={() => go({ params: { fn: name, at: null } })}>
          {t.sandwich}
        </button>
      )}
      {place && hasPage("timeline") && (
        <a class="btn sm" href={link(place)}>
          {of.end ? t.timelineHere : t.timeline}
        </a>
      )}
      {source && /^(\/|[A-Za-z]:[\\/])/.test(source.file) && (
        <a class="btn sm" href={`vscode://file/${encodeURI(source.file.replace(/^\//, ""))}:${source.line}`}>
          {t.editor}
        </a>
      )}
    </p>
  );
}

/** The place of a call on the timeline: the call itself in the order of time, the longest one in a tree. */
export function timelineOf(of: Frames, row: number) {
  if (of.kind[row] === "thread" || Number.isNaN(of.span[row]) || of.kind[row] === OTHER) return null;
  if (of.end) return onTimeline(of.start[row], of.end[row] - of.start[row], of.span[row]);
  return { page: "timeline", params: { span: of.span[row] } };
}
