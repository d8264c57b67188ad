/** The visible part of the trace in the Perfetto viewer, if a copy is installed beside the server. */
import { info, rank, useFetched } from "../data";
import { source } from "../source";
import { fill, strings } from "../strings";
import type { Timeline } from "./model";

const text = strings("perfetto");
const PATIENCE = 60_000;

export function InPerfetto({ of, close }: { of: Timeline; close: () => void }) {
  const t = text();
  const about = useFetched(
    "\nperfetto",
    async () => (await (await fetch("api/perfetto")).json()) as { installed: boolean; how?: string; version?: string },
  );
  if (!about.data) return null;
  if (!about.data.installed)
    return (
      <button class="item" disabled title={t.why}>
        {fill(t.missing, { how: about.data.how ?? "" })}
      </button>
    );
  const open = () => {
    close();
    const { t0, t1 } = of.sight.seen.peek();
    show(of, t0, t1).catch((error: Error) => (of.trouble.value = error));
  };
  return (
    <button class="item" title={about.data.version} onClick={open}>
      {t.open}
    </button>
  );
}

/** The address of a part of the trace as Chrome JSON, with the visible levels of scopes. */
export function exported(of: Timeline, t0: number | null, t1: number | null, ofRank: number | null = null): string {
  const levels = of.header.lanes.some((lane) => lane.kind === "scope") ? of.scopes.peek() : 0;
  const words = new URLSearchParams();
  if (t0 !== null && t1 !== null) {
    words.set("t0", String(Math.max(0, Math.round(t0))));
    words.set("t1", String(Math.max(Math.round(t0) + 1, Math.round(t1))));
  }
  if (levels) words.set("scopes", String(levels));
  if (ofRank !== null) words.set("rank", String(ofRank));
  return `export/chrome${words.size ? `?${words}` : ""}`;
}

async function show(of: Timeline, t0: number, t1: number): Promise<void> {
  const t = text();
  // At once, while the click counts; with a route: without one, the viewer looks for a server of its own.
  const tab = window.open("perfetto/#!/viewer?mode=embedded", "_blank");
  if (!tab) throw new Error(t.blocked);
  const [buffer] = await Promise.all([
    source()
      .raw(of.run, exported(of, t0, t1, rank()))
      .then((answer) => answer.arrayBuffer()),
    answered(tab),
  ]);
  tab.postMessage(
    { perfetto: { buffer, title: info.peek()?.name ?? of.run, fileName: "trace.json.gz" } },
    location.origin,
  );
}

/** Until the viewer answers that it is ready for a trace. */
function answered(tab: Window): Promise<void> {
  return new Promise((done, failed) => {
    const ask = setInterval(() => tab.postMessage("PING", location.origin), 100);
    const end = (then: () => void) => {
      clearInterval(ask);
      clearTimeout(late);
      window.removeEventListener("message", hear);
      then();
    };
    const hear = (event: MessageEvent) =>
      event.source === tab && event.origin === location.origin && event.data === "PONG" && end(done);
    const late = setTimeout(() => end(() => failed(new Error(text().silent))), PATIENCE);
    window.addEventListener("message", hear);
  });
}
