/** Small components that all pages use. */
import type { Change } from "../place";
import { hasPage } from "../page_links";
import { RequestError } from "../request";
import { link } from "../state";
import { strings } from "../strings";
import * as units from "../units";
import { Icon } from "./icon";
import type { ComponentChildren, CSSProperties } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const text = strings("basics");

interface VerdictProps {
  children: ComponentChildren;
  /** Further sentences below the headline. */
  more?: ComponentChildren;
  /** Facts in one line below. */
  facts?: ComponentChildren[];
}

/** The headline of a page, with its numbers in <b>. */
export function Verdict({ children, more, facts }: VerdictProps) {
  const shown = (facts ?? []).filter((fact) => fact !== null && fact !== undefined && fact !== false && fact !== "");
  return (
    <div>
      <h1 class="verdict">{children}</h1>
      {more && <p class="verdict-more d2">{more}</p>}
      {shown.length > 0 && (
        <p class="facts d3">
          {shown.map((fact, at) => (
            <span key={at}>
              {at > 0 && " · "}
              {fact}
            </span>
          ))}
        </p>
      )}
    </div>
  );
}

interface CardProps {
  title: ComponentChildren;
  note?: ComponentChildren;
  /** Right of the title: legend, segmented control, link. */
  tools?: ComponentChildren;
  children: ComponentChildren;
  /** No padding: a table fills the card. */
  flush?: boolean;
  class?: string;
  style?: CSSProperties;
  label?: string;
}

export function Card({ title, note, tools, children, flush, style, label, ...more }: CardProps) {
  return (
    <section class={`card ${more.class ?? ""}`} style={style} aria-label={label}>
      <header>
        <h2>{title}</h2>
        {note && (
          <span class="note" title={typeof note === "string" ? note : undefined}>
            {note}
          </span>
        )}
        <span class="sp" />
        {tools}
      </header>
      <div class={flush ? "fill" : "bd"}>{children}</div>
    </section>
  );
}

/** Figures in one card with dividers. */
export function Tiles({ children, label }: { children: ComponentChildren; label: string }) {
  return (
    <section class="tiles" aria-label={label}>
      {children}
    </section>
  );
}

interface TileProps {
  label: string;
  children: ComponentChildren;
  /** One line of context: a range, or a reference value. */
  context?: ComponentChildren;
  tone?: "good" | "bad" | "warn";
  spark?: ArrayLike<number>;
  to?: Change;
}

export function Tile({ label, children, context, tone, spark, to }: TileProps) {
  const inside = (
    <>
      <div class="l" title={label}>
        {label}
      </div>
      <div class="f">{children}</div>
      <div class={`x ${tone ?? ""}`} title={typeof context === "string" ? context : undefined}>
        {context ?? " "}
      </div>
      {spark && spark.length > 1 && <Spark values={spark} />}
    </>
  );
  return to && (to.page === undefined || hasPage(to.page)) ? (
    <a class="tile" href={link(to)}>
      {inside}
    </a>
  ) : (
    <div class="tile">{inside}</div>
  );
}

/** A line without axes; the last point dotted. */
export function Spark({
  values,
  width = 48,
  height = 16,
  color = "var(--text-3)",
  zero,
}: {
  values: ArrayLike<number>;
  width?: number;
  height?: number;
  color?: string;
  zero?: boolean;
}) {
  const known = Array.from(values).filter(Number.isFinite);
  if (known.length < 2) return null;
  // More points than pixels: minimum and maximum of each pixel.
  const low = Math.min(...known.slice(0, 5000), ...(zero ? [0] : []));
  const high = Math.max(...known.slice(0, 5000));
  const span = high - low || 1;
  const step = Math.max(1, Math.floor(known.length / (width * 2)));
  const shown = known.filter((_, at) => at % step === 0 || at === known.length - 1);
  const x = (at: number) => 1 + (at / (shown.length - 1)) * (width - 5);
  const y = (value: number) => height - 3 - ((value - low) / span) * (height - 6);
  const path = shown.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return (
    <svg class="sl" width={width} height={height} aria-hidden="true">
      <path d={path} fill="none" stroke={color} stroke-width="1.25" />
      <circle cx={x(shown.length - 1)} cy={y(shown[shown.length - 1])} r="2" fill={color} />
    </svg>
  );
}

export interface Choice<Id extends string = string> {
  id: Id;
  label: string;
  count?: number;
  off?: boolean;
}

/** Views of the same data. */
export function Segmented<Id extends string>({
  choices,
  value,
  onChange,
  label,
}: {
  choices: Choice<Id>[];
  value: Id;
  onChange: (id: Id) => void;
  label: string;
}) {
  return (
    <div class="seg" role="group" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.id}
          class={choice.id === value ? "on" : ""}
          aria-pressed={choice.id === value}
          disabled={choice.off}
          onClick={() => onChange(choice.id)}
        >
          {choice.label}
        </button>
      ))}
    </div>
  );
}

/** Sections of a page. Left and right move between them. */
export function Tabs<Id extends string>({
  choices,
  value,
  onChange,
  label,
}: {
  choices: Choice<Id>[];
  value: Id;
  onChange: (id: Id) => void;
  label: string;
}) {
  const row = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    const at = choices.findIndex((choice) => choice.id === value);
    const next = (at + by + choices.length) % choices.length;
    onChange(choices[next].id);
    (row.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={row} onKeyDown={move}>
      {choices.map((choice) => (
        <button
          key={choice.id}
          role="tab"
          class={choice.id === value ? "on" : ""}
          aria-selected={choice.id === value}
          tabIndex={choice.id === value ? 0 : -1}
          onClick={() => onChange(choice.id)}
        >
          {choice.label}
          {choice.count !== undefined && <span class="n">{units.count(choice.count).value}</span>}
        </button>
      ))}
    </div>
  );
}

export function Chip({
  children,
  tone,
  onRemove,
  title,
}: {
  children: ComponentChildren;
  tone?: "line" | "acc" | "good" | "warn" | "bad";
  onRemove?: () => void;
  title?: string;
}) {
  return (
    <span class={`chip ${tone ?? ""}`} title={title}>
      {children}
      {onRemove && (
        <button class="x" aria-label={text().close} onClick={onRemove}>
          <Icon name="close" size={11} />
        </button>
      )}
    </span>
  );
}

export function Swatch({ color, hatch }: { color?: string; hatch?: boolean }) {
  return (
    <i class={`sw ${hatch ? "hatch" : ""}`} style={hatch ? undefined : { background: color }} aria-hidden="true" />
  );
}

/** Colors and their meaning, in drawing order. */
export function Legend({ of }: { of: { label: ComponentChildren; color?: string; hatch?: boolean }[] }) {
  return (
    <span class="legend">
      {of.map((item, at) => (
        <span key={at}>
          <Swatch color={item.color} hatch={item.hatch} />
          {item.label}
        </span>
      ))}
    </span>
  );
}

/** A bar beside a number, scaled to the largest row. */
export function InlineBar({ share, color }: { share: number; color: string }) {
  return (
    <span class="ib" aria-hidden="true">
      <i style={{ width: `${Math.max(0, Math.min(1, share)) * 100}%`, background: color }} />
    </span>
  );
}

/** What is missing and how to get it, instead of a blank card. */
export function Empty({
  title,
  children,
  height = 120,
}: {
  title: string;
  children?: ComponentChildren;
  height?: number;
}) {
  return (
    <div class="empty" style={{ minHeight: `${height}px` }} role="note">
      <b>{title}</b>
      {children && <span>{children}</span>}
    </div>
  );
}

/** An error above the content that was loaded. */
export function Trouble({ error }: { error: Error | string }) {
  const message = typeof error === "string" ? error : error.message;
  if (error instanceof RequestError && error.kind === "summary")
    return <p class="d3 small absent">{text().notInSummary}</p>;
  return (
    <div class="trouble" role="alert">
      <b>{text().failed}</b>
      <span class="mono">{message}</span>
      <span class="sp" />
      <CopyButton value={message} />
    </div>
  );
}

/** Bars in place of rows; after 400 ms a line of text. */
export function Loading({ rows = 6, what }: { rows?: number; what?: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 400);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="loading" aria-busy="true" aria-live="polite">
      {late && <span class="d3 small">{what ?? text().reading}</span>}
      {Array.from({ length: rows }, (_, at) => (
        <i key={at} />
      ))}
    </div>
  );
}

/** The three states of a request. Old data stays, dimmed, while new data is loading. */
export function Await<Answer>({
  of,
  children,
  rows,
  what,
}: {
  of: { data: Answer | null; waiting: boolean; error: Error | null };
  children: (data: Answer) => ComponentChildren;
  rows?: number;
  what?: string;
}) {
  if (of.error) return <Trouble error={of.error} />;
  if (of.data === null) return <Loading rows={rows} what={what} />;
  return (
    <div class={of.waiting ? "stale" : "fresh"} aria-busy={of.waiting}>
      {children(of.data)}
    </div>
  );
}

export function CopyButton({ value, label }: { value: string | (() => string); label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(typeof value === "string" ? value : value());
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <button class="btn sm" onClick={copy} aria-live="polite">
      {done ? text().copied : (label ?? text().copy)}
    </button>
  );
}

/** The clipboard API needs localhost or https; elsewhere use a text area. */
export async function copyText(value: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(value);
  const area = document.createElement("textarea");
  area.value = value;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Label and value pairs. */
export function Facts({ of }: { of: [ComponentChildren, ComponentChildren][] }) {
  return (
    <dl class="kv">
      {of.map(([label, value], at) => [<dt key={`t${at}`}>{label}</dt>, <dd key={`d${at}`}>{value}</dd>])}
    </dl>
  );
}

/** The present width of an element. */
export function useWidth<Element extends HTMLElement>(): [{ current: Element | null }, number] {
  const element = useRef<Element>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    setWidth(element.current.clientWidth);
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, width];
}
