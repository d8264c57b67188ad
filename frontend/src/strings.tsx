/** Texts of the pages, by section and key: strings/en.json and strings/zh.json. */
import { Fragment, isValidElement, type ComponentChildren } from "preact";
import { language, setLanguage, type Language } from "./state";
import type { Catalog } from "./messages";
import type english from "./strings/en.json";
import { fill, templateParts } from "./template";

export { fill };

export type Strings = typeof english;

const catalogs: Partial<Record<Language, { strings: Strings; messages: Catalog }>> = {};

const pageTexts: Partial<Record<Language, Promise<void>>> = {};

/**
 * Load the texts of a language that the frame and the list of runs need. A browser loads those of the language
 * it shows.
 */
export async function loadStrings(of: Language): Promise<void> {
  catalogs[of] ??= (of === "zh" ? await import("./catalog.zh") : await import("./catalog.en")).default;
}

/** Load the texts of all other pages. */
export function loadPageStrings(of: Language = language()): Promise<void> {
  return (pageTexts[of] ??= (of === "zh" ? import("page-strings:zh") : import("page-strings:en")).then((more) => {
    const catalog = catalogs[of]!;
    catalogs[of] = { ...catalog, strings: { ...more.default, ...catalog.strings } };
  }));
}

/** A module that is loaded when it is first shown, with its texts. */
export async function withPageStrings<Module>(module: Promise<Module>): Promise<Module> {
  await loadPageStrings();
  return module;
}

export async function switchLanguage(to: Language): Promise<void> {
  await loadStrings(to);
  await loadPageStrings(to);
  setLanguage(to);
}

/** `const text = strings("steps")`, then `text().title` inside a component. */
export function strings<Section extends keyof Strings>(section: Section): () => Strings[Section] {
  return () => catalogs[language()]!.strings[section];
}

/** Templates of the sentences of `verdict`. */
export function messages(): Catalog {
  return catalogs[language()]!.messages;
}

const values = strings("values");

/** A value of an analysis in the reader's language: each item of the list that it may be. Names stay as they are. */
export function valueText(value: string | null | undefined): string {
  if (!value) return "";
  const texts: Record<string, string> = values();
  if (texts[value]) return texts[value];
  const chinese = language() === "zh";
  return value
    .split(/(; |: |, )/)
    .map(
      (part) =>
        texts[part] ??
        (chinese ? SEPARATORS[part] : undefined) ??
        part.replace(DOCUMENT, (_, kind: string) => ` ${texts[kind]}`),
    )
    .join("");
}

/** The kind of a document, after the name of its product. */
const DOCUMENT = / (data sheet|white ?paper|documentation|product brief)(?=$| \()/;

const SEPARATORS: Record<string, string> = { "; ": "；", ": ": "：", ", ": "，" };

/** A template with its values as elements: `<Sentence template={t.median} step={<Time ns={ns} />} />`. */
export function Sentence({ template, ...values }: { template: string; [name: string]: ComponentChildren }) {
  const parts = templateParts(template, values, plainText);
  return (
    <>
      {parts.map((part, at) => (
        <Fragment key={at}>{at % 2 ? (values[part] ?? "–") : part}</Fragment>
      ))}
    </>
  );
}

/** The characters of a value, also where it is an element around them, or `<Count of={1} />`. */
function plainText(value: unknown): string {
  if (Array.isArray(value)) return value.map(plainText).join("");
  if (isValidElement(value)) {
    const { children, of } = value.props as { children?: ComponentChildren; of?: unknown };
    return plainText(children ?? of);
  }
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}
