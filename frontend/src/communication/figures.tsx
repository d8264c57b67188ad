/** Figures of communication. */
import { Tile, Tiles } from "../parts/basics";
import { Quantity, Share, Time } from "../parts/quantity";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { type Row, tone, waitNote } from "../verdict";

const text = strings("communication");

export function sum(values: Float64Array): number {
  let all = 0;
  for (const value of values) if (Number.isFinite(value)) all += value;
  return all;
}

/** The mean of a column over the steps of all ranks, from the rows of each rank. */
export function meanOverSteps(means: Table, column: string): number {
  const [value, steps] = [means.num(column), means.num("steps")];
  let [all, count] = [0, 0];
  for (let row = 0; row < means.rows; row++) {
    if (!Number.isFinite(value[row])) continue;
    all += value[row] * steps[row];
    count += steps[row];
  }
  return count ? all / count : NaN;
}

export function Figures({ calls, means, verdict }: { calls: Table; means: Table; verdict: Row[] }) {
  const t = text();
  const named = (code: string) => verdict.find((row) => row.code === code);
  const note = waitNote(named("communication-waits"));
  const [total, communication, exposed, wait, transit, idle] = [
    "device_ns",
    "communication_ns",
    "exposed_ns",
    "wait_ns",
    "transit_ns",
    "communication_idle_ns",
  ].map((name) => meanOverSteps(means, name));
  const ofCommunication = (part: number) => (
    <Sentence template={t.waitContext} share={<Share of={part / communication} />} />
  );
  const order = [...means.num("total_ns").keys()].sort((a, b) => means.num("total_ns")[b] - means.num("total_ns")[a]);
  const [slow, fast] = [order[0], order[order.length - 1]];
  const many = means.rows > 1;
  return (
    <Tiles label={t.tiles}>
      <Tile label={t.timeTile} context={t.timeContext}>
        <Time ns={communication} figure="communication_ns@all" />
      </Tile>
      <Tile
        label={t.exposedTile}
        context={
          Number.isFinite(exposed) && <Sentence template={t.exposedContext} share={<Share of={exposed / total} />} />
        }
        tone={tone(named("communication-exposed-time"))}
      >
        <Time ns={exposed} figure="exposed_ns@all" />
      </Tile>
      {Number.isFinite(transit) && (
        <Tile label={t.transitTile} context={ofCommunication(transit)}>
          <Time ns={transit} figure="transit_ns@all" />
        </Tile>
      )}
      <Tile label={t.waitTile} context={Number.isFinite(wait) ? ofCommunication(wait) : note}>
        <Time ns={wait} why={note} figure="wait_ns@all" />
      </Tile>
      {Number.isFinite(idle) && (
        <Tile
          label={t.idleTile}
          context={<span title={t.idleHint}>{ofCommunication(idle)}</span>}
          tone={tone(named("communication-idle-time"))}
        >
          <Time ns={idle} figure="communication_idle_ns@all" />
        </Tile>
      )}
      <Tile
        label={t.bytesTile}
        context={
          calls.blank("bytes") ? t.noBytes : fill(t.bytesContext, { calls: units.count(sum(calls.num("calls"))).value })
        }
      >
        <Quantity value={calls.blank("bytes") ? NaN : sum(calls.num("bytes"))} as="bytes" why={t.noBytes} />
      </Tile>
      {many && (
        <Tile
          label={t.slowTile}
          context={
            <Sentence
              template={t.slowContext}
              time={<Time ns={means.num("total_ns")[slow]} />}
              rank={means.num("rank")[fast]}
              fast={<Time ns={means.num("total_ns")[fast]} />}
            />
          }
          to={{ page: "steps", params: { rank: means.num("rank")[slow] } }}
        >
          {t.rank} {means.num("rank")[slow]}
        </Tile>
      )}
    </Tiles>
  );
}
