/** The main figures, each with a link to its page. */
import { rank, useTable } from "../data";
import { onDevice } from "../device";
import { overheadOf } from "../overhead";
import { Bytes, Quantity, Share, Time } from "../parts/quantity";
import { Tile, Tiles } from "../parts/basics";
import type { Info } from "../source";
import type { Table } from "../table";
import { fill, Sentence, strings, valueText } from "../strings";
import * as units from "../units";
import { type Row, tone } from "../verdict";

const text = strings("overview");

/** Samples in a batch, if recorded: Profiler.add_metadata("batch_size", "8"). */
function batch(now: Info): number {
  const metadata = now.extra.metadata as Record<string, unknown> | undefined;
  const size = Number(metadata?.batch_size);
  return size > 0 ? size : NaN;
}

export function FigureTiles({
  now,
  overview,
  overlap,
  verdict,
}: {
  now: Info;
  overview: Table;
  overlap: Table | null;
  verdict: Row[];
}) {
  const t = text();
  const value = (name: string) => overview.num(name)[0];
  const device = onDevice(now);
  const flops = useTable(
    "flops",
    { columns: "rank,peak_source", limit: 1 },
    { skip: !Number.isFinite(value("flops_per_s")) },
  );
  const totals = overlap?.num("total_ns");
  const [times, computing] = [overlap?.num("device_ns"), overlap?.num("computing_ns")];
  const computes =
    times && computing && Array.from(times, (time, row) => computing[row] / time).filter(Number.isFinite);
  const noWork = overview.str("device_data")[0] === "none" ? t.deviceNotRecorded : t.noWork;
  const step = value("step_ns");
  const rate = 1e9 / step;
  const samples = batch(now);
  const chip = overview.str("device")[0];
  const used = units.text(units.flopsRate(value("flops_per_s")));
  const source = valueText(flops.data?.str("peak_source")[0]);
  const useWhy = Number.isFinite(value("utilization"))
    ? fill(t.ofPeak, { rate: used, source: source || "…" })
    : Number.isFinite(value("flops_per_s"))
      ? chip
        ? fill(t.noPeak, { rate: used, chip })
        : fill(t.noChip, { rate: used })
      : overview.str("device_data")[0] === "none"
        ? t.deviceNotRecorded
        : (now.kinds.op ?? 0) > 0 && !now.options.record_shapes
          ? t.noShapes
          : t.noFlops;
  const waits = Number.isFinite(value("input_wait_share"));
  const transfers = (now.kinds.communication ?? 0) > 0;
  const capacity = Math.max(
    ...now.devices.filter((item) => item.rank === rank()).map((item) => Number(item.memory_bytes) || 0),
    0,
  );
  const first = value("first_step_ns");
  const over = device ? overheadOf(overview, 0) : null;
  const whole = overview.str("steps_how")[0] === "whole";
  const part = (share: number) => units.text(units.share(share));
  const shares = { communication: "communication_share", copy: "copy_share", idle: "idle_share" };
  const template = Number.isFinite(value("copy_share")) ? t.split : t.splitNoCopies;
  const parts = Object.entries(shares);
  const split = fill(template, Object.fromEntries(parts.map(([name, key]) => [name, part(value(key))])));
  const splitShares = Object.fromEntries(parts.map(([name, key]) => [name, <Share of={value(key)} figure={key} />]));
  const named = (code: RegExp) => verdict.find((row) => code.test(row.code));
  const [idle, exposed] = [named(/^(device-idle|idle-cause)/), named(/^(device|host)-exposed-communication/)];
  const input = named(/^input-(ready|wait)/);
  return (
    <Tiles label={t.figures}>
      <Tile
        label={t.stepTime}
        spark={totals}
        to={{ page: "steps" }}
        context={
          value("steps") > 1 ? (
            <span title={fill(t.firstStep, { time: units.text(units.time(first)) })}>
              {over ? (
                <Sentence template={t.bareStep} value={<Time ns={over.bare} />} />
              ) : (
                <>
                  <Time ns={value("min_ns")} figure="min_ns" /> – <Time ns={value("max_ns")} figure="max_ns" />
                </>
              )}
            </span>
          ) : undefined
        }
      >
        <Time ns={step} figure="step_ns" />
      </Tile>
      <Tile
        label={t.throughput}
        spark={totals && Array.from(totals, (total) => 1 / total)}
        to={{ page: "steps" }}
        context={
          whole
            ? t.noMarks
            : Number.isFinite(samples)
              ? fill(t.samples, { rate: units.text(units.short(rate * samples)) })
              : t.noBatch
        }
      >
        {whole ? (
          <Quantity value={NaN} as="count" why={t.noMarks} />
        ) : (
          <span class="q" title={`${rate}`}>
            {units.short(rate).value}
            <span class="u">
              {units.THIN}
              {units.short(rate).unit} {t.perStep}
            </span>
          </span>
        )}
      </Tile>
      <Tile
        label={device ? t.compute_ : t.busyHost}
        spark={computes}
        to={{ page: device ? "kernels" : "operators" }}
        tone={device && tone(idle) === "bad" ? "bad" : undefined}
        context={
          !Number.isFinite(value("compute_share")) ? (
            noWork
          ) : over ? (
            <span title={split}>
              {fill(t.bareIdle, { value: part(over.left), low: part(over.low), high: part(over.high) })}
            </span>
          ) : device ? (
            <span title={split}>
              <Sentence template={template} {...splitShares} />
            </span>
          ) : (
            fill(t.idleHost, { time: part(1 - value("compute_share")) })
          )
        }
      >
        <Share of={value("compute_share")} why={noWork} figure="compute_share" />
      </Tile>
      <Tile
        label={t.use}
        to={Number.isFinite(value("flops_per_s")) ? { page: "flops" } : undefined}
        context={<span title={useWhy}>{useWhy}</span>}
      >
        <Share of={value("utilization")} why={useWhy} figure="utilization" />
      </Tile>
      <Tile
        label={t.inputWait}
        to={{ page: "data" }}
        tone={waits && input ? (tone(input) === "good" ? "good" : "bad") : undefined}
        context={!waits ? t.noLoader : tone(input) === "good" ? t.notBottleneck : t.bottleneck}
      >
        <Share of={waits ? value("input_wait_share") : NaN} why={t.noLoader} figure="input_wait_share" />
      </Tile>
      <Tile
        label={t.exposed}
        to={{ page: "communication" }}
        tone={transfers && exposed ? "bad" : undefined}
        context={
          transfers
            ? Number.isFinite(value("exposed_communication_share"))
              ? t.hidden
              : noWork
            : (now.world_size ?? now.ranks.length) > 1
              ? t.noTransfers
              : t.oneRank
        }
      >
        <Share
          of={transfers ? value("exposed_communication_share") : NaN}
          why={transfers ? noWork : t.noTransfers}
          figure="exposed_communication_share"
        />
      </Tile>
      <Tile
        label={t.peak}
        to={{ page: "memory" }}
        context={
          !Number.isFinite(value("peak_memory_bytes"))
            ? t.noMemory
            : capacity > 0 && device
              ? fill(t.ofMemory, {
                  share: units.text(units.share(value("peak_memory_bytes") / capacity)),
                  all: units.text(units.bytes(capacity)),
                })
              : undefined
        }
      >
        <Bytes of={value("peak_memory_bytes")} why={t.noMemory} figure="peak_memory_bytes" />
      </Tile>
    </Tiles>
  );
}
