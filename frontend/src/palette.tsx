/** Search over pages, steps, operators, kernels, runs and commands: `/` or Ctrl K. Loaded when it is first opened. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { withPageStrings } from "./strings";

export const paletteOpen = signal(false);

export function openPalette(): void {
  paletteOpen.value = true;
}

let loaded: ComponentType<{ close: () => void }> | null = null;

export function Palette() {
  const [, again] = useState(0);
  const open = paletteOpen.value;
  useEffect(() => {
    if (!open || loaded) return;
    void withPageStrings(import("./search/dialog")).then((module) => {
      loaded = module.SearchDialog;
      again((n) => n + 1);
    });
  }, [open]);
  useEffect(() => {
    if (!open) return;
    // Also before it has the focus.
    const keys = (event: KeyboardEvent) => event.key === "Escape" && (paletteOpen.value = false);
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, [open]);
  const Body = loaded;
  return open && Body ? <Body close={() => (paletteOpen.value = false)} /> : null;
}
