/** Verdicts of queues and operators. */
import { Chip } from "../parts/basics";
import { strings } from "../strings";

const text = strings("data");

/** A verdict as a chip. */
export function VerdictChip({ of }: { of: string | null }) {
  const t = text() as Record<string, string>;
  if (!of) return <span class="d3">–</span>;
  const tone = {
    bottleneck: "bad",
    "waits for processing": "bad",
    "waits for transfer": "bad",
    "waits for input": "warn",
    ready: "good",
    "keeps up": "good",
  }[of] as "bad" | "warn" | "good" | undefined;
  return <Chip tone={tone}>{t[`v_${of}`] ?? t[of] ?? of}</Chip>;
}
