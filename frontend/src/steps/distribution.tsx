/** One stage: its share and its distribution over steps. */
import { Card, Segmented } from "../parts/basics";
import type { Value, Values } from "../messages";
import { Histogram } from "../parts/histogram";
import { Share, Time } from "../parts/quantity";
import { StepLine } from "../parts/step_line";
import { PageLink } from "../page_links";
import { go, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { type Figures, MARKS, PARTS } from "./figures";
import { useMemo } from "preact/hooks";

const text = strings("steps");

type Shared = Pick<
  Parameters<typeof StepLine>[0],
  "steps" | "leftOut" | "selected" | "hovered" | "onHover" | "onPick" | "say"
>;

/** One of the three stages: its figure, its difference to the median, and its course over the steps. */
export function Stage({
  trace,
  of,
  which,
  head,
  note,
  to,
  compared,
  ...shared
}: Shared & {
  /** Parameters of the verdict of the step: names of slower and faster stages. */
  compared: Values;
  trace: Table;
  of: Map<string, Figures>;
  which: 0 | 1 | 2;
  head: string;
  note: string;
  to: { page: string; label: string };
}) {
  const t = text();
  const part = PARTS[which];
  const stage = of.get(part.stage);
  const at = shared.selected;
  const values = trace.num(part.key);
  const now = at === null ? (stage?.mean_ns ?? NaN) : values[at];
  const p50 = stage?.p50_ns ?? NaN;
  const whole = at === null ? (of.get("step")?.mean_ns ?? NaN) : trace.num("total_ns")[at];
  const over = now - p50;
  const listed = (names: Value | undefined) =>
    String(names ?? "")
      .split(", ")
      .includes(part.stage);
  return (
    <Card
      title={head}
      note={note}
      tools={
        <PageLink class="small" to={{ page: to.page }}>
          {to.label}
        </PageLink>
      }
    >
      <div class="figure">
        <span class="f">
          <Time ns={now} />
        </span>
        {at === null ? (
          <span class="d3 small">
            <Sentence template={t.average1} p50={<Time ns={p50} />} />
          </span>
        ) : (
          <>
            {Number.isFinite(over) && (
              <span class={`small ${listed(compared.slower) ? "bad" : listed(compared.faster) ? "good" : "d3"}`}>
                {over >= 0 ? "▲" : "▼"} <Time ns={Math.abs(over)} />
              </span>
            )}
            <span class="d3 small">
              <Sentence template={t.against} p50={<Time ns={p50} />} />
            </span>
          </>
        )}
        <span class="sp" />
        <span class="d3 small">
          <Sentence template={t.ofStep} share={<Share of={now / whole} />} />
        </span>
      </div>
      <StepLine {...shared} values={values} color={part.color} median={p50} label={head} />
    </Card>
  );
}

export function Distribution({
  trace,
  of,
  at,
  leftOut,
}: {
  trace: Table;
  of: Map<string, Figures>;
  at: number | null;
  leftOut: Set<number>;
}) {
  const t = text();
  const choices = [
    { id: "total_ns", stage: "step", label: t.total },
    ...PARTS.map((part) => ({ id: part.key, stage: part.stage, label: t[part.word] })),
  ].filter((item) => of.has(item.stage));
  const chosen = choices.find((item) => item.id === param("of")) ?? choices[0];
  const values = useMemo(
    () => (chosen ? trace.num(chosen.id).filter((_, row) => !leftOut.has(row)) : new Float64Array()),
    [trace, chosen?.id, leftOut],
  );
  const cumulative = param("as") === "cumulative";
  if (!chosen) return null;
  const stage = of.get(chosen.stage)!;
  return (
    <Card
      title={t.distribution}
      note={stage.steps === 1 ? t.countedOne : fill(t.counted, { count: units.count(stage.steps).value })}
      tools={
        <>
          <Segmented
            choices={choices.map(({ id, label }) => ({ id: id as string, label }))}
            value={chosen.id as string}
            onChange={(id) => go({ params: { of: id === "total_ns" ? null : id } }, true)}
            label={t.shown}
          />
          <Segmented
            choices={[
              { id: "histogram", label: t.histogram },
              { id: "cumulative", label: t.cumulative },
            ]}
            value={cumulative ? "cumulative" : "histogram"}
            onChange={(id) => go({ params: { as: id === "histogram" ? null : id } }, true)}
            label={t.how}
          />
        </>
      }
    >
      <Histogram
        values={values}
        height={168}
        selected={at === null ? null : trace.num(chosen.id)[at]}
        marks={MARKS.map((mark) => [mark, stage[`${mark}_ns`]])}
        cumulative={cumulative}
        label={`${t.distribution}: ${chosen.label}`}
      />
    </Card>
  );
}
