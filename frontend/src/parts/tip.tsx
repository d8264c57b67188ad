/** The tooltip: beside the pointer or the focused mark. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

const shown = signal<{ x: number; y: number; content: ComponentChildren } | null>(null);

/** Show something beside a point of the window. */
export function tip(event: { clientX: number; clientY: number }, content: ComponentChildren): void {
  shown.value = { x: event.clientX, y: event.clientY, content };
}

export function untip(): void {
  shown.value = null;
}

export function Tip() {
  const box = useRef<HTMLDivElement>(null);
  const now = shown.value;
  useLayoutEffect(() => {
    if (!box.current || !now) return;
    const { width, height } = box.current.getBoundingClientRect();
    const left = now.x + 12 + width > innerWidth ? now.x - 12 - width : now.x + 12;
    const top = now.y + 12 + height > innerHeight ? now.y - 12 - height : now.y + 12;
    box.current.style.left = `${Math.max(4, left)}px`;
    box.current.style.top = `${Math.max(4, top)}px`;
  }, [now]);
  return now ? (
    <div class="tip" ref={box} role="tooltip">
      {now.content}
    </div>
  ) : null;
}
