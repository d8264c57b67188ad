import { describe, expect, test } from "vitest";
import en from "./strings/en.json";
import zh from "./strings/zh.json";

declare global {
  interface ImportMeta {
    glob<Content>(pattern: string[], options: object): Record<string, Content>;
  }
}

const sources = import.meta.glob<string>(["./**/*.{ts,tsx}", "!./**/*.test.ts"], {
  query: "?raw",
  eager: true,
  import: "default",
});
const examples = import.meta.glob<{ title: string }[]>(["./examples.json"], { eager: true, import: "default" });
const sections = Object.keys(en) as (keyof typeof en)[];
const everything = Object.values(sources).join("\n");
/** Sections whose keys are values of tables or names of modules. */
const BY_VALUE = ["values", "pages", "families", "familiesInSentence", "limits"];

test("both languages have the same sections", () => {
  expect(Object.keys(zh)).toEqual(Object.keys(en));
});

describe.each(sections)("%s", (section) => {
  const [english, chinese]: Record<string, string>[] = [en[section], zh[section]];

  test("both languages have the same keys and placeholders", () => {
    expect(Object.keys(chinese).sort()).toEqual(Object.keys(english).sort());
    const placeholders = (text: string) => [...new Set(text.match(/\{\w+\}/g))].sort();
    for (const key in english) expect(placeholders(chinese[key]), key).toEqual(placeholders(english[key]));
  });

  test("every key is used", () => {
    if (BY_VALUE.includes(section)) return;
    const users = Object.values(sources).filter((source) => source.includes(`strings("${section}")`));
    // A section is also passed on, as `Strings["overview"]`.
    users.push(...Object.values(sources).filter((source) => source.includes(`Strings["${section}"]`)));
    expect(users.length).toBeGreaterThan(0);
    const source = users.join("\n") + (section === "examples" ? JSON.stringify(examples) : "");
    // A key of several words is a value of a table.
    const keys = Object.keys(english).filter((key) => !key.includes(" "));
    const prefixes = [...source.matchAll(/`(\w+)\$\{/g)].map((match) => match[1]);
    const suffixes = [...source.matchAll(/\}(\w+)`|"(In|Out|With)"/g)].map((match) => match[1] ?? match[2]);
    const unused = keys.filter(
      (key) =>
        !new RegExp(`\\b${key.replace(/[^\w]/g, "\\$&")}\\b`).test(source) &&
        !everything.includes(`"${key}"`) &&
        !prefixes.some((prefix) => key.startsWith(prefix)) &&
        !suffixes.some((suffix) => key.endsWith(suffix)),
    );
    expect(unused).toEqual([]);
  });
});

test("every page has a title in the menu, and every title a page", () => {
  const pages = Object.keys(sources).flatMap((file) => /^\.\/pages\/(\w+)\.tsx$/.exec(file)?.[1] ?? []);
  expect(Object.keys(en.pages).sort()).toEqual(pages.sort());
});

test("the sources have no text in Chinese but names of languages and words to search for", () => {
  const chinese = Object.entries(sources).flatMap(([file, source]) =>
    source
      .split("\n")
      .filter((line) => /[\u4e00-\u9fff]/.test(line))
      .map((line) => `${file}: ${line.trim()}`),
  );
  expect(chinese.filter((line) => !/"中"|语言|主题/.test(line))).toEqual([]);
});
