/** The picture: the canvas, the names of the tracks beside it, pointer and wheel. */
import { tip, untip } from "../parts/tip";
import { source } from "../source";
import { language, theme } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import { choose, setArea } from "./navigation";
import { followPath } from "./connections";
import { Fingers } from "./touch";
import { Hover } from "./hover";
import { amount } from "./labels";
import type { Placed } from "./layout";
import { Ruler } from "./measure";
import type { Timeline } from "./model";
import { MINI, TOP } from "./scene";
import { Corner, GroupName, LaneName } from "./track_names";
import type { TargetedEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

const text = strings("timeline");

type Drag =
  | { what: "pan"; x: number; y: number; t0: number; t1: number; scroll: number }
  | { what: "area"; from: number; y: number; ruler: boolean; moved: boolean; x: number }
  | { what: "brush"; from: number; x: number; moved: boolean }
  | { what: "brush move"; x: number; t0: number; t1: number }
  | { what: "brush left" | "brush right"; other: number };

export function Picture({ of, run }: { of: Timeline; run: string }) {
  const t = text();
  const box = useRef<HTMLDivElement>(null);
  const heads = useRef<HTMLDivElement>(null);
  const bar = useRef<HTMLDivElement>(null);
  const drag = useRef<Drag | null>(null);
  const hovered = useRef(0);
  const reported = useRef(0);
  const fingers = useMemo(() => new Fingers(of), [of]);
  const layout = of.layout.value;

  useLayoutEffect(() => {
    // One canvas each: a worker does not give its canvas back.
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    box.current!.prepend(canvas);
    of.attach(canvas);
    let scrolled = NaN;
    of.drawn = (took, whole) => {
      box.current?.dispatchEvent(new CustomEvent("drawn", { detail: { took, whole } })); // for measurements
      if (scrolled === of.scroll) return;
      scrolled = of.scroll;
      if (heads.current) heads.current.style.transform = `translateY(${-of.scroll}px)`;
      if (!bar.current) return;
      bar.current.scrollTop = of.scroll;
      reported.current = bar.current.scrollTop;
    };
    of.turned = (busy) => box.current?.setAttribute("aria-busy", String(busy));
    const watch = new ResizeObserver(() => box.current && of.resize(box.current.clientWidth, box.current.clientHeight));
    watch.observe(box.current!);
    of.resize(box.current!.clientWidth, box.current!.clientHeight);
    return () => {
      watch.disconnect();
      box.current?.querySelector("canvas")?.remove();
      untip();
    };
  }, [of]);
  useEffect(() => {
    of.words = { step: t.step, free: t.free };
    of.recolor();
  }, [of, theme(), language()]);
  useEffect(() => {
    // Not through Preact: the page must not scroll instead.
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
      const x = event.clientX - box.current!.getBoundingClientRect().left;
      if (event.shiftKey && !event.ctrlKey) of.scrollTo(of.scroll + (dy || dx));
      else if (Math.abs(dx) > Math.abs(dy) && !event.ctrlKey)
        of.sight.shift(((of.t1 - of.t0) * dx) / Math.max(1, of.width));
      else
        of.sight.zoom(
          of.sight.momentAt(x),
          Math.exp(Math.max(-160, Math.min(160, dy)) * (event.ctrlKey ? 0.01 : 0.0022)),
        );
      untip();
    };
    const beside = (event: WheelEvent) => of.scrollTo(of.scroll + event.deltaY * (event.deltaMode === 1 ? 16 : 1));
    box.current!.addEventListener("wheel", wheel, { passive: false });
    const names = heads.current!.parentElement!;
    names.addEventListener("wheel", beside, { passive: true });
    return () => {
      box.current?.removeEventListener("wheel", wheel);
      names.removeEventListener("wheel", beside);
    };
  }, [of]);

  const place = (event: PointerEvent | MouseEvent) => {
    const { left, top } = box.current!.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const hover = async (event: PointerEvent, x: number, y: number) => {
    const at = (of.sight.cursor = of.sight.momentAt(x));
    const number = ++hovered.current;
    const { hit, counter } = await of.at(x, y);
    if (number !== hovered.current || drag.current || !box.current) return; // the pointer has moved on
    const before = of.hover.peek();
    if (before?.hit.span !== hit?.span || before?.hit.start !== hit?.start || before?.hit.lane !== hit?.lane) {
      of.hover.value = hit && { hit, x, y };
      of.invalidate();
    }
    box.current.style.cursor =
      y < MINI
        ? brushCursor(of, x)
        : y < TOP
          ? "pointer"
          : of.mode.peek() === "pan"
            ? "grab"
            : hit
              ? "pointer"
              : "crosshair";
    const lane = counter && of.lane(counter.lane);
    if (hit) tip(event, <Hover of={of} hit={hit} at={at} />);
    else if (counter && lane)
      tip(
        event,
        <>
          <b>{lane.label}</b> <span class="b">{amount(counter.value, lane.unit)}</span>
        </>,
      );
    else untip();
  };
  const down = (event: PointerEvent) => {
    const { x, y } = place(event);
    if (event.button > 1) return;
    box.current!.setPointerCapture(event.pointerId);
    untip();
    if (event.pointerType === "touch") fingers.put(event.pointerId, x, y);
    if (fingers.count > 1) return void (drag.current = null);
    const [t0, t1] = [of.t0, of.t1];
    if (y < MINI) {
      const [from, to] = [(t0 / of.end) * of.width, (t1 / of.end) * of.width];
      const whole = t1 - t0 >= of.end;
      if (Math.abs(x - from) < 6 && !whole) drag.current = { what: "brush left", other: t1 };
      else if (Math.abs(x - to) < 6 && !whole) drag.current = { what: "brush right", other: t0 };
      else if (x > from && x < to && !whole) drag.current = { what: "brush move", x, t0, t1 };
      else drag.current = { what: "brush", from: (x / of.width) * of.end, x, moved: false };
      return;
    }
    if (y >= TOP && (of.mode.peek() === "pan" || event.button === 1 || event.pointerType === "touch"))
      drag.current = { what: "pan", x, y, t0, t1, scroll: of.scroll };
    else {
      const held: Drag = (drag.current = {
        what: "area",
        from: of.sight.momentAt(x),
        y,
        ruler: y < TOP,
        moved: false,
        x,
      });
      void of.edge(x, y).then((at) => (held.from = at));
    }
  };
  const move = (event: PointerEvent) => {
    const { x, y } = place(event);
    if (fingers.move(event.pointerId, x, y)) return;
    const now = drag.current;
    if (!now) return event.pointerType === "touch" ? undefined : void hover(event, x, y);
    const perPixel = (of.t1 - of.t0) / Math.max(1, of.width);
    if (now.what === "pan") {
      of.sight.drag(now.t0 - (x - now.x) * perPixel, now.t1 - (x - now.x) * perPixel);
      of.scrollTo(now.scroll - (y - now.y));
    } else if (now.what === "area") {
      if (!now.moved && Math.abs(x - now.x) < 4) return;
      now.moved = true;
      void of.edge(x, y).then((at) => drag.current === now && span(now, at, y, false));
    } else if (now.what === "brush") {
      if (!now.moved && Math.abs(x - now.x) < 4) return;
      now.moved = true;
      const at = (Math.max(0, Math.min(of.width, x)) / of.width) * of.end;
      of.sight.drag(Math.min(now.from, at), Math.max(now.from, at));
    } else if (now.what === "brush move") {
      const by = ((x - now.x) / of.width) * of.end;
      of.sight.drag(now.t0 + by, now.t1 + by);
    } else {
      const at = (Math.max(0, Math.min(of.width, x)) / of.width) * of.end;
      of.sight.drag(Math.min(at, now.other), Math.max(at, now.other));
    }
  };
  const span = (now: Drag & { what: "area" }, at: number, y: number, rest: boolean) => {
    const lanes = !now.ruler && Math.abs(y - now.y) > 28 ? between(of, now.y, y) : null;
    setArea(of, { t0: Math.max(0, Math.min(now.from, at)), t1: Math.min(of.end, Math.max(now.from, at)), lanes }, rest);
    of.sight.cursor = at;
  };
  const cancel = (event: PointerEvent) => {
    drag.current = null;
    if (!fingers.count) return;
    fingers.lift(event.pointerId);
    // The remaining finger continues.
    if (fingers.last) drag.current = { what: "pan", ...fingers.last, t0: of.t0, t1: of.t1, scroll: of.scroll };
  };
  const up = async (event: PointerEvent) => {
    const { x, y } = place(event);
    const now = drag.current;
    cancel(event);
    if (!now) return;
    if (now.what === "area" && now.moved) return span(now, await of.edge(x, y), y, true);
    if (now.what === "brush" && !now.moved) {
      const wide = Math.min(of.t1 - of.t0, of.end / 4);
      return of.sight.to(now.from - wide / 2, now.from + wide / 2);
    }
    if (now.what === "area" && now.ruler) {
      const at = of.sight.momentAt(x);
      const step = of.steps.find((item) => at >= item.start && at < item.end);
      if (step) of.sight.to(step.start, step.end);
    } else if (
      (now.what === "area" || (now.what === "pan" && Math.abs(now.x - x) < 4 && Math.abs(now.y - y) < 4)) &&
      event.button === 0
    ) {
      const { hit } = await of.at(x, y);
      if (hit && hit.count <= 1 && of.lane(hit.lane)?.kind === "path") {
        await followPath(of, hit);
      } else if (hit && hit.span < 0) {
        choose(of, null);
        of.selected.value = hit;
        setArea(of, { t0: hit.start, t1: hit.start + hit.dur, lanes: null });
      } else if (hit && hit.count > 1 && source().isReport) {
        of.sight.focus(hit); // a report knows only the spans that it contains
      } else {
        choose(of, hit);
        if (!hit && of.area.peek()) setArea(of, null);
      }
    }
  };
  const twice = async (event: MouseEvent) => {
    const { x, y } = place(event);
    const { hit } = await of.at(x, y);
    if (hit) of.sight.focus(hit);
    else if (y < MINI) of.sight.all();
  };
  // Its change is reported later, when it may have changed again.
  const scrolled = (event: TargetedEvent<HTMLElement>) => {
    const { scrollTop } = event.currentTarget;
    if (scrollTop === reported.current) return;
    reported.current = scrollTop;
    of.scrollTo(scrollTop);
  };
  const begin = TOP + layout.pinnedHeight;
  const count = layout.lanes.length + layout.pinned.length;
  const selected = of.selected.value;
  return (
    <div class="tl-stage">
      <div class="tl-names">
        <Corner of={of} />
        {layout.pinned.map((box) => (
          <LaneName key={box.lane.id} of={of} placed={box} top={TOP} />
        ))}
        <div class="tl-clip" style={{ top: `${begin}px` }}>
          <div ref={heads}>
            {[...layout.heads, ...layout.lanes]
              .sort((a, b) => a.y - b.y)
              .map((item) =>
                "lane" in item ? (
                  <LaneName key={`lane ${item.lane.id}`} of={of} placed={item} top={0} />
                ) : (
                  <GroupName key={`group ${item.group.id}`} of={of} head={item} />
                ),
              )}
          </div>
        </div>
      </div>
      <div
        class="tl-picture"
        ref={box}
        tabIndex={0}
        role="application"
        aria-label={fill(t.picture, { run })}
        aria-describedby="tl-said"
        aria-busy="true"
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={cancel}
        onDblClick={twice}
        onPointerLeave={() => {
          of.sight.cursor = null;
          of.hover.value = null;
          untip();
          of.invalidate();
        }}
      >
        <Ruler of={of} />
        <span id="tl-said" class="sr" role="status">
          {selected
            ? `${selected.name}, ${units.text(units.time(selected.dur))}`
            : fill(t.summary, {
                tracks: count,
                count: units.count(of.header.events).value,
                length: units.text(units.time(of.end)),
              })}
        </span>
      </div>
      <div
        class="tl-bar"
        ref={bar}
        style={{ marginTop: `${begin}px` }}
        onScroll={scrolled}
        tabIndex={-1}
        aria-hidden="true"
      >
        <div style={{ height: `${layout.height + 60}px` }} />
      </div>
    </div>
  );
}

function brushCursor(of: Timeline, x: number): string {
  const [from, to] = [(of.t0 / of.end) * of.width, (of.t1 / of.end) * of.width];
  if (of.t1 - of.t0 >= of.end) return "crosshair";
  return Math.abs(x - from) < 6 || Math.abs(x - to) < 6 ? "ew-resize" : x > from && x < to ? "grab" : "crosshair";
}

/** The tracks between two heights of the picture. */
function between(of: Timeline, y0: number, y1: number): number[] {
  const layout = of.layout.peek();
  const [low, high] = [Math.min(y0, y1), Math.max(y0, y1)];
  const top = TOP + layout.pinnedHeight;
  const inside = (box: Placed) => {
    const y = box.pinned ? TOP + box.y : Math.max(top, top - of.scroll + box.y);
    const end = box.pinned ? y + box.height : top - of.scroll + box.y + box.height;
    return end > low && y < high;
  };
  return [...layout.pinned, ...layout.lanes].filter(inside).map((box) => box.lane.id);
}
