/** The bar above the pages. */
import { dropResults, rank, useFetched } from "../data";
import { openHelp } from "../help";
import { openPalette } from "../palette";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { listed } from "../place";
import { type Info, type Run, source } from "../source";
import { go, language, link, place, setTheme, theme } from "../state";
import { fill, strings, switchLanguage } from "../strings";
import * as units from "../units";
import { framework } from "./framework";
import { Steps } from "./step_range";
import { useState } from "preact/hooks";

const text = strings("shell");

const EXPORTS = ["report", "chrome", "perfetto", "speedscope", "parquet", "csv"] as const;

export function Top({ info: now }: { info: Info | null }) {
  const t = text();
  const dark = theme() === "dark";
  const facts =
    now &&
    [framework(now), now.devices.find((device) => device.kind !== "cpu")?.name ?? now.devices[0]?.name]
      .filter(Boolean)
      .join(" · ");
  return (
    <header class="top">
      <a class="logo" href="#/" aria-label="stepscope">
        <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" fill="var(--accent)">
          <rect x="1" y="3" width="8" height="3.5" rx="1" />
          <rect x="5" y="8.25" width="10" height="3.5" rx="1" />
          <rect x="12" y="13.5" width="7" height="3.5" rx="1" />
        </svg>
        <b>stepscope</b>
      </a>
      {now && (
        <>
          <Menu
            label={`${t.run}: ${now.name}`}
            button={
              <>
                <span class="b cut" title={`${now.name}\n${now.path}`}>
                  {now.name}
                </span>
                <span class="k wide">{facts}</span>
              </>
            }
          >
            {(close) => <Runs close={close} />}
          </Menu>
          <Ranks now={now} />
          <Steps now={now} />
        </>
      )}
      <div class="sp" />
      {now && now.problem_count > 0 && (
        <a class="chip warn" href={link({ page: "files" })}>
          {now.problem_count === 1 ? t.problem : fill(t.problems, { count: units.count(now.problem_count).value })}
        </a>
      )}
      {now?.state === "live" && (
        <a class="chip good" href={link({ page: "live" })}>
          {t.live}
        </a>
      )}
      <button class="pick search" onClick={openPalette}>
        <Icon name="search" size={14} />
        <span class="cut">{t.find}</span>
        <span class="sp" />
        <span class="kbd">/</span>
      </button>
      {now && !source().isReport && (
        <a class="pick" href={link({ page: "compare" })} aria-label={t.compare} title={t.compare}>
          <Icon name="compare" size={14} />
          <span class="wide">{t.compare}</span>
        </a>
      )}
      {now && !source().isReport && (
        <Menu
          label={t.export}
          arrow={false}
          align="right"
          button={
            <>
              <Icon name="export" size={14} />
              <span class="wide">{t.export}</span>
            </>
          }
        >
          {() =>
            EXPORTS.map((format) => (
              <a key={format} class="item" href={`api/runs/${encodeURIComponent(now.id)}/export/${format}`} download>
                {t[`export_${format}`]}
              </a>
            ))
          }
        </Menu>
      )}
      <button class="pick bare" aria-label={t.theme} title={t.theme} onClick={() => setTheme(dark ? "light" : "dark")}>
        <Icon name={dark ? "light" : "dark"} size={15} />
      </button>
      <button
        class="pick bare"
        aria-label={t.language}
        title={t.language}
        onClick={() => void switchLanguage(language() === "en" ? "zh" : "en")}
      >
        {language() === "en" ? "EN" : "中"}
      </button>
      <button class="pick bare" aria-label={t.help} title={`${t.help} (?)`} onClick={openHelp}>
        <Icon name="help" size={15} />
      </button>
    </header>
  );
}

function Ranks({ now }: { now: Info }) {
  const t = text();
  if (now.ranks.length === 0) return null;
  if (now.ranks.length === 1)
    return (
      <span class="pick still">
        <span class="k">{t.rank}</span>
        {now.ranks[0]}
      </span>
    );
  const label = fill(t.rankOf, { rank: rank() ?? "–", count: now.ranks.length });
  return (
    <Menu
      label={`${t.rank} ${label}`}
      button={
        <>
          <span class="k">{t.rank}</span>
          {rank()}
          <span class="k wide">/ {now.ranks.length}</span>
        </>
      }
    >
      {(close) => <RankList ranks={now.ranks} close={close} />}
    </Menu>
  );
}

/** Among thousands of ranks one types, not scrolls. */
function RankList({ ranks, close }: { ranks: number[]; close: () => void }) {
  const [find, setFind] = useState("");
  const shown = ranks.filter((item) => String(item).includes(find.trim())).slice(0, 200);
  return (
    <>
      {ranks.length > 20 && (
        <input
          class="menufind"
          type="search"
          aria-label={text().filter}
          placeholder={text().filter}
          value={find}
          onInput={(event) => setFind(event.currentTarget.value)}
        />
      )}
      {shown.map((item) => (
        <button
          key={item}
          class={`item ${item === rank() ? "on" : ""}`}
          onClick={() => {
            go({ params: { rank: item } });
            close();
          }}
        >
          {item}
        </button>
      ))}
    </>
  );
}

function Runs({ close }: { close: () => void }) {
  const fetched = useFetched<Run[]>("\nruns", () => source().runs());
  return (
    <>
      {fetched.data?.slice(0, 40).map((run) => (
        <a
          key={run.id}
          class={`item ${run.id === (place.value.run && listed(place.value.run)) ? "on" : ""}`}
          href={link({ run: run.id, page: place.value.page })}
          title={run.path}
          onClick={() => {
            dropResults(run.id);
            close();
          }}
        >
          <span class="cut">{run.name}</span>
          <span class="sp" />
          {run.state === "live" && <span class="chip good">{text().live}</span>}
          <span class="d3 small">{run.format}</span>
        </a>
      ))}
      <a class="item" href="#/" onClick={close}>
        {text().back}
      </a>
    </>
  );
}
