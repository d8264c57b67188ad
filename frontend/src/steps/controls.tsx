/** Choice of step, clock and markers. */
import { info } from "../data";
import { Segmented } from "../parts/basics";
import { source } from "../source";
import { go, param } from "../state";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { Marker, Operator } from "./markers";

const text = strings("steps");

/** How forward start and backward end were found. */
export function markerSource(trace: Table, at: number | null): string {
  const words = trace.str("found");
  return words[at ?? words.length - 1] ?? "";
}

export function Controls({ table, at, found: how }: { table: Table | null; at: number | null; found: string }) {
  const t = text();
  const steps = table?.num("step");
  const device = (info.value?.kinds.kernel ?? 0) > 0 && table?.str("clock")[0] !== "source";
  const last = table ? table.rows - 1 : 0;
  const choose = (place: number) => steps && go({ params: { sel: steps[Math.max(0, Math.min(last, place))] } });
  const named = (column: string) => table?.str(column)[at ?? last] ?? null;
  const mine = param("fp_start") !== undefined || param("bp_end") !== undefined;
  return (
    <div class="steprow">
      <Segmented
        choices={[
          { id: "average", label: t.average },
          { id: "one", label: t.one },
        ]}
        value={at === null ? "average" : "one"}
        label={t.which}
        onChange={(id) => (id === "average" ? go({ params: { sel: null } }) : choose(last))}
      />
      {steps && steps.length > 0 && (
        <>
          <span class="stepper">
            <button
              aria-label={t.earlier}
              title={t.earlier}
              disabled={at === 0}
              onClick={() => choose((at ?? last + 1) - 1)}
            >
              ‹
            </button>
            <input
              type="number"
              aria-label={t.step}
              placeholder="–"
              value={at === null ? "" : steps[at]}
              min={steps[0]}
              max={steps[last]}
              onChange={(event) => go({ params: { sel: event.currentTarget.value || null } })}
            />
            <button aria-label={t.later} title={t.later} disabled={at === last} onClick={() => choose((at ?? -1) + 1)}>
              ›
            </button>
          </span>
          <span class="d3 small">{fill(t.of, { count: units.count(steps.length).value })}</span>
        </>
      )}
      <span class="sp" />
      {!source().isReport && <Marker how={table?.str("how")[0] ?? null} />}
      {device && (
        <Segmented
          choices={[
            { id: "host", label: t.host },
            { id: "device", label: t.device },
          ]}
          value={param("clock") ?? "host"}
          label={t.clock}
          onChange={(id) => go({ params: { clock: id === "host" ? null : id } })}
        />
      )}
      <Operator
        which="fp_start"
        label={t.fpAt}
        now={named("fp_start_op") ?? (how.startsWith("source") ? t.recorded : null)}
        step={at === null || !steps ? null : steps[at]}
      />
      <Operator
        which="bp_end"
        label={t.bpAt}
        now={named("bp_end_op") ?? (how.endsWith("source") ? t.recorded : null)}
        step={at === null || !steps ? null : steps[at]}
      />
      <span class="d3 small">
        {mine
          ? t.chosen
          : how &&
            !how.includes("source") &&
            how !== "none, none" &&
            fill(t.found, {
              how: [...new Set(how.split(", "))]
                .map((item) => t[`found_${item.replace(" ", "_")}` as "found_none"] ?? item)
                .join(t.and),
            })}
      </span>
    </div>
  );
}
