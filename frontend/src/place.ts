/** Addresses of the pages: run, page, rank, steps and selection, so that a link reproduces the view. */

export interface Place {
  /** The run in requests to the server: its id in the list and, if other steps are selected, the choice. */
  run: string | null;
  page: string;
  params: Record<string, string>;
}

/** Kept when the page changes; all other parameters belong to one page. */
const CONTEXT = ["rank", "steps", "warmup", "step_name"];

/** A place begins with #/. Anything else after # is the id of an element of the page. */
export function isPlace(hash: string): boolean {
  return hash === "" || hash === "#" || hash.startsWith("#/");
}

export function parse(hash: string): Place {
  const [path, query] = isPlace(hash) ? hash.replace(/^#\/?/, "").split("?", 2) : [""];
  const [run, page] = path.split("/").map(decode);
  const params = Object.fromEntries(new URLSearchParams(query));
  return { run: run ? withSteps(run, params.step_name) : null, page: page || (run ? "overview" : "runs"), params };
}

/** The choice follows the id in base64url, which needs no escapes in a path. */
function withSteps(run: string, choice: string | undefined): string {
  if (!choice) return run;
  const bytes = new TextEncoder().encode(choice);
  return `${run}~${btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")}`;
}

/** The id in the list, without the choice of steps. */
export function listed(run: string): string {
  return run.split("~", 1)[0];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a hash typed by hand
  }
}

export interface Change {
  run?: string | null;
  page?: string;
  params?: Record<string, string | number | null | undefined>;
}

/**
 * The address after a change of place `now`. Another run or page drops the parameters of the old page; null removes
 * one.
 */
export function linkFrom(now: Place, change: Change): string {
  const current = now.run === null ? null : listed(now.run);
  const run = change.run === undefined ? current : change.run === null ? null : listed(change.run);
  const page = change.page ?? (change.run !== undefined && run !== current && run ? "overview" : now.page);
  const moved = page !== now.page || run !== current;
  const kept = Object.entries(now.params).filter(([name]) => !moved || (run === current && CONTEXT.includes(name)));
  const params = new URLSearchParams(kept);
  for (const [name, value] of Object.entries(change.params ?? {})) {
    if (value === null || value === undefined || value === "") params.delete(name);
    else params.set(name, String(value));
  }
  params.sort();
  const query = params.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  const path = run === null ? (page === "runs" ? "" : `/${page}`) : `${encodeURIComponent(run)}/${page}`;
  return `#/${path}${query ? `?${query}` : ""}`;
}
