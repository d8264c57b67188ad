/** Verdicts of the analyses, in the reader's language. */
import { Chip } from "../parts/basics";
import { text } from "./words";

/** A verdict of an analysis, in the reader's language. */
export function Word({ of }: { of: string | null }) {
  const t = text() as Record<string, string>;
  if (!of) return <span class="d3">–</span>;
  const tone = { bottleneck: "bad", "waits for processing": "bad", "waits for transfer": "bad", "waits for input": "warn", ready: "good", "keeps up": "good" }[of] as "bad" | "warn" | "good" | undefined;
  return <Chip tone={tone}>{t[`v_${of}`] ?? t[of] ?? of}</Chip>;
}
