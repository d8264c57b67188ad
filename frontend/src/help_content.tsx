/** The content of help: beside the page, which stays usable. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { FAMILIES } from "./colors";
import { Icon } from "./parts/icon";
import { Swatch } from "./parts/basics";
import { familyNames } from "./families";
import { strings } from "./strings";

const text = strings("help");

/** Keys by place, each with the name of its text: key_everywhere_find. */
const KEYS = {
  everywhere: {
    copyValue: "Ctrl C",
    find: "/ · Ctrl K",
    runSearch: "Ctrl Enter",
    help: "?",
    escape: "Esc",
    tabs: "← →",
  },
  chart: {
    range: "drag",
    resetRange: "double-click",
    zoom: "Ctrl wheel",
    crosshair: "← → · Enter",
  },
  timeline: {
    zoom: "W · S",
    pan: "A · D · ← →",
    tracks: "↑ ↓ · Shift wheel",
    all: "0",
    search: "/",
    spans: "Shift ← → ↑ ↓",
    sameName: "[ · ]",
    arrows: "C · E",
    ranks: "X",
    focus: "F",
    rangeOfSpan: "R",
    measure: "T",
    note: "M",
    back: "Backspace",
    select: "drag",
    track: "Tab · P · Delete",
  },
  table: {
    rows: "↑ ↓ · PgUp PgDn",
    open: "Enter",
    unfold: "→ ←",
    copy: "Ctrl C",
  },
} as const;

const PLACES = ["everywhere", "chart", "timeline", "table"] as const;
const KINDS = ["compute", "host", "copy", "communication", "wait", "idle"] as const;
const TERMS = [
  "step",
  "interval",
  "forwardBackward",
  "tail",
  "busy",
  "deviceStep",
  "warmup",
  "inputWait",
  "exposed",
  "idle",
  "selfTime",
  "launchDelay",
  "utilization",
  "allocated",
  "percentile",
  "missing",
] as const;
const DOCS = ["run", "timeline", "recording", "attach", "formats", "cli", "python", "reference", "data_model"] as const;

export function HelpContent({ close }: { close: () => void }) {
  const t = text();
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.focus();
    const keys = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.stopImmediatePropagation();
      close();
    };
    document.addEventListener("keydown", keys, true);
    return () => {
      document.removeEventListener("keydown", keys, true);
      before?.focus?.();
    };
  }, []);
  return (
    <div class="manual" ref={box} tabIndex={-1} role="dialog" aria-modal="false" aria-label={t.title}>
      <header class="hd">
        <h2>{t.title}</h2>
        <span class="sp" />
        <button class="pick bare" aria-label={t.close} onClick={close}>
          <Icon name="close" size={14} />
        </button>
      </header>
      <div class="manualbody">
        <h3>{t.keys}</h3>
        {PLACES.map((place) => (
          <div key={place}>
            <p class="d3 small">{t[place]}</p>
            <dl class="keys">
              {Object.entries(KEYS[place]).map(([action, keys]) => [
                <dt key={action}>
                  {keys.split(" · ").map((key) => (
                    <kbd key={key} class="kbd">
                      {key}
                    </kbd>
                  ))}
                </dt>,
                <dd key={`${action} text`}>{t[`key_${place}_${action}` as keyof typeof t]}</dd>,
              ])}
            </dl>
          </div>
        ))}
        <h3>{t.colors}</h3>
        <p>{t.colorsNote}</p>
        <dl class="keys">
          {KINDS.map((kind) => [
            <dt key={kind}>
              <Swatch color={`var(--kind-${kind})`} hatch={kind === "idle"} /> {kind}
            </dt>,
            <dd key={`${kind} text`}>{t[`kind_${kind}`]}</dd>,
          ])}
        </dl>
        <p>{t.families}</p>
        <p class="familylist">
          {FAMILIES.filter((family) => family !== "communication").map((family) => (
            <span key={family}>
              <Swatch color={`var(--op-${family})`} /> {familyNames()[family]}
            </span>
          ))}
        </p>
        <h3>{t.words}</h3>
        <dl class="words">
          {TERMS.map((term) => [
            <dt key={term}>{t[`word_${term}`]}</dt>,
            <dd key={`${term} text`}>{t[`meaning_${term}`]}</dd>,
          ])}
        </dl>
        <h3>{t.docs}</h3>
        <p class="d3 small">{t.docsNote}</p>
        <dl class="keys">
          {DOCS.map((page) => [
            <dt key={page} class="mono">
              docs/{page}.md
            </dt>,
            <dd key={`${page} text`}>{t[`docs_${page}`]}</dd>,
          ])}
        </dl>
      </div>
    </div>
  );
}
