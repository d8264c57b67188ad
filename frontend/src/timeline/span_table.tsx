/** Spans in the selected range. */
import { spanColor } from "../colors";
import { info, rank, useFetched, useQuery } from "../data";
import { Await } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { source } from "../source";
import { fill, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { pick } from "./navigation";
import type { Timeline } from "./model";
import { ColoredName } from "./span_details";
import { absolute } from "./sql";

const text = strings("timeline");

// What happened

const MOST = 2000;

export function Events({ of }: { of: Timeline }) {
  const t = text();
  const now = info.value!;
  const area = of.area.value;
  const { t0, t1 } = area ?? of.sight.seen.value;
  const tracks = area?.lanes
    ?.map((lane) => of.lane(lane)?.track)
    .filter((track) => track !== null && track !== undefined);
  const ofRank = area?.lanes?.length ? of.rankOf(area.lanes[0]) : rank();
  const fields = "span, rank, track, kind, name, start_ns, dur_ns, self_ns, depth, step, op_type";
  const still = source().isReport;
  const words = `timeline/events?t0=${Math.round(t0)}&t1=${Math.round(t1)}&rank=${ofRank ?? 0}${area?.lanes ? `&lanes=${area.lanes.join(",")}` : ""}&limit=${MOST}`;
  const carried = useFetched(still ? `${of.run}\n${words}` : null, async () =>
    Table.of((await of.json<{ columns: Record<string, number[]> }>(words)).columns),
  );
  const result = useQuery(
    still
      ? null
      : [
          `select ${fields} from spans where rank = ${ofRank} and kind <> 'instant'`,
          `and start_ns < ${absolute(now, t1)} and start_ns + dur_ns >= ${absolute(now, t0)}`,
          ...(tracks?.length ? [`and track in (${tracks.join(", ")})`] : []),
          `order by start_ns, depth limit ${MOST}`,
        ].join(" "),
  );
  const requested = still ? carried : result;
  const lanes = new Map(
    of.header.lanes
      .filter((lane) => lane.track !== null && of.rankOf(lane.id) === ofRank)
      .map((lane) => [lane.track!, lane]),
  );
  const shade = (table: Table, row: number) => {
    const kind = table.str("kind")[row] ?? "";
    return spanColor(table.str("name")[row] ?? "", kind, table.str("op_type")[row]);
  };
  const columns: Column[] = [
    {
      key: "name",
      label: t.name,
      as: "name",
      color: shade,
      show: (table, row) => <ColoredName name={table.str("name")[row] ?? ""} color={shade(table, row)} />,
    },
    { key: "kind", label: t.kind, as: "text", width: "110px" },
    {
      key: "start_ns",
      label: t.start,
      show: (table, row) => (
        <span title={units.exact(table.num("start_ns")[row], "time")}>
          {(table.num("start_ns")[row] / 1e6).toLocaleString("en-US", {
            minimumFractionDigits: 3,
            maximumFractionDigits: 3,
          })}
          <span class="u">ms</span>
        </span>
      ),
    },
    { key: "dur_ns", label: t.dur },
    { key: "self_ns", label: t.self },
    {
      key: "track",
      label: t.laneColumn,
      width: "minmax(140px, 1.4fr)",
      show: (table, row) => <span class="cut d2">{lanes.get(table.num("track")[row])?.label ?? ""}</span>,
    },
    { key: "depth", label: t.row, hide: true },
    { key: "step", label: t.stepColumn, width: "64px" },
  ];
  const open = (table: Table, row: number) => void pick(of, ofRank ?? 0, table.num("span")[row], "show");
  const note = (
    <span class="d3 small">
      {area ? t.rangeOf : t.window}
      {(requested.data?.rows ?? 0) >= MOST ? ` · ${fill(t.most, { count: units.count(MOST).value })}` : ""}
    </span>
  );
  return (
    <div class="tl-grid">
      <Await of={requested} rows={5}>
        {(data) => (
          <Grid
            id="spans"
            table={data}
            columns={columns}
            search={["name", "kind", "op_type"]}
            sort="start_ns"
            what={t.what}
            height="100%"
            chips={note}
            rowKey={(table, row) => table.str("span")[row] ?? ""}
            selected={of.selected.value ? String(of.selected.value.span) : null}
            onOpen={open}
            label={t.eventsTab}
          />
        )}
      </Await>
    </div>
  );
}
