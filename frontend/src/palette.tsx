/** Search over pages, steps, operators and kernels: `/` or Ctrl K. */
import { signal } from "@preact/signals";

export const paletteOpen = signal(false);

export function openPalette(): void {
  paletteOpen.value = true;
}

export function Palette() {
  return null;
}
