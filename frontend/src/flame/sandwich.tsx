/** The sandwich view: callers of a function above, what it calls below. */
import { useMemo, useRef } from "preact/hooks";
import { info, useTable } from "../data";
import { Empty, Loading, Trouble, Verdict } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { source } from "../source";
import { go, link } from "../state";
import { fill, Sentence, strings } from "../strings";
import { saveSvg } from "../pages/flame";
import { type Choices, treeParams, useShownSteps } from "./choices";
import { type Figures, Selected, TipOf } from "./details";
import { Functions, useFunctions } from "./functions";
import { FlameGraph } from "./graph";
import { Name } from "./name";
import { labelOf, type Scene } from "./paint";
import { frameKeys, useSelection } from "./selection";
import { tintOf } from "./tints";
import { Toolbar } from "./toolbar";
import { framesOf, leftHeavy, matches, type Frames, type Matches } from "./tree";

const text = strings("flame");

export function Sandwich({ of }: { of: Choices }) {
  const t = text();
  const name = of.fn!;
  const report = source().isReport;
  const steps = useShownSteps();
  const per = of.perStep && steps?.range ? { steps: steps.range } : {};
  const params = { ...treeParams({ ...of, byThread: false }), ...per };
  const whole = useTable("flame_graph", params);
  const functions = useFunctions({ ...of, byThread: false }, per);
  const down = useTable("flame_graph", { ...params, function: name }, { skip: report });
  const up = useTable("flame_graph", { ...params, function: name, callers_of: true }, { skip: report });
  const all = useMemo(() => whole.data && framesOf(whole.data), [whole.data]);
  const callees = useMemo(() => down.data && framesOf(down.data), [down.data]);
  const callers = useMemo(() => up.data && framesOf(up.data), [up.data]);
  const matched = useMemo(() => callees && matches(callees, of.find), [callees, of.find]);
  const foundAbove = useMemo(() => callers && matches(callers, of.find), [callers, of.find]);
  const scene = useRef<Scene | null>(null);
  const selection = useSelection(callees, matched);
  const error = whole.error ?? down.error ?? up.error;
  const back = <a href={link({ params: { fn: null, at: null } })}>{t.backToGraph}</a>;
  if (error) return <Trouble error={error} />;
  if (report)
    return (
      <Empty title={t.notInReport} height={160}>
        {back}
      </Empty>
    );
  if (!all || !functions || !callees || !callers) return <Loading rows={14} />;
  const total = leftHeavy(all).whole;
  const figures: Figures = { whole: total, steps: of.perStep ? (steps?.count ?? 0) : 0 };
  if (!callees.count)
    return (
      <Empty title={fill(t.functionGone, { name })} height={160}>
        {back}
      </Empty>
    );
  return (
    <div class="flamepage">
      <Verdict facts={[back]}>
        <SandwichTitle name={name} of={callees} figures={figures} />
      </Verdict>
      <section class="card">
        <Toolbar
          of={of}
          matches={matched && foundAbove ? { ...matched, count: matched.count + foundAbove.count } : matched}
          whole={callees.total[0] || 1}
          steps={steps?.count ?? 0}
          onNext={selection.next}
          onSvg={() => saveSvg(scene.current, `${info.value!.name} ${labelOf(name)}`, callees)}
        />
        <Part title={t.callers} note={fill(t.callersNote, { name: labelOf(name) })} />
        <Half of={callers} figures={figures} found={foundAbove} label={fill(t.graphCallers, { name })} inverted />
        <Part title={t.callees} note={fill(t.calleesNote, { name: labelOf(name) })} />
        <Half
          of={callees}
          figures={figures}
          found={matched}
          label={fill(t.graphCallees, { name })}
          sceneOf={scene}
          selection={selection}
        />
        <p class="flame-hint d3 small">{t.hint}</p>
      </section>
      {selection.row >= 0 && (
        <Selected of={callees} row={selection.row} figures={figures} onSelect={selection.select} />
      )}
      <Functions of={of} all={functions} figures={figures} />
    </div>
  );
}

function Part({ title, note }: { title: string; note: string }) {
  return (
    <p class="flame-part">
      <b>{title}</b>{" "}
      <span class="d3 small cut" title={note}>
        {note}
      </span>
    </p>
  );
}

function SandwichTitle({ name, of, figures }: { name: string; of: Frames; figures: Figures }) {
  const per = figures.steps || 1;
  return (
    <Sentence
      template={text().sandwichTitle}
      name={<Name of={name} />}
      total={
        <b>
          <Time ns={of.total[0] / per} />
        </b>
      }
      share={<Share of={of.total[0] / figures.whole} />}
      self={
        <b>
          <Time ns={of.self[0] / per} />
        </b>
      }
    />
  );
}

interface HalfProps {
  of: Frames;
  figures: Figures;
  found: Matches | null;
  label: string;
  inverted?: boolean;
  sceneOf?: { current: Scene | null };
  selection?: { row: number; select: (row: number) => void };
}

function Half({ of, figures, found, label, inverted, sceneOf, selection }: HalfProps) {
  const layout = useMemo(() => leftHeavy(of), [of]);
  const tooltip = (row: number) => (
    <TipOf of={of} row={row} figures={figures} tint={tintOf(of.kind[row], of.name[row])} />
  );
  // A caller becomes the function of the view.
  const select =
    selection?.select ??
    ((row: number) => row > 0 && of.name[row] !== null && go({ params: { fn: of.name[row], at: null } }));
  return (
    <FlameGraph
      frames={of}
      layout={layout}
      label={label}
      selected={selection?.row ?? -1}
      onSelect={select}
      onKey={(key, row) => frameKeys(key, of, row)}
      matches={found}
      tooltip={tooltip}
      inverted={inverted}
      tallest={inverted ? 240 : 400}
      sceneOf={sceneOf}
    />
  );
}
