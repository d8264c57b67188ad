// page: {"order": 80, "group": "performance", "icon": "timeline"}
import "./timeline.css";
import "./timeline_drawer.css";
import { useEffect, useMemo, useState } from "preact/hooks";
import { info, useFetched, useTable } from "../data";
import { Empty, Loading, Trouble } from "../parts/basics";
import { untip } from "../parts/tip";
import { source } from "../source";
import { place } from "../state";
import { fill, strings } from "../strings";
import { follow, write } from "../timeline/address";
import { prepare } from "../timeline/renderer";
import { areaOfSelection, choose, focusSelection, mark, setArea, step, visit } from "../timeline/navigation";
import { followArrow } from "../timeline/connections";
import { Drawer } from "../timeline/drawer";
import { endMeasuring, measureHere } from "../timeline/measure";
import { Timeline } from "../timeline/model";
import { Picture } from "../timeline/picture";
import { search } from "../timeline/search";
import { Tools } from "../timeline/tools";
import type { Header } from "../timeline/wire";
import * as units from "../units";

const text = strings("timeline");

export default function Page() {
  const t = text();
  const run = place.value.run!;
  useMemo(prepare, []);
  const fetched = useFetched(
    `${run}\ntimeline`,
    async () => (await (await source().raw(run, "timeline")).json()) as Header,
  );
  const steps = useTable(
    "tables/steps",
    { columns: "rank,step,start_ns,end_ns" },
    { allSteps: true, skip: !info.value?.tables.steps },
  );
  if (fetched.error) return source().isReport ? <Empty title={t.still} /> : <Trouble error={fetched.error} />;
  if (!fetched.data || (steps.waiting && !steps.data)) return <Building run={run} />;
  if (!fetched.data.lanes.length) return <Empty title={t.empty}>{t.emptyHow}</Empty>;
  return <Body key={`${run} ${fetched.data.version}`} run={run} header={fetched.data} steps={steps.data} />;
}

/** Progress while the timeline of a large run is built. */
function Building({ run }: { run: string }) {
  const t = text();
  const [share, setShare] = useState<number | null>(null);
  useEffect(() => {
    if (source().isReport) return;
    let close: () => void = () => undefined;
    // A timeline that is built at once needs no second request.
    const timer = setTimeout(() => {
      close = source().listen(`api/runs/${encodeURIComponent(run)}/timeline/progress`, (event, data) =>
        event === "progress" ? setShare((data as { share: number }).share) : close(),
      );
    }, 400);
    return () => {
      clearTimeout(timer);
      close();
    };
  }, [run]);
  const message = fill(t.loading, { run: info.value?.name ?? run });
  return (
    <div>
      {share !== null && (
        <p class="reading" role="status">
          {message} {units.text(units.share(share))}
          <progress max={1} value={share} aria-label={message} />
        </p>
      )}
      <Loading rows={12} what={message} />
    </div>
  );
}

function Body({ run, header, steps }: { run: string; header: Header; steps: ReturnType<typeof useTable>["data"] }) {
  const t = text();
  const of = useMemo(() => new Timeline(run, header), []);
  useMemo(() => {
    if (!steps) return;
    const [number, start, end] = ["step", "start_ns", "end_ns"].map((name) => steps.num(name));
    of.setSteps(
      Array.from(number, (step, row) => ({ step, start: start[row], end: end[row] })).sort((a, b) => a.start - b.start),
    );
  }, [steps]);
  useEffect(() => {
    void follow(of, true);
    return () => {
      of.close();
      untip();
    };
  }, [of]);
  useEffect(() => void (of.followed && follow(of, false)), [place.value]);
  useEffect(() => keys(of), [of]);
  return (
    <div class="timeline">
      <h1 class="sr">{fill(t.picture, { run: info.value?.name ?? run })}</h1>
      <Tools of={of} />
      {of.trouble.value && <Trouble error={of.trouble.value} />}
      <Picture of={of} run={info.value?.name ?? run} />
      <Drawer of={of} />
    </div>
  );
}

const WAYS: Record<string, string> = {
  w: "in",
  s: "out",
  a: "left",
  d: "right",
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
  "+": "in",
  "=": "in",
  "-": "out",
};

/** Keys of the whole page, except in text fields. The palette stays on Ctrl K. */
function keys(of: Timeline): () => void {
  const down = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    if (
      event.ctrlKey ||
      event.metaKey ||
      target.isContentEditable ||
      ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) ||
      target.closest(".menu, .palette, .manual")
    )
      return;
    const arrow = event.key.startsWith("Arrow");
    if ((arrow || event.key === "Enter") && target.closest(".tl-drawer, .nav, .top, .seg, .tabs")) return;
    if (event.altKey) return;
    const letter = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.shiftKey && arrow)
      void step(
        of,
        ({ ArrowLeft: "prev", ArrowRight: "next", ArrowUp: "up", ArrowDown: "down" } as const)[
          event.key as "ArrowLeft"
        ],
      );
    else if (WAYS[letter]) of.sight.hold(WAYS[letter]);
    else if (letter === "/") document.getElementById("tl-find")?.focus();
    else if (letter === "0") of.sight.all();
    else if (letter === "f") focusSelection(of);
    else if (letter === "r") areaOfSelection(of);
    else if (letter === "m") mark(of);
    else if (letter === "[" || letter === "]") {
      const known = of.details.peek();
      const to = letter === "[" ? known?.previous : known?.next;
      if (to) visit(of, to);
    } else if (event.key === "Backspace") {
      if (event.shiftKey) of.sight.forward();
      else of.sight.back();
    } else if (letter === "t") measureHere(of);
    else if (letter === "c" || letter === "e" || letter === "x")
      followArrow(of, ({ c: "in", e: "out", x: "with" } as const)[letter]);
    else if (event.key === "Escape") {
      if (endMeasuring(of)) {
        /* handled */
      } else if (of.area.peek()) setArea(of, null);
      else if (of.selected.peek()) choose(of, null);
      else if (of.found.peek()) void search(of, "");
      else if (of.open.peek()) {
        of.open.value = false;
        write(of);
      } else return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const up = (event: KeyboardEvent) => {
    const way = WAYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (way) of.sight.release(way);
  };
  const away = () => of.sight.release();
  // Before the shell, whose "/" opens the palette.
  window.addEventListener("keydown", down, true);
  window.addEventListener("keyup", up, true);
  window.addEventListener("blur", away);
  return () => {
    window.removeEventListener("keydown", down, true);
    window.removeEventListener("keyup", up, true);
    window.removeEventListener("blur", away);
  };
}
