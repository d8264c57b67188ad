/** Queries that the user has asked for on these pages. One that only an address holds, whoever wrote it, is shown and not run. */
import { signal } from "@preact/signals";
import { parse, place } from "./state";

const approved = signal<ReadonlySet<string>>(new Set());

export function isApproved(sql: string): boolean {
  return approved.value.has(sql);
}

export function approve(sql: string): void {
  if (!approved.value.has(sql)) approved.value = new Set([...approved.value, sql]);
}

// A click on a link of these pages asks for its query; the same address from elsewhere does not, nor a link that only keeps the query
// of the address.
document.addEventListener("click", (event) => {
  const href = event.isTrusted && event.target instanceof Element ? event.target.closest("a")?.getAttribute("href") : null;
  const sql = href?.startsWith("#") ? parse(href).params.sql : undefined;
  if (sql && sql !== place.value.params.sql) approve(sql);
}, true);
