/** What analyses say in words (a note, a hint, where a peak is from), in the reader's language. Names in it stay as they are. */
import words from "./said.json";
import { language } from "./state";

const whole: Record<string, string> = words.whole;

export function said(text: string | null | undefined): string {
  if (!text || language() !== "zh") return text ?? "";
  if (whole[text]) return whole[text];
  return text.split("; ").map((one) => one.split(", ").every((part) => whole[part]) ? one.split(", ").map((part) => whole[part]).join("、") : inParts(one)).join("；");
}

function inParts(text: string): string {
  return Object.entries(words.parts).reduce((now, [en, zh]) => now.replaceAll(en, zh), text);
}
