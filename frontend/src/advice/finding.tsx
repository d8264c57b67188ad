/** A finding as a card: what, how much, why, and how to fix it. */
import { useState } from "preact/hooks";
import { info } from "../data";
import { CopyButton, Chip } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { messageParts, numberText } from "../messages";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import type { Dismissed } from "./dismissed";
import { EvidenceRows, Figures } from "./evidence";
import { Fold } from "./fold";
import { Places } from "./places";
import { type Advice, fixText, identity, ofStepTemplate, titleText } from "./rows";
import { adviceTexts } from "./texts";

const text = strings("advice");
const limits = strings("limits");

/** A sentence of a finding, its numbers in bold with the exact value on hover. */
export function Title({ of }: { of: Advice }) {
  const catalog = adviceTexts();
  if (!catalog) return <>…</>;
  if (!catalog[of.code]) return <>{titleText(of, catalog)}</>;
  return (
    <>
      {messageParts(of.code, of.parameters, catalog).map((part, at) =>
        typeof part === "string" ? (
          part
        ) : "name" in part ? (
          <code key={at} title={part.whole}>
            {part.name}
          </code>
        ) : (
          <span
            key={at}
            class="q"
            title={part.quantity === "change" ? undefined : units.exact(part.value, part.quantity)}
          >
            {numberText(part)}
          </span>
        ),
      )}
    </>
  );
}

/** What limits a step, in words. */
export function limitName(kind: string | null): string {
  const names: Record<string, string> = limits();
  return kind === null ? "" : (names[kind] ?? kind);
}

/** The gain of a finding: now, or once others are fixed. */
export function Gain({ of }: { of: Advice }) {
  const t = text();
  if (!Number.isNaN(of.later))
    return (
      <span class="adv-gain" title={t.laterHelp}>
        <b>
          <Time ns={of.later} />
        </b>
        <span class="d3">{t.later}</span>
      </span>
    );
  return (
    <span class="adv-gain">
      <b>
        −<Time ns={of.gain} />
      </b>
      <span class="d3">
        <Sentence
          template={ofStepTemplate(of, t)}
          share={<Share of={of.gainShare} />}
          step={<Time ns={of.ofStepTime} />}
        />
      </span>
    </span>
  );
}

export function Finding({ of, dismissed }: { of: Advice; dismissed: Dismissed }) {
  const t = text();
  const reason = dismissed.reasons.get(identity(of));
  return (
    <article class={`card adv ${of.severity ?? "none"}`} id={`finding-${of.position}`}>
      <header class="adv-head">
        <h2>
          <Title of={of} />
        </h2>
        {of.status === "finding" && <Gain of={of} />}
      </header>
      <div class="bd adv-body">
        <p class="adv-facts">
          {of.severity && <Chip tone={TONES[of.severity]}>{t[`severity_${of.severity}`]}</Chip>}
          {of.confidence && of.status === "finding" && (
            <Chip>{t[`confidence_${of.confidence as "high" | "medium" | "low"}`]}</Chip>
          )}
          {of.next && Number.isNaN(of.later) && (
            <span class="d2">{fill(t.nextLimit, { limit: limitName(of.next) })}</span>
          )}
          {of.after && <span class="d2">{fill(t.hiddenBy, { rule: of.after })}</span>}
          {of.ranks && (info.value?.ranks.length ?? 1) > 1 && (
            <span class="d2">{fill(t.onRanks, { ranks: of.ranks })}</span>
          )}
          {of.source && (
            <span class="mono adv-source" title={of.source}>
              {of.source}
            </span>
          )}
        </p>
        <Fix of={of} />
        {of.evidence && (
          <Fold class="adv-evidence" title={t.evidence}>
            {() => (
              <>
                <Figures of={of.evidence!} />
                <EvidenceRows of={of.evidence!} />
              </>
            )}
          </Fold>
        )}
        <footer class="adv-foot">
          <Places of={of.spots} />
          {of.link && (
            <a href={of.link} rel="noreferrer" target="_blank">
              {t.docs}
            </a>
          )}
          <span class="d3 mono small">{of.rule}</span>
          <span class="sp" />
          <Dismiss of={of} dismissed={dismissed} reason={reason} />
        </footer>
      </div>
    </article>
  );
}

const TONES = { high: "bad", medium: "warn", low: "line" } as const;

function Fix({ of }: { of: Advice }) {
  const t = text();
  const catalog = adviceTexts();
  const fix = catalog && fixText(of, catalog);
  if (!fix && !of.snippet) return null;
  return (
    <>
      {fix && <p class="adv-fix">{fix}</p>}
      {of.snippet && (
        <div class="codeline">
          <pre class="code">{of.snippet}</pre>
          <CopyButton value={of.snippet} label={t.copyCode} />
        </div>
      )}
    </>
  );
}

function Dismiss({ of, dismissed, reason }: { of: Advice; dismissed: Dismissed; reason: string | undefined }) {
  const t = text();
  const [open, setOpen] = useState(false);
  if (!dismissed.canChange) return null;
  if (reason !== undefined)
    return (
      <>
        {reason && <span class="d2">{reason}</span>}
        <button class="btn sm" onClick={() => void dismissed.change(of, "", true)}>
          {t.undo}
        </button>
      </>
    );
  if (!open)
    return (
      <button class="btn sm" onClick={() => setOpen(true)}>
        {t.dismiss}
      </button>
    );
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    void dismissed.change(of, String(form.get("reason") ?? "").trim());
  };
  return (
    <form class="adv-dismiss" onSubmit={save} onKeyDown={(event) => event.key === "Escape" && setOpen(false)}>
      <input
        name="reason"
        type="text"
        maxLength={500}
        placeholder={t.reason}
        aria-label={t.reason}
        ref={(input) => input?.focus()}
      />
      <button class="btn sm" type="submit">
        {t.dismiss}
      </button>
      <button class="btn sm" type="button" onClick={() => setOpen(false)}>
        {t.cancel}
      </button>
    </form>
  );
}
