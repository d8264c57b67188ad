/** Above the picture: search, colors, visible range, tracks, downloads. */
import { info, useFetched } from "../data";
import { Segmented } from "../parts/basics";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { source } from "../source";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import { write } from "./address";
import { COLORINGS } from "./tints";
import { parseArrangement, formatArrangement } from "./layout";
import type { Timeline } from "./model";
import { Downloads, Notes } from "./notes";
import { restrict, search } from "./search";
import { useEffect, useRef, useState } from "preact/hooks";

const text = strings("timeline");

export function Tools({ of }: { of: Timeline }) {
  const t = text();
  const levels = Math.max(0, ...of.header.lanes.filter((lane) => lane.kind === "scope").map((lane) => lane.rows));
  const scopes = Math.min(of.scopes.value, levels);
  const setScopes = (levels: number) => {
    of.scopes.value = levels;
    of.relayout();
    write(of);
  };
  const colorings = COLORINGS.filter((how) => how !== "scope" || levels > 0);
  return (
    <div class="tl-tools-bar">
      <Segmented
        label={t.mode}
        value={of.mode.value}
        onChange={(mode) => (of.mode.value = mode)}
        choices={[
          { id: "select", label: t.select },
          { id: "pan", label: t.pan },
          { id: "measure", label: t.measure },
        ]}
      />
      <Search of={of} />
      <Kinds of={of} />
      <span class="d3 small wide">{t.color}</span>
      <Segmented
        label={t.color}
        value={of.coloring.value}
        onChange={(how) => {
          of.recolor(how);
          write(of);
        }}
        choices={colorings.map((how) => ({ id: how, label: t[how] }))}
      />
      {levels > 1 && (
        <Menu
          label={`${t.scopeDepth} ${scopes}`}
          class="sm"
          button={
            <>
              <span class="d3 small">{t.scopeDepth}</span>
              {scopes}
            </>
          }
        >
          {(close) =>
            Array.from({ length: levels }, (_, at) => (
              <button
                key={at}
                class={`item ${at + 1 === scopes ? "on" : ""}`}
                onClick={() => {
                  setScopes(at + 1);
                  close();
                }}
              >
                {at + 1}
              </button>
            ))
          }
        </Menu>
      )}
      <span class="sp" />
      {source().isReport && <ReportSpans of={of} />}
      <View of={of} />
      <span class="tl-views">
        <button
          class="btn sm"
          disabled={!of.sight.views.value.back}
          aria-label={t.back}
          title={`${t.back} (Backspace)`}
          onClick={() => of.sight.back()}
        >
          ‹
        </button>
        <button
          class="btn sm"
          disabled={!of.sight.views.value.forward}
          aria-label={t.forward}
          title={`${t.forward} (Shift Backspace)`}
          onClick={() => of.sight.forward()}
        >
          ›
        </button>
      </span>
      <Notes of={of} />
      <Lanes of={of} />
      <Downloads of={of} />
    </div>
  );
}

function Search({ of }: { of: Timeline }) {
  const t = text();
  const result = of.found.value;
  const [typed, setTyped] = useState(result?.text ?? "");
  const timer = useRef(0);
  useEffect(() => setTyped(result?.text ?? ""), [result?.text]);
  const type = (value: string) => {
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void search(of, value), 250);
  };
  const turn = (way: "next" | "prev") => {
    clearTimeout(timer.current);
    if (typed) void search(of, typed, way);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter") turn(event.shiftKey ? "prev" : "next");
    else if (event.key === "Escape") {
      document.querySelector<HTMLElement>(".tl-picture")?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const count =
    result &&
    (result.error ||
      (result.count === 0
        ? t.none
        : result.at
          ? fill(t.of, { at: units.count(result.at).value, count: units.count(result.count).value })
          : units.count(result.count).value));
  return (
    <label class="pick tl-find">
      <Icon name="search" size={13} />
      <input
        id="tl-find"
        type="text"
        spellcheck={false}
        aria-label={t.find}
        placeholder={t.find}
        value={typed}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={keys}
      />
      {result ? (
        <span
          class={`small nowrap ${result.error ? "bad" : "d3"}`}
          role="status"
          title={result.error || (result.total ? units.text(units.time(result.total)) : undefined)}
        >
          {result.error ? "!" : count}
        </span>
      ) : (
        <span class="kbd">/</span>
      )}
      <button
        class="tl-turn"
        aria-label={t.previous}
        title={`${t.previous} (Shift Enter)`}
        disabled={!result?.count}
        onClick={() => turn("prev")}
      >
        ‹
      </button>
      <button
        class="tl-turn"
        aria-label={t.next}
        title={`${t.next} (Enter)`}
        disabled={!result?.count}
        onClick={() => turn("next")}
      >
        ›
      </button>
    </label>
  );
}

/** Filter by kind. */
function Kinds({ of }: { of: Timeline }) {
  const t = text();
  const chosen = of.kinds.value;
  const there = Object.keys(info.value?.kinds ?? {}).filter(
    (kind) => kind !== "instant" && info.value!.kinds[kind] > 0,
  );
  if (there.length < 2) return null;
  return (
    <Menu
      label={t.kinds}
      class={`sm ${chosen.length ? "chosen" : ""}`}
      button={chosen.length ? <span class="cut">{chosen.join(", ")}</span> : <span class="small">{t.allKinds}</span>}
    >
      {() =>
        there.map((kind) => (
          <label key={kind} class="item">
            <input
              type="checkbox"
              checked={chosen.includes(kind)}
              onChange={() =>
                restrict(of, chosen.includes(kind) ? chosen.filter((item) => item !== kind) : [...chosen, kind])
              }
            />{" "}
            {kind}
            <span class="sp" />
            <span class="d3 small">{units.count(info.value!.kinds[kind]).value}</span>
          </label>
        ))
      }
    </Menu>
  );
}

/** Of a report: how much of the run can be searched and summed. */
function ReportSpans({ of }: { of: Timeline }) {
  const t = text();
  const rows = useFetched(`${of.run}\ncarried`, async () => (await source().carriedSpans?.()) ?? 0).data;
  if (rows === null || rows >= of.header.events) return null;
  return (
    <span class="d3 small nowrap" title={t.carriedNote}>
      {fill(t.carried, { some: units.count(rows).value, all: units.count(of.header.events).value })}
    </span>
  );
}

/** The visible range in words. */
function View({ of }: { of: Timeline }) {
  const t = text();
  const { t0, t1 } = of.sight.seen.value;
  const length = <b title={units.exact(Math.round(t1 - t0), "time")}>{units.text(units.time(t1 - t0))}</b>;
  const step = of.steps.find((item) => t0 >= item.start && t0 < item.end);
  const whole = t0 === 0 && t1 === of.end;
  const words = {
    length: units.text(units.time(t1 - t0)),
    start: units.text(units.time(step ? t0 - step.start : t0)),
    step: step?.step ?? 0,
  };
  return (
    <span
      class="d2 small tl-view"
      role="status"
      title={fill(whole ? t.inViewAll : step ? t.inView : t.inViewStart, words)}
    >
      {whole ? (
        <Sentence template={t.inViewAll} length={length} />
      ) : step ? (
        <Sentence
          template={t.inView}
          length={length}
          start={units.text(units.time(t0 - step.start))}
          step={step.step}
        />
      ) : (
        <Sentence template={t.inViewStart} length={length} start={units.text(units.time(t0))} />
      )}
      {["W", "A", "S", "D"].map((key) => (
        <span key={key} class="kbd wide">
          {key}
        </span>
      ))}
    </span>
  );
}

function Lanes({ of }: { of: Timeline }) {
  const t = text();
  const by = of.arrangement.value;
  const lanes = of.header.lanes.filter((lane) => lane.id !== of.ruled);
  const shown = lanes.filter((lane) => !by.hidden.includes(lane.id));
  return (
    <Menu
      label={fill(t.lanes, { some: shown.length, all: lanes.length })}
      class="sm"
      align="right"
      arrow={false}
      button={fill(t.lanes, { some: shown.length, all: lanes.length })}
    >
      {() => (
        <div class="tl-list">
          <div class="tl-listhead">
            <button class="btn sm" onClick={() => of.rearrange({ hidden: [] })}>
              {t.showAll}
            </button>
            <button
              class="btn sm"
              onClick={() => of.rearrange(parseArrangement(of.usual))}
              disabled={formatArrangement(by) === of.usual}
            >
              {t.reset}
            </button>
          </div>
          {of.header.groups.map((group) => {
            const ownRows = lanes.filter((lane) => lane.group === group.id);
            return (
              ownRows.length > 0 && (
                <div key={group.id}>
                  <p class="d3 small">{group.label}</p>
                  {ownRows.map((lane) => (
                    <label key={lane.id} class="item">
                      <input
                        type="checkbox"
                        checked={!by.hidden.includes(lane.id)}
                        onChange={() => of.toggle("hidden", lane.id)}
                      />{" "}
                      <span class="cut">{lane.label}</span>
                      <span class="d3 small cut">{lane.note}</span>
                    </label>
                  ))}
                </div>
              )
            );
          })}
        </div>
      )}
    </Menu>
  );
}
