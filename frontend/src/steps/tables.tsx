/** Tables of stages and of steps. */
import { Swatch } from "../parts/basics";
import type { Column } from "../parts/grid_rows";
import { Share, Time } from "../parts/quantity";
import { TableCard } from "../parts/table_card";
import { go, link } from "../state";
import { strings } from "../strings";
import { Table } from "../table";
import { type Figures, PARTS } from "./figures";

const text = strings("steps");
/** What the overview calls these figures of the stage step. */
const FIGURES: Record<string, string> = { min_ns: "min_ns", p50_ns: "step_ns", p90_ns: "p90_ns", max_ns: "max_ns" };

/** Start and end of the stages of the step, and the figures of all steps. */
export function StageTable({ trace, of, at }: { trace: Table; of: Map<string, Figures>; at: number | null }) {
  const t = text();
  const total = at === null ? (of.get("step")?.mean_ns ?? NaN) : trace.num("total_ns")[at];
  const take = (key: string, stage: string) => (at === null ? (of.get(stage)?.mean_ns ?? NaN) : trace.num(key)[at]);
  let from = 0;
  const rows = [PARTS[2], PARTS[0], PARTS[1]]
    .filter((part) => of.has(part.stage))
    .map((part) => {
      const ns = take(part.key, part.stage);
      const row = {
        key: part.key as string,
        label: t[part.word],
        stage: part.stage,
        color: part.color,
        start: from,
        end: from + ns,
        ns,
      };
      from += ns;
      return row;
    });
  const gap = take("gap_ns", "gap");
  const all = [
    ...rows,
    { key: "total_ns", label: t.total, stage: "step", color: "", start: 0, end: total, ns: total },
    ...(of.has("gap") ? [{ key: "gap_ns", label: t.gap, stage: "gap", color: "", start: -gap, end: 0, ns: gap }] : []),
  ];
  return (
    <div class="stagetable">
      <table>
        <thead>
          <tr>
            <th>{t.stage}</th>
            <th>{t.starts}</th>
            <th>{t.ends}</th>
            <th>{at === null ? t.mean : t.takes}</th>
            <th>{t.share}</th>
            <th>{t.fastest}</th>
            <th>p50</th>
            <th>p90</th>
            <th>p99</th>
            <th>{t.slowest}</th>
          </tr>
        </thead>
        <tbody>
          {all.map((row) => {
            const figure = of.get(row.stage);
            return (
              <tr key={row.stage} class={row.stage === "step" ? "b" : ""}>
                <td>
                  {row.color && <Swatch color={row.color} />}
                  {row.label}
                </td>
                <td>
                  <Time ns={row.start} />
                </td>
                <td>
                  <Time ns={row.end} />
                </td>
                <td class="b">
                  <Time ns={row.ns} />
                </td>
                <td>
                  <Share of={row.ns / total} />
                </td>
                {(["min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"] as const).map((name) => {
                  const value = figure?.[name] ?? NaN;
                  const ofStep = row.stage === "step" ? FIGURES[name] : undefined;
                  const step = trace.num("step")[trace.num(row.key).indexOf(value)];
                  return (
                    <td key={name}>
                      {step === undefined ? (
                        <Time ns={value} figure={ofStep} />
                      ) : (
                        <a href={link({ params: { sel: step } })} aria-label={`${t.step} ${step}`}>
                          <Time ns={value} figure={ofStep} />
                        </a>
                      )}
                    </td>
                  );
                })}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

export function AllSteps({ trace, selected }: { trace: Table; selected: string | null }) {
  const t = text();
  const color = (which: 0 | 1 | 2) => () => PARTS[which].color;
  const columns: Column[] = [
    { key: "step", label: t.step, as: "count" },
    { key: "start_ns", label: t.start },
    { key: "total_ns", label: t.total, bar: true, color: () => "var(--border-strong)" },
    { key: "interval_ns", label: t.interval, bar: true, color: color(2) },
    { key: "fp_bp_ns", label: t.fpBp, bar: true, color: color(0) },
    { key: "tail_ns", label: t.tail, bar: true, color: color(1) },
    { key: "gap_ns", label: t.gap },
    { key: "fp_start_op", label: t.fpOp, as: "name", hide: true },
    { key: "bp_end_op", label: t.bpOp, as: "name", hide: true },
    { key: "clock", label: t.clockHead, as: "value", hide: true },
    { key: "how", label: t.marked, as: "value", hide: true },
    { key: "found", label: t.foundBy, as: "value", hide: true },
    {
      key: "timeline",
      label: "",
      width: "76px",
      show: (data, row) => (
        <a
          href={link({
            page: "timeline",
            params: { t0: Math.round(data.num("start_ns")[row]), t1: Math.round(data.num("end_ns")[row]) },
          })}
          onClick={(event) => event.stopPropagation()}
        >
          {t.timeline}
        </a>
      ),
    },
  ];
  return (
    <TableCard
      title={t.table}
      of={trace}
      id="steps"
      columns={columns}
      what={t.steps}
      sort="step"
      rowKey={(data, row) => data.raw("step", row)}
      selected={selected}
      onOpen={(data, row) => go({ params: { sel: data.raw("step", row) } })}
    />
  );
}
