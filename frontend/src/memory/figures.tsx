/** Figures of memory. */
import { Tile, Tiles } from "../parts/basics";
import { Bytes } from "../parts/quantity";
import { fill, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { type Row, tone } from "../verdict";

const text = strings("memory");

export interface Peak {
  device: string;
  bytes: number;
  at: number;
  row: number;
}

/** The highest peak of each device: accelerators first, then by size. */
export function peaksByDevice(peaks: Table): Peak[] {
  const groups = new Map<string, Peak>();
  const [bytes, at, device] = [peaks.num("peak_bytes"), peaks.num("peak_ns"), peaks.str("device")];
  for (let row = 0; row < peaks.rows; row++) {
    const name = device[row] ?? "";
    const known = groups.get(name);
    if (!known || bytes[row] > known.bytes) groups.set(name, { device: name, bytes: bytes[row], at: at[row], row });
  }
  return [...groups.values()].sort(
    (a, b) => Number(a.device.startsWith("cpu")) - Number(b.device.startsWith("cpu")) || b.bytes - a.bytes,
  );
}

export interface Figures {
  device: string;
  capacity: number;
  peak: number;
  /** Whether the device is the one of the overview. */
  first: boolean;
  at: number;
  step: number;
  op: string | null;
  /** The module in which it ran. */
  scope: string | null;
  static: number;
  reserved: number;
  reservedAtPeak: number;
  /** The sum of what the steps left allocated. */
  growth: number;
  steps: number;
}

export function maximum(values: Float64Array): number {
  return values.reduce((high, value) => (Number.isNaN(high) || value > high ? value : high), NaN);
}

/** The number of samples; a curve may contain only some of them. */
export function sampleCount(curve: Table): number {
  const event = curve.num("event");
  return curve.rows ? event[curve.rows - 1] - event[0] + 1 : 0;
}

export function Overview({ of, curve, verdict }: { of: Figures; curve: Table | null; verdict: Row[] }) {
  const t = text();
  const named = (code: string) => verdict.find((row) => row.code === code);
  const unused = of.reservedAtPeak > 0 ? of.reservedAtPeak - of.peak : NaN;
  const share = (part: number) =>
    Number.isNaN(part / of.capacity)
      ? undefined
      : fill(t.ofCapacity, { share: units.text(units.share(part / of.capacity)) });
  return (
    <Tiles label={t.curve}>
      <Tile label={t.capacity} context={Number.isNaN(of.capacity) ? t.notSaid : of.device}>
        <Bytes of={of.capacity} why={t.notSaid} />
      </Tile>
      <Tile
        label={t.peak_}
        context={share(of.peak)}
        spark={curve?.num("allocated_bytes")}
        to={{ params: { at: null, tab: null } }}
      >
        <Bytes of={of.peak} figure={of.first ? "peak_memory_bytes" : undefined} />
      </Tile>
      <Tile
        label={t.free}
        context={
          Number.isNaN(of.capacity)
            ? t.notSaid
            : of.reserved > 0
              ? fill(t.afterReserved, { free: units.text(units.bytes(of.capacity - of.reserved)) })
              : t.freeNote
        }
      >
        <Bytes of={of.capacity - of.peak} why={t.notSaid} />
      </Tile>
      <Tile label={t.static} context={Number.isNaN(of.static) ? t.staticUnknown : t.staticNote}>
        <Bytes of={of.static} why={t.staticUnknown} />
      </Tile>
      <Tile label={t.reserved} context={of.reserved > 0 ? share(of.reserved) : t.notSaid}>
        <Bytes of={of.reserved > 0 ? of.reserved : NaN} why={t.notSaid} />
      </Tile>
      <Tile
        label={t.fragmentation}
        context={Number.isNaN(unused) ? t.notSaid : t.atPeak}
        tone={tone(named("memory-unused"))}
      >
        <Bytes of={unused} why={t.notSaid} />
      </Tile>
      <Tile
        label={t.growth}
        context={of.steps > 1 ? fill(t.growthNote, { count: of.steps }) : of.steps ? t.growthOne : t.growthUnknown}
        tone={tone(named("memory-grows"))}
        to={{ params: { tab: "steps" } }}
      >
        <Bytes of={of.growth} />
      </Tile>
    </Tiles>
  );
}
