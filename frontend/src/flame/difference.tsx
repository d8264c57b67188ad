/** The change between two runs, per step: red where this run takes longer, blue where it is shorter. */
import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { info, useFetched, useTable } from "../data";
import { Card, Empty, Legend, Loading, Trouble, Verdict } from "../parts/basics";
import { Grid } from "../parts/grid";
import { Time } from "../parts/quantity";
import { saveSvg, timeName } from "../pages/flame";
import { source, type Info } from "../source";
import { link } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { type Choices, treeParams, useShownSteps } from "./choices";
import { Selected, TipOf } from "./details";
import { FlameGraph } from "./graph";
import type { Scene } from "./paint";
import { frameKeys, useSelection } from "./selection";
import { changeTint } from "./tints";
import { Toolbar } from "./toolbar";
import { change, difference, type Difference, framesOf, leftHeavy, matches } from "./tree";

const text = strings("flame");

/** The other run: its first rank, and the steps that its pages show. */
function useOther(run: string, of: Choices) {
  const theirs = useFetched<Info>(`${run}\ninfo`, () => source().info(run));
  const rank = theirs.data?.ranks[0];
  const known = useFetched(theirs.data ? `${run}\nsteps of ${rank}` : null, () =>
    source().table(run, "tables/steps", { rank, columns: "rank,step" }),
  );
  const part = theirs.data?.part;
  const numbers = [...new Set(known.data?.num("step"))].sort((a, b) => a - b);
  const steps = part ? numbers.filter((step) => step >= part[0] && step <= part[1]) : numbers;
  const range = steps.length ? `${steps[0]}:${steps[steps.length - 1]}` : null;
  const params = { rank, steps: range, ...treeParams(of) };
  const fetched = useFetched(range ? `${run}\nflame_graph\n${JSON.stringify(params)}` : null, () =>
    source().table(run, "flame_graph", params),
  );
  return {
    info: theirs,
    steps: steps.length,
    none: known.data !== null && !steps.length,
    error: theirs.error ?? known.error ?? fetched.error,
    asked: fetched,
  };
}

export function DifferenceGraph({ of }: { of: Choices }) {
  const t = text();
  const now = info.value!;
  const mine = useShownSteps();
  const shownTree = useTable("flame_graph", { ...treeParams(of), steps: mine?.range ?? null }, { skip: !mine?.range });
  const other = useOther(of.other!, of);
  const graph = useMemo(() => {
    if (!shownTree.data || !other.asked.data || !mine) return null;
    const both = difference(framesOf(shownTree.data), mine.count, framesOf(other.asked.data), other.steps);
    return { both, layout: leftHeavy(both.frames) };
  }, [shownTree.data, other.asked.data, mine?.count, other.steps]);
  const matched = useMemo(() => graph && matches(graph.both.frames, of.find), [graph, of.find]);
  const selection = useSelection(graph?.both.frames ?? null, matched);
  const scene = useRef<Scene | null>(null);
  const error = shownTree.error ?? other.error;
  const alone = <a href={link({ params: { with: null, at: null } })}>{t.stop}</a>;
  if (error)
    return (
      <>
        <Trouble error={error} />
        <p>{alone}</p>
      </>
    );
  const without = mine && !mine.range ? now.name : other.none ? other.info.data!.name : null;
  if (without !== null)
    return (
      <Empty title={fill(t.diffNoSteps, { run: without })} height={160}>
        {alone}
      </Empty>
    );
  if (!graph || !mine || !other.info.data) return <Loading rows={14} />;
  const { both, layout } = graph;
  const { frames } = both;
  const figures = { whole: layout.whole, steps: 0, difference: both };
  const tint = (row: number) => changeTint(change(both.here[row], both.there[row]));
  const name = other.info.data.name;
  return (
    <div class="flamepage">
      <Headline
        of={of}
        both={both}
        name={name}
        facts={[
          fill(t.diffFacts, { a: now.name, countA: mine.count }),
          fill(t.diffFactsB, { b: name, countB: other.steps }),
          t.diffWidth,
          alone,
        ]}
      />
      <section class="card">
        <Toolbar
          of={of}
          matches={matched}
          whole={layout.whole}
          steps={0}
          onNext={selection.next}
          onSvg={() => saveSvg(scene.current, `${now.name} − ${name}`, frames)}
        />
        <p class="flame-legend small">
          <Legend
            of={[
              { label: t.diffLegendMore, color: changeTint(1).fill },
              { label: t.diffLegendSame, color: changeTint(0).fill },
              { label: t.diffLegendLess, color: changeTint(-1).fill },
              { label: t.diffLegendUnknown, color: changeTint(NaN).fill },
            ]}
          />
        </p>
        <FlameGraph
          frames={frames}
          layout={layout}
          label={fill(t.graphDiff, { a: now.name, b: name })}
          selected={selection.row}
          onSelect={selection.select}
          onKey={(key, row) => frameKeys(key, frames, row)}
          matches={matched}
          tint={tint}
          tooltip={(row) => <TipOf of={frames} row={row} figures={figures} tint={tint(row)} />}
          sceneOf={scene}
        />
        <p class="flame-hint d3 small">{t.hint}</p>
      </section>
      {selection.row >= 0 && <Selected of={frames} row={selection.row} figures={figures} onSelect={selection.select} />}
      <Changes of={both} />
    </div>
  );
}

function Headline({
  of,
  both,
  name,
  facts,
}: {
  of: Choices;
  both: Difference;
  name: string;
  facts: ComponentChildren[];
}) {
  const t = text();
  const sum = (values: Float64Array) =>
    values.reduce((all, value, row) => (both.frames.parent[row] < 0 && Number.isFinite(value) ? all + value : all), 0);
  const [here, there] = [sum(both.here), sum(both.there)];
  const by = here - there;
  const same = Math.abs(change(here, there)) < 0.005;
  return (
    <Verdict facts={facts}>
      <Sentence
        template={same ? t.diffSame : t.diffMost}
        change={<b>{fill(by > 0 ? t.more : t.less, { time: units.text(units.time(Math.abs(by))) })}</b>}
        what={timeName(of)}
        b={<b>{name}</b>}
        here={
          <b>
            <Time ns={here} />
          </b>
        }
        there={<Time ns={there} />}
      />
    </Verdict>
  );
}

/** Functions by the change of their self time per step. */
function Changes({ of }: { of: Difference }) {
  const t = text();
  const table = useMemo(() => sums(of), [of]);
  const by = table.num("change_ns");
  return (
    <Card title={t.largest} note={t.largestNote} flush>
      <Grid
        id="changes"
        table={table}
        columns={[
          {
            key: "name",
            label: t.name,
            as: "name",
            width: "minmax(220px, 4fr)",
            color: (table, row) => changeTint(change(table.num("here_ns")[row], table.num("there_ns")[row])).fill,
          },
          { key: "kind", label: t.kind, as: "text", width: "minmax(76px, .8fr)" },
          { key: "there_ns", label: t.there },
          { key: "here_ns", label: t.here },
          { key: "change_ns", label: t.changed },
        ]}
        search={["name", "kind"]}
        sort={by.length && Math.max(...by) >= -Math.min(...by) ? "-change_ns" : "change_ns"}
        what={t.whatDiff}
        label={t.largest}
        height={table.rows > 14 ? "440px" : undefined}
      />
    </Card>
  );
}

function sums(of: Difference): Table {
  const index = new Map<string, number>();
  const rows: { name: string; kind: string; here: number; there: number }[] = [];
  for (let row = 0; row < of.frames.count; row++) {
    const name = of.frames.name[row];
    if (name === null) continue;
    const key = `${of.frames.kind[row]}\n${name}`;
    let at = index.get(key);
    if (at === undefined) {
      index.set(key, (at = rows.length));
      rows.push({ name, kind: of.frames.kind[row], here: 0, there: 0 });
    }
    rows[at].here += of.selfHere[row];
    rows[at].there += of.selfThere[row];
  }
  const known = rows.filter(
    (row) => row.here > 0 || row.there > 0 || Number.isNaN(row.here) || Number.isNaN(row.there),
  );
  return Table.of({
    name: known.map((row) => row.name),
    kind: known.map((row) => row.kind),
    here_ns: known.map((row) => Math.round(row.here)),
    there_ns: known.map((row) => Math.round(row.there)),
    change_ns: known.map((row) => Math.round(row.here) - Math.round(row.there)),
  });
}
