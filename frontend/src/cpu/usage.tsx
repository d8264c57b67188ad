/** Usage by process and operator. */
import { useTable } from "../data";
import { Await, Card, Chip, Segmented } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Time } from "../parts/quantity";
import type { Range } from "../parts/series_marks";
import { selectRange } from "../time_range";
import { go, link, param } from "../state";
import { strings } from "../strings";
import type { Table } from "../table";
import { useMemo } from "preact/hooks";

const text = strings("cpu");

/** "process 461" in the reader's language; names of operators stay. */
export function processLabel(name: string | null): string {
  const t = text();
  const [, what, number] = /^(machine|process|data worker|child)( \d+)?$/.exec(name ?? "") ?? [];
  return what
    ? { machine: t.machine_, process: t.processName, "data worker": t.workerName, child: t.childName }[what] +
        (number ?? "")
    : (name ?? "");
}

export function mean(use: Table, row: number): number {
  return use.num("busy_cores")[row] || use.num("user_share")[row] || 0;
}

export function RangeChip({ range }: { range: Range | null }) {
  const t = text();
  if (!range) return <span class="d3 small wide">{t.hint}</span>;
  return (
    <>
      <a
        class="small"
        href={link({ page: "timeline", params: { t0: Math.round(range[0]), t1: Math.round(range[1]) } })}
      >
        {t.timeline}
      </a>
      <Chip tone="acc" onRemove={() => selectRange(null)} title={t.all}>
        <Time ns={range[0]} /> – <Time ns={range[1]} />
      </Chip>
    </>
  );
}

export function Usage({
  use,
  samples,
  range,
}: {
  use: ReturnType<typeof useTable>;
  samples: ReturnType<typeof useTable>;
  range: Range | null;
}) {
  const t = text();
  const view = param("view") === "samples" ? "samples" : "summary";
  const within = useMemo(() => {
    if (!samples.data || !range) return samples.data;
    const at = samples.data.num("at_ns");
    return samples.data.pick(samples.data.where((row) => at[row] >= range[0] && at[row] <= range[1]));
  }, [samples.data, range?.[0], range?.[1]]);
  const who: Column[] = [
    {
      key: "name",
      label: t.who,
      width: "minmax(150px, 1.6fr)",
      as: "text",
      show: (table, row) => (
        <span class="name" title={table.str("name")[row] ?? ""}>
          {processLabel(table.str("name")[row])}
        </span>
      ),
    },
    {
      key: "of",
      label: t.kind,
      width: "90px",
      as: "text",
      show: (table, row) => t[`${table.str("of")[row]}_` as "machine_"],
    },
  ];
  const columns: Column[] = [
    ...who,
    { key: "busy_cores", label: t.busy, bar: true, color: () => "var(--kind-host)", why: t.tooShort },
    { key: "max_busy_cores", label: t.most, why: t.tooShort },
    { key: "user_share", label: t.share, why: t.tooShort },
    { key: "system_share", label: t.sys, why: t.tooShort },
    { key: "io_share", label: t.io_, hide: true },
    { key: "idle_share", label: t.idle, hide: true },
    { key: "steal_share", label: t.steal, hide: true },
    { key: "context_switches_per_s", label: t.contextSwitches },
    { key: "max_run_queue", label: t.runQueue, hide: true },
    { key: "max_threads", label: t.threads },
    { key: "max_memory_bytes", label: t.memory },
    { key: "samples", label: t.sampled },
    { key: "covered_ns", label: t.time },
  ];
  const every: Column[] = [
    ...who,
    {
      key: "at_ns",
      label: t.at,
      show: (table, row) => (
        <a href={link({ page: "timeline", params: span(table, row) })}>
          <Time ns={table.num("at_ns")[row]} />
        </a>
      ),
    },
    { key: "interval_ns", label: t.interval },
    { key: "busy_cores", label: t.busy },
    { key: "user_share", label: t.share },
    { key: "system_share", label: t.sys },
    { key: "io_share", label: t.io_ },
    { key: "idle_share", label: t.idle },
    { key: "context_switches_per_s", label: t.contextSwitches },
    { key: "run_queue", label: t.runQueue },
    { key: "threads", label: t.threads },
    { key: "memory_bytes", label: t.memory },
  ];
  const tools = (
    <Segmented
      label={t.view}
      value={view}
      onChange={(id) => go({ params: { view: id === "samples" ? id : null } }, true)}
      choices={[
        { id: "summary", label: t.summary },
        { id: "samples", label: t.every },
      ]}
    />
  );
  return (
    <Card title={t.use} note={range ? t.useRange : t.useNote} tools={<RangeChip range={range} />} flush>
      {view === "summary" ? (
        <Await of={use}>
          {(data) => (
            <Grid
              id="use"
              table={data}
              columns={columns}
              sort="-busy_cores"
              search={["name"]}
              tools={tools}
              onOpen={(of, row) =>
                go({
                  params: {
                    view: "samples",
                    "samples.find": of.str("name")[row] === "machine" ? "/^machine$/" : of.str("name")[row],
                  },
                })
              }
              label={t.use}
            />
          )}
        </Await>
      ) : (
        within && (
          <Grid
            id="samples"
            table={within}
            columns={every}
            search={["name", "of"]}
            what={t.every}
            tools={tools}
            label={t.every}
          />
        )
      )}
    </Card>
  );
}

/** The time that a sample covers. */
function span(table: Table, row: number): { t0: number; t1: number } {
  const at = table.num("at_ns")[row];
  const before = table.num("interval_ns")[row];
  return { t0: at - (Number.isNaN(before) ? 1e6 : before), t1: at };
}
