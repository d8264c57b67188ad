/** Idle gaps of devices and their causes. */
import type { Timeline } from "./model";
import type { Gap } from "./scene";
import { ofAll } from "./wire";

const GROUPS = 8;

/** Fetch the gaps in view. */
export async function findGaps(of: Timeline): Promise<void> {
  const devices = of.header.lanes.filter((lane) => lane.kind === "overlap" && !ofAll(of.header, lane));
  if (!devices.length) return;
  const wide = of.t1 - of.t0;
  const [from, to] = [Math.max(0, Math.round(of.t0 - wide / 4)), Math.min(of.end, Math.round(of.t1 + wide / 4))];
  const key = `${from} ${to}`;
  if (key === of.asked.gaps) return;
  of.asked.gaps = key;
  try {
    const groups = [...new Set(devices.map((lane) => lane.group))].slice(0, GROUPS);
    const text = await Promise.all(
      groups.map((group) =>
        of.json<{ gaps: { start: number; dur: number; cause: string | null; host_activity?: string | null }[] }>(
          `timeline/gaps?t0=${from}&t1=${Math.max(from + 1, to)}&group=${group}`,
        ),
      ),
    );
    if (key !== of.asked.gaps) return;
    const gaps: Gap[] = [];
    text.forEach((answer, at) => {
      for (const gap of answer.gaps)
        gaps.push({
          start: gap.start,
          dur: gap.dur,
          said: gap.cause === "unknown" ? "" : (gap.cause ?? ""),
          host: gap.host_activity ?? null,
          group: groups[at],
        });
    });
    of.gaps.value = gaps;
    of.invalidate();
  } catch {
    of.gaps.value = [];
  }
}

/** The cause of an idle gap at a timestamp. */
export function causeAt(of: Timeline, lane: number, moment: number): string | null {
  const group = of.lane(lane)?.group;
  return (
    of.gaps.peek().find((gap) => gap.group === group && moment >= gap.start && moment <= gap.start + gap.dur)?.said ||
    null
  );
}

/** The main cause of the idle time in a range, if known. */
export function mostCause(of: Timeline, t0: number, t1: number, group: number): string | null {
  const sums = new Map<string, number>();
  for (const gap of of.gaps.value) {
    const inside = Math.min(t1, gap.start + gap.dur) - Math.max(t0, gap.start);
    if (inside > 0 && gap.group === group && gap.said) sums.set(gap.said, (sums.get(gap.said) ?? 0) + inside);
  }
  return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}
