/** A flame graph that is zoomed by click, wheel and keys. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useWidth } from "../parts/basics";
import { tip, untip } from "../parts/tip";
import { theme } from "../state";
import { strings } from "../strings";
import { depthAt, labelOf, paint, ROW, type Scene, topOf, type View, wholeHeight } from "./paint";
import { children, frameAt, type Frames, type Layout, type Matches } from "./tree";
import { type Tint, tintOf } from "./tints";

const text = strings("flame");

const MOVE_MS = 160;
const CLICK_PX = 4;

export interface GraphProps {
  frames: Frames;
  layout: Layout;
  /** Describes the picture. */
  label: string;
  selected: number;
  /** −1: nothing, and the whole picture in view. */
  onSelect: (row: number) => void;
  onKey?: (key: string, row: number) => boolean;
  /** The present view, after it has settled. */
  onView?: (view: View) => void;
  /** The whole range, if the frames are a part of it. */
  extent?: View;
  matches?: Matches | null;
  tint?: (row: number) => Tint;
  tooltip: (row: number) => ComponentChildren;
  inverted?: boolean;
  ruler?: boolean;
  /** The most pixels that it takes on the page. */
  tallest?: number;
  /** Where the scene is put for export. */
  sceneOf?: { current: Scene | null };
}

export function FlameGraph(props: GraphProps) {
  const { frames, layout, selected, onSelect, inverted = false, ruler = false, tallest = 560 } = props;
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroll = useRef<HTMLDivElement>(null);
  const [hovered, setHovered] = useState(-1);
  const extent = props.extent ?? wholeView(layout);
  const view = useRef<View>(extent);
  const below = useMemo(() => children(frames), [frames]);
  const whole = wholeHeight(layout, ruler);
  const height = Math.max(ROW, Math.min(tallest, whole));
  const labels = useRef(new Map<number, string>());
  const tints = useRef<Tint[]>([]);
  const drawnIn = useRef("");
  const scene = (): Scene => ({
    frames,
    layout,
    view: view.current,
    width,
    height,
    top: scroll.current?.scrollTop ?? 0,
    inverted,
    ruler,
    tint: (row) => (tints.current[row] ??= props.tint?.(row) ?? tintOf(frames.kind[row], frames.name[row])),
    label: (row) => {
      let known = labels.current.get(row);
      if (known === undefined) labels.current.set(row, (known = labelOf(frames.name[row] ?? text().other)));
      return known;
    },
    matches: props.matches ?? null,
    selected,
    hovered,
    now: theme(),
  });
  const draw = () => {
    const ink = canvas.current?.getContext("2d");
    if (!ink || !width) return;
    const ratio = devicePixelRatio;
    const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.current!.width !== wide) canvas.current!.width = wide;
    if (canvas.current!.height !== tall) canvas.current!.height = tall;
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (drawnIn.current !== theme()) [tints.current, drawnIn.current] = [[], theme()];
    const of = scene();
    if (props.sceneOf) props.sceneOf.current = of;
    paint(ink, of);
  };
  const latest = useRef(draw);
  latest.current = draw;
  const motion = useMotion(view, extent, latest, props.onView);
  useEffect(() => {
    labels.current.clear();
    tints.current = [];
  }, [frames]);
  // Another selection brings its frame into view; without one, everything is.
  const key = selected >= 0 ? `${layout.x[selected]}:${layout.width[selected]}` : "";
  const first = useRef(true);
  useEffect(() => {
    const to = selected >= 0 ? around(layout, selected, extent) : extent;
    if (first.current || !width) motion.jump(to);
    else motion.glide(to);
    first.current = false;
    if (selected >= 0 && scroll.current) {
      const y = topOf(frames.depth[selected], layout, inverted, ruler);
      if (y < scroll.current.scrollTop || y + ROW > scroll.current.scrollTop + height)
        scroll.current.scrollTop = y - height / 3;
    }
  }, [key, extent.left, extent.right, width > 0]);
  useEffect(() => {
    if (inverted && scroll.current) scroll.current.scrollTop = scroll.current.scrollHeight;
  }, [frames, inverted, width > 0]);
  useEffect(draw);
  const rowAt = (event: MouseEvent): number => {
    const at = canvas.current!.getBoundingClientRect();
    const depth = depthAt(event.clientY - at.top + (scroll.current?.scrollTop ?? 0), layout, inverted, ruler);
    const { left, right } = view.current;
    return frameAt(layout, depth, left + ((event.clientX - at.left) / width) * (right - left));
  };
  const pointer = usePointer({ canvas, width, view, motion, rowAt, setHovered, ...props });
  return (
    <div
      ref={box}
      class="flame"
      role="application"
      tabIndex={0}
      aria-label={props.label}
      aria-description={text().keys}
      onKeyDown={(event) => {
        if (keyed(event, { frames, layout, below, selected, onSelect, motion, view, extent, onKey: props.onKey })) {
          event.preventDefault();
          event.stopPropagation();
        }
      }}
    >
      <div
        ref={scroll}
        class="flame-scroll"
        style={{ height: `${height}px` }}
        onScroll={() => latest.current()}
        tabIndex={-1}
      >
        <div class="flame-room" style={{ height: `${whole}px` }}>
          <canvas
            ref={canvas}
            class={hovered >= 0 ? "over" : ""}
            style={{ width: `${width}px`, height: `${height}px` }}
            {...pointer}
          />
        </div>
      </div>
      <p class="sr" role="status">
        {selected >= 0 && (frames.name[selected] ?? text().other)}
      </p>
    </div>
  );
}

function wholeView(layout: Layout): View {
  return { left: layout.from, right: layout.from + (layout.whole || 1) };
}

function around(layout: Layout, row: number, extent: View): View {
  const room = layout.width[row] || (extent.right - extent.left) * 1e-6 || 1;
  return { left: layout.x[row], right: layout.x[row] + room };
}

interface Motion {
  jump: (to: View) => void;
  glide: (to: View) => void;
  /** Zoom by a factor, with a place that stays. */
  zoom: (factor: number, at?: number) => void;
  pan: (by: number) => void;
}

/** Moves the view, within the extent. */
function useMotion(
  view: { current: View },
  extent: View,
  draw: { current: () => void },
  onView?: (view: View) => void,
): Motion {
  const running = useRef(0);
  const settled = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const goal = useRef<View>(view.current);
  useEffect(
    () => () => {
      cancelAnimationFrame(running.current);
      clearTimeout(settled.current);
    },
    [],
  );
  const settle = () => {
    clearTimeout(settled.current);
    settled.current = setTimeout(() => onView?.(view.current), 250);
  };
  const within = ({ left, right }: View): View => {
    const room = Math.min(right - left, extent.right - extent.left);
    const from = Math.max(extent.left, Math.min(left, extent.right - room));
    return { left: from, right: from + room };
  };
  const jump = (to: View) => {
    cancelAnimationFrame(running.current);
    goal.current = view.current = within(to);
    draw.current();
    settle();
  };
  const glide = (to: View) => {
    const [from, target, began] = [view.current, within(to), performance.now()];
    goal.current = target;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return jump(target);
    cancelAnimationFrame(running.current);
    const move = (now: number) => {
      const part = Math.min(1, Math.max(0, (now - began) / MOVE_MS));
      const eased = 1 - (1 - part) ** 3;
      view.current = {
        left: from.left + (target.left - from.left) * eased,
        right: from.right + (target.right - from.right) * eased,
      };
      draw.current();
      if (part < 1) running.current = requestAnimationFrame(move);
      else settle();
    };
    running.current = requestAnimationFrame(move);
  };
  return {
    jump,
    glide,
    zoom: (factor, at) => {
      const { left, right } = view.current;
      const middle = at ?? (left + right) / 2;
      jump({ left: middle - (middle - left) * factor, right: middle + (right - middle) * factor });
    },
    pan: (by) => {
      const { left, right } = view.current;
      jump({ left: left + by * (right - left), right: right + by * (right - left) });
    },
  };
}

interface Pointed extends GraphProps {
  canvas: { current: HTMLCanvasElement | null };
  width: number;
  view: { current: View };
  motion: Motion;
  rowAt: (event: MouseEvent) => number;
  setHovered: (row: number) => void;
}

/** Hover, click, drag and wheel. */
function usePointer({ canvas, width, view, motion, rowAt, setHovered, onSelect, tooltip, layout }: Pointed) {
  const drag = useRef<{ x: number; view: View; moved: boolean } | null>(null);
  const wheel = useRef<(event: WheelEvent) => void>(() => undefined);
  wheel.current = (event) => {
    const { left, right } = view.current;
    if (event.ctrlKey || event.metaKey) {
      const at = canvas.current!.getBoundingClientRect();
      motion.zoom(Math.exp(event.deltaY * 0.004), left + ((event.clientX - at.left) / width) * (right - left));
    } else if (event.deltaX || event.shiftKey) motion.pan((event.deltaX || event.deltaY) / width);
    else return;
    event.preventDefault();
    untip();
  };
  useEffect(() => {
    const of = canvas.current;
    const turn = (event: WheelEvent) => wheel.current(event);
    of?.addEventListener("wheel", turn, { passive: false });
    return () => of?.removeEventListener("wheel", turn);
  }, [layout === null]);
  return {
    onPointerDown: (event: PointerEvent) => {
      if (event.button !== 0) return;
      drag.current = { x: event.clientX, view: view.current, moved: false };
      if (event.pointerType === "mouse") canvas.current!.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const held = drag.current;
      if (held && event.pointerType === "mouse" && (held.moved || Math.abs(event.clientX - held.x) > CLICK_PX)) {
        held.moved = true;
        const by = ((held.x - event.clientX) / width) * (held.view.right - held.view.left);
        motion.jump({ left: held.view.left + by, right: held.view.right + by });
        return untip();
      }
      const row = rowAt(event);
      setHovered(row);
      if (row < 0) untip();
      else tip(event, tooltip(row));
    },
    onPointerUp: (event: PointerEvent) => {
      const moved = drag.current?.moved;
      drag.current = null;
      const row = rowAt(event);
      if (moved || row < 0) return;
      if (event.pointerType !== "mouse") untip();
      onSelect(row);
    },
    onPointerCancel: () => (drag.current = null),
    onPointerLeave: () => {
      setHovered(-1);
      untip();
    },
  };
}

interface Keyed {
  frames: Frames;
  layout: Layout;
  below: Map<number, number[]>;
  selected: number;
  onSelect: (row: number) => void;
  motion: Motion;
  view: { current: View };
  extent: View;
  onKey?: (key: string, row: number) => boolean;
}

/** Arrow keys move through the tree, WASD and +/− through the picture; whether the key was one of them. */
function keyed(event: KeyboardEvent, of: Keyed): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const { frames, layout, below, selected, onSelect, motion } = of;
  const beside = (by: number) => {
    const rows = layout.rows[frames.depth[selected]];
    return rows[rows.indexOf(selected) + by] ?? selected;
  };
  const largest = (row: number) =>
    (below.get(row) ?? []).reduce(
      (best, item) => (best < 0 || layout.width[item] > layout.width[best] ? item : best),
      -1,
    );
  const start = largest(-1);
  switch (event.key) {
    case "ArrowDown":
      if (selected < 0) onSelect(start);
      else if (largest(selected) >= 0) onSelect(largest(selected));
      return true;
    case "ArrowUp":
      if (selected >= 0) onSelect(frames.parent[selected]);
      return true;
    case "ArrowLeft":
    case "ArrowRight":
      onSelect(selected < 0 ? start : beside(event.key === "ArrowLeft" ? -1 : 1));
      return true;
    case "Escape":
    case "0":
    case "Home":
      if (selected < 0) motion.glide(of.extent);
      else onSelect(-1);
      return true;
    case "w":
    case "+":
    case "=":
      motion.zoom(0.8);
      return true;
    case "s":
    case "-":
      motion.zoom(1.25);
      return true;
    case "a":
      motion.pan(-0.15);
      return true;
    case "d":
      motion.pan(0.15);
      return true;
    default:
      return of.onKey?.(event.key, selected) ?? false;
  }
}
