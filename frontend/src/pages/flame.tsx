// page: {"order": 44, "group": "performance", "icon": "flame", "needs": ["python", "annotation", "scope", "op", "api", "kernel"]}
/** Flame graphs: host and device time by call path, in two orders, as a sandwich, and as the difference of two runs. */
import "./flame.css";
import { useMemo, useRef } from "preact/hooks";
import { choices, treeParams, useShownSteps, type Choices } from "../flame/choices";
import { Selected, TipOf } from "../flame/details";
import { DifferenceGraph } from "../flame/difference";
import { Functions, useFunctions } from "../flame/functions";
import { FlameGraph } from "../flame/graph";
import { svg, type Scene } from "../flame/paint";
import { Name } from "../flame/name";
import { Sandwich } from "../flame/sandwich";
import { NoStacks } from "../flame/stacks";
import { TimeGraph } from "../flame/time";
import { tintOf } from "../flame/tints";
import { Toolbar } from "../flame/toolbar";
import { frameKeys, useSelection } from "../flame/selection";
import { framesOf, leftHeavy, matches, type Frames } from "../flame/tree";
import { info, useTable } from "../data";
import { deviceWord, onDevice } from "../device";
import { Empty, Loading, Trouble, Verdict } from "../parts/basics";
import { Share } from "../parts/quantity";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";

const text = strings("flame");

export default function Flame() {
  const of = choices();
  if (of.other) return <DifferenceGraph of={of} />;
  if (of.fn !== null) return <Sandwich of={of} />;
  return of.inTime ? <TimeGraph of={of} /> : <Tree of={of} />;
}

function Tree({ of }: { of: Choices }) {
  const t = text();
  const steps = useShownSteps();
  const per = of.perStep && steps?.range ? { steps: steps.range } : {};
  const fetched = useTable("flame_graph", { ...treeParams(of), ...per });
  const functions = useFunctions(of, per);
  const graph = useMemo(() => {
    if (!fetched.data) return null;
    const frames = framesOf(fetched.data);
    return { frames, layout: leftHeavy(frames) };
  }, [fetched.data]);
  const matched = useMemo(() => graph && matches(graph.frames, of.find), [graph, of.find]);
  const selection = useSelection(graph?.frames ?? null, matched);
  const scene = useRef<Scene | null>(null);
  if (fetched.error) return <Trouble error={fetched.error} />;
  if (!graph || !functions) return <Loading rows={14} />;
  const { frames, layout } = graph;
  if (!frames.count)
    return (
      <>
        <Verdict>{t.none}</Verdict>
        <Empty title={t.none} height={200}>
          <Sentence template={t.noneHow} flag={<span class="mono">stepscope run --stack train.py</span>} />
        </Empty>
      </>
    );
  const figures = { whole: layout.whole, steps: of.perStep ? (steps?.count ?? 0) : 0 };
  const tooltip = (row: number) => (
    <TipOf of={frames} row={row} figures={figures} tint={tintOf(frames.kind[row], frames.name[row])} />
  );
  return (
    <div class={`flamepage ${fetched.waiting ? "stale" : ""}`}>
      <Headline of={of} frames={frames} functions={functions} whole={layout.whole} steps={figures.steps} />
      <NoStacks />
      <section class="card">
        <Toolbar
          of={of}
          matches={matched}
          whole={layout.whole}
          steps={steps?.count ?? 0}
          onNext={selection.next}
          onSvg={() => saveSvg(scene.current, info.value!.name, frames)}
        />
        <FlameGraph
          frames={frames}
          layout={layout}
          label={t.graphHeavy}
          selected={selection.row}
          onSelect={selection.select}
          onKey={(key, row) => frameKeys(key, frames, row)}
          matches={matched}
          tooltip={tooltip}
          sceneOf={scene}
        />
        <p class="flame-hint d3 small">{t.hint}</p>
      </section>
      {selection.row >= 0 && <Selected of={frames} row={selection.row} figures={figures} onSelect={selection.select} />}
      <Functions of={of} all={functions} figures={figures} />
    </div>
  );
}

/** The function with the most self time. */
function Headline({
  of,
  frames,
  functions,
  whole,
  steps,
}: {
  of: Choices;
  frames: Frames;
  functions: Table;
  whole: number;
  steps: number;
}) {
  const t = text();
  const time = units.text(units.time(whole / (steps || 1)));
  return (
    <Verdict
      facts={[
        steps ? fill(t.perStepTotal, { time, count: steps }) : fill(t.total, { time }),
        fill(t.frameCount, { count: units.count(frames.count).value }),
      ]}
    >
      <Sentence
        template={t.most}
        share={
          <b>
            <Share of={functions.num("self_share")[0]} />
          </b>
        }
        what={timeName(of)}
        name={<Name of={functions.str("name")[0] ?? ""} />}
      />
    </Verdict>
  );
}

/** What the graph measures, inside a sentence. */
export function timeName({ by }: Choices): string {
  const t = text();
  const now = info.value!;
  if (by === "host") return t.hostTime;
  return onDevice(now) ? fill(t.deviceTime, { device: deviceWord(now) ?? t.device }) : t.moduleTime;
}

/** Download the frames in view. */
export function saveSvg(scene: Scene | null, name: string, frames: Frames): void {
  if (!scene) return;
  const tooltip = (row: number) =>
    `${frames.name[row] ?? text().other}\n${units.text(units.time(frames.total[row]))} (${units.text(units.share(frames.total[row] / scene.layout.whole))})`;
  const file = new Blob([svg(scene, name, tooltip)], { type: "image/svg+xml" });
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(file);
  anchor.download = `${name.replace(/[^\w.-]+/g, "_")}.flame.svg`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}
