/** A recording as it grows. */
import { Card, Chip, Empty, Loading, Spark, Tile, Tiles, Verdict } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Count, Time } from "../parts/quantity";
import { Series } from "../parts/series";
import { framework } from "../shell/framework";
import { link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { type Counter, Recording } from "./recording";
import { quantity, snapshot } from "./snapshot";
import { useMemo } from "preact/hooks";

const text = strings("live");

type Words = ReturnType<typeof text>;

interface ShownProps {
  t: Words;
  run: string;
  now: Recording;
  version: number;
  paused: boolean;
  pending: number;
  over: boolean;
  toggle: () => void;
}

export function LiveRun({ t, run, now, version, paused, pending, over, toggle }: ShownProps) {
  const ranks = [...now.ranks.values()].sort((a, b) => a.rank - b.rank);
  const asked = Number(param("rank") ?? NaN);
  const rank = now.ranks.get(asked) ?? ranks[0];
  // A snapshot: it does not change while the page is paused.
  const seen = useMemo(() => (rank ? snapshot(rank, ranks, now) : null), [version, rank?.rank]);
  const button = over ? null : (
    <button class="btn sm" aria-pressed={paused} onClick={toggle}>
      {paused ? t.go : t.pause}
    </button>
  );
  const state = over ? (
    <Chip>
      <i class="live-dot off" />
      {t.over}
    </Chip>
  ) : paused ? (
    <Chip tone="warn">{fill(t.paused, { count: pending })}</Chip>
  ) : (
    <Chip tone="good">
      <i class="live-dot on" />
      {t.live}
    </Chip>
  );
  if (!rank || !seen)
    return (
      <>
        <Verdict>{t.waiting}</Verdict>
        <p>
          {state} {button}
        </p>
        <Loading rows={6} />
      </>
    );
  const { steps, last, median, pace, recent } = seen;
  const facts = [
    state,
    button,
    rank.program,
    framework(rank),
    ranks.length > 1 || rank.world ? fill(t.rank, { rank: rank.rank, world: rank.world ?? ranks.length }) : null,
    rank.pid !== null && fill(t.pid, { pid: rank.pid }),
    !over && t.written,
  ];
  return (
    <>
      <Verdict facts={facts}>
        {over ? (
          <>
            {steps ? (
              <Sentence
                template={t.endedSteps}
                count={
                  <b>
                    <Count of={steps} />
                  </b>
                }
              />
            ) : (
              t.ended
            )}{" "}
            <a href={link({ run, page: "overview" })}>{t.open}</a>
          </>
        ) : last >= 0 ? (
          <Sentence
            template={t.step}
            step={<b>{seen.step[last]}</b>}
            last={
              <b>
                <Time ns={seen.dur[last]} />
              </b>
            }
            count={<b>{recent}</b>}
            median={
              <b>
                <Time ns={median} />
              </b>
            }
          />
        ) : (
          <Sentence
            template={t.begun}
            time={
              <b>
                <Time ns={seen.now} />
              </b>
            }
          />
        )}
      </Verdict>
      <Tiles label={t.figures}>
        <Tile label={t.lastStep}>{last >= 0 ? seen.step[last] : units.MISSING}</Tile>
        <Tile label={t.lastTime} spark={seen.dur.slice(-60)}>
          <Time ns={last >= 0 ? seen.dur[last] : NaN} why={t.noSteps} />
        </Tile>
        <Tile label={t.median} context={fill(t.recent, { count: recent })}>
          <Time ns={median} why={t.noSteps} />
        </Tile>
        <Tile label={t.rate} context={fill(t.recent, { count: recent })}>
          <span title={String(pace)}>
            {units.count(pace).value}
            <span class="u">
              {units.THIN}
              {t.perSecond}
            </span>
          </span>
        </Tile>
        <Tile
          label={t.steps}
          context={seen.before ? fill(t.leftOut, { count: units.count(seen.before).value }) : undefined}
        >
          <Count of={steps} />
        </Tile>
        <Tile label={t.since}>
          <Time ns={seen.now} />
        </Tile>
        <Tile label={t.samples} context={fill(t.counted, { count: units.count(seen.samples).value })}>
          <Count of={seen.counters.length} />
        </Tile>
      </Tiles>
      <Card title={t.stepTime} note={t.stepNote}>
        {last >= 1 ? (
          <Series
            group={`live-${run}`}
            x={seen.x}
            lines={seen.lines}
            as="time"
            height={170}
            levels={[{ at: median, label: units.text(units.time(median)) }]}
            label={t.stepTime}
          />
        ) : (
          <Empty title={t.noSteps}>{t.noStepsHow}</Empty>
        )}
      </Card>
      {seen.notices.length > 0 && (
        <Card title={t.notices}>
          <ul class="live-notes">
            {seen.notices.map((notice) => (
              <li key={notice}>{notice}</li>
            ))}
          </ul>
        </Card>
      )}
      <div class="live-charts">
        {seen.charts.map((chart) => (
          <Card key={chart.key} title={t[chart.title]} note={chart.lines.map((line) => line.label).join(", ")}>
            <Series
              group={`live-${run}`}
              x={chart.x}
              lines={chart.lines}
              as={chart.as}
              height={120}
              label={t[chart.title]}
            />
          </Card>
        ))}
      </div>
      <Counters t={t} counters={seen.counters} />
    </>
  );
}

function Counters({ t, counters }: { t: Words; counters: Counter[] }) {
  const table = useMemo(
    () =>
      Table.of({
        name: counters.map((one) => one.name),
        now: counters.map((one) => one.value.at(-1) ?? NaN),
        low: counters.map((one) => Math.min(...one.value.filter(Number.isFinite))),
        high: counters.map((one) => Math.max(...one.value.filter(Number.isFinite))),
        unit: counters.map((one) => one.unit),
        count: counters.map((one) => one.seen),
        at: counters.map((_, at) => at),
      }),
    [counters],
  );
  const value = (key: string) => (of: Table, row: number) => {
    const as = quantity(of.str("unit")[row] ?? "");
    return <span title={units.exact(of.num(key)[row], as)}>{units.text(units.write(of.num(key)[row], as))}</span>;
  };
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name" },
    {
      key: "at",
      label: t.trend,
      width: "96px",
      show: (of, row) => <Spark values={counters[of.num("at")[row]].value.slice(-120)} width={80} />,
    },
    { key: "now", label: t.now, show: value("now") },
    { key: "low", label: t.low, show: value("low") },
    { key: "high", label: t.high, show: value("high") },
    { key: "unit", label: t.unit, as: "text", width: "90px" },
    { key: "count", label: t.count, width: "90px" },
  ];
  return (
    <Card title={t.counters} flush>
      {counters.length ? (
        <Grid
          id="counters"
          table={table}
          columns={columns}
          search={["name", "unit"]}
          sort="name"
          what={t.what}
          label={t.counters}
        />
      ) : (
        <Empty title={t.noCounters} height={60} />
      )}
    </Card>
  );
}
