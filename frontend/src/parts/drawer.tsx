/** Details of the selected row, beside the page. Esc closes it and returns the focus. */
import type { ComponentChildren } from "preact";
import { createPortal } from "preact/compat";
import { useEffect, useRef } from "preact/hooks";
import { strings } from "../strings";
import { Icon } from "./icon";

const text = strings("drawer");

export function Drawer({
  title,
  children,
  onClose,
}: {
  title: ComponentChildren;
  children: ComponentChildren;
  onClose: () => void;
}) {
  const before = useRef<Element | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    before.current = document.activeElement;
    const main = document.querySelector(".main");
    main?.classList.add("drawn");
    const keys = (event: KeyboardEvent) => event.key === "Escape" && onClose();
    document.addEventListener("keydown", keys);
    return () => {
      document.removeEventListener("keydown", keys);
      main?.classList.remove("drawn");
      (before.current as HTMLElement | null)?.focus?.();
    };
  }, []);
  const place = document.getElementById("side");
  if (!place) return null;
  return createPortal(
    <aside class="drawer" aria-label={text().details}>
      <header class="hd">
        {title}
        <span class="sp" />
        <button ref={button} class="pick bare" aria-label={text().close} onClick={onClose}>
          <Icon name="close" size={14} />
        </button>
      </header>
      <div class="drawn-body">{children}</div>
    </aside>,
    place,
  );
}
