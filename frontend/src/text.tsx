/** Words in two languages. A sentence is a whole template with named values: {step} takes {steps}. */
import { Fragment, type ComponentChildren } from "preact";
import { language } from "./state";

/** `const text = texts({en: {...}, zh: {...}})`, then `text().title` inside a component. Chinese must have every key English has. */
export function texts<Words extends Record<string, string>>(both: { en: Words; zh: { [Key in keyof Words]: string } }): () => Words {
  return () => both[language()] as Words;
}

/** A template with its values as plain text. */
export function fill(template: string, values: Record<string, string | number>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? "–"));
}

/** A template with its values as elements: `<Say of={t.verdict} step={<Time ns={n} />} />`. */
export function Say({ of, ...values }: { of: string; [name: string]: ComponentChildren }) {
  const parts = of.split(/\{(\w+)\}/);
  return <>{parts.map((part, at) => <Fragment key={at}>{at % 2 ? (values[part] ?? "–") : part}</Fragment>)}</>;
}
