/** Python call sites of an operator. */
import { info, useTable } from "../data";
import { Sentence, strings } from "../strings";
import { Table } from "../table";
import { Await, Chip, Empty } from "./basics";
import { Time } from "./quantity";

const text = strings("calls");

export interface Which {
  device?: string;
  operator?: string;
  type?: string;
  kernel?: string;
  [more: string]: string | undefined;
}

export function Callers({ which }: { which: Which }) {
  const t = text();
  const recorded = (info.value?.kinds.python ?? 0) > 0;
  const { device, operator, type, kernel } = which;
  const fetched = useTable("callers", { device, operator, type, kernel }, { skip: !recorded });
  return (
    <section>
      <h3>{t.from}</h3>
      {!recorded ? (
        <Empty title={t.noStack} height={72}>
          <Sentence template={t.stackFlag} flag={<span class="mono">--stack</span>} />
        </Empty>
      ) : (
        <Await of={fetched} rows={2}>
          {(data) =>
            data.rows === 0 ? (
              <Empty title={t.noCaller} height={56} />
            ) : (
              <ul class="parts">
                {callSites(data)
                  .slice(0, 6)
                  .map((site) => (
                    <li key={site.key} class="caller">
                      <details>
                        <summary title={site.leaf ? `${site.line}\n${site.leaf}` : site.line}>
                          <span class="mono cut">{site.line}</span>
                          {site.leaf && <span class="mono cut d3">{site.leaf}</span>}
                          {site.backward && <Chip>{t.backward}</Chip>}
                          <span class="sp" />
                          <Time ns={site.total} />
                        </summary>
                        <pre class="code" aria-label={t.stack}>
                          {site.stack}
                        </pre>
                      </details>
                    </li>
                  ))}
              </ul>
            )
          }
        </Await>
      )}
    </section>
  );
}

interface CallSite {
  key: string;
  line: string;
  /** The innermost line, if it is needed to distinguish calls from one line. */
  leaf: string | null;
  backward: boolean;
  total: number;
  /** Of the longest calls. */
  stack: string;
}

/** Call sites, each once, longest total first. */
function callSites(data: Table): CallSite[] {
  const [line, leaf, stack, total] = [data.str("line"), data.str("leaf"), data.str("stack"), data.num("total_ns")];
  const leaves = new Map<string, Set<string>>();
  for (let row = 0; row < data.rows; row++)
    leaves.set(line[row] ?? "", (leaves.get(line[row] ?? "") ?? new Set()).add(leaf[row] ?? ""));
  const groups = new Map<string, CallSite>();
  for (let row = 0; row < data.rows; row++) {
    const callLine = line[row] ?? "";
    const inner = leaves.get(callLine)!.size > 1 && leaf[row] !== callLine ? leaf[row] : null;
    const backward = data.raw("backward", row) === "true";
    const key = `${callLine}\n${inner ?? ""}\n${backward}`;
    const site = groups.get(key);
    if (site) site.total += total[row];
    else groups.set(key, { key, line: callLine, leaf: inner, backward, total: total[row], stack: stack[row] ?? "" });
  }
  return [...groups.values()].sort((a, b) => b.total - a.total);
}
