/** Connections of the selected span: its launch, its backward operator, the same communication on other ranks. */
import { InlineBar } from "../parts/basics";
import { Time } from "../parts/quantity";
import { fill, strings } from "../strings";
import * as units from "../units";
import { pick, setArea, visit, type Details } from "./navigation";
import { shown } from "./labels";
import type { Timeline } from "./model";
import type { Event } from "./wire";

/** The other end of an arrow. */
export interface Arrow extends Event {
  how: "launch" | "backward" | "flow" | "collective" | "transfer";
  /** From it, to it, or neither. */
  way: "in" | "out" | "with";
  rank: number;
  /** Its start relative to the start of the selected span; negative if before. */
  delay: number;
}

const text = strings("connections");

const SHOWN = 12;

/** The meaning of an arrow. */
export function meaning({ how, way, rank }: Arrow): string {
  const t = text();
  const key = `${how}${way === "in" ? "In" : way === "out" ? "Out" : "With"}` as keyof ReturnType<typeof text>;
  return fill(t[key] ?? t.flowOut, { rank });
}

export function delay(ns: number): string {
  const t = text();
  return ns === 0 ? t.together : fill(ns < 0 ? t.before : t.after, { time: units.text(units.time(Math.abs(ns))) });
}

/** Arrows in the panel, as links to their other ends. */
export function Connections({ of, known }: { of: Timeline; known: Details }) {
  const t = text();
  if (!known.arrows.length) return null;
  const some = known.arrows.slice(0, SHOWN);
  return (
    <div class="tl-arrows">
      {some.map((arrow) => (
        <button
          key={`${arrow.how} ${arrow.way} ${arrow.rank} ${arrow.span}`}
          class="tl-line"
          onClick={() => visit(of, arrow)}
          title={arrow.name}
        >
          <span class="d3 small nowrap">{meaning(arrow)}</span>
          <span class="mono cut">{shown(arrow.name)}</span>
          <span class="small nowrap" title={units.exact(arrow.delay, "time")}>
            {delay(arrow.delay)}
          </span>
        </button>
      ))}
      {known.arrowCount > some.length && (
        <p class="d3 small">{fill(t.more, { count: units.count(known.arrowCount - some.length).value })}</p>
      )}
      <p class="d3 small">{t.follow}</p>
    </div>
  );
}

/** All arrows, with tracks and durations. */
export function Arrows({ of, known }: { of: Timeline; known: Details }) {
  const t = text();
  const most = Math.max(1, ...known.arrows.map((arrow) => arrow.dur));
  return (
    <div class="tl-scroll">
      <table>
        <thead>
          <tr>
            <th>{t.arrow}</th>
            <th class="tl">{t.name}</th>
            <th class="tl">{t.lane}</th>
            <th>{t.begins}</th>
            <th>{t.dur}</th>
            <th />
          </tr>
        </thead>
        <tbody>
          {known.arrows.map((arrow) => (
            <tr
              key={`${arrow.how} ${arrow.way} ${arrow.rank} ${arrow.span}`}
              class="click"
              onClick={() => visit(of, arrow)}
            >
              <td>{meaning(arrow)}</td>
              <td class="tl">
                <button class="tl-line">
                  <span class="mono cut" title={arrow.name}>
                    {shown(arrow.name)}
                  </span>
                </button>
              </td>
              <td class="tl d2">{of.lane(arrow.lane)?.label}</td>
              <td title={units.exact(arrow.delay, "time")}>{delay(arrow.delay)}</td>
              <td class="b">
                <Time ns={arrow.dur} />
              </td>
              <td>
                <InlineBar share={arrow.dur / most} color="var(--kind-compute)" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {known.arrowCount > known.arrows.length && (
        <p class="d3 small">{fill(t.more, { count: units.count(known.arrowCount - known.arrows.length).value })}</p>
      )}
    </div>
  );
}

/** Follow an arrow: to the cause, to the effect, or to the same communication on the next rank. */
export function followArrow(of: Timeline, way: Arrow["way"]): void {
  const known = of.details.peek();
  const some = known?.arrows.filter((arrow) => arrow.way === way) ?? [];
  const next = way === "with" ? (some.find((arrow) => arrow.rank > known!.rank) ?? some[0]) : some[0];
  if (next) visit(of, next);
}

/** The line of the critical path in the panel; null if the path is unknown. */
export function onPath(known: Details | null): [string, string] | null {
  const t = text();
  const on = known?.said.critical_ns;
  if (!known || typeof on !== "number") return null;
  if (on === 0) return [t.onPath, t.pathNone];
  const kinds = known.said.critical as { kind: string; ns: number }[];
  const time = (ns: number) => units.text(units.time(ns));
  const parts = kinds.map(({ kind, ns }) => fill(t.pathAs, { time: time(ns), kind })).join(", ");
  if (kinds.length > 1) return [t.onPath, parts];
  return [
    t.onPath,
    on === known.event.dur && kinds[0].kind !== "launch"
      ? t.pathAll
      : kinds[0].kind === "launch"
        ? parts
        : fill(t.pathPart, { time: time(on) }),
  ];
}

/** From a piece of the critical path to its span. */
export async function followPath(of: Timeline, hit: Event): Promise<void> {
  const rank = of.rankOf(hit.lane);
  const { piece } = await of.json<{ piece: { span: number | null; start: number; dur: number } | null }>(
    `timeline/path?rank=${rank}&at=${Math.floor(hit.start + hit.dur / 2)}`,
  );
  if (!piece || piece.span === null) return setArea(of, { t0: hit.start, t1: hit.start + hit.dur, lanes: null });
  of.show("event");
  await pick(of, rank, piece.span, "show");
}
