/** Queries that the user has started on these pages. A query that only an address contains is shown, not run. */
import { signal } from "@preact/signals";
import { parse } from "./place";
import { place } from "./state";

const approvedQueries = signal<ReadonlySet<string>>(new Set());

export function isApproved(sql: string): boolean {
  return approvedQueries.value.has(sql);
}

export function approve(sql: string): void {
  if (!approvedQueries.value.has(sql)) approvedQueries.value = new Set([...approvedQueries.value, sql]);
}

// A click on a link of these pages starts its query. The same address from elsewhere does not, nor does a link that
// only keeps the query of the address.
document.addEventListener(
  "click",
  (event) => {
    const href =
      event.isTrusted && event.target instanceof Element ? event.target.closest("a")?.getAttribute("href") : null;
    const sql = href?.startsWith("#") ? parse(href).params.sql : undefined;
    if (sql && sql !== place.value.params.sql) approve(sql);
  },
  true,
);
