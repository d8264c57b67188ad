/** A button that opens a list or a small form below it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./icon";

interface MenuProps {
  button: ComponentChildren;
  label: string;
  class?: string;
  /** Gets a function that closes the menu. */
  children: (close: () => void) => ComponentChildren;
  arrow?: boolean;
  align?: "left" | "right";
}

export function Menu({ button, label, children, arrow = true, align = "left", ...more }: MenuProps) {
  const [open, setOpen] = useState(false);
  const whole = useRef<HTMLDivElement>(null);
  const close = () => {
    setOpen(false);
    whole.current?.querySelector("button")?.focus();
  };
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => !whole.current?.contains(event.target as Node) && setOpen(false);
    document.addEventListener("pointerdown", outside);
    whole.current?.querySelector<HTMLElement>(".menu a, .menu button, .menu input")?.focus();
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      close();
    }
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by || !open) return;
    const items = [...whole.current!.querySelectorAll<HTMLElement>(".menu a, .menu button, .menu input")];
    const at = items.indexOf(document.activeElement as HTMLElement);
    items[(at + by + items.length) % items.length]?.focus();
    event.preventDefault();
  };
  return (
    <div class="menuwrap" ref={whole} onKeyDown={keys}>
      <button
        class={`pick ${more.class ?? ""}`}
        aria-haspopup="true"
        aria-expanded={open}
        aria-label={label}
        onClick={() => setOpen(!open)}
      >
        {button}
        {arrow && <Icon name="down" size={12} />}
      </button>
      {open && <div class={`menu ${align}`}>{children(close)}</div>}
    </div>
  );
}
