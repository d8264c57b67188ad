// page: {"order": 120, "group": "tools", "icon": "advice"}
/** Findings by gain, what they save together, what if, and what could not be checked. */
import "./advice.css";
import { useMemo } from "preact/hooks";
import { Causes } from "../advice/causes";
import { useDismissed, type Dismissed } from "../advice/dismissed";
import { Finding, Title } from "../advice/finding";
import { Fold } from "../advice/fold";
import { adviceRows, byNeed, fallRows, identity, json, markdown, recoverable, type Advice } from "../advice/rows";
import { adviceTexts } from "../advice/texts";
import { Floors, Waterfall } from "../advice/waterfall";
import { WhatIf } from "../advice/whatif";
import { info, useTable } from "../data";
import { onDevice } from "../device";
import type { Catalog } from "../messages";
import { copyText, Loading, Trouble, Verdict } from "../parts/basics";
import { save } from "../parts/grid_tools";
import { Share, Time } from "../parts/quantity";
import { fill, Sentence, strings } from "../strings";

const text = strings("advice");

export default function AdvicePage() {
  const asked = useTable("advice", {}, { allRanks: true });
  const fall = useTable("waterfall", {}, { allRanks: true });
  const dismissed = useDismissed();
  const rows = useMemo(() => (asked.data ? adviceRows(asked.data) : null), [asked.data]);
  const falls = useMemo(() => (fall.data ? fallRows(fall.data) : []), [fall.data]);
  const texts = adviceTexts();
  const error = asked.error ?? fall.error;
  if (error) return <Trouble error={error} />;
  if (!rows || !texts) return <Loading rows={12} what={text().reading} />;
  const shown = rows.filter((row) => !dismissed.reasons.has(identity(row)));
  const hidden = rows.filter((row) => row.status !== "not checked" && dismissed.reasons.has(identity(row)));
  const findings = shown.filter((row) => row.status === "finding");
  const statements = shown.filter((row) => row.status === "statement");
  return (
    <div class={`advpage ${asked.waiting ? "stale" : ""}`}>
      <Headline texts={texts} rows={rows} findings={findings} falls={falls} dismissed={dismissed} />
      {dismissed.error && <Trouble error={dismissed.error} />}
      {!dismissed.kept && hidden.length > 0 && <p class="warn small">{text().notKept}</p>}
      {findings.map((row) => (
        <Finding key={identity(row)} of={row} dismissed={dismissed} />
      ))}
      <Waterfall rows={falls} findings={findings} />
      <div class="adv-cols">
        <WhatIf />
        <Floors />
      </div>
      {statements.length > 0 && <h2 class="adv-section">{text().statements}</h2>}
      {statements.map((row) => (
        <Finding key={identity(row)} of={row} dismissed={dismissed} />
      ))}
      {onDevice(info.value!) && <Causes />}
      <NotChecked rows={rows.filter((row) => row.status === "not checked")} />
      <Hidden rows={hidden} dismissed={dismissed} />
    </div>
  );
}

interface HeadlineProps {
  texts: Catalog;
  rows: Advice[];
  findings: Advice[];
  falls: ReturnType<typeof fallRows>;
  dismissed: Dismissed;
}

function Headline({ texts, rows, findings, falls, dismissed }: HeadlineProps) {
  const t = text();
  const now = info.value!;
  const whole = recoverable(falls);
  const healthy = rows.find((row) => row.status === "healthy");
  const name = now.name.replace(/[^\w.-]+/g, "_");
  const labels = {
    gain: t.gain,
    after: t.later,
    ofUnprofiled: t.ofUnprofiled,
    ofRecorded: t.ofRecorded,
    ofMean: t.ofMean,
    fix: t.fix,
    source: t.source,
    dismissed: t.dismissed,
    notChecked: t.notChecked,
  };
  const asMarkdown = () => markdown(now.name, rows, dismissed.reasons, texts, labels);
  const exports = (
    <span class="adv-export">
      <button class="aslink" onClick={() => void copyText(asMarkdown())}>
        {t.copyMarkdown}
      </button>
      {" · "}
      <button class="aslink" onClick={() => save(`${name}-advice.md`, asMarkdown())}>
        Markdown
      </button>
      {" · "}
      <button
        class="aslink"
        onClick={() => save(`${name}-advice.json`, json(now.name, rows, dismissed.reasons, texts))}
      >
        JSON
      </button>
    </span>
  );
  const facts = [
    findings.length > 0 && fill(t.findingCount, { count: findings.length }),
    rows[0]?.coverage && fill(t.replayedSteps, { coverage: rows[0].coverage }),
    exports,
  ];
  if (!rows.some((row) => row.status === "finding"))
    return <Verdict facts={facts}>{healthy ? <Title of={healthy} /> : t.nothing}</Verdict>;
  return (
    <Verdict facts={facts}>
      {Number.isFinite(whole.share) ? (
        <Sentence
          template={t.headline}
          share={
            <b>
              <Share of={whole.share} />
            </b>
          }
          before={
            <b>
              <Time ns={whole.before} />
            </b>
          }
          after={
            <b>
              <Time ns={whole.after} />
            </b>
          }
        />
      ) : (
        fill(t.findingCount, { count: findings.length })
      )}
    </Verdict>
  );
}

/** Rules without their data, by what has to be recorded. */
function NotChecked({ rows }: { rows: Advice[] }) {
  const t = text();
  if (!rows.length) return null;
  return (
    <Fold class="card adv-fold" title={fill(t.notCheckedCount, { count: rows.length })}>
      {() => (
        <ul>
          {byNeed(rows).map(([need, some]) => (
            <li key={need}>
              <p>{need}</p>
              <p class="d3 mono small">{some.map((row) => row.rule).join(" · ")}</p>
            </li>
          ))}
        </ul>
      )}
    </Fold>
  );
}

function Hidden({ rows, dismissed }: { rows: Advice[]; dismissed: Dismissed }) {
  const t = text();
  if (!rows.length) return null;
  return (
    <Fold class="card adv-fold" title={fill(t.dismissedCount, { count: rows.length })}>
      {() => rows.map((row) => <Finding key={identity(row)} of={row} dismissed={dismissed} />)}
    </Fold>
  );
}
