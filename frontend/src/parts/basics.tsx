/** The small parts that every page is made of. */
import type { ComponentChildren, CSSProperties } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { hasPage } from "../reachable";
import { link, type Change } from "../state";
import { texts } from "../text";
import * as units from "../units";

const text = texts({
  en: { reading: "Reading…", failed: "This could not be shown", copy: "Copy", copied: "Copied", missing: "not measured", close: "Close" },
  zh: { reading: "正在读取…", failed: "无法显示", copy: "复制", copied: "已复制", missing: "未测量", close: "关闭" },
});

/** 16 by 16 line icons; a page's icon in the menu is one of these names. */
const ICONS: Record<string, string> = {
  runs: "M2 4h12M2 8h12M2 12h8",
  overview: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",
  steps: "M2 3h5M5 8h6M9 13h5",
  operators: "M2 4h9M2 8h12M2 12h6",
  functions: "M2 3h12M5 8h9M8 13h6",
  kernels: "M4 4h8v8H4zM6 1v3M10 1v3M6 12v3M10 12v3M1 6h3M1 10h3M12 6h3M12 10h3",
  flops: "M2 12a6 6 0 1 1 12 0M8 12l3-4",
  data: "M2 3h12l-4.5 5.5V13l-3 1V8.5z",
  timeline: "M2 3h6M6 8h8M3 13h4M10 13h4",
  cpu: "M2 12l3-5 3 3 3-7 3 6",
  memory: "M2 4h12v8H2zM5 4v8M8 4v8M11 4v8",
  ranks: "M2 2h3v3H2zM11 2h3v3h-3zM2 11h3v3H2zM11 11h3v3h-3zM5 3.5h6M5 12.5h6M3.5 5v6M12.5 5v6",
  communication: "M3 6h9l-3-3M13 10H4l3 3",
  advice: "M8 1.5a4.5 4.5 0 0 1 2.5 8.2V12h-5V9.7A4.5 4.5 0 0 1 8 1.5zM6.5 14.5h3",
  compare: "M6 2H2v12h4M10 2h4v12h-4M8 1v14",
  query: "M2 4l3.5 4L2 12M8 12h6",
  files: "M4 1.5h5l3 3v10H4zM9 1.5v3h3M6 8h4M6 11h4",
  live: "M8 8m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0M4 4a5.5 5.5 0 0 0 0 8M12 4a5.5 5.5 0 0 1 0 8",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9M10.5 10.5L14 14",
  export: "M8 2v8M5 7l3 3 3-3M2.5 13h11",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  help: "M6 6a2 2 0 1 1 2.5 2c-.5.3-.5.7-.5 1.5M8 12.3v.1",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  close: "M4 4l8 8M12 4l-8 8",
  pin: "M6 2h4l-.5 4 2 2.5h-7L6.500 6zM8 8.500V14",
};

export function Icon({ name, size = 16 }: { name: string; size?: number }) {
  return (
    <svg class="ic" viewBox="0 0 16 16" width={size} height={size} style={{ width: `${size}px`, height: `${size}px` }} aria-hidden="true">
      <path d={ICONS[name] ?? ICONS.files} />
    </svg>
  );
}

/** A number with its unit; the exact value on hover. */
export function Quantity({ value, as, unit, why }: { value: number; as: units.Quantity; unit?: units.TimeUnit; why?: string }) {
  const written = units.write(value, as, unit);
  const missing = !Number.isFinite(value);
  return (
    <span class="q" title={missing ? (why ?? text().missing) : units.exact(value, as)}>
      {written.value}
      {missing && <span class="sr">{why ?? text().missing}</span>}
      {written.unit && <span class="u">{units.THIN}{written.unit}</span>}
    </span>
  );
}

type Of<Name extends string> = { [Key in Name]: number } & { why?: string };
export const Time = ({ ns, unit, why }: Of<"ns"> & { unit?: units.TimeUnit }) => <Quantity value={ns} as="time" unit={unit} why={why} />;
export const Bytes = ({ of, why }: Of<"of">) => <Quantity value={of} as="bytes" why={why} />;
export const Share = ({ of, why }: Of<"of">) => <Quantity value={of} as="share" why={why} />;
export const Count = ({ of, why }: Of<"of">) => <Quantity value={of} as="count" why={why} />;

/** The page's first sentence: what a tired person can act on. Numbers in <b>. Below it a line of facts. */
export function Verdict({ children, facts }: { children: ComponentChildren; facts?: ComponentChildren[] }) {
  const said = (facts ?? []).filter((fact) => fact !== null && fact !== undefined && fact !== false && fact !== "");
  return (
    <div>
      <h1 class="verdict">{children}</h1>
      {said.length > 0 && (
        <p class="facts d3">
          {said.map((fact, at) => (
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
        {note && <span class="note" title={typeof note === "string" ? note : undefined}>{note}</span>}
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
  /** One line of context: a range, or what the number is measured against. */
  context?: ComponentChildren;
  tone?: "good" | "bad" | "warn";
  spark?: ArrayLike<number>;
  to?: Change;
}

export function Tile({ label, children, context, tone, spark, to }: TileProps) {
  const inside = (
    <>
      <div class="l">{label}</div>
      <div class="f">{children}</div>
      <div class={`x ${tone ?? ""}`} title={typeof context === "string" ? context : undefined}>{context ?? " "}</div>
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
export function Spark({ values, width = 48, height = 16, color = "var(--text-3)", zero }: { values: ArrayLike<number>; width?: number; height?: number; color?: string; zero?: boolean }) {
  const known = Array.from(values).filter(Number.isFinite);
  if (known.length < 2) return null;
  // More points than pixels: the lowest and highest of each pixel.
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
export function Segmented<Id extends string>({ choices, value, onChange, label }: { choices: Choice<Id>[]; value: Id; onChange: (id: Id) => void; label: string }) {
  return (
    <div class="seg" role="group" aria-label={label}>
      {choices.map((choice) => (
        <button key={choice.id} class={choice.id === value ? "on" : ""} aria-pressed={choice.id === value} disabled={choice.off} onClick={() => onChange(choice.id)}>
          {choice.label}
        </button>
      ))}
    </div>
  );
}

/** Parts of a page. Left and right move between them. */
export function Tabs<Id extends string>({ choices, value, onChange, label }: { choices: Choice<Id>[]; value: Id; onChange: (id: Id) => void; label: string }) {
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
        <button key={choice.id} role="tab" class={choice.id === value ? "on" : ""} aria-selected={choice.id === value} tabIndex={choice.id === value ? 0 : -1} onClick={() => onChange(choice.id)}>
          {choice.label}
          {choice.count !== undefined && <span class="n">{units.count(choice.count).value}</span>}
        </button>
      ))}
    </div>
  );
}

export function Chip({ children, tone, onRemove, title }: { children: ComponentChildren; tone?: "line" | "acc" | "good" | "warn" | "bad"; onRemove?: () => void; title?: string }) {
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
  return <i class={`sw ${hatch ? "hatch" : ""}`} style={hatch ? undefined : { background: color }} aria-hidden="true" />;
}

/** Which colour is what, in the order drawn. */
export function Legend({ of }: { of: { label: ComponentChildren; color?: string; hatch?: boolean }[] }) {
  return (
    <span class="legend">
      {of.map((one, at) => (
        <span key={at}>
          <Swatch color={one.color} hatch={one.hatch} />
          {one.label}
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

/** What is missing and how to get it; never a blank card. */
export function Empty({ title, children, height = 120 }: { title: string; children?: ComponentChildren; height?: number }) {
  return (
    <div class="empty" style={{ minHeight: `${height}px` }} role="note">
      <b>{title}</b>
      {children && <span>{children}</span>}
    </div>
  );
}

/** An error, above what did load. */
export function Trouble({ error }: { error: Error | string }) {
  const said = typeof error === "string" ? error : error.message;
  return (
    <div class="trouble" role="alert">
      <b>{text().failed}</b>
      <span class="mono">{said}</span>
      <span class="sp" />
      <CopyButton value={said} />
    </div>
  );
}

/** Bars where rows will be; after 400 ms a line that says what is going on. */
export function Loading({ rows = 6, what }: { rows?: number; what?: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 400);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="loading" aria-busy="true" aria-live="polite">
      {late && <span class="d3 small">{what ?? text().reading}</span>}
      {Array.from({ length: rows }, (_, at) => <i key={at} />)}
    </div>
  );
}

/** One answer's three states. Old data stays, dimmed, while new data comes. */
export function Await<Answer>({ of, children, rows, what }: { of: { data: Answer | null; waiting: boolean; error: Error | null }; children: (data: Answer) => ComponentChildren; rows?: number; what?: string }) {
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

/** The clipboard is there on localhost and https; elsewhere the old way. */
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

/** What the width of an element is now. */
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
