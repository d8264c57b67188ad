/** A ruler between two timestamps, which snap to the edges of spans. */
import { useEffect, useRef } from "preact/hooks";
import { fill, strings } from "../strings";
import * as units from "../units";
import { write } from "./address";
import type { Timeline } from "./model";
import { MINI } from "./scene";

/** Start and end; until the end is chosen, it follows the pointer. */
export interface Measured {
  from: number;
  to: number | null;
}

const text = strings("measure");
const NEAR = 6;

/** The label of the ruler: duration, and number of median steps. */
export function length(of: Timeline, ns: number): string {
  const t = text();
  const lengths = of.steps.map((step) => step.end - step.start).sort((a, b) => a - b);
  const usual = lengths[lengths.length >> 1];
  const time = units.text(units.time(ns));
  if (!usual) return time;
  const count = ns / usual;
  return `${time} · ${fill(count < 1 ? t.steps : t.many, { count: Number(count.toPrecision(3)).toString() })}`;
}

function measure(of: Timeline, measured: Measured | null): void {
  of.measured.value = measured;
  if (!measured || measured.to !== null) write(of);
}

/** `T`: the next point of the ruler, at the pointer, or else at an edge of the selected span. */
export function measureHere(of: Timeline): void {
  const now = of.measured.peek();
  const open = now !== null && now.to === null ? now : null;
  const at = pointed(of) ?? edgeOfSelected(of, open?.from ?? null);
  of.mode.value = "measure";
  if (at === null) return;
  measure(of, open ? { from: open.from, to: at } : { from: at, to: null });
}

/** `Esc`; returns whether there was something to end. */
export function endMeasuring(of: Timeline): boolean {
  if (of.mode.peek() !== "measure" && of.measured.peek() === null) return false;
  if (of.mode.peek() === "measure") of.mode.value = "select";
  measure(of, null);
  return true;
}

function pointed(of: Timeline): number | null {
  if (of.sight.cursor === null) return null;
  const hit = of.hover.peek()?.hit;
  const slack = ((of.t1 - of.t0) / Math.max(1, of.width)) * NEAR;
  const edges = hit && hit.count <= 1 ? [hit.start, hit.start + hit.dur] : [];
  return edges.find((edge) => Math.abs(edge - of.sight.cursor!) < slack) ?? of.sight.cursor;
}

/** First the start, then the end of the same span. */
function edgeOfSelected(of: Timeline, from: number | null): number | null {
  const event = of.selected.peek();
  if (!event) return null;
  return from === event.start ? event.start + event.dur : event.start;
}

/** Over the picture: the ruler, and its hint while measuring. */
export function Ruler({ of }: { of: Timeline }) {
  const t = text();
  const box = useRef<HTMLDivElement>(null);
  const pressed = useRef<{ x: number; moved: boolean } | null>(null);
  const measuring = of.mode.value === "measure";
  const measured = of.measured.value;
  useEffect(() => {
    if (!measured) return;
    // It moves with the picture.
    let requested = 0;
    let before = "";
    const place = () => {
      requested = requestAnimationFrame(place);
      const to = measured.to ?? of.sight.cursor ?? measured.from;
      const scale = of.width / (of.t1 - of.t0);
      const [left, right] = [Math.min(measured.from, to), Math.max(measured.from, to)].map(
        (moment) => (moment - of.t0) * scale,
      );
      const key = `${left} ${right} ${of.width}`;
      if (key === before || !box.current) return;
      before = key;
      const [line0, line1, bar] = [...box.current.querySelectorAll<HTMLElement>("i, .tl-span")];
      line0.style.transform = `translateX(${left}px)`;
      line1.style.transform = `translateX(${right}px)`;
      for (const [line, x] of [
        [line0, left],
        [line1, right],
      ] as const)
        line.hidden = x < -2 || x > of.width + 2;
      const [from, until] = [Math.max(0, left), Math.min(of.width, right)];
      bar.hidden = until < 0 || from > of.width;
      bar.style.left = `${from}px`;
      bar.style.width = `${Math.max(0, until - from)}px`;
      bar.firstElementChild!.textContent = length(of, Math.abs(to - measured.from));
    };
    place();
    return () => cancelAnimationFrame(requested);
  }, [of, measured]);
  const place = (event: PointerEvent) => {
    const { left, top } = box.current!.parentElement!.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const { x, y } = place(event);
    if (y < MINI) return;
    event.stopPropagation();
    box.current!.setPointerCapture(event.pointerId);
    pressed.current = { x, moved: false };
    const open = of.measured.peek();
    void of
      .edge(x, y)
      .then((at) => measure(of, open && open.to === null ? { from: open.from, to: at } : { from: at, to: null }));
  };
  const move = (event: PointerEvent) => {
    event.stopPropagation();
    const { x, y } = place(event);
    of.sight.cursor = of.sight.momentAt(x);
    if (pressed.current && Math.abs(x - pressed.current.x) > 4) pressed.current.moved = true;
    void of.edge(x, y).then((at) => (of.sight.cursor = at));
  };
  const up = (event: PointerEvent) => {
    const held = pressed.current;
    pressed.current = null;
    if (!held) return;
    event.stopPropagation();
    const { x, y } = place(event);
    if (held.moved)
      void of.edge(x, y).then((at) => {
        const open = of.measured.peek();
        if (open) measure(of, { from: open.from, to: at });
      });
  };
  return (
    <div
      ref={box}
      class={`tl-measure ${measuring ? "on" : ""}`}
      onPointerDown={down}
      onPointerMove={move}
      onPointerUp={up}
      onPointerLeave={() => (of.sight.cursor = null)}
    >
      {measured && (
        <>
          <i />
          <i />
          <div class="tl-span">
            <b />
          </div>
        </>
      )}
      <span class="sr" role="status">
        {measured && measured.to !== null
          ? fill(t.said, { length: length(of, Math.abs(measured.to - measured.from)) })
          : measuring
            ? t.begin
            : ""}
      </span>
    </div>
  );
}
