// page: {"order": 150, "group": "tools", "icon": "files", "ofSummary": true}
import "./files.css";
import { kindOf } from "../colors";
import { info, useTable } from "../data";
import { Counts, Devices, Pairs } from "../files/tables";
import { Await, Card, Chip, CopyButton, copyText, Empty } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Count, Time } from "../parts/quantity";
import { type Info, source } from "../source";
import { link } from "../state";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";
import { useVerdict, VerdictOf } from "../verdict";
import type { ComponentChildren } from "preact";

const text = strings("files");

export default function Files() {
  const t = text();
  const run = info.value!;
  const problems = useTable("tables/problems", {}, { allRanks: true, allSteps: true });
  const verdict = useVerdict("problems", {}, { allRanks: true, allSteps: true });
  const rows = Object.values(run.tables).reduce((sum, count) => sum + count, 0);
  const length = Number(BigInt(run.end_ns) - BigInt(run.origin_ns));
  return (
    <>
      <VerdictOf
        of={verdict.data}
        facts={[
          <Sentence template={t.size} rows={<Count of={rows} />} time={<Time ns={length} />} />,
          fill(t.format, { format: run.format }),
          moment(run) && fill(t.recorded, { at: moment(run)! }),
          run.state === "live" && t.state,
        ]}
      />
      <Problems problems={problems} run={run} />
      <div class="filesgrid">
        <Card title={t.source}>
          <Facts2 of={sourceFacts(run, length)} />
        </Card>
        <Card title={t.tables} note={t.tablesNote} flush>
          <Counts
            of={run.tables}
            to={(name) => link({ page: "query", params: { sql: `select * from ${name} limit 1000` } })}
            csv={(name) => source().download(run.id, `tables/${name}`, {})}
            color={() => "var(--text-3)"}
            head={[t.table, t.rows]}
          />
        </Card>
        <Card title={t.kinds} flush>
          <Counts
            of={run.kinds}
            to={(name) =>
              link({
                page: "query",
                params: {
                  sql: `select name, count(*) as calls, sum(dur_ns) as total_ns\nfrom spans\nwhere kind = '${name}'\ngroup by name\norder by total_ns desc`,
                },
              })
            }
            color={(name) => `var(--kind-${kindOf(name)})`}
            head={[t.kind, t.rows]}
          />
        </Card>
        <Card title={t.devices} flush>
          {run.devices.length ? <Devices run={run} /> : <Empty title={t.noDevices} />}
        </Card>
        <Card title={t.options} flush>
          <Pairs of={run.options} id="options" />
        </Card>
        <Card title={t.extra} flush>
          <Pairs of={run.extra} id="extra" />
        </Card>
        <Card title={t.counters} note={t.countersNote} flush class="wide2">
          {Object.keys(run.counters).length ? (
            <Counts
              of={run.counters}
              to={(name) =>
                link({
                  page: "query",
                  params: {
                    sql: `select at_ns, value, unit, rank\nfrom counters\nwhere name = '${name.replaceAll("'", "''")}'\norder by at_ns`,
                    chart: "line",
                    x: "at_ns",
                    y: "value",
                  },
                })
              }
              color={() => "var(--text-3)"}
              head={[t.name, t.samples]}
            />
          ) : (
            <Empty title={t.nothing} />
          )}
        </Card>
      </div>
    </>
  );
}

/** The start of the recording, if its clock is wall time: some clocks count from the start of the machine. */
function moment(run: Info): string | null {
  const ms = Number(BigInt(run.origin_ns) / 1_000_000n);
  return ms > Date.UTC(2005, 0) ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC" : null;
}

function Problems({ problems, run }: { problems: ReturnType<typeof useTable>; run: Info }) {
  const t = text();
  const columns: Column[] = [
    {
      key: "lost",
      label: t.lostRows,
      width: "100px",
      show: (table, row) =>
        table.num("lost")[row] > 0 ? (
          <Chip tone="bad">
            <Count of={table.num("lost")[row]} />
          </Chip>
        ) : (
          <Chip>{t.remark}</Chip>
        ),
    },
    { key: "what", label: t.what, as: "text", width: "minmax(300px, 4fr)" },
    { key: "file", label: t.file, as: "name", width: "minmax(140px, 1.5fr)" },
    { key: "where", label: t.where, as: "text", width: "minmax(100px, 1fr)" },
    ...(run.ranks.length > 1 ? [{ key: "rank", label: t.rank, width: "60px" }] : []),
  ];
  return (
    <Card
      title={t.problems}
      tools={
        problems.data && problems.data.rows > 0 && <CopyButton value={() => problems.data!.csv()} label={t.copyAll} />
      }
      flush
    >
      <Await of={problems} rows={2}>
        {(table) =>
          table.rows ? (
            <Grid
              id="problems"
              table={table}
              columns={columns}
              search={["what", "file", "where"]}
              sort="-lost"
              what={t.problemsWhat}
              label={t.problems}
              onOpen={(rows, row) =>
                void copyText(["file", "where", "what"].map((name) => rows.str(name)[row] ?? "").join(": "))
              }
            />
          ) : (
            <div class="bd">
              <Empty title={t.none} height={72}>
                {t.noneHow}
              </Empty>
            </div>
          )
        }
      </Await>
    </Card>
  );
}

function sourceFacts(run: Info, length: number): [string, ComponentChildren][] {
  const t = text();
  const missing = run.world_size
    ? Array.from({ length: run.world_size }, (_, rank) => rank).filter((rank) => !run.ranks.includes(rank))
    : [];
  return [
    [
      t.path,
      <span class="withcopy">
        <span class="mono cut" title={run.path}>
          {run.path}
        </span>
        <CopyButton value={run.path} />
      </span>,
    ],
    [t.kindFormat, run.format],
    [t.framework, run.framework || "–"],
    [
      t.versions,
      Object.entries(run.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(" · ") || "–",
    ],
    [t.began, moment(run) ?? "–"],
    [t.length, <Time ns={length} />],
    [
      t.ranks,
      run.world_size && run.world_size !== run.ranks.length
        ? fill(t.ranksOf, { here: run.ranks.length, all: run.world_size })
        : String(run.ranks.length || "–"),
    ],
    ...(missing.length ? ([[t.missing, units.ranges(missing)]] as [string, ComponentChildren][]) : []),
    [t.steps, <Count of={run.tables.steps ?? NaN} />],
  ];
}

function Facts2({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="filefacts">
      {of.map(([label, value]) => [<dt key={label}>{label}</dt>, <dd key={`${label} value`}>{value}</dd>])}
    </dl>
  );
}
