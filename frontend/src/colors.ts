/** One colour per operator, everywhere: hues.ts decides which. */
import { family, hasFamily, kindOf, shade, spanFamily, token } from "./hues";
import { theme } from "./state";

export { FAMILIES, family, kindOf, token, type Family, type Kind } from "./hues";

const shades = new Map<string, string>();

/** The colour of an operator or kernel: `plain` is the family's own, else a shade of it that the name picks. */
export function color(name: string, plain = false): string {
  const of = token(family(name));
  if (plain) return `var(${of})`;
  const key = `${theme()} ${name}`;
  let known = shades.get(key);
  if (known === undefined) shades.set(key, (known = shade(name, css(of))));
  return known;
}

/** The colour that a span's bar has in the timeline, in lists. */
export function spanColor(name: string, kind: string, type: string | null = null): string {
  return `var(${hasFamily(kind) ? token(spanFamily(name, type)) : `--kind-${kindOf(kind)}`})`;
}

/** A token's value now, for canvas, where var() does not reach. */
export function css(name: string): string {
  theme(); // whoever asks is asked again when the theme changes
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
