/** The advice rail of the overview: the first three findings, and what all fixes together save. */
import { useTable } from "../data";
import { Await } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { link } from "../state";
import { fill, Sentence, strings } from "../strings";
import { useDismissed } from "./dismissed";
import { Gain, Title } from "./finding";
import { Places } from "./places";
import { adviceRows, fallRows, fixText, identity, recoverable } from "./rows";
import { adviceTexts } from "./texts";

const text = strings("advice");

const SHOWN = 3;

export function AdviceRail() {
  const t = text();
  const advice = useTable("advice", {}, { allRanks: true });
  const waterfall = useTable("waterfall", {}, { allRanks: true });
  const dismissed = useDismissed();
  const texts = adviceTexts();
  return (
    <aside class="adv-rail" aria-label={t.rail}>
      <header class="hd">
        <h2>{t.rail}</h2>
        <span class="sp" />
        <a href={link({ page: "advice" })}>{t.all}</a>
      </header>
      <Await of={advice} rows={4}>
        {(table) => {
          const rows = adviceRows(table);
          const findings = rows.filter((row) => row.status === "finding" && !dismissed.reasons.has(identity(row)));
          const healthy = rows.find((row) => row.status === "healthy");
          const whole = recoverable(waterfall.data ? fallRows(waterfall.data) : []);
          if (!findings.length)
            return <p class={`adv-none ${healthy ? "good" : "d3"}`}>{healthy ? <Title of={healthy} /> : t.nothing}</p>;
          return (
            <>
              {Number.isFinite(whole.share) && (
                <p class="adv-whole">
                  <Sentence
                    template={t.recoverable}
                    share={
                      <b>
                        <Share of={whole.share} />
                      </b>
                    }
                    before={<Time ns={whole.before} />}
                    after={<Time ns={whole.after} />}
                  />
                </p>
              )}
              {findings.slice(0, SHOWN).map((row) => (
                <article key={row.position} class={`adv small ${row.severity ?? "none"}`}>
                  <header>
                    <h3>
                      <Title of={row} />
                    </h3>
                    <Gain of={row} />
                  </header>
                  {texts && row.fixCode && <p class="d2 small">{fixText(row, texts)}</p>}
                  <Places of={row.spots.slice(0, 1)} />
                </article>
              ))}
              {findings.length > SHOWN && (
                <p class="adv-more">
                  <a href={link({ page: "advice" })}>{fill(t.more, { count: findings.length - SHOWN })}</a>
                </p>
              )}
            </>
          );
        }}
      </Await>
    </aside>
  );
}
