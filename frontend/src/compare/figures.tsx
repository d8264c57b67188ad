/** The figures of the overview on both sides. */
import { Card } from "../parts/basics";
import { Quantity } from "../parts/quantity";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";

const text = strings("compare");

/** Figures with a label; others have their name. */
const LABELS = {
  step_ns: "step",
  unprofiled_step_ns: "bare",
  p90_ns: "p90",
  min_ns: "min",
  max_ns: "max",
  steps: "steps",
  compute_share: "compute",
  communication_share: "communication",
  copy_share: "copy",
  idle_share: "idle",
  idle_unprofiled_share: "bareIdle",
  input_wait_share: "input",
  exposed_communication_share: "exposed",
  flops_per_s: "rate",
  utilization: "use",
  peak_memory_bytes: "peak",
} as const;
/** Of no use beside the others. */
const LEFT_OUT = ["first_step_ns", "busy_share", "input_wait_ns"];

export function Figures({ of }: { of: Table }) {
  const t = text();
  const [name, better] = [of.str("figure"), of.str("better")];
  const [a, b, change, share] = ["a", "b", "change", "change_share"].map((key) => of.num(key));
  const [low, high] = [of.num("low"), of.num("high")];
  return (
    <Card title={t.figures} note={t.figuresNote} flush>
      <table class="cmp">
        <thead>
          <tr>
            <th>{t.figure}</th>
            <th>A</th>
            <th>B</th>
            <th>{t.change}</th>
          </tr>
        </thead>
        <tbody>
          {of
            .where((row) => !LEFT_OUT.includes(name[row] ?? ""))
            .map((row) => {
              const as = units.quantityOf(name[row] ?? "");
              const noise = low[row] <= 0 && high[row] >= 0;
              return (
                <tr key={row}>
                  <td>{label(name[row] ?? "")}</td>
                  <td>
                    <Quantity value={a[row]} as={as} why={t.notRecorded} figure={name[row] ?? undefined} />
                  </td>
                  <td>
                    <Quantity value={b[row]} as={as} why={t.notRecorded} />
                  </td>
                  <td>
                    <Change by={change[row]} share={share[row]} as={as} better={better[row]} noise={noise} />
                  </td>
                </tr>
              );
            })}
        </tbody>
      </table>
    </Card>
  );
}

function label(name: string): string {
  const t = text();
  return name in LABELS ? t[LABELS[name as keyof typeof LABELS]] : name;
}

interface ChangeProps {
  by: number;
  share: number;
  as: units.Quantity;
  better: string | null;
  /** The interval over several runs contains no change. */
  noise: boolean;
}

/** ▲ 2.7 ms (2.3 %): red only if worse. Shares change by percentage points. */
function Change({ by, share, as, better, noise }: ChangeProps) {
  const t = text();
  if (!Number.isFinite(by)) return <span class="d3">{units.MISSING}</span>;
  if (by === 0) return <span class="d3">=</span>;
  const small = noise || (as === "share" ? Math.abs(by) < 0.005 : Math.abs(share) < 0.01);
  const tone = !better || small ? "d2" : by > 0 === (better === "higher") ? "good" : "bad";
  const size =
    as === "share"
      ? fill(t.points, { points: units.text(units.share(Math.abs(by))).replace(/\s*%$/, "") })
      : units.text(units.write(Math.abs(by), as));
  return (
    <span class={tone} title={units.exact(by, as)}>
      {by > 0 ? "▲" : "▼"} {size}
      {Number.isFinite(share) && ` (${units.text(units.share(Math.abs(share)))})`}
      {noise && <span class="d3"> · {t.stateNoise}</span>}
      {tone !== "d2" && <span class="sr">{tone === "good" ? t.better : t.worse}</span>}
    </span>
  );
}
