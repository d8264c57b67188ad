// page: {"order": 90, "group": "resources", "icon": "cpu", "needs": ["cpu", "process"]}
import { Charts } from "../cpu/charts";
import { Usage } from "../cpu/usage";
import { info, useTable } from "../data";
import { Await, Card, Empty, Verdict } from "../parts/basics";
import type { Range } from "../parts/series_marks";
import { absoluteTime, selectedRange, stepBands } from "../time_range";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { Message, useVerdict } from "../verdict";
import { useMemo } from "preact/hooks";

const text = strings("cpu");

export default function Cpu() {
  const t = text();
  const run = info.value!;
  const samples = useTable("cpu");
  const range = selectedRange();
  const ends = range ? { start_ns: absoluteTime(range[0]), end_ns: absoluteTime(range[1]) } : {};
  const use = useTable("cpu_use", ends);
  const whole = useTable("cpu_use");
  const verdict = useVerdict("host", ends);
  const steps = useTable("tables/steps", { columns: "step,start_ns,end_ns" });
  const bands = useMemo(() => stepBands(steps.data), [steps.data]);
  if (samples.data?.rows === 0) {
    return (
      <>
        <Verdict>{t.none}</Verdict>
        <Card title={t.machine}>
          <Empty title={t.none} height={220}>
            <Sentence
              template={t.how}
              run={<code class="mono">stepscope run train.py</code>}
              python={<code class="mono">Profiler(host_interval_ms=100)</code>}
              data={<code class="mono">--data</code>}
            />
          </Empty>
        </Card>
      </>
    );
  }
  return (
    <>
      <Verdict facts={facts(use.data, run.state === "live", range)}>
        {verdict.data?.length ? <Message of={verdict.data[0]} /> : verdict.data ? t.machine : "…"}
      </Verdict>
      <Await of={samples} rows={12}>
        {(table) => (
          <Charts
            table={table}
            use={whole.data}
            brief={verdict.data?.[0]?.code === "cpu-too-short"}
            bands={bands}
            range={range}
          />
        )}
      </Await>
      <Usage use={use} samples={samples} range={range} />
    </>
  );
}

function facts(use: Table | null, _live: boolean, range: Range | null) {
  const t = text();
  if (!use) return [];
  const of = use.str("of");
  const machine = of.indexOf("machine");
  const workers = use.where((row) => use.str("name")[row]?.startsWith("data worker") ?? false).length;
  const time = (ns: number) => units.text(units.time(ns));
  return [
    machine >= 0 &&
      fill(use.num("samples")[machine] === 1 ? t.sample : t.samples, {
        count: units.count(use.num("samples")[machine]).value,
      }),
    machine >= 0 && fill(t.covered, { time: time(use.num("covered_ns")[machine]) }),
    workers > 0 && fill(t.workers, { count: workers }),
    range && fill(t.range, { from: time(range[0]), to: time(range[1]) }),
  ];
}
