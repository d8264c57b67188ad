/** One color per operator on all pages: hues.ts chooses it. */
import { family, hasFamily, kindOf, shade, spanFamily, token } from "./hues";
import { theme } from "./state";

export { FAMILIES, family, kindOf, token, type Family, type Kind } from "./hues";

const shades = new Map<string, string>();

/** The color of an operator or kernel: `plain` is that of the family, else a shade of it chosen by the name. */
export function color(name: string, plain = false): string {
  const of = token(family(name));
  if (plain) return `var(${of})`;
  const key = `${theme()} ${name}`;
  let known = shades.get(key);
  if (known === undefined) shades.set(key, (known = shade(name, css(of))));
  return known;
}

/** The color of a span in lists: that of its bar in the timeline. */
export function spanColor(name: string, kind: string, type: string | null = null): string {
  return `var(${hasFamily(kind) ? token(spanFamily(name, type)) : `--kind-${kindOf(kind)}`})`;
}

/** The present value of a token, for a canvas, which cannot use var(). */
export function css(name: string): string {
  theme(); // subscribes to changes of the theme
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
