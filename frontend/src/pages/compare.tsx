// page: {"order": 130, "group": "tools", "icon": "compare"}
import "./compare.css";
import { Distributions } from "../compare/distributions";
import { Figures } from "../compare/figures";
import { chosenKey, Operators } from "../compare/operators";
import { Choose, sideIds, Sides } from "../compare/sides";
import { Waterfall } from "../compare/waterfall";
import { info, rank, shownSteps, useFetched, type Fetched } from "../data";
import { Loading, Trouble, Verdict } from "../parts/basics";
import { source, type Info, type Params } from "../source";
import { param } from "../state";
import { Sentence, strings } from "../strings";
import type { Table } from "../table";
import { Message, type Row } from "../verdict";

const text = strings("compare");

export default function Compare() {
  const now = info.value!;
  const t = text();
  if (param("with")) return <Comparison now={now} />;
  return (
    <>
      <Verdict>
        <Sentence template={t.choose} a={<b>{now.name}</b>} />
      </Verdict>
      <Choose now={now} />
    </>
  );
}

/**
 * A table of the comparison, of the rank that the pages show where B has it: else a side is the mean over its
 * ranks.
 */
function useComparison(now: Info, other: Info | null, name: string, params: Params = {}): Fetched<Table> {
  const { a, b } = sideIds(now);
  const shown = rank();
  const all: Params = {
    rank: shown !== null && other?.ranks.includes(shown) ? shown : null,
    steps: param("steps") === undefined ? null : shownSteps(),
    warmup: param("steps") || param("warmup") === "keep" ? 0 : null,
    ...params,
  };
  const key = other && `${now.id}\ncompare\n${name}\n${a.join()}\n${b.join()}\n${JSON.stringify(all)}`;
  return useFetched(key, () => source().compare!(a, b, name, all));
}

function sentences(table: Table, kind: string): Row[] {
  return table
    .where((row) => table.str("kind")[row] === kind)
    .map((row) => ({
      code: table.str("code")[row] ?? "",
      values: JSON.parse(table.str("parameters")[row] ?? "{}") as Row["values"],
      severity: table.str("severity")[row],
      device: null,
      step: null,
    }));
}

function Comparison({ now }: { now: Info }) {
  const t = text();
  const by = chosenKey();
  const first = sideIds(now).b[0];
  const other = useFetched(`${first}\ninfo`, () => source().info(first));
  const verdict = useComparison(now, other.data, "verdict");
  const steps = useComparison(now, other.data, "steps");
  const waterfall = useComparison(now, other.data, "waterfall");
  const figures = useComparison(now, other.data, "figures");
  const operators = useComparison(now, other.data, "operators", { by });
  const error = other.error ?? verdict.error;
  if (error)
    return (
      <>
        <Sides now={now} />
        <Trouble error={error} />
        <Choose now={now} />
      </>
    );
  if (!verdict.data) return <Loading rows={14} what={t.comparing} />;
  const [headline, ...causes] = sentences(verdict.data, "verdict");
  const medians: [number, number] = [Number(headline.values.a ?? NaN), Number(headline.values.b ?? NaN)];
  const notices = sentences(verdict.data, "notice");
  const facts = notices.filter((row) => row.severity === null);
  const warnings = notices.filter((row) => row.severity !== null);
  return (
    <>
      <Sides now={now} />
      <Verdict
        more={causes.length > 0 && causes.map((row, at) => <Line key={at} row={row} first={at === 0} />)}
        facts={facts.map((row, at) => (
          <Message key={at} of={row} />
        ))}
      >
        <Message of={headline} />
      </Verdict>
      {warnings.length > 0 && (
        <ul class="cmp-notices" aria-label={t.notices}>
          {warnings.map((row, at) => (
            <li key={at} class={row.severity === "high" ? "bad" : ""}>
              <Message of={row} />
            </li>
          ))}
        </ul>
      )}
      <div class="cmp-pair">
        <div class="cmp-column">
          {waterfall.error && <Trouble error={waterfall.error} />}
          {waterfall.data && <Waterfall of={waterfall.data} missing={t.notExplainedHow} />}
          {steps.error && <Trouble error={steps.error} />}
          {steps.data && <Distributions now={now} steps={steps.data} medians={medians} />}
        </div>
        <div class="cmp-column">
          {figures.error && <Trouble error={figures.error} />}
          {figures.data && <Figures of={figures.data} />}
        </div>
      </div>
      <Operators of={operators} by={by} />
    </>
  );
}

function Line({ row, first }: { row: Row; first: boolean }) {
  return (
    <span>
      {!first && " "}
      <Message of={row} />
    </span>
  );
}
