/** Controls of the graph: what time, in which order, of which threads, and the search. */
import { useEffect, useRef } from "preact/hooks";
import { useFetched } from "../data";
import { info, useTable } from "../data";
import { deviceWord, onDevice } from "../device";
import { Segmented } from "../parts/basics";
import { listed } from "../place";
import { source, type Run } from "../source";
import { go } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import type { Choices } from "./choices";
import type { Matches } from "./tree";

const text = strings("flame");

interface Props {
  of: Choices;
  matches: Matches | null;
  whole: number;
  onNext: (by: number) => void;
  onSvg: () => void;
  steps: number;
}

export function Toolbar({ of, matches, whole, onNext, onSvg, steps }: Props) {
  const t = text();
  const device = onDevice(info.value!);
  const report = source().isReport;
  const scoped = (info.value!.kinds.scope ?? 0) > 0 || device || (info.value!.kinds.op ?? 0) > 0;
  const set = (params: Record<string, string | null>) => go({ params: { ...params, at: null, range: null } });
  return (
    <div class="flame-tools">
      <Segmented
        label={t.by}
        value={of.by}
        choices={[
          { id: "host", label: t.host },
          ...(device ? [{ id: "device" as const, label: deviceWord(info.value!) ?? t.device }] : []),
          ...(scoped ? [{ id: "modules" as const, label: t.modules }] : []),
        ]}
        onChange={(id) => set({ by: id === "host" ? null : id, order: null, threads: null })}
      />
      {of.by === "host" && !of.other && !of.fn && (
        <Segmented
          label={t.order}
          value={of.inTime ? "time" : "heavy"}
          choices={[
            { id: "heavy", label: t.heavy },
            { id: "time", label: t.time },
          ]}
          onChange={(id) => set({ order: id === "time" ? "time" : null, track: null })}
        />
      )}
      {of.inTime && <ThreadChoice of={of} />}
      {of.by === "host" && !of.inTime && !of.fn && !of.other && (
        <Segmented
          label={t.threads}
          value={of.byThread ? "each" : "all"}
          choices={[
            { id: "all", label: t.allThreads },
            { id: "each", label: t.eachThread },
          ]}
          onChange={(id) => set({ threads: id === "each" ? "each" : null })}
        />
      )}
      {!of.inTime && !of.other && !report && steps > 1 && (
        <Segmented
          label={t.per}
          value={of.perStep ? "step" : "all"}
          choices={[
            { id: "all", label: t.allSteps },
            { id: "step", label: t.perStep },
          ]}
          onChange={(id) => go({ params: { per: id === "step" ? "step" : null } })}
        />
      )}
      <Find of={of} matches={matches} whole={whole} onNext={onNext} />
      <span class="sp" />
      {!report && !of.inTime && !of.fn && <OtherRun of={of} />}
      <button class="btn sm" onClick={onSvg}>
        {t.svg}
      </button>
      <button class="btn sm" onClick={() => go({ params: { at: null, range: null } })}>
        {t.reset}
      </button>
    </div>
  );
}

function Find({ of, matches, whole, onNext }: Pick<Props, "of" | "matches" | "whole" | "onNext">) {
  const t = text();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = () => input.current?.focus();
    document.addEventListener("flame-find", focus);
    return () => document.removeEventListener("flame-find", focus);
  }, []);
  return (
    <span class="flame-find">
      <input
        ref={input}
        type="search"
        value={of.find}
        placeholder={t.findShort}
        aria-label={t.find}
        onInput={(event) => go({ params: { find: event.currentTarget.value || null } }, true)}
        onKeyDown={(event) => {
          if (event.key === "Enter") onNext(event.shiftKey ? -1 : 1);
          if (event.key === "Escape") go({ params: { find: null } }, true);
        }}
      />
      {matches && (
        <>
          <span class="d2 small nowrap" role="status">
            {matches.count
              ? fill(t.found, {
                  share: units.text(units.share(matches.total / whole)),
                  count: units.count(matches.count).value,
                })
              : t.foundNone}
          </span>
          <button class="btn sm" aria-label={t.previous} disabled={!matches.count} onClick={() => onNext(-1)}>
            ‹
          </button>
          <button class="btn sm" aria-label={t.next} disabled={!matches.count} onClick={() => onNext(1)}>
            ›
          </button>
        </>
      )}
    </span>
  );
}

function ThreadChoice({ of }: { of: Choices }) {
  const t = text();
  const trees = useTable("flame_graph", { by_thread: true });
  const kind = trees.data?.str("kind") ?? [];
  const rows = trees.data?.where((row) => kind[row] === "thread") ?? [];
  return (
    <select
      aria-label={t.thread}
      value={of.track ?? undefined}
      onChange={(event) => go({ params: { track: event.currentTarget.value, at: null, range: null } })}
    >
      {rows.map((row) => (
        <option key={row} value={trees.data!.num("span")[row]}>
          {trees.data!.str("name")[row]} · {units.text(units.time(trees.data!.num("total_ns")[row]))}
        </option>
      ))}
    </select>
  );
}

function OtherRun({ of }: { of: Choices }) {
  const t = text();
  const runs = useFetched<Run[]>("\nruns", () => source().runs());
  const others = (runs.data ?? []).filter((run) => run.id !== listed(info.value!.id) && run.state === "finished");
  if (!others.length) return null;
  return (
    <select
      aria-label={t.compare}
      value={of.other ?? ""}
      onChange={(event) => go({ params: { with: event.currentTarget.value || null, at: null } })}
    >
      <option value="">{of.other ? t.stop : `${t.compare}…`}</option>
      {others.map((run) => (
        <option key={run.id} value={run.id}>
          {run.name}
        </option>
      ))}
    </select>
  );
}
