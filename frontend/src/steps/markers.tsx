/** Choice of the step marker, and of the operators where forward starts and backward ends. */
import { useTable } from "../data";
import { Await } from "../parts/basics";
import { Menu } from "../parts/menu";
import { Time } from "../parts/quantity";
import { go, param } from "../state";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useState } from "preact/hooks";

const text = strings("steps");

/** The step marker and the choice of another. The choice applies to all pages of the run. */
export function Marker({ how }: { how: string | null }) {
  const t = text();
  const picked = param("step_name");
  const shown =
    picked ??
    (how === "marker"
      ? t.asRecorded
      : how === "inferred"
        ? t.inferredSteps
        : how === "given"
          ? t.givenSteps
          : t.noMarker);
  return (
    <Menu
      label={`${t.marker} ${shown}`}
      class="oppick"
      align="right"
      button={
        <>
          <span class="d3">{t.marker}</span>
          <span class="mono" title={shown}>
            {shown}
          </span>
        </>
      }
    >
      {(close) => <Markers given={picked} close={close} />}
    </Menu>
  );
}

function Markers({ given, close }: { given?: string; close: () => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const fetched = useTable("step_markers", {}, { allSteps: true });
  const choose = (choice: string | null) => {
    go({ params: { step_name: choice, steps: null, sel: null, fp_start: null, bp_end: null } });
    close();
  };
  return (
    <div class="opmenu">
      <input
        type="search"
        placeholder={t.markerSearch}
        aria-label={t.markerSearch}
        value={find}
        onInput={(event) => setFind(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && find && choose(firstMatch(fetched.data?.str("choice"), find))}
      />
      {!find && (
        <button class={`item ${given === undefined ? "on" : ""}`} onClick={() => choose(null)}>
          {t.recordedMarker}
        </button>
      )}
      <Await of={fetched} rows={4}>
        {(table) => {
          const names = table.str("choice");
          const rows = table.where((row) => matches(names[row]!, find));
          return (
            <div class="list">
              {rows.map((row) => (
                <button
                  key={row}
                  class={`item ${names[row] === given ? "on" : ""}`}
                  onClick={() => choose(names[row])}
                  title={fill(t.markerTitle, {
                    name: names[row]!,
                    regular: units.text(units.share(table.num("regularity")[row])),
                    covered: units.text(units.share(table.num("covered")[row])),
                  })}
                >
                  <span class="mono cut">{table.str("name")[row]}</span>
                  <span class="d3 small">
                    {t[`kind_${table.str("kind")[row]}` as "kind_kernel"]} ·{" "}
                    {fill(t.times, { count: units.count(table.num("count")[row]).value })} · {t.everyInterval}{" "}
                    <Time ns={table.num("median_interval_ns")[row]} />
                  </span>
                </button>
              ))}
              {rows.length === 0 && <p class="d3 small">{find ? t.markerEnter : t.nothingRepeats}</p>}
            </div>
          );
        }}
      </Await>
    </div>
  );
}

/** Whether the name contains every typed word. */
function matches(name: string, find: string): boolean {
  return find
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => name.toLowerCase().includes(word));
}

/** The typed name if it exists, else the first match; without a match, the text as typed. */
function firstMatch(names: (string | null)[] | null | undefined, find: string): string {
  return names?.find((name) => name === find) ?? names?.find((name) => matches(name ?? "", find)) ?? find;
}

const MOST_NAMES = 60;

/** The operator that starts forward or ends backward, and the choice of another. */
export function Operator({
  which,
  label,
  now,
  step,
}: {
  which: "fp_start" | "bp_end";
  label: string;
  now: string | null;
  step: number | null;
}) {
  const t = text();
  const picked = param(which);
  const shown = picked ?? now;
  return (
    <Menu
      label={`${label} ${shown ?? t.unknown}`}
      class="oppick"
      align="right"
      button={
        <>
          <span class="d3">{label}</span>
          <span class="mono" title={shown ?? ""}>
            {shown ?? t.unknown}
          </span>
        </>
      }
    >
      {(close) => <Candidates which={which} step={step} given={picked} close={close} />}
    </Menu>
  );
}

function Candidates({
  which,
  step,
  given,
  close,
}: {
  which: "fp_start" | "bp_end";
  step: number | null;
  given?: string;
  close: () => void;
}) {
  const t = text();
  const [find, setFind] = useState("");
  const fetched = useTable("step_operators", { step });
  const forward = which === "fp_start";
  // The first to start likely starts the forward pass, the last to end likely ends the backward pass.
  const ordered = (table: Table) =>
    forward
      ? table.where(() => true)
      : table.where(() => true).sort((a, b) => table.num("end_offset_ns")[b] - table.num("end_offset_ns")[a]);
  const choose = (name: string | null) => {
    go({ params: { [which]: name } });
    close();
  };
  return (
    <div class="opmenu">
      <input
        type="search"
        placeholder={t.search}
        aria-label={t.search}
        value={find}
        onInput={(event) => setFind(event.currentTarget.value)}
        onKeyDown={(event) =>
          event.key === "Enter" &&
          find &&
          choose(firstMatch(fetched.data && ordered(fetched.data).map((row) => fetched.data!.str("name")[row]), find))
        }
      />
      {!find && (
        <button class={`item ${given === undefined ? "on" : ""}`} onClick={() => choose(null)}>
          {t.auto}
        </button>
      )}
      <Await of={fetched} rows={4}>
        {(table) => {
          const names = table.str("name");
          const when = table.num(forward ? "offset_ns" : "end_offset_ns");
          const rows = ordered(table).filter((row) => matches(names[row]!, find));
          return (
            <div class="list">
              {rows.slice(0, MOST_NAMES).map((row) => (
                <button
                  key={row}
                  class={`item ${names[row] === given ? "on" : ""}`}
                  onClick={() => choose(names[row])}
                  title={names[row]!}
                >
                  <span class="mono cut">{names[row]}</span>
                  <span class="d3 small">
                    {forward ? t.firstStart : t.lastEnd} <Time ns={when[row]} />
                  </span>
                </button>
              ))}
              {rows.length > MOST_NAMES && (
                <p class="d3 small">{fill(t.more, { count: units.count(rows.length - MOST_NAMES).value })}</p>
              )}
              {rows.length === 0 && <p class="d3 small">{t.none}</p>}
            </div>
          );
        }}
      </Await>
    </div>
  );
}
