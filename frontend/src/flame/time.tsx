/** Calls of one thread in the order of time. Zooming in fetches the calls that were too short to draw. */
import { useMemo, useRef } from "preact/hooks";
import { info, useTable } from "../data";
import { Empty, Loading, Trouble, Verdict } from "../parts/basics";
import { Time } from "../parts/quantity";
import { source } from "../source";
import { go, param } from "../state";
import { Sentence, strings } from "../strings";
import * as units from "../units";
import { absoluteTime } from "../time_range";
import { saveSvg } from "../pages/flame";
import type { Choices } from "./choices";
import { Selected, TipOf } from "./details";
import { FlameGraph } from "./graph";
import { Name } from "./name";
import type { Scene, View } from "./paint";
import { frameKeys, useSelection } from "./selection";
import { NoStacks } from "./stacks";
import { tintOf } from "./tints";
import { Toolbar } from "./toolbar";
import { framesOf, inTime, matches } from "./tree";

const text = strings("flame");

/** A view of less than this part of what is fetched gets calls of its own. */
const DETAIL = 0.34;

export function TimeGraph({ of }: { of: Choices }) {
  const t = text();
  const base = useTable("flame_chart", { track: of.track });
  const [from, to] = (param("range") ?? "").split(":").map(Number);
  const range = Number.isFinite(from) && to > from;
  const fetched = useTable(
    "flame_chart",
    { track: of.track, start_ns: range ? absoluteTime(from) : null, end_ns: range ? absoluteTime(to) : null },
    { skip: !range || source().isReport },
  );
  const whole = useMemo(() => base.data && inTime(framesOf(base.data)), [base.data]);
  const shown = range && fetched.data ? fetched.data : base.data;
  const graph = useMemo(() => {
    if (!shown) return null;
    const frames = framesOf(shown);
    return { frames, layout: inTime(frames) };
  }, [shown]);
  const matched = useMemo(() => graph && matches(graph.frames, of.find), [graph, of.find]);
  const selection = useSelection(graph?.frames ?? null, matched);
  const scene = useRef<Scene | null>(null);
  const error = base.error ?? fetched.error;
  if (error) return <Trouble error={error} />;
  if (!graph || !whole) return <Loading rows={14} />;
  const { frames, layout } = graph;
  if (!frames.count) return <Empty title={t.none} height={200} />;
  const extent = { left: whole.from, right: whole.from + (whole.whole || 1) };
  const tooltip = (row: number) => (
    <TipOf
      of={frames}
      row={row}
      figures={{ whole: whole.whole, steps: 0 }}
      tint={tintOf(frames.kind[row], frames.name[row])}
    />
  );
  const longest = frames.self.reduce((best, value, row) => (value > frames.self[best] ? row : best), 0);
  return (
    <div class="flamepage">
      <Verdict facts={[`${t.thread}: ${units.text(units.time(whole.whole))}`]}>
        <Sentence
          template={t.longestCall}
          name={<Name of={frames.name[longest] ?? t.other} />}
          time={
            <b>
              <Time ns={frames.self[longest]} />
            </b>
          }
        />
      </Verdict>
      <NoStacks />
      <section class="card">
        <Toolbar
          of={of}
          matches={matched}
          whole={whole.whole}
          steps={0}
          onNext={selection.next}
          onSvg={() => saveSvg(scene.current, info.value!.name, frames)}
        />
        <FlameGraph
          frames={frames}
          layout={layout}
          label={t.graphTime}
          selected={selection.row}
          onSelect={selection.select}
          onKey={(key, row) => frameKeys(key, frames, row)}
          onView={(view) => detail(view, range ? { left: from, right: to } : extent, extent)}
          extent={extent}
          matches={matched}
          tooltip={tooltip}
          sceneOf={scene}
          ruler
        />
        <p class="flame-hint d3 small">{fetched.waiting && range ? t.loadingDetail : t.hint}</p>
      </section>
      {selection.row >= 0 && (
        <Selected
          of={frames}
          row={selection.row}
          figures={{ whole: whole.whole, steps: 0 }}
          onSelect={selection.select}
        />
      )}
    </div>
  );
}

/** Ask for the calls of a view that is much smaller than what is fetched, or beyond it. */
function detail(view: View, fetched: View, extent: View): void {
  if (source().isReport) return;
  const room = view.right - view.left;
  const everything = room > (extent.right - extent.left) * DETAIL;
  const covered = view.left >= fetched.left && view.right <= fetched.right;
  const fine = room > (fetched.right - fetched.left) * (DETAIL / 2);
  if (everything) return go({ params: { range: null } }, true);
  if (covered && fine) return;
  const left = Math.max(extent.left, Math.floor(view.left - room));
  go({ params: { range: `${left}:${Math.ceil(Math.min(extent.right, view.right + room))}` } }, true);
}
