/** Waits and queues, step by step. */
import { useMemo, useState } from "preact/hooks";
import { type Fetched, info, useTable } from "../data";
import { Card, Chip, Empty, Legend } from "../parts/basics";
import { Time } from "../parts/quantity";
import { type Column } from "../parts/grid_rows";
import { type Part } from "../parts/step_axis";
import { StepBars } from "../parts/step_bars";
import { TableCard } from "../parts/table_card";
import { go, link, param } from "../state";
import { Table } from "../table";
import { fill, messages, strings } from "../strings";
import * as units from "../units";
import type { InputTables } from "./tables";
import { VerdictChip } from "./verdict_chip";
import { Message, type Row, tone } from "../verdict";

const text = strings("data");

/** Waits and queues, step by step. */
export function StepGap({ waits, trace, queues, whole, median, verdict, detail }: InputTables & { detail: boolean }) {
  const t = text();
  const framework = info.value?.framework;
  const launch = useTable("queues", {}, { skip: !detail || !info.value?.kinds.kernel });
  const steps = trace.num("step");
  const total = trace.num("total_ns");
  const wanted = param("step");
  const result = wanted === undefined ? -1 : steps.indexOf(Number(wanted));
  const at = result < 0 ? null : result;
  const [hovered, setHovered] = useState<number | null>(null);
  const waited = useMemo(
    () => byStep(steps, waits, waits ? waits.where((row) => waits.str("stage")[row] === "data wait") : [], "dur_ns"),
    [trace, waits],
  );
  const parts = useMemo<Part[]>(
    () => [
      { label: t.inputWait, color: "var(--kind-wait)", values: waited },
      { label: t.rest, color: "var(--kind-compute)", values: total.map((value, row) => value - (waited[row] || 0)) },
    ],
    [waited, total, t],
  );
  const pick = (place: number | null) => go({ params: { step: place === null ? null : steps[place] } });
  const names = [...new Set(queues.str("queue"))].filter((name): name is string => name !== null);
  const host = names.filter((name) => name !== "device");
  const shared = { steps, selected: at, hovered, onHover: setHovered, onPick: pick };
  const how = (kind: "host" | "device") =>
    ({
      mindspore: kind === "host" ? t.hostHowMindspore : t.deviceHowMindspore,
      pytorch: kind === "host" ? t.hostHowPytorch : t.deviceHowPytorch,
    })[framework ?? ""] ?? (kind === "host" ? t.hostHow : t.deviceHow);
  const late = verdict.find((row) => row.code === "input-order");
  return (
    <>
      <Card
        title={t.waitCard}
        note={waits && `${t.waitNote}; ${t.stepMedian}`}
        tools={
          <>
            {at !== null && waits && (
              <>
                <span class="small">
                  {fill(t.chosen, {
                    step: steps[at],
                    wait: units.text(units.time(waited[at] || 0)),
                    total: units.text(units.time(total[at])),
                  })}
                </span>
                <a class="btn sm" href={link({ page: "steps", params: { sel: steps[at] } })}>
                  {fill(t.toStep, { step: steps[at] })}
                </a>
              </>
            )}
            {waits && <Legend of={parts.map((part) => ({ label: part.label, color: part.color }))} />}
          </>
        }
        flush
      >
        {waits && trace.rows ? (
          <StepBars
            {...shared}
            parts={parts}
            total={total}
            median={median}
            height={160}
            onRange={(first, last) => go({ params: { steps: `${steps[first]}:${steps[last]}` } })}
            say={(place) => (
              <>
                <b>
                  {t.step} {steps[place]}
                </b>
                <dl>
                  <dt>{t.inputWait}</dt>
                  <dd>
                    <Time ns={waited[place] || 0} />
                  </dd>
                  <dt>{t.rest}</dt>
                  <dd>
                    <Time ns={total[place] - (waited[place] || 0)} />
                  </dd>
                </dl>
              </>
            )}
            label={t.waitCard}
          />
        ) : (
          <div class="bd">
            <Empty title={t.noWait} height={100}>
              {t.noWaitHow}
            </Empty>
          </div>
        )}
      </Card>
      <div class="two">
        {host.map((name) => (
          <Queue
            key={name}
            {...shared}
            title={host.length > 1 || name.startsWith("DataLoader") ? `${t.hostQueue}: ${name}` : t.hostQueue}
            name={name}
            queues={queues}
            whole={whole}
            verdict={verdict}
          />
        ))}
        {!host.length && (
          <Card title={t.hostQueue}>
            <Empty title={t.noHost} height={110}>
              {how("host")}
            </Empty>
          </Card>
        )}
        {names.includes("device") ? (
          <Queue {...shared} title={t.deviceQueue} name="device" queues={queues} whole={whole} verdict={verdict} />
        ) : (
          <Card title={t.deviceQueue}>
            <Empty title={t.noDevice} height={110}>
              {how("device")}
            </Empty>
          </Card>
        )}
      </div>
      {detail && (
        <>
          <Card title={t.rules}>
            <ul class="rules3">
              {(["input-rule-ready", "input-rule-processing", "input-rule-transfer"] as const).map((code, at) => {
                const rule = verdict.find((row) => row.code === code);
                const applies = String(rule?.values.applies ?? "unknown");
                return (
                  <li key={code} class={applies === "applies" ? "on" : ""}>
                    <Chip tone={tone(rule)}>{messages()[`word:${applies}`]}</Chip>
                    {[t.rule1, t.rule2, t.rule3][at]}
                  </li>
                );
              })}
            </ul>
            {late && (
              <p class="d2 contrary">
                <Message of={late} />
              </p>
            )}
          </Card>
          {queues.rows > 0 && <QueueTable queues={queues} />}
          {launch.data && launch.data.rows > 0 && <Launches asked={launch} />}
        </>
      )}
    </>
  );
}

/** A column by step for some rows; several rows of a step add up. */
function byStep(steps: Float64Array, table: Table | null, rows: number[], column: string): Float64Array {
  const places = new Map(Array.from(steps, (step, at) => [step, at]));
  const values = new Float64Array(steps.length).fill(NaN);
  if (!table) return values;
  const [step, value] = [table.num("step"), table.num(column)];
  for (const row of rows) {
    const at = places.get(step[row]);
    if (at !== undefined && Number.isFinite(value[row])) values[at] = (values[at] || 0) + value[row];
  }
  return values;
}

type Chosen = Pick<Parameters<typeof StepBars>[0], "steps" | "selected" | "hovered" | "onHover" | "onPick">;

/** Ready batches of one queue by step; shaded where it was empty. */
function Queue({
  title,
  name,
  queues,
  whole,
  verdict,
  ...shared
}: Chosen & { title: string; name: string; queues: Table; whole: Table; verdict: Row[] }) {
  const t = text();
  const steps = shared.steps as Float64Array;
  const rows = useMemo(() => queues.where((row) => queues.str("queue")[row] === name), [queues, name]);
  const depth = useMemo(() => byStep(steps, queues, rows, "depth"), [steps, queues, rows]);
  const row = whole.str("queue").indexOf(name);
  const state = verdict.find((item) => item.code === "queue-empty" && item.values.queue === name);
  const [empty, batches, full, capacity, mean] = ["empty", "batches", "full", "capacity", "depth"].map(
    (column) => whole.num(column)[row],
  );
  const parts = useMemo<Part[]>(() => [{ label: t.depth, color: "var(--kind-compute)", values: depth }], [depth, t]);
  const most = Math.max(1, ...Array.from(depth).filter(Number.isFinite));
  return (
    <Card
      title={title}
      note={t.ready1}
      tools={
        <>
          {full > 0 && <Chip>{fill(t.fullOf, { full: units.count(full).value })}</Chip>}
          {Number.isFinite(empty) && (
            <Chip tone={tone(state)}>
              {fill(t.emptyOf, { empty: units.count(empty).value, batches: units.count(batches).value })}
            </Chip>
          )}
        </>
      }
      flush
    >
      {!depth.some(Number.isFinite) ? (
        <div class="bd">
          {!steps.length && Number.isFinite(mean) ? (
            <Empty title={t.noStepsTitle} height={100}>
              {fill(t.noStepsHow, {
                depth: units.count(mean).value,
                capacity: units.count(capacity).value,
                empty: units.count(empty).value,
                batches: units.count(batches).value,
              })}
            </Empty>
          ) : (
            <Empty title={t.noDepth} height={100} />
          )}
        </div>
      ) : (
        <StepBars
          {...shared}
          parts={parts}
          total={depth}
          as="count"
          limit={Number.isFinite(capacity) && capacity > 0 ? Math.max(capacity, most) : most}
          shade={(at) => depth[at] === 0}
          height={130}
          say={(at) => (
            <>
              <b>
                {t.step} {steps[at]}
              </b>
              <dl>
                <dt>{t.depth}</dt>
                <dd>{units.text(units.count(depth[at]))}</dd>
                {Number.isFinite(capacity) && [<dt key="c">{t.capacity}</dt>, <dd key="d">{capacity}</dd>]}
              </dl>
            </>
          )}
          label={title}
        />
      )}
    </Card>
  );
}

function QueueTable({ queues }: { queues: Table }) {
  const t = text();
  const columns: Column[] = [
    { key: "queue", label: t.queue, as: "name" },
    {
      key: "step",
      label: t.step,
      show: (table, row) =>
        Number.isFinite(table.num("step")[row]) ? (
          <a href={link({ page: "steps", params: { sel: table.raw("step", row) } })}>{table.raw("step", row)}</a>
        ) : (
          <span class="d3">{t.outside}</span>
        ),
    },
    { key: "batches", label: t.batches },
    { key: "depth", label: t.depth, bar: true },
    { key: "capacity", label: t.capacity },
    { key: "empty", label: t.emptyHead },
    { key: "full", label: t.fullHead },
    { key: "wait_ns", label: t.wait, bar: true, color: () => "var(--kind-wait)" },
    {
      key: "verdict",
      label: t.verdict,
      as: "text",
      show: (table, row) => <VerdictChip of={table.str("verdict")[row]} />,
    },
  ];
  return (
    <TableCard
      title={t.table}
      of={queues}
      id="queues"
      columns={columns}
      search={["queue", "verdict"]}
      what={t.rows}
      most={12}
    />
  );
}

function Launches({ asked }: { asked: Fetched<Table> }) {
  const t = text();
  const columns: Column[] = [
    { key: "stream", label: t.stream, as: "name" },
    { key: "max_length", label: t.maxLength },
    { key: "mean_length", label: t.meanLength, bar: true },
    { key: "empty_share", label: t.emptyShare, bar: true, color: () => "var(--kind-wait)" },
    { key: "empty_ns", label: t.wait },
  ];
  return (
    <TableCard
      title={t.launch}
      note={t.launchNote}
      of={asked}
      id="launch"
      columns={columns}
      sort="-mean_length"
      most={8}
    />
  );
}
