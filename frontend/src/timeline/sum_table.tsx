/** Sums over the selected range. */
import { kindOf, spanColor } from "../colors";
import { useFetched } from "../data";
import { Await, CopyButton, Swatch } from "../parts/basics";
import { Grid } from "../parts/grid";
import type { Column } from "../parts/grid_rows";
import { Time } from "../parts/quantity";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { mark, setMarks } from "./navigation";
import { mostCause } from "./gaps";
import type { Timeline } from "./model";
import type { Area } from "./scene";
import { search } from "./search";
import { ColoredName, EmptyPanel } from "./span_details";
import { sums, type Sums as Answer } from "./sums";

const text = strings("timeline");

// The range

export function Selection({ of, by }: { of: Timeline; by: "name" | "lane" | "kind" }) {
  const t = text();
  const area = of.area.value;
  const fetched = useFetched(
    area ? `${of.run}\narea ${by} ${area.t0} ${area.t1} ${area.lanes?.join(",") ?? ""}` : null,
    () => sums(of, area!, by),
  );
  if (!area) return <EmptyPanel title={t.noArea} how={t.noAreaHow} />;
  return (
    <div class="tl-split">
      <Summary of={of} area={area} answer={fetched.data} />
      <div class="tl-grid">
        <Await of={fetched} rows={5}>
          {(data) => <Sums of={of} data={data.table} by={by} />}
        </Await>
      </div>
    </div>
  );
}

function Sums({ of, data, by }: { of: Timeline; data: Table; by: "name" | "lane" | "kind" }) {
  const t = text();
  const key = data.str("key");
  const kind = data.has("kind") ? data.str("kind") : [];
  const shade = (_: Table, row: number) => {
    return by === "lane"
      ? "var(--text-3)"
      : by === "name"
        ? spanColor(key[row] ?? "", kind[row] ?? "", data.str("means")[row])
        : `var(--kind-${kindOf(key[row] ?? "")})`;
  };
  const laneName = (row: number) => of.lane(data.num("lane")[row])?.label ?? "";
  const columns: Column[] = [
    {
      key: "key",
      label: by === "name" ? t.name : by === "kind" ? t.kind : t.laneColumn,
      as: "name",
      color: shade,
      width: "minmax(200px, 3fr)",
      show: (table, row) =>
        by === "lane" ? (
          <span class="cut" title={laneName(row)}>
            {laneName(row) || key[row]}
          </span>
        ) : (
          <ColoredName name={key[row] ?? ""} color={shade(table, row)} />
        ),
    },
    ...(by === "name" && data.has("lane")
      ? [
          {
            key: "lane",
            label: t.laneColumn,
            width: "minmax(90px, 1fr)",
            show: (_: Table, row: number) => (
              <span class="cut d2" title={laneName(row)}>
                {laneName(row)}
              </span>
            ),
          },
        ]
      : []),
    { key: "count", label: t.number, width: "80px" },
    { key: "self_ns", label: t.self },
    { key: "total_ns", label: t.total },
    { key: "share", label: t.share, bar: true, color: shade },
    { key: "mean_ns", label: t.mean },
    { key: "max_ns", label: t.longest },
  ];
  const find =
    by === "name" ? (table: Table, row: number) => void search(of, table.str("key")[row] ?? "", "count") : undefined;
  return (
    <Grid
      id="area"
      table={data}
      columns={columns}
      sort="-self_ns"
      height="100%"
      bare
      rowKey={(table, row) => table.str("key")[row] ?? ""}
      onOpen={find}
      label={t.area}
    />
  );
}

/** Idle share of each group in the range, and its cause. */
function Summary({ of, area, answer }: { of: Timeline; area: Area; answer: Answer | null }) {
  const t = text();
  const groups = answer?.groups ?? [];
  const length = area.t1 - area.t0;
  const note = of.marks.value.find((mark) => mark.t0 === area.t0 && mark.t1 === area.t1);
  const bold = (ns: number) => (
    <b>
      <Time ns={ns} />
    </b>
  );
  const named = groups.map((group) => ({
    ...group,
    by: group as Record<string, number>,
    about: of.header.groups.find((item) => item.id === group.group)!,
  }));
  const first = named.find((group) => group.about.kind === "device") ?? named.find((group) => group.busy_ns > 0);
  const cause = first && first.about.kind === "device" ? mostCause(of, area.t0, area.t1, first.group) : null;
  const parts = first
    ? [
        ...(["kernel", "communication", "copy", "set"] as const)
          .filter((kind) => (first.by[`${kind}_ns`] ?? 0) > 0)
          .map((kind) => ({
            name: kind,
            label: t[kind === "kernel" ? "computing" : kind === "set" ? "fill" : kind],
            ns: first.by[`${kind}_ns`],
            color: `var(--kind-${kindOf(kind)})`,
          })),
        ...(first.about.kind === "device"
          ? []
          : [{ name: "busy", label: t.working, ns: first.busy_ns, color: "var(--kind-host)" }]),
        { name: "idle", label: t.idle, ns: first.idle_ns, color: "" },
        ...(first.unrecorded_ns > 0
          ? [{ name: "unrecorded", label: t.unrecorded, ns: first.unrecorded_ns, color: "var(--border-strong)" }]
          : []),
      ]
    : [];
  const whole = Math.max(
    length,
    parts.reduce((sum, part) => sum + part.ns, 0),
  );
  return (
    <div class="tl-summary">
      <p>
        {first ? (
          <Sentence
            template={first.unrecorded_ns > 0 ? t.unrecordedOf : first.idle_ns > 0 ? t.idleOf : t.busyAll}
            unrecorded={bold(first.unrecorded_ns)}
            group={first.about.label}
            idle={bold(first.idle_ns)}
            length={bold(length)}
          />
        ) : (
          <Sentence template={t.lengthOnly} length={bold(length)} />
        )}
        {cause && (
          <>
            {" "}
            <Sentence template={t.cause} cause={<b>{cause}</b>} />
          </>
        )}
        {area.lanes && <span class="d3"> · {fill(t.inLanes, { count: area.lanes.length })}</span>}
      </p>
      {first && (
        <>
          <div
            class="bar"
            style={{ height: "12px" }}
            role="img"
            aria-label={parts.map((part) => `${part.label} ${units.text(units.share(part.ns / length))}`).join(", ")}
          >
            {parts
              .filter((part) => part.ns > 0)
              .map((part) => (
                <i
                  key={part.name}
                  class={part.name === "idle" ? "hatch" : ""}
                  style={{ width: `${(part.ns / whole) * 100}%`, padding: 0, background: part.color || undefined }}
                />
              ))}
          </div>
          <dl class="kv tl-parts">
            {parts.map((part) => [
              <dt key={part.name}>
                <Swatch color={part.color} hatch={part.name === "idle"} /> {part.label}
              </dt>,
              <dd key={`${part.name} ns`}>
                <Time ns={part.ns} />
              </dd>,
              <dd key={`${part.name} share`} class="d2">
                {units.text(units.share(part.ns / length))}
              </dd>,
            ])}
          </dl>
        </>
      )}
      <div class="tl-do">
        <button class="btn sm" onClick={() => of.sight.to(area.t0 - length * 0.05, area.t1 + length * 0.05)}>
          {t.zoomTo} <span class="kbd">F</span>
        </button>
        {note ? (
          <input
            type="text"
            class="tl-notetext"
            aria-label={t.note}
            placeholder={t.note}
            value={note.text}
            onChange={(event) =>
              setMarks(
                of,
                of.marks.peek().map((mark) => (mark === note ? { ...mark, text: event.currentTarget.value } : mark)),
              )
            }
          />
        ) : (
          <button class="btn sm" onClick={() => mark(of)}>
            {t.keep} <span class="kbd">M</span>
          </button>
        )}
        {answer && <CopyButton value={() => answer.table.csv()} />}
      </div>
      {named.length > 1 && (
        <dl class="kv tl-parts">
          {named
            .filter((group) => group !== first && group.busy_ns > 0)
            .map((group) => [
              <dt key={group.group} class="cut" title={group.about.label}>
                {group.about.label}
              </dt>,
              <dd key={`${group.group} ns`}>
                <Time ns={group.idle_ns} />
              </dd>,
              <dd key={`${group.group} share`} class="d2">
                {units.text(units.share(group.idle_ns / length))} {t.idle.toLowerCase()}
              </dd>,
            ])}
        </dl>
      )}
    </div>
  );
}
