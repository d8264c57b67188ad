/** The culprit of a cause of idle time, in a row of the table of causes. */
import { useMemo } from "preact/hooks";
import { useTable } from "../data";
import { Share } from "../parts/quantity";
import { Sentence, strings } from "../strings";
import { causeKey, culprits, type Culprit } from "./culprits";

const text = strings("advice");

/** What the host does in the idle time, by cause. */
export function useCulprits(skip: boolean): { known: Map<string, Culprit>; waiting: boolean } {
  const gaps = useTable("gaps", { columns: "device,cause,dur_ns,host_activity" }, { skip });
  const known = useMemo(() => (gaps.data ? culprits(gaps.data) : new Map<string, Culprit>()), [gaps.data]);
  return { known, waiting: !skip && gaps.waiting };
}

export function CulpritText({ of, cause, device }: { of: Map<string, Culprit>; cause: string | null; device: number }) {
  const known = of.get(causeKey(cause, device));
  if (!known) return null;
  return (
    <span class="adv-culprit d2">
      <Sentence
        template={known.share >= 0.5 ? text().whileRuns : text().largestPart}
        activity={
          <span class="mono" title={known.activity}>
            {known.activity}
          </span>
        }
        share={<Share of={known.share} />}
      />
    </span>
  );
}
