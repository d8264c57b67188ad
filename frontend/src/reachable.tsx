/** Links between pages: a link to a page that has nothing to show for this run is not drawn. */
import pages, { type Page } from "pages";
import type { ComponentChildren } from "preact";
import { info } from "./data";
import { source, type Info } from "./source";
import { link, type Change } from "./state";

/** What a report cannot have: other runs, a job that runs, questions. */
export const NOT_IN_REPORT = ["runs", "live", "compare", "query"];

/** Whether the run has what the page shows. */
export function filled(page: Page, now: Info): boolean {
  if (!page.needs) return true;
  return page.needs.some((need) =>
    need === "ranks" ? now.ranks.length > 1 : (now.kinds[need] ?? now.tables[need] ?? 0) > 0 || Object.keys(now.counters).some((name) => name.startsWith(need)),
  );
}

/** Whether a link to this page leads to something. */
export function hasPage(id: string): boolean {
  const page = pages.find((one) => one.id === id);
  if (!page || (source().still && NOT_IN_REPORT.includes(id))) return false;
  return page.alone || info.value === null || filled(page, info.value);
}

/** A link to a page that has data; nothing where it has none. */
export function PageLink({ to, children, ...more }: { to: Change & { page: string }; children: ComponentChildren; class?: string; title?: string }) {
  return hasPage(to.page) ? <a {...more} href={link(to)}>{children}</a> : null;
}
