/** Selection of a span, a range or a note, and moves between spans. */
import { source } from "../source";
import { remember } from "../state";
import { write, writtenNotes } from "./address";
import type { Arrow } from "./connections";
import type { Timeline } from "./model";
import type { Area, Mark } from "./scene";
import { looked } from "./search";
import type { Event } from "./wire";

/** All details of one span. */
export interface Details {
  event: Event;
  rank: number;
  said: Record<string, unknown>;
  into: Event[];
  out: Event[];
  /** Of an operator: the device work that it launched. */
  launched: Event[];
  /** Of device work: the operator that launched it. */
  operator: Event | null;
  parents: Event[];
  previous: Event | null;
  next: Event | null;
  /** Its connections, and their number. */
  arrows: Arrow[];
  arrowCount: number;
}

/** Select a known span, or none. */
export function choose(of: Timeline, event: Event | null, open = true): void {
  of.selected.value = event;
  of.details.value = null;
  of.light(event && event.name && event.span >= 0 ? { name: event.name } : looked(of));
  if (event && event.span >= 0) {
    if (open) of.show("event");
    void pick(of, of.rankOf(event.lane), event.span, "stay");
  }
  write(of);
  of.invalidate();
}

/** Fetch the details of a span; `fit` zooms to it, `show` only scrolls if it is not visible. */
export async function pick(of: Timeline, its: number, span: number, view: "stay" | "show" | "fit"): Promise<void> {
  const requested = ++of.asked.span;
  try {
    const details = detailed(await of.json<Record<string, unknown>>(`timeline/span?rank=${its}&span=${span}`), its);
    if (requested !== of.asked.span) return;
    of.selected.value = details.event;
    of.details.value = details;
    of.light({ name: details.event.name });
    if (view === "fit") of.sight.focus(details.event, "jump");
    else if (view === "show" && of.sight.misses(details.event)) of.sight.focus(details.event);
    if (view !== "stay") reveal(of, details.event);
    write(of);
  } catch (error) {
    if (requested === of.asked.span && !source().isReport) of.trouble.value = error as Error;
  }
  of.invalidate();
}

function detailed(text: Record<string, unknown>, its: number): Details {
  const { flows, launched, operator, parents, previous, next, arrows, arrow_count, ...rest } = text as Record<
    string,
    unknown
  > & {
    flows: { in: Event[]; out: Event[]; out_count: number };
    launched: Event[];
    operator: Event | null;
    parents: Event[];
    previous: Event | null;
    next: Event | null;
    arrows: Arrow[];
    arrow_count: number;
  };
  const [into, out] = [arrows.filter((arrow) => arrow.way === "in"), arrows.filter((arrow) => arrow.way !== "in")];
  return {
    event: text as unknown as Event,
    rank: its,
    said: rest,
    into,
    out,
    launched,
    operator,
    parents,
    previous,
    next,
    arrows,
    arrowCount: arrow_count,
  };
}

/** Scroll to the track of a span; unfold its group and show the track if needed. */
function reveal(of: Timeline, event: Event): void {
  const lane = of.lane(event.lane);
  if (!lane) return;
  const by = of.arrangement.peek();
  if (by.hidden.includes(lane.id) || by.folded.includes(lane.group))
    of.rearrange({
      hidden: by.hidden.filter((item) => item !== lane.id),
      folded: by.folded.filter((item) => item !== lane.group),
    });
  const start = of.standing(event);
  if (start && (start.y < of.scroll || start.y + start.high > of.scroll + of.room)) of.scrollTo(start.y - of.room / 2);
}

/** Go to a span from elsewhere: a search, a flow, the previous of the same name. */
export function visit(of: Timeline, event: Event): void {
  choose(of, event);
  const [low, high] = of.sight.aim;
  if (of.sight.misses(event)) {
    const wide = Math.max(high - low, event.dur * 1.2);
    const middle = event.start + event.dur / 2;
    of.sight.to(middle - wide / 2, middle + wide / 2);
  } else if (event.dur * 400 < high - low) of.sight.focus(event);
  reveal(of, event);
}

/** The previous or next span in its row, or the one above or below. */
export async function step(of: Timeline, way: "prev" | "next" | "up" | "down"): Promise<void> {
  const now = of.selected.peek();
  const layout = of.layout.peek();
  const rows = [...layout.pinned, ...layout.lanes]
    .filter((box) => box.lane.kind !== "counter")
    .flatMap((box) => box.rows.map((row) => ({ lane: box.lane.id, row })));
  if (!rows.length) return;
  if (!now) return void near(of, rows[0].lane, rows[0].row, of.t0 - 1, "next");
  if (way === "prev" || way === "next") return void near(of, now.lane, now.row, now.start, way);
  const at = rows.findIndex((item) => item.lane === now.lane && item.row === now.row) + (way === "down" ? 1 : -1);
  if (!rows[at]) return;
  const { lane, row } = rows[at];
  const middle = now.start + now.dur / 2;
  for (const direction of ["at", "next", "prev"] as const) if (await near(of, lane, row, middle, direction)) return;
}

/** Go to a span of a row; returns whether there is one. */
async function near(
  of: Timeline,
  lane: number,
  row: number,
  at: number,
  direction: "prev" | "next" | "at",
): Promise<boolean> {
  const now = of.selected.peek();
  const from =
    now && direction !== "at" && now.span >= 0 && now.lane === lane && now.row === row ? `&span=${now.span}` : "";
  try {
    const { event } = await of.json<{ event: Event | null }>(
      `timeline/near?lane=${lane}&row=${row}&at=${Math.round(at)}&direction=${direction}${from}`,
    );
    if (event) visit(of, event);
    return event !== null;
  } catch (error) {
    if (!source().isReport) of.trouble.value = error as Error;
    return true;
  }
}

export function setArea(of: Timeline, area: Area | null, rest = true): void {
  of.area.value = area;
  if (area && rest) of.show("area");
  if (rest) write(of);
  of.invalidate();
}

/** The target of `F`. */
export function focusSelection(of: Timeline): void {
  const [event, area] = [of.selected.peek(), of.area.peek()];
  if (of.open.peek() && of.tab.peek() === "area" && area)
    of.sight.to(area.t0 - (area.t1 - area.t0) * 0.05, area.t1 + (area.t1 - area.t0) * 0.05);
  else if (event) {
    of.sight.focus(event);
    reveal(of, event);
  } else if (area) of.sight.to(area.t0, area.t1);
}

/** `R`: select the range of the selected span, or the visible range. */
export function areaOfSelection(of: Timeline): void {
  const event = of.selected.peek();
  if (event) setArea(of, { t0: event.start, t1: event.start + event.dur, lanes: null });
  else setArea(of, { t0: of.t0, t1: of.t1, lanes: null });
}

/** `M`: save the range. */
export function mark(of: Timeline, text = ""): void {
  const [event, area, cursor] = [of.selected.peek(), of.area.peek(), of.sight.cursor];
  const range =
    area ?? (event ? { t0: event.start, t1: event.start + event.dur } : { t0: cursor ?? of.t0, t1: cursor ?? of.t1 });
  setMarks(of, [
    ...of.marks.peek().filter((mark) => mark.t0 !== range.t0 || mark.t1 !== range.t1),
    { t0: range.t0, t1: range.t1, text },
  ]);
}

export function setMarks(of: Timeline, marks: Mark[]): void {
  of.marks.value = marks;
  remember(`timeline.${of.run}.notes`, writtenNotes(marks));
  write(of);
  of.invalidate();
}
