// page: {"order": 45, "group": "performance", "icon": "functions", "needs": ["python", "annotation", "scope", "op", "api"]}
/** Host time: functions, call paths and annotations. */
import { useMemo } from "preact/hooks";
import { info, useTable } from "../data";
import { Await, Empty, Loading, Tabs, Trouble, Verdict } from "../parts/basics";
import { Share } from "../parts/quantity";
import { Grid } from "../parts/grid";
import { type Column } from "../parts/grid_rows";
import { go, param } from "../state";
import type { Table } from "../table";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";

const text = strings("hostCalls");

type View = "functions" | "paths" | "annotations";
/** Paths below this share of the time are not fetched: a long recording has hundreds of thousands. */
const LEAST = 0.001;

export default function Functions() {
  const t = text();
  const functions = useTable("hot_functions");
  const ranges = useTable("annotations");
  const view = (param("view") as View | undefined) ?? "functions";
  const error = functions.error ?? ranges.error;
  if (error) return <Trouble error={error} />;
  if (!functions.data || !ranges.data) return <Loading rows={12} />;
  const known = functions.data;
  if (!known.rows && !ranges.data.rows)
    return (
      <>
        <Verdict>{t.none}</Verdict>
        <Empty title={t.none} height={200}>
          <Sentence template={t.noneHow} flag={<span class="mono">--stack</span>} />
        </Empty>
      </>
    );
  const outermost = known.rows && known.num("share")[0] > 0 ? known.num("total_ns")[0] / known.num("share")[0] : NaN;
  return (
    <>
      <Verdict
        facts={[
          fill(t.counted, { count: known.rows }),
          Number.isFinite(outermost) && fill(t.total, { time: units.text(units.time(outermost)) }),
          !info.value!.kinds.python && t.noPython,
        ]}
      >
        {known.rows ? (
          <Sentence
            template={t.most}
            name={<b class="mono big">{known.str("name")[0]}</b>}
            share={
              <b>
                <Share of={known.num("self_share")[0]} />
              </b>
            }
          />
        ) : (
          t.none
        )}
      </Verdict>
      <Tabs
        choices={[
          { id: "functions", label: t.functions, count: known.rows },
          { id: "paths", label: t.paths },
          { id: "annotations", label: t.annotations, count: ranges.data.rows },
        ]}
        value={view}
        onChange={(id) => go({ params: { view: id === "functions" ? null : id } })}
        label={t.parts}
      />
      <section class="card">
        {view === "functions" && (
          <Grid
            id="functions"
            table={known}
            columns={columns(t)}
            search={["name", "kind"]}
            sort="-self_ns"
            what={t.what}
            label={t.functions}
            height={tall(known)}
          />
        )}
        {view === "paths" && <Paths />}
        {view === "annotations" && <Ranges table={ranges.data} />}
      </section>
    </>
  );
}

/** A long table fills the window; a short one is as high as its rows. */
function tall(table: Table): string | undefined {
  return table.rows > 18 ? "min(calc(100vh - 252px), 1200px)" : undefined;
}

function columns(t: ReturnType<typeof text>): Column[] {
  return [
    { key: "name", label: t.name, as: "name", width: "minmax(220px, 4fr)" },
    { key: "kind", label: t.kind, as: "text", width: "minmax(76px, .8fr)" },
    { key: "calls", label: t.calls },
    { key: "self_ns", label: t.self },
    {
      key: "self_share",
      label: t.selfShare,
      as: "share",
      bar: true,
      color: () => "var(--kind-host)",
      width: "minmax(120px, 1.4fr)",
    },
    { key: "total_ns", label: t.inAll },
    { key: "share", label: t.share },
  ];
}

/** The tree of calls: outermost first, each opens to its callees. */
function Paths() {
  const t = text();
  const fetched = useTable("hot_paths", { min_share: LEAST });
  const below = useMemo(() => {
    const groups = new Map<number, number[]>();
    const parent = fetched.data?.num("parent");
    for (let row = 0; parent && row < parent.length; row++) {
      const above = Number.isNaN(parent[row]) ? -1 : parent[row];
      if (!groups.has(above)) groups.set(above, []);
      groups.get(above)!.push(row);
    }
    return groups;
  }, [fetched.data]);
  return (
    <Await of={fetched} rows={12}>
      {(table) => (
        <>
          <p class="d3 small pathsnote">{t.pathsNote}</p>
          <Grid
            id="paths"
            table={table.pick(below.get(-1) ?? [])}
            columns={columns(t)}
            search={["name"]}
            sort="-total_ns"
            what={t.whatPaths}
            rowKey={(of, row) => of.raw("node", row)}
            children={(of, row) => table.pick(below.get(of.num("node")[row]) ?? [])}
            leaf={(of, row) => !below.has(of.num("node")[row])}
            label={t.paths}
            height="min(calc(100vh - 276px), 1200px)"
          />
        </>
      )}
    </Await>
  );
}

function Ranges({ table }: { table: Table }) {
  const t = text();
  if (!table.rows)
    return (
      <Empty title={t.noRanges} height={160}>
        {t.noRangesHow}
      </Empty>
    );
  const rangeColumns: Column[] = [
    { key: "name", label: t.name, as: "name", width: "minmax(220px, 4fr)" },
    { key: "calls", label: t.calls },
    { key: "total_ns", label: t.inAll },
    { key: "avg_ns", label: t.mean },
    { key: "min_ns", label: t.least },
    { key: "max_ns", label: t.longest },
    { key: "device_ns", label: t.device, help: t.deviceHelp, why: t.deviceWhy },
  ];
  return (
    <Grid
      id="ranges"
      table={table}
      columns={rangeColumns}
      search={["name"]}
      sort="-total_ns"
      what={t.whatRanges}
      label={t.annotations}
      height={tall(table)}
    />
  );
}
