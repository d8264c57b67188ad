/** The frame of the pages: context bar (run, rank, steps), menu, drawer, search and help. */
import { allStepsParam, info, shownSteps, useInfo } from "./data";
import { Help, openHelp } from "./help";
import { openPalette, Palette } from "./palette";
import { copyText, Empty, Loading, Trouble } from "./parts/basics";
import { Tip } from "./parts/tip";
import type { Change } from "./place";
import { Nav } from "./shell/menu";
import { span, stepRange, useStepNumbers } from "./shell/step_range";
import { Top } from "./shell/top_bar";
import { type Info, source } from "./source";
import { go, language, link, param, place } from "./state";
import { fill, strings, withPageStrings } from "./strings";
import * as units from "./units";
import pages from "pages";
import type { Page } from "pages";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

const text = strings("shell");
const titles = strings("pages");

/** Pages that show all of a large run, whatever steps are selected. */
const WHOLE = ["timeline", "files", "live"];

export function Shell() {
  const t = text();
  const { run, page } = place.value;
  const fetched = useInfo(run);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if ((event.key === "k" || event.key === "K") && (event.ctrlKey || event.metaKey)) openPalette();
      else if (event.key === "c" && (event.ctrlKey || event.metaKey) && exactValue()) void copyText(exactValue()!);
      else if (typing(event)) return;
      else if (event.key === "/") openPalette();
      else if (event.key === "?") openHelp();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  const match = pages.find((item) => item.id === page);
  // The code of the page is loaded while the run is being opened.
  useEffect(() => void (match && load(match).catch(() => undefined)), [match]);
  useEffect(() => {
    const title = match ? titles()[match.id] : "";
    document.title = [title, info.value?.name, "stepscope"].filter(Boolean).join(" · ");
  }, [match, info.value, language()]);
  return (
    <div class="app">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        {t.skip}
      </a>
      <Top info={run === null ? null : info.value} />
      <Nav current={page} info={run === null ? null : info.value} />
      <div class="main">
        <main class="page" id="main" tabIndex={-1} key={`${run}/${page}`}>
          {!match ? (
            <p>
              {fill(t.noPage, { page })} <a href="#/">{t.back}</a>
            </p>
          ) : match.alone || run === null ? (
            <Opened page={run === null && !match.alone ? pages.find((item) => item.id === "runs")! : match} />
          ) : fetched.error ? (
            <>
              <Trouble error={fetched.error} />
              <p>
                {place.value.params.step_name && (
                  <>
                    <a href={link({ params: { step_name: null } })}>{t.recordedSteps}</a> ·{" "}
                  </>
                )}
                <a href="#/">{t.back}</a>
              </p>
            </>
          ) : info.value === null ? (
            <Reading run={run} />
          ) : (
            <Context now={info.value} page={page}>
              {info.value.part && !WHOLE.includes(page) && <Part now={info.value} />}
              <Opened page={match} />
            </Context>
          )}
        </main>
        <div id="side" />
      </div>
      <Palette />
      <Help />
      <Tip />
    </div>
  );
}

/**
 * The page; or, if the address names a rank or steps that the run does not have, an error with a link to those it has.
 */
function Context({ now, page, children }: { now: Info; page: string; children: ComponentChildren }) {
  const t = text();
  const [given, asked] = [param("rank"), param("steps")];
  const badRank = given !== undefined && given !== "all" && now.ranks.length > 0 && !now.ranks.includes(Number(given));
  const range = asked === undefined || asked === "all" ? null : stepRange(asked);
  const numbers = useStepNumbers(badRank);
  if (WHOLE.includes(page)) return <>{children}</>;
  const wrong = (message: string, change: Change, way: string) => (
    <Empty title={message} height={160}>
      <a href={link(change)}>{way}</a>
    </Empty>
  );
  if (badRank)
    return wrong(
      fill(t.badRank, { rank: given, ranks: units.ranges(now.ranks) }),
      { params: { rank: null } },
      fill(t.showRank, { rank: now.ranks[0] }),
    );
  const all = { params: { steps: allStepsParam() } };
  if (asked !== undefined && range === undefined) return wrong(fill(t.badRange, { steps: asked }), all, t.showAll);
  if (!range) return <>{children}</>;
  if (numbers === null) return <Loading rows={10} />;
  if (numbers.some((step) => step >= range[0] && step <= range[1])) return <>{children}</>;
  return wrong(
    fill(numbers.length ? t.badSteps : t.badStepsNone, { steps: span(...range), there: units.ranges(numbers) }),
    all,
    t.showAll,
  );
}

/** The steps of a large run that the page covers, and the way to others. */
function Part({ now }: { now: Info }) {
  const t = text();
  const range = shownSteps();
  const spans = units.count(now.tables.spans).value;
  const usual = span(now.part![0], now.part![1]);
  const to = range ? allStepsParam() : null;
  return (
    <p class="reading" role="note">
      {range
        ? fill(t.part, { spans, steps: span(...(range.split(":").map(Number) as [number, number])) })
        : fill(t.everything, { spans })}
      <button
        class="aslink"
        title={range ? fill(t.everything, { spans }) : undefined}
        onClick={() => go({ params: { steps: to } })}
      >
        {range ? t.allSteps : fill(t.only, { steps: usual })}
      </button>
      <a href={link({ page: "timeline" })}>{t.timeline}</a>
    </p>
  );
}

/** Progress while a large run is read, and a way to cancel. */
function Reading({ run }: { run: string }) {
  const t = text();
  const [at, setAt] = useState<{ done: number; total: number; file: number; files: number } | null>(null);
  useEffect(() => {
    let close: () => void = () => undefined;
    // A run that opens at once needs no second request.
    const timer = setTimeout(() => {
      close = source().listen(`api/runs/${encodeURIComponent(run)}/progress`, (event, data) =>
        event === "progress" ? setAt(data as typeof at) : close(),
      );
    }, 400);
    return () => {
      clearTimeout(timer);
      close();
    };
  }, [run]);
  const percent = at?.total ? units.text(units.share(at.done / at.total)) : "0 %";
  const progress = at?.total
    ? fill(at.files > 1 ? t.readingFile : t.reading, {
        run,
        percent,
        size: units.text(units.bytes(at.total)),
        file: at.file + 1,
        files: at.files,
      })
    : fill(t.opening, { run });
  return (
    <div>
      {at && (
        <p class="reading" role="status">
          {progress}
          <progress max={at.total || 1} value={at.done} aria-label={progress} />
          <button
            class="btn sm"
            onClick={() => void fetch(`api/runs/${encodeURIComponent(run)}/cancel`, { method: "POST" })}
          >
            {t.cancel}
          </button>
        </p>
      )}
      <Loading what={progress} rows={10} />
    </div>
  );
}

/** The exact number under the pointer or in the focused link: Ctrl C copies it if no text is selected. */
function exactValue(): string | null {
  if (getSelection()?.toString()) return null;
  const shown =
    document.querySelector<HTMLElement>(".q:hover") ??
    document.activeElement?.closest("a, button")?.querySelector<HTMLElement>(".q");
  const number = /^[−-]?[\d,.e+-]+/.exec(shown?.title ?? "")?.[0];
  return number ? number.replaceAll(",", "").replace("−", "-") : null;
}

function typing(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    target.isContentEditable ||
    ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)
  );
}

const loaded = new Map<string, ComponentType>();

/** The code of a page, with its texts. The frame has those of the list of runs. */
function load(page: Page): ReturnType<Page["load"]> {
  return page.id === "runs" ? page.load() : withPageStrings(page.load());
}

function Opened({ page }: { page: Page }) {
  const [, again] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    if (loaded.has(page.id)) return;
    load(page).then((module) => {
      loaded.set(page.id, module.default);
      again((n) => n + 1);
    }, setError);
  }, [page.id]);
  const Body = loaded.get(page.id);
  if (error) return <Trouble error={error} />;
  return Body ? (
    <Guard key={page.id}>
      <Body />
    </Guard>
  ) : (
    <Loading />
  );
}

/** Shows the error of a page that fails; the frame keeps working. */
class Guard extends Component<{ children: ComponentChildren }, { error: Error | null }> {
  override state = { error: null as Error | null };

  override componentDidCatch(error: Error) {
    console.error(error);
    this.setState({ error });
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <>
        <Trouble error={`${text().broke}: ${this.state.error.message}`} />
        <p>
          <button class="btn" onClick={() => this.setState({ error: null })}>
            {text().again}
          </button>
        </p>
      </>
    );
  }
}
