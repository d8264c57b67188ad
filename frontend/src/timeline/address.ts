/** View, selection and arrangement of the timeline in the address, both ways. */
import { context, rank } from "../data";
import { go, place, remembered } from "../state";
import { choose, pick } from "./navigation";
import { COLORINGS, type Coloring } from "./tints";
import { parseArrangement, formatArrangement } from "./layout";
import type { Tab, Timeline } from "./model";
import type { Mark } from "./scene";
import { search } from "./search";

const OWN = [
  "t0",
  "t1",
  "span",
  "area",
  "lanes",
  "color",
  "scopes",
  "find",
  "kinds",
  "notes",
  "tab",
  "measure",
  "rank",
];
const TABS = ["area", "event", "events", "flow"];

/** The parameters of the timeline in the address, as one text. */
function addressText(): string {
  return JSON.stringify(OWN.map((name) => place.value.params[name]));
}

function isHere(of: Timeline): boolean {
  return place.value.page === "timeline" && place.value.run === of.run;
}

/** Put the present view into the address. */
export function write(of: Timeline): void {
  if (!isHere(of)) return;
  const selected = of.selected.peek();
  // The id of a span is unique within its rank.
  const its = selected && selected.span >= 0 ? of.rankOf(selected.lane) : null;
  go({ params: { ...params(of), ...(its !== null && its !== rank() ? { rank: its } : {}) } }, true);
  of.wrote = addressText();
  of.ofRank = rank();
}

/** The address of the present view. */
function params(of: Timeline): Record<string, string | number | null> {
  const { t0, t1, atHome } = of.sight;
  const area = of.area.peek();
  const selected = of.selected.peek();
  const measured = of.measured.peek();
  return {
    t0: atHome ? null : Math.round(t0),
    t1: atHome ? null : Math.round(t1),
    span: selected && selected.span >= 0 ? selected.span : null,
    area: area && [Math.round(area.t0), Math.round(area.t1), ...(area.lanes ? [area.lanes.join(",")] : [])].join(":"),
    lanes:
      formatArrangement(of.arrangement.peek()) === of.usual ? null : formatArrangement(of.arrangement.peek()) || "all",
    color: of.coloring.peek() === "family" ? null : of.coloring.peek(),
    scopes: of.scopes.peek() === 2 ? null : of.scopes.peek(),
    find: of.found.peek()?.text || null,
    kinds: of.kinds.peek().join(",") || null,
    notes: writtenNotes(of.marks.peek()),
    tab: of.open.peek() ? of.tab.peek() : null,
    measure: measured && measured.to !== null ? `${Math.round(measured.from)}:${Math.round(measured.to)}` : null,
  };
}

/** Apply the address; `first` when the page has just been opened. */
export async function follow(of: Timeline, first: boolean): Promise<void> {
  if (!isHere(of) || (!first && addressText() === of.wrote)) return;
  of.wrote = addressText();
  of.followed = true;
  const another = rank() !== of.ofRank;
  of.ofRank = rank();
  const { sight } = of;
  const { t0, t1, span, area, lanes, color, scopes, find, kinds, notes, tab, measure } = place.value.params;
  const points = (measure ?? "").split(":").map(Number);
  of.measured.value =
    measure && points.length === 2 && points.every(Number.isFinite) ? { from: points[0], to: points[1] } : null;
  if (first || another || lanes !== undefined)
    of.arrangement.value = parseArrangement(lanes ?? remembered(`timeline.${of.run}`) ?? of.usual);
  of.kinds.value = kinds ? kinds.split(",").filter((kind) => of.header.kinds.includes(kind)) : [];
  of.recolor(COLORINGS.includes((color ?? "family") as Coloring) ? ((color ?? "family") as Coloring) : undefined);
  of.scopes.value = Math.max(1, Number(scopes) || 2);
  of.marks.value =
    notes !== undefined ? readNotes(notes) : first ? readNotes(remembered(`timeline.${of.run}.notes`) ?? "") : [];
  if (area) {
    const [from, to, some] = area.split(":");
    if (Number(to) > Number(from))
      of.area.value = { t0: Number(from), t1: Number(to), lanes: some ? some.split(",").map(Number) : null };
  } else of.area.value = null;
  of.relayout();
  if (another && span === undefined)
    of.scrollTo(of.layout.peek().heads.find((head) => head.group.rank === rank())?.y ?? 0);
  const [from, to] = [t0, t1].map((text) => (text === undefined ? NaN : Number(text)));
  const windowed = Number.isFinite(from) && Number.isFinite(to) && to >= from;
  if (windowed) sight.to(from, Math.max(to, from + 1), first ? "jump" : "glide");
  else if (first) {
    const [low, high] = String(context().steps ?? "")
      .split(":")
      .map(Number);
    const some = context().steps ? of.steps.filter((step) => step.step >= low && step.step <= (high ?? low)) : [];
    if (some.length) sight.to(some[0].start, some[some.length - 1].end, "jump");
    else sight.goHome("jump");
  } else if (span === undefined) sight.goHome("glide");
  if (first) sight.begin();
  of.open.value = tab !== undefined || span !== undefined || area !== undefined;
  if (tab && TABS.includes(tab)) of.tab.value = tab as Tab;
  else if (area && span === undefined) of.tab.value = "area";
  else if (span !== undefined) of.tab.value = "event";
  sight.seen.value = { t0: sight.aim[0], t1: sight.aim[1] };
  if ((find ?? "") !== (of.found.value?.text ?? "")) void search(of, find ?? "", "count");
  if (span !== undefined && /^\d+$/.test(span)) {
    if (of.selected.value?.span !== Number(span) || of.rankOf(of.selected.value.lane) !== rank())
      await pick(of, rank() ?? 0, Number(span), windowed ? "show" : "fit");
  } else if (of.selected.value && of.selected.value.span >= 0) choose(of, null);
  sight.settle();
  of.invalidate();
}

export function writtenNotes(marks: Mark[]): string | null {
  return (
    marks.map((mark) => `${Math.round(mark.t0)}:${Math.round(mark.t1)}:${encodeURIComponent(mark.text)}`).join(";") ||
    null
  );
}

function readNotes(text: string): Mark[] {
  return text
    .split(";")
    .filter(Boolean)
    .map((item) => {
      const [t0, t1, words] = item.split(":");
      let reply = words ?? "";
      try {
        reply = decodeURIComponent(reply);
      } catch {
        /* typed by hand */
      }
      return { t0: Number(t0), t1: Number(t1), text: reply };
    })
    .filter((mark) => mark.t1 >= mark.t0);
}
