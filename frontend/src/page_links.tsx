/** Links between pages: a link to a page without data for this run is not drawn. */
import pages, { type Page } from "pages";
import type { ComponentChildren } from "preact";
import { info } from "./data";
import { source, type Info } from "./source";
import type { Change } from "./place";
import { link } from "./state";

/** Pages that a report cannot have: other runs, live runs, queries. */
export const NOT_IN_REPORT = ["runs", "live", "compare", "query"];

/** Whether the run has data for the page. */
export function hasData(page: Page, now: Info): boolean {
  if (now.summary && !page.ofSummary) return false;
  if (!page.needs) return true;
  return page.needs.some((need) =>
    need === "ranks"
      ? now.ranks.length > 1
      : (now.kinds[need] ?? now.tables[need] ?? 0) > 0 ||
        Object.keys(now.counters).some((name) => name.startsWith(need)),
  );
}

/** Whether a link to this page leads to data. */
export function hasPage(id: string): boolean {
  const page = pages.find((item) => item.id === id);
  if (!page || (source().isReport && NOT_IN_REPORT.includes(id))) return false;
  return page.alone || info.value === null || hasData(page, info.value);
}

/** A link to a page that has data; else nothing. */
export function PageLink({
  to,
  children,
  ...more
}: {
  to: Change & { page: string };
  children: ComponentChildren;
  class?: string;
  title?: string;
}) {
  return hasPage(to.page) ? (
    <a {...more} href={link(to)}>
      {children}
    </a>
  ) : null;
}
