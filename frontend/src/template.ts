/** Templates with named values: "{step} takes {time}". After a value, [row|rows] is singular and plural. */
import * as units from "./units";

/** Values of these names are counts: written with groups, such as 99,990. */
const COUNTS = ["count", "all", "here", "world"];
const CHINESE = /[\u2e80-\u9fff]/;

/** A template with its values as plain text. */
export function fill(template: string, values: Record<string, string | number>): string {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(values)) {
    texts[name] = typeof value === "number" && COUNTS.includes(name) ? units.count(value).value : String(value);
  }
  return templateParts(template, texts, String)
    .map((part, at) => (at % 2 ? (texts[part] ?? units.MISSING) : part))
    .join("");
}

/**
 * Text, and at odd places names of values. `plain` gives the characters of a value, which choose singular or plural.
 * Between Chinese characters there is no space; around numbers and names there is one.
 */
export function templateParts(
  template: string,
  values: Record<string, unknown>,
  plain: (value: unknown) => string,
): string[] {
  const parts = template.split(/\{(\w+)\}/);
  for (let at = 1; at < parts.length; at += 2) {
    const value = values[parts[at]];
    parts[at + 1] = parts[at + 1].replace(/\[([^|\]]*)\|([^\]]*)\]/g, (_, singular: string, plural: string) =>
      plain(value) === "1" ? singular : plural,
    );
    if (typeof value !== "string") continue;
    const [before, after] = [parts[at - 1], parts[at + 1]];
    if (CHINESE.test(value[0]) && before.endsWith(" ") && CHINESE.test(before.at(-2) ?? ""))
      parts[at - 1] = before.slice(0, -1);
    if (CHINESE.test(value.at(-1) ?? "") && after.startsWith(" ") && CHINESE.test(after[1]))
      parts[at + 1] = after.slice(1);
  }
  return parts;
}
