/** Words in two languages. A sentence is a whole template with named values: {step} takes {steps}. */
import { Fragment, type ComponentChildren } from "preact";
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

/** Nouns that follow a number in a template: after 1 they lose their plural ending. */
const NOUNS = /^ ((?:more|other|operator|pipeline|data) )?(batch(?=es)|(?:block|call|column|core|event|function|gap|kernel|lane|level|moment|operator|other|place|problem|rank|remark|row|sample|span|step|stream|table|time|transfer|type|worker)(?=s))e?s\b( are\b| serve\b| have\b)?/;
const VERBS: Record<string, string> = { " are": " is", " serve": " serves", " have": " has" };

/** Whether a value is written 1: the number, its text, or an element that counts it. */
function isOne(value: unknown): boolean {
  if (value === 1 || value === "1") return true;
  const props = (value as { props?: { of?: unknown; children?: unknown } } | null | undefined)?.props;
  return props !== undefined && (props.of === 1 || isOne(props.children));
}

const COUNTS = ["count", "all", "here", "world"];
const CHINESE = /[\u2e80-\u9fff]/;

/** Words and, at odd places, names of values. Where Chinese meets Chinese there is no space, as there is around numbers and names. */
function pieces(template: string, values: Record<string, unknown>): string[] {
  const found = template.split(/\{(\w+)\}/);
  for (let at = 1; at < found.length; at += 2) {
    const value = values[found[at]];
    if (isOne(value)) found[at + 1] = found[at + 1].replace(NOUNS, (_, before, noun, verb) => ` ${before ?? ""}${noun}${VERBS[verb] ?? ""}`);
    if (typeof value !== "string") continue;
    if (CHINESE.test(value[0]) && found[at - 1].endsWith(" ") && CHINESE.test(found[at - 1].at(-2) ?? "")) found[at - 1] = found[at - 1].slice(0, -1);
    if (CHINESE.test(value.at(-1) ?? "") && found[at + 1].startsWith(" ") && CHINESE.test(found[at + 1][1])) found[at + 1] = found[at + 1].slice(1);
  }
  return found;
}
