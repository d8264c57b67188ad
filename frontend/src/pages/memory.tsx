// page: {"order": 100, "group": "resources", "icon": "memory", "needs": ["allocations", "allocated", "reserved"]}
import "./memory.css";
import { info, useTable } from "../data";
import { Categories } from "../memory/categories";
import { Curve, PIXELS } from "../memory/curve";
import { Details } from "../memory/details";
import { sampleCount, type Figures, peaksByDevice, maximum, Overview, type Peak } from "../memory/figures";
import { Await, Card, Chip, Empty, Segmented, Verdict } from "../parts/basics";
import { Time } from "../parts/quantity";
import { absoluteTime, selectRange, selectedRange, stepBands } from "../time_range";
import { source } from "../source";
import { go, link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { type Row, useVerdict, VerdictOf } from "../verdict";
import { useMemo } from "preact/hooks";

const text = strings("memory");

/** Memory is that of an NPU, whichever of its processors is listed. */
const MEMORY_OF: Record<string, string> = { aicore: "npu", aicpu: "npu" };

export default function Memory() {
  const t = text();
  const peaks = useTable("memory_peaks");
  const verdict = useVerdict("memory");
  const blocks = info.value!.tables.allocations ?? 0;
  const devices = useMemo(() => (peaks.data ? peaksByDevice(peaks.data) : []), [peaks.data]);
  if (peaks.error || !peaks.data)
    return (
      <>
        <Verdict>{t.curve}</Verdict>
        <Await of={peaks} rows={12}>
          {() => null}
        </Await>
      </>
    );
  if (!devices.length) {
    return (
      <>
        <VerdictOf of={verdict.data} />
        <Card title={t.curve}>
          <Empty title={t.none} height={220}>
            <Sentence
              template={t.how}
              flag={<code class="mono">stepscope run --memory train.py</code>}
              python={<code class="mono">Profiler(profile_memory=True)</code>}
              torch={<code class="mono">profile_memory=True</code>}
            />
          </Empty>
        </Card>
      </>
    );
  }
  const device = devices.find((item) => item.device === param("device")) ?? devices[0];
  const rows = verdict.data && verdict.data.filter((row) => row.device === device.device);
  return (
    <OfDevice key={device.device} devices={devices} device={device} peaks={peaks.data} blocks={blocks} verdict={rows} />
  );
}

interface OfDeviceProps {
  devices: Peak[];
  device: Peak;
  peaks: Table;
  blocks: number;
  verdict: Row[] | null;
}

function OfDevice({ devices, device, peaks, blocks, verdict }: OfDeviceProps) {
  const t = text();
  const order = param("axis") === "order";
  const layered = param("axis") === "category" && blocks > 0 && !source().isReport;
  const range = selectedRange();
  const about = { device: device.device, pixels: PIXELS, by_event: order };
  const whole = useTable("memory", about);
  const part = useTable(
    "memory",
    { ...about, start_ns: range && absoluteTime(range[0]), end_ns: range && absoluteTime(range[1]) },
    { skip: range === null },
  );
  const trace = useTable("step_trace");
  const requested = param("at");
  const moment = requested !== undefined && Number.isFinite(Number(requested)) ? Number(requested) : device.at;
  const alive = useTable(
    "live_tensors",
    { device: device.device, at_ns: absoluteTime(moment) },
    { skip: blocks === 0 },
  );
  const mine = useMemo(
    () => peaks.pick(peaks.where((row) => peaks.str("device")[row] === device.device)),
    [peaks, device.device],
  );
  const chip = info.value!.devices.find(
    (item) => `${MEMORY_OF[item.kind] ?? item.kind} ${item.device}` === device.device,
  );
  const capacity = Number(chip?.memory_bytes ?? NaN) || NaN;
  const atPeak = useMemo(
    () =>
      whole.data ? whole.data.where((row) => whole.data!.num("allocated_bytes")[row] === device.bytes)[0] : undefined,
    [whole.data],
  );
  const value = (name: string) => (atPeak === undefined ? NaN : whole.data!.num(name)[atPeak]);
  const left = mine.num("growth_bytes").filter((value) => !Number.isNaN(value));
  const figures: Figures = {
    device: device.device,
    capacity,
    peak: device.bytes,
    first: device === devices[0],
    at: device.at,
    step: mine.num("step")[mine.num("peak_bytes").indexOf(device.bytes)],
    op: mine.str("op")[mine.num("peak_bytes").indexOf(device.bytes)],
    scope: mine.str("scope")[mine.num("peak_bytes").indexOf(device.bytes)],
    static: value("static_bytes"),
    reserved: maximum(mine.num("reserved_bytes")),
    reservedAtPeak: value("reserved_bytes"),
    growth: left.reduce((sum, value) => sum + value, left.length ? 0 : NaN),
    steps: left.length,
  };
  const shown = range ? (part.data ?? whole.data) : whole.data;
  const bands = useMemo(() => stepBands(trace.data), [trace.data]);
  return (
    <>
      <VerdictOf
        of={verdict}
        facts={[
          chip?.name,
          whole.data && fill(t.moments, { count: units.count(sampleCount(whole.data)).value }),
          blocks > 0 && fill(t.blocks, { count: units.count(blocks).value }),
          bands.length > 0 &&
            (bands.length === 1 ? t.stepOne : fill(t.steps, { count: units.count(bands.length).value })),
          range && fill(t.range, { from: units.text(units.time(range[0])), to: units.text(units.time(range[1])) }),
        ]}
      />
      <Overview of={figures} curve={whole.data} verdict={verdict ?? []} />
      <Card
        title={order ? t.curveOrder : t.curve}
        note={shown && (sampleCount(shown) > shown.rows ? t.everyPixel : t.all)}
        tools={
          <>
            {range ? (
              <>
                <a
                  class="small"
                  href={link({ page: "timeline", params: { t0: Math.round(range[0]), t1: Math.round(range[1]) } })}
                >
                  {t.timeline}
                </a>
                <Chip tone="acc" onRemove={() => selectRange(null)} title={t.reset}>
                  <Time ns={range[0]} /> – <Time ns={range[1]} />
                </Chip>
              </>
            ) : (
              <span class="d3 small wide">{t.zoom}</span>
            )}
            {devices.length > 1 && (
              <Segmented
                label={t.device}
                value={device.device}
                onChange={(id) => go({ params: { device: id === devices[0].device ? null : id, at: null } })}
                choices={devices.map((item) => ({ id: item.device, label: item.device }))}
              />
            )}
            <Segmented
              label={t.axis}
              value={order ? "order" : layered ? "category" : "time"}
              onChange={(id) => go({ params: { axis: id === "time" ? null : id } }, true)}
              choices={[
                { id: "time", label: t.byTime },
                { id: "category", label: t.byUse, off: blocks === 0 || source().isReport },
                { id: "order", label: t.byOrder },
              ]}
            />
          </>
        }
      >
        {layered ? (
          <Categories
            device={device.device}
            range={range}
            whole={whole.data?.rows ? [whole.data.num("at_ns")[0], whole.data.num("at_ns")[whole.data.rows - 1]] : null}
            bands={bands}
            moment={moment}
            pixels={PIXELS}
          />
        ) : (
          <Await of={range && part.data ? part : whole} rows={8}>
            {() => (
              <Curve
                shown={shown!}
                whole={whole.data ?? shown!}
                order={order}
                range={range}
                bands={bands}
                trace={trace.data}
                capacity={capacity}
                moment={moment}
              />
            )}
          </Await>
        )}
      </Card>
      <Details
        device={device}
        moment={moment}
        alive={alive}
        peaks={mine}
        blocks={blocks}
        shown={shown}
        figures={figures}
      />
    </>
  );
}
