/** Keys, colors and terms: `?`. The content is loaded when help is first opened. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { withPageStrings } from "./strings";

export const helpOpen = signal(false);

export function openHelp(): void {
  helpOpen.value = !helpOpen.value;
}

let loaded: ComponentType<{ close: () => void }> | null = null;

export function Help() {
  const [, again] = useState(0);
  const open = helpOpen.value;
  useEffect(() => {
    if (!open || loaded) return;
    void withPageStrings(import("./help_content")).then((module) => {
      loaded = module.HelpContent;
      again((n) => n + 1);
    });
  }, [open]);
  const Body = loaded;
  return open && Body ? <Body close={() => (helpOpen.value = false)} /> : null;
}
