/** Search of spans by name. */
import { rank } from "../data";
import { write } from "./address";
import { visit } from "./navigation";
import type { Timeline } from "./model";
import type { Lit } from "./scene";
import type { Event } from "./wire";

export interface Found {
  text: string;
  count: number;
  total: number;
  at: number;
  error: string;
}

/** The search as names to highlight. */
export function looked(of: Timeline): Lit | null {
  const text = of.found.peek()?.text;
  if (!text) return null;
  const pattern = /^\/(.+)\/$/.exec(text);
  return pattern ? { pattern: pattern[1] } : { words: text.toLowerCase().split(/\s+/).filter(Boolean) };
}

/** Select only spans of these kinds: others are pale, and are not found. */
export function restrict(of: Timeline, kinds: string[]): void {
  of.kinds.value = kinds;
  of.recolor();
  const text = of.found.peek()?.text;
  of.found.value = null;
  if (text) void search(of, text);
  else write(of);
}

export async function search(of: Timeline, text: string, way: "count" | "next" | "prev" = "count"): Promise<void> {
  const requested = ++of.asked.search;
  const before = of.found.peek();
  if (!text.trim()) {
    of.found.value = null;
    of.light(null);
    return write(of);
  }
  const same = before?.text === text;
  of.found.value = {
    text,
    count: same ? before.count : 0,
    total: same ? before.total : 0,
    at: same ? before.at : 0,
    error: "",
  };
  of.light(looked(of));
  const now = of.selected.peek();
  const on = same && now !== null && before.at > 0;
  const more =
    way === "count"
      ? ""
      : way === "next"
        ? `&after=${Math.round(on ? now.start : of.t0 - 1)}`
        : `&before=${Math.round(on ? now.start : of.t1)}`;
  try {
    const answer = await of.json<Record<string, unknown>>(
      `timeline/search?text=${encodeURIComponent(text)}&rank=${rank() ?? 0}${of.kinds.peek().length ? `&kinds=${of.kinds.peek().join(",")}` : ""}${more}`,
    );
    if (requested !== of.asked.search) return;
    const hit = answer.found as (Event & { ordinal: number }) | null;
    const at = way === "count" || !hit ? 0 : hit.ordinal + 1;
    of.found.value = { text, count: Number(answer.count ?? 0), total: Number(answer.total_ns ?? 0), at, error: "" };
    if (way !== "count" && hit) {
      visit(of, hit);
      of.light(looked(of));
    }
  } catch (error) {
    if (requested === of.asked.search)
      of.found.value = { text, count: 0, total: 0, at: 0, error: (error as Error).message };
  }
  write(of);
}
