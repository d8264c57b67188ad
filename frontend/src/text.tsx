/** Words in two languages. A sentence is a whole template with named values: {step} takes {steps}. After a value, [row|rows] is for one and for many. */
import { Fragment, isValidElement, type ComponentChildren } from "preact";
import { language } from "./state";
import * as units from "./units";

/** `const text = texts({en: {...}, zh: {...}})`, then `text().title` inside a component. Chinese must have every key English has. */
export function texts<Words extends Record<string, string>>(both: { en: Words; zh: { [Key in keyof Words]: string } }): () => Words {
  return () => both[language()] as Words;
}

/** A template with its values as plain text. Whole numbers of things are grouped: 99,990 types. */
export function fill(template: string, values: Record<string, string | number>): string {
  const written = Object.entries(values).map(([name, value]) => [name, typeof value === "number" && COUNTS.includes(name) ? units.count(value).value : String(value)]);
  const known = Object.fromEntries(written) as Record<string, string>;
  return pieces(template, known).map((piece, at) => (at % 2 ? (known[piece] ?? "–") : piece)).join("");
}

/** A template with its values as elements: `<Say of={t.verdict} step={<Time ns={n} />} />`. */
export function Say({ of, ...values }: { of: string; [name: string]: ComponentChildren }) {
  return <>{pieces(of, values).map((piece, at) => <Fragment key={at}>{at % 2 ? (values[piece] ?? "–") : piece}</Fragment>)}</>;
}

const COUNTS = ["count", "all", "here", "world"];
const CHINESE = /[\u2e80-\u9fff]/;

/** The characters of a value, also where it is an element around them, or `<Count of={1} />`. */
function plain(value: unknown): string {
  if (Array.isArray(value)) return value.map(plain).join("");
  if (isValidElement(value)) {
    const { children, of } = value.props as { children?: ComponentChildren; of?: unknown };
    return plain(children ?? of);
  }
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

/** Words and, at odd places, names of values. Where Chinese meets Chinese there is no space, as there is around numbers and names. */
function pieces(template: string, values: Record<string, unknown>): string[] {
  const found = template.split(/\{(\w+)\}/);
  for (let at = 1; at < found.length; at += 2) {
    const value = values[found[at]];
    found[at + 1] = found[at + 1].replace(/\[([^|\]]*)\|([^\]]*)\]/g, (_, one: string, many: string) => (plain(value) === "1" ? one : many));
    if (typeof value !== "string") continue;
    if (CHINESE.test(value[0]) && found[at - 1].endsWith(" ") && CHINESE.test(found[at - 1].at(-2) ?? "")) found[at - 1] = found[at - 1].slice(0, -1);
    if (CHINESE.test(value.at(-1) ?? "") && found[at + 1].startsWith(" ") && CHINESE.test(found[at + 1][1])) found[at + 1] = found[at + 1].slice(1);
  }
  return found;
}
