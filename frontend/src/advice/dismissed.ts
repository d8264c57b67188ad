/** The findings that the user dismissed: kept by the server with the run. A report has none. */
import { useEffect, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { listed } from "../place";
import { request } from "../request";
import { source } from "../source";
import { place } from "../state";
import { identity, type Advice } from "./rows";

interface Answer {
  dismissed: { rule: string; culprit: string; source: string; reason: string; at_s: number }[];
  /** Whether they outlive the server. */
  kept: boolean;
  can_change: boolean;
}

export interface Dismissed {
  /** By finding: its reason. */
  reasons: Map<string, string>;
  canChange: boolean;
  kept: boolean;
  error: Error | null;
  change: (of: Advice, reason: string, undo?: boolean) => Promise<void>;
}

const answers = signal<Record<string, Answer>>({});

export function useDismissed(): Dismissed {
  const run = place.value.run;
  const [error, setError] = useState<Error | null>(null);
  const skip = run === null || source().isReport;
  const id = run === null ? "" : listed(run);
  const path = `api/runs/${encodeURIComponent(id)}/dismissed`;
  useEffect(() => {
    if (skip) return;
    request(path)
      .then((answer) => answer.json())
      .then((answer: Answer) => (answers.value = { ...answers.value, [id]: answer }), setError);
  }, [id, skip]);
  const known = answers.value[id];
  return {
    reasons: new Map((known?.dismissed ?? []).map((one) => [identity(one), one.reason])),
    canChange: known?.can_change ?? false,
    kept: known?.kept ?? true,
    error,
    change: async (of, reason, undo = false) => {
      const body = { rule: of.rule, culprit: of.culprit ?? "", source: of.source ?? "", reason, undo };
      const headers = { "Content-Type": "application/json" };
      try {
        const answer = await request(path, { method: "POST", headers, body: JSON.stringify(body) });
        answers.value = { ...answers.value, [id]: (await answer.json()) as Answer };
        setError(null);
      } catch (failed) {
        setError(failed as Error);
      }
    },
  };
}
