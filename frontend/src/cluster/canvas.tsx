/** A canvas that draws itself again when its size, data or theme changes. */
import { useWidth } from "../parts/basics";
import { tip, untip } from "../parts/tip";
import { theme } from "../state";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface CanvasProps {
  height: number;
  /** Draws in CSS pixels. */
  draw: (context: CanvasRenderingContext2D, width: number) => void;
  /** What is drawn: another value draws again. */
  of: unknown[];
  /** The text beside the pointer; null for none. */
  say?: (x: number, y: number, width: number) => ComponentChildren;
  onPick?: (x: number, y: number, width: number) => void;
  label: string;
}

export function Canvas({ height, draw, of, say, onPick, label }: CanvasProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const shade = theme();
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !width) return;
    const ratio = devicePixelRatio || 1;
    canvas.current!.width = Math.round(width * ratio);
    canvas.current!.height = Math.round(height * ratio);
    context.scale(ratio, ratio);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    draw(context, width);
  }, [width, height, shade, ...of]);
  const place = (event: { clientX: number; clientY: number; currentTarget: EventTarget | null }): [number, number] => {
    const from = (event.currentTarget as Element).getBoundingClientRect();
    return [event.clientX - from.left, event.clientY - from.top];
  };
  return (
    <div ref={box} class="cluster-canvas" style={{ height: `${height}px` }}>
      <canvas
        ref={canvas}
        class={onPick ? "click" : ""}
        style={{ width: `${width}px`, height: `${height}px` }}
        role="img"
        aria-label={label}
        onClick={(event) => onPick?.(...place(event), width)}
        onPointerMove={(event) => {
          const content = say?.(...place(event), width);
          if (content) tip(event, content);
          else untip();
        }}
        onPointerLeave={untip}
      />
    </div>
  );
}
