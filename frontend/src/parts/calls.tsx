/** The calls behind a row: durations, times, steps, shapes, kernels and call sites. */
import "./calls.css";
import { useTable } from "../data";
import type { Change } from "../place";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { Await, Empty } from "./basics";
import { Count, Share, Time } from "./quantity";
import { Delay, Dots, Slowest, Steps } from "./call_charts";
import { Grouped, Shapes } from "./call_groups";
import { Callers, type Which } from "./callers";
import { Histogram, quantile } from "./histogram";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

const text = strings("calls");

/** The most calls in one chart; the analysis has all of them. */
const MOST = 200_000;

const COLUMNS = "rank,device,number,step,span,start_ns,dur_ns,self_ns,name,type,scope,kernel,delay_ns,shapes,dtypes";

interface CallsProps {
  which: Which;
  /** Whether a call belongs to this row: same scope, same shapes. */
  keep?: (calls: Table, row: number) => boolean;
  /** Changes when `keep` does. */
  of: string;
  color: string;
  /** The figures of the row. */
  figures: { total: number; calls: number; mean: number; share: number };
  chips?: ComponentChildren;
}

/** The place of a call on the timeline, with some context. */
export function onTimeline(start: number, duration: number, span?: number): Change {
  const around = Math.max(duration * 4, 2000);
  return {
    page: "timeline",
    params: { t0: Math.max(0, Math.floor(start - around)), t1: Math.ceil(start + duration + around), span },
  };
}

export function Calls({ which, keep, of, color: shade, figures, chips }: CallsProps) {
  const t = text();
  const host = which.device === "cpu";
  const { device: _, ...anywhere } = which;
  const fetched = useTable("instances", { ...(host ? anywhere : which), limit: MOST, columns: COLUMNS });
  return (
    <>
      {chips && <div class="chips">{chips}</div>}
      <div class="figures">
        <div>
          <span class="d2 small">{t.total}</span>
          <b>
            <Time ns={figures.total} />
          </b>
        </div>
        <div>
          <span class="d2 small">{t.calls}</span>
          <b>
            <Count of={figures.calls} />
          </b>
        </div>
        <div>
          <span class="d2 small">{t.mean}</span>
          <b>
            <Time ns={figures.mean} />
          </b>
        </div>
        <div>
          <span class="d2 small">{t.share}</span>
          <b>
            <Share of={figures.share} />
          </b>
        </div>
      </div>
      <Await of={fetched} rows={8}>
        {(data) => <CallSections data={data} host={host} keep={keep} of={of} shade={shade} which={which} />}
      </Await>
    </>
  );
}

function CallSections({
  data,
  host,
  keep,
  of,
  shade,
  which,
}: {
  data: Table;
  host: boolean;
  keep: CallsProps["keep"];
  of: string;
  shade: string;
  which: Which;
}) {
  const t = text();
  const [calls, work] = useMemo(() => {
    const device = data.str("device");
    const wanted = data.pick(data.where((row) => (device[row] === "cpu") === host && (!keep || keep(data, row))));
    return [wanted, host ? data.pick(data.where((row) => device[row] !== "cpu")) : wanted];
  }, [data, of, host]);
  const times = calls.num("dur_ns");
  const sorted = useMemo(() => times.slice().sort(), [times]);
  if (!calls.rows) return <Empty title={t.none} />;
  const pieces = !host; // an operator may launch several
  const short =
    data.total > data.rows
      ? fill(t.some, { some: units.count(data.rows).value, all: units.count(data.total).value })
      : fill(pieces ? t.piecesNote : t.everyNote, { count: units.count(calls.rows).value });
  return (
    <>
      <section>
        <h3>
          {t.duration}
          <span class="sp" />
          <span class="d2 small">
            {t.p50}{" "}
            <b>
              <Time ns={quantile(sorted, 0.5)} />
            </b>{" "}
            · {t.p95}{" "}
            <b>
              <Time ns={quantile(sorted, 0.95)} />
            </b>{" "}
            · {t.max}{" "}
            <b>
              <Time ns={sorted[sorted.length - 1]} />
            </b>
          </span>
        </h3>
        <Histogram values={times} color={shade} label={t.duration} height={110} />
      </section>
      <section>
        <h3>
          {pieces ? t.pieces : t.every}
          <span class="sp" />
          <span class="d3 small">{short}</span>
        </h3>
        <Dots calls={calls} color={shade} />
      </section>
      <Steps calls={calls} />
      <section>
        <h3>{t.slowest}</h3>
        <Slowest calls={calls} />
      </section>
      {!host && !calls.blank("delay_ns") && <Delay calls={calls} />}
      <Shapes calls={calls} />
      {which.kernel === undefined ? (
        <Grouped table={work} by="kernel" title={t.kernels} one={t.kernelOne} many={t.kernelMany} page="kernels" />
      ) : (
        <Grouped table={calls} by="name" title={t.operators} one="" many="" page="operators" />
      )}
      <Callers which={which} />
    </>
  );
}
