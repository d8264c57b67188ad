/** Below the picture: what is known of the selected event, of the selected range, and what happened in it. */
import { useRef, useState } from "preact/hooks";
import { kindOf, spanColor } from "../colors";
import { everyStep, info, rank, useAnswer, useQuery } from "../data";
import { Await, CopyButton, Empty, Facts, Icon, Quantity, Segmented, Swatch, Tabs, Time } from "../parts/basics";
import { Grid, type Column } from "../parts/grid";
import { source } from "../source";
import { link, remember, remembered } from "../state";
import { Table } from "../table";
import { fill, Say } from "../text";
import * as units from "../units";
import { write } from "./address";
import { mark, pick, setMarks, visit } from "./choosing";
import { Arrows, Connections, onPath } from "./connections";
import { mostCause } from "./gaps";
import { shown } from "./labels";
import type { Tab, Timeline } from "./model";
import type { Area } from "./scene";
import { search } from "./searching";
import { absolute, spansSql } from "./sql";
import { sums, type Sums as Answer } from "./sums";
import type { Event } from "./wire";
import { text } from "./words";

const USUAL = 286;

export function Drawer({ of }: { of: Timeline }) {
  const t = text();
  const [height, setHeight] = useState(() => Number(remembered("timeline.drawer")) || USUAL);
  const [by, setBy] = useState<"name" | "lane" | "kind">("name");
  const box = useRef<HTMLElement>(null);
  if (!of.open.value) return null;
  const limit = (size: number) => Math.max(120, Math.min(innerHeight - 320, size));
  const set = (size: number) => {
    setHeight(limit(size));
    remember("timeline.drawer", String(limit(size)));
  };
  const resize = (event: PointerEvent) => {
    const target = event.currentTarget as HTMLElement;
    target.setPointerCapture(event.pointerId);
    const [from, before] = [event.clientY, box.current!.offsetHeight];
    const move = (now: PointerEvent) => set(before + from - now.clientY);
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", () => target.removeEventListener("pointermove", move), { once: true });
  };
  const keys = (event: KeyboardEvent) => {
    const step = event.key === "ArrowUp" ? 24 : event.key === "ArrowDown" ? -24 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    set(height + step);
  };
  const tab = of.tab.value;
  const area = of.area.value;
  const known = of.details.value;
  const flows = known?.arrowCount ?? 0;
  const choose = (id: Tab) => {
    of.tab.value = id;
    write(of);
  };
  const close = () => {
    of.open.value = false;
    write(of);
    document.querySelector<HTMLElement>(".tl-picture")?.focus();
  };
  return (
    <section class="tl-drawer" ref={box} style={{ height: `${height}px` }} aria-label={t.event}>
      <i class="tl-grip" role="separator" aria-orientation="horizontal" aria-label={t.size} aria-valuenow={height} tabIndex={0} onPointerDown={resize} onKeyDown={keys} onDblClick={() => set(USUAL)} />
      <header>
        <Tabs
          label={t.event} value={tab} onChange={choose}
          choices={[
            { id: "area", label: area ? `${t.area} ${units.text(units.time(area.t1 - area.t0))}` : t.area },
            { id: "event", label: t.event },
            { id: "events", label: t.eventsTab },
            { id: "flow", label: t.flow, count: flows || undefined },
          ]}
        />
        <span class="sp" />
        {tab === "area" && area && <Segmented label={t.by} value={by} onChange={setBy} choices={[{ id: "name", label: t.byName }, { id: "lane", label: t.byLane }, { id: "kind", label: t.byKind }]} />}
        {!source().still && <a class="btn sm" href={link({ page: "query", params: { sql: spansSql(of, info.value!), rank: null, steps: everyStep() } })} title={t.queryNote}>{t.query}</a>}
        <button class="pick bare" aria-label={t.close} title={`${t.close} (Esc)`} onClick={close}><Icon name="close" size={14} /></button>
      </header>
      <div class="tl-body">
        {tab === "area" ? <Selection of={of} by={by} /> : tab === "event" ? <Details of={of} /> : tab === "events" ? <Events of={of} /> : <Flow of={of} />}
      </div>
    </section>
  );
}

/** A name as the bars have it; all of it on hover. */
function Named({ name, color: shade }: { name: string; color: string }) {
  return <span class="tl-named"><Swatch color={shade} /><span class="mono cut" title={name}>{shown(name)}</span></span>;
}

function Nothing({ title, how }: { title: string; how?: string }) {
  return <div class="tl-nothing"><Empty title={title} height={80}>{how}</Empty></div>;
}

// The range

function Selection({ of, by }: { of: Timeline; by: "name" | "lane" | "kind" }) {
  const t = text();
  const area = of.area.value;
  const asked = useAnswer(area ? `${of.run}\narea ${by} ${area.t0} ${area.t1} ${area.lanes?.join(",") ?? ""}` : null, () => sums(of, area!, by));
  if (!area) return <Nothing title={t.noArea} how={t.noAreaHow} />;
  return (
    <div class="tl-split">
      <Summary of={of} area={area} answer={asked.data} />
      <div class="tl-grid"><Await of={asked} rows={5}>{(data) => <Sums of={of} data={data.table} by={by} />}</Await></div>
    </div>
  );
}

function Sums({ of, data, by }: { of: Timeline; data: Table; by: "name" | "lane" | "kind" }) {
  const t = text();
  const key = data.str("key");
  const kind = data.has("kind") ? data.str("kind") : [];
  const shade = (_: Table, row: number) => {
    return by === "lane" ? "var(--text-3)" : by === "name" ? spanColor(key[row] ?? "", kind[row] ?? "", data.str("means")[row]) : `var(--kind-${kindOf(key[row] ?? "")})`;
  };
  const laneName = (row: number) => of.lane(data.num("lane")[row])?.label ?? "";
  const columns: Column[] = [
    { key: "key", label: by === "name" ? t.name : by === "kind" ? t.kind : t.laneColumn, as: "name", color: shade, width: "minmax(200px, 3fr)", show: (table, row) => (by === "lane" ? <span class="cut" title={laneName(row)}>{laneName(row) || key[row]}</span> : <Named name={key[row] ?? ""} color={shade(table, row)} />) },
    ...(by === "name" && data.has("lane") ? [{ key: "lane", label: t.laneColumn, width: "minmax(90px, 1fr)", show: (_: Table, row: number) => <span class="cut d2" title={laneName(row)}>{laneName(row)}</span> }] : []),
    { key: "count", label: t.number, width: "80px" },
    { key: "self_ns", label: t.self },
    { key: "total_ns", label: t.total },
    { key: "share", label: t.share, bar: true, color: shade },
    { key: "mean_ns", label: t.mean },
    { key: "max_ns", label: t.longest },
  ];
  const find = by === "name" ? (table: Table, row: number) => void search(of, table.str("key")[row] ?? "", "count") : undefined;
  return <Grid id="area" table={data} columns={columns} sort="-self_ns" height="100%" bare rowKey={(table, row) => table.str("key")[row] ?? ""} onOpen={find} label={t.area} />;
}

/** How much of the range each group was idle, and why. */
function Summary({ of, area, answer }: { of: Timeline; area: Area; answer: Answer | null }) {
  const t = text();
  const groups = answer?.groups ?? [];
  const length = area.t1 - area.t0;
  const note = of.marks.value.find((mark) => mark.t0 === area.t0 && mark.t1 === area.t1);
  const bold = (ns: number) => <b><Time ns={ns} /></b>;
  const named = groups.map((group) => ({ ...group, by: group as Record<string, number>, about: of.header.groups.find((one) => one.id === group.group)! }));
  const first = named.find((group) => group.about.kind === "device") ?? named.find((group) => group.busy_ns > 0);
  const cause = first && first.about.kind === "device" ? mostCause(of, area.t0, area.t1, first.group) : null;
  const parts = first
    ? [
        ...(["kernel", "communication", "copy", "set"] as const).filter((kind) => (first.by[`${kind}_ns`] ?? 0) > 0).map((kind) => ({ name: kind, label: t[kind === "kernel" ? "computing" : kind === "set" ? "fill" : kind], ns: first.by[`${kind}_ns`], color: `var(--kind-${kindOf(kind)})` })),
        ...(first.about.kind === "device" ? [] : [{ name: "busy", label: t.working, ns: first.busy_ns, color: "var(--kind-host)" }]),
        { name: "idle", label: t.idle, ns: first.idle_ns, color: "" },
        ...(first.unrecorded_ns > 0 ? [{ name: "unrecorded", label: t.unrecorded, ns: first.unrecorded_ns, color: "var(--border-strong)" }] : []),
      ]
    : [];
  const whole = Math.max(length, parts.reduce((sum, part) => sum + part.ns, 0));
  return (
    <div class="tl-summary">
      <p>
        {first ? <Say of={first.unrecorded_ns > 0 ? t.unrecordedOf : first.idle_ns > 0 ? t.idleOf : t.busyAll} unrecorded={bold(first.unrecorded_ns)} group={first.about.label} idle={bold(first.idle_ns)} length={bold(length)} /> : <Say of={t.lengthOnly} length={bold(length)} />}
        {cause && <> <Say of={t.cause} cause={<b>{cause}</b>} /></>}
        {area.lanes && <span class="d3"> · {fill(t.inLanes, { count: area.lanes.length })}</span>}
      </p>
      {first && (
        <>
          <div class="bar" style={{ height: "12px" }} role="img" aria-label={parts.map((part) => `${part.label} ${units.text(units.share(part.ns / length))}`).join(", ")}>
            {parts.filter((part) => part.ns > 0).map((part) => <i key={part.name} class={part.name === "idle" ? "hatch" : ""} style={{ width: `${(part.ns / whole) * 100}%`, padding: 0, background: part.color || undefined }} />)}
          </div>
          <dl class="kv tl-parts">
            {parts.map((part) => [<dt key={part.name}><Swatch color={part.color} hatch={part.name === "idle"} /> {part.label}</dt>, <dd key={`${part.name} ns`}><Time ns={part.ns} /></dd>, <dd key={`${part.name} share`} class="d2">{units.text(units.share(part.ns / length))}</dd>])}
          </dl>
        </>
      )}
      <div class="tl-do">
        <button class="btn sm" onClick={() => of.sight.to(area.t0 - length * 0.05, area.t1 + length * 0.05)}>{t.zoomTo} <span class="kbd">F</span></button>
        {note ? <input type="text" class="tl-notetext" aria-label={t.note} placeholder={t.note} value={note.text} onChange={(event) => setMarks(of, of.marks.peek().map((mark) => (mark === note ? { ...mark, text: event.currentTarget.value } : mark)))} /> : <button class="btn sm" onClick={() => mark(of)}>{t.keep} <span class="kbd">M</span></button>}
        {answer && <CopyButton value={() => answer.table.csv()} />}
      </div>
      {named.length > 1 && (
        <dl class="kv tl-parts">
          {named.filter((group) => group !== first && group.busy_ns > 0).map((group) => [<dt key={group.group} class="cut" title={group.about.label}>{group.about.label}</dt>, <dd key={`${group.group} ns`}><Time ns={group.idle_ns} /></dd>, <dd key={`${group.group} share`} class="d2">{units.text(units.share(group.idle_ns / length))} {t.idle.toLowerCase()}</dd>])}
        </dl>
      )}
    </div>
  );
}

// One event

function Details({ of }: { of: Timeline }) {
  const t = text();
  const [event, known] = [of.selected.value, of.details.value];
  if (!event) return <Nothing title={t.noEvent} how={t.noEventHow} />;
  const said = known?.said ?? {};
  const lane = of.lane(event.lane);
  const step = of.steps.find((one) => event.start >= one.start && event.start < one.end);
  const number = (name: string, as: units.Quantity) => (typeof said[name] === "number" ? <Quantity value={said[name] as number} as={as} /> : null);
  const word = (name: string) => (typeof said[name] === "string" && said[name] !== "" ? <span class="mono">{said[name] as string}</span> : null);
  const json = (name: string) => (said[name] === null || said[name] === undefined ? null : <span class="mono">{typeof said[name] === "string" ? (said[name] as string) : JSON.stringify(said[name])}</span>);
  const launch = known?.into[0];
  const exact = known !== null;
  const path = onPath(known);
  const facts: [string, unknown][] = [
    [t.kind, event.kind && <><Swatch color={`var(--kind-${kindOf(event.kind)})`} /> {event.kind}</>],
    [t.dur, <Time ns={event.dur} />], [t.self, number("self", "time")],
    [t.start, <Moment ns={event.start} from={step?.start} />], [t.endAt, <Moment ns={event.start + event.dur} from={step?.start} />],
    [t.stepColumn, step ? <a href={link({ page: "steps", params: { sel: step.step } })}>{step.step}</a> : (number("step", "count") as unknown)],
    [t.shareOfStep, exact && step ? units.text(units.share(event.dur / Math.max(1, step.end - step.start))) : null],
    [t.laneColumn, lane && `${lane.label}${lane.rows > 1 ? ` · ${t.row} ${event.row}` : ""}`],
    [t.queued, launch && of.lane(event.lane) && event.kind === "kernel" ? <Time ns={Math.max(0, event.start - (launch.start + launch.dur))} /> : null],
    ...(path ? [path as [string, unknown]] : []),
    [t.type, word("op_type")], [t.scope, word("scope")], [t.shapes, json("shapes")], [t.dtypes, json("dtypes")], [t.flops, number("flops", "flops")], [t.bytes, number("bytes", "bytes")],
    [t.correlation, number("correlation", "count")], [t.category, word("category")],
  ];
  const rows = facts.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "") as [string, string][];
  const third = Math.ceil(rows.length / 2);
  const args = said.args && typeof said.args === "object" ? Object.entries(said.args as Record<string, unknown>) : [];
  const type = typeof said.op_type === "string" ? said.op_type : null;
  return (
    <div class="tl-details">
      <div class="tl-title">
        <Swatch color={spanColor(event.name, event.kind ?? "", type)} />
        <b class="mono cut" title={event.name}>{event.name}</b>
        <CopyButton value={event.name} />
        <span class="sp" />
        <span class="d3 small">{t.sameName}</span>
        <button class="btn sm" disabled={!known?.previous} title="[" onClick={() => known?.previous && visit(of, known.previous)}>‹ <span class="kbd">[</span></button>
        <button class="btn sm" disabled={!known?.next} title="]" onClick={() => known?.next && visit(of, known.next)}><span class="kbd">]</span> ›</button>
        <button class="btn sm" onClick={() => of.sight.focus(event)}>{t.zoomTo} <span class="kbd">F</span></button>
        {event.kind === "kernel" && <a class="btn sm" href={link({ page: "kernels", params: { "kernels.find": event.name } })}>{t.kernelPage}</a>}
        {type && <a class="btn sm" href={link({ page: "operators", params: { sel: JSON.stringify([type]) } })}>{t.operatorPage}</a>}
      </div>
      <div class="tl-facts">
        <Facts of={rows.slice(0, third)} />
        <Facts of={rows.slice(third)} />
        <div>
          {known && known.parents.length > 0 && <><p class="d3 small">{t.inside}</p>{known.parents.map((one) => <EventLine key={one.span} of={of} event={one} />)}</>}
          {known && <Connections of={of} known={known} />}
        </div>
      </div>
      {args.length > 0 && (
        <>
          <p class="d3 small tl-argshead">{t.args}</p>
          <dl class="kv tl-args">{args.map(([name, value]) => [<dt key={name} class="mono">{name}</dt>, <dd key={`${name} value`} class="mono">{typeof value === "string" ? value : JSON.stringify(value)}</dd>])}</dl>
        </>
      )}
    </div>
  );
}

/** To the microsecond; where it is in its step, too. */
function Moment({ ns, from }: { ns: number; from?: number }) {
  const t = text();
  const written = (of: number) => `${(of / 1e6).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms`;
  return <span title={units.exact(ns, "time")}>{written(ns)}{from !== undefined && <span class="d3"> · {fill(t.inThisStep, { time: written(ns - from) })}</span>}</span>;
}

function EventLine({ of, event }: { of: Timeline; event: Event }) {
  return (
    <button class="tl-line" onClick={() => visit(of, event)} title={event.name}>
      <span class="mono cut">{shown(event.name)}</span><span class="d3 small nowrap">{units.text(units.time(event.dur))}</span>
    </button>
  );
}

function Flow({ of }: { of: Timeline }) {
  const t = text();
  const known = of.details.value;
  if (!of.selected.value) return <Nothing title={t.noEvent} how={t.noEventHow} />;
  return known && known.arrows.length ? <Arrows of={of} known={known} /> : <Nothing title={t.noFlow} />;
}

// What happened

const MOST = 2000;

function Events({ of }: { of: Timeline }) {
  const t = text();
  const now = info.value!;
  const area = of.area.value;
  const { t0, t1 } = area ?? of.sight.seen.value;
  const tracks = area?.lanes?.map((lane) => of.lane(lane)?.track).filter((track) => track !== null && track !== undefined);
  const ofRank = area?.lanes?.length ? of.rankOf(area.lanes[0]) : rank();
  const fields = "span, rank, track, kind, name, start_ns, dur_ns, self_ns, depth, step, op_type";
  const still = source().still;
  const words = `timeline/events?t0=${Math.round(t0)}&t1=${Math.round(t1)}&rank=${ofRank ?? 0}${area?.lanes ? `&lanes=${area.lanes.join(",")}` : ""}&limit=${MOST}`;
  const carried = useAnswer(still ? `${of.run}\n${words}` : null, async () => Table.of((await of.json<{ columns: Record<string, number[]> }>(words)).columns));
  const found = useQuery(still ? null : `select ${fields} from spans where rank = ${ofRank} and start_ns < ${absolute(now, t1)} and start_ns + dur_ns >= ${absolute(now, t0)} and kind <> 'instant'${tracks?.length ? ` and track in (${tracks.join(", ")})` : ""} order by start_ns, depth limit ${MOST}`);
  const asked = still ? carried : found;
  const lanes = new Map(of.header.lanes.filter((lane) => lane.track !== null && of.rankOf(lane.id) === ofRank).map((lane) => [lane.track!, lane]));
  const shade = (table: Table, row: number) => {
    const kind = table.str("kind")[row] ?? "";
    return spanColor(table.str("name")[row] ?? "", kind, table.str("op_type")[row]);
  };
  const columns: Column[] = [
    { key: "name", label: t.name, as: "name", color: shade, show: (table, row) => <Named name={table.str("name")[row] ?? ""} color={shade(table, row)} /> },
    { key: "kind", label: t.kind, as: "text", width: "110px" },
    { key: "start_ns", label: t.start, show: (table, row) => <span title={units.exact(table.num("start_ns")[row], "time")}>{(table.num("start_ns")[row] / 1e6).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 })}<span class="u">ms</span></span> },
    { key: "dur_ns", label: t.dur },
    { key: "self_ns", label: t.self },
    { key: "track", label: t.laneColumn, width: "minmax(140px, 1.4fr)", show: (table, row) => <span class="cut d2">{lanes.get(table.num("track")[row])?.label ?? ""}</span> },
    { key: "depth", label: t.row, hide: true },
    { key: "step", label: t.stepColumn, width: "64px" },
  ];
  const open = (table: Table, row: number) => void pick(of, ofRank ?? 0, table.num("span")[row], "show");
  const note = <span class="d3 small">{area ? t.rangeOf : t.window}{(asked.data?.rows ?? 0) >= MOST ? ` · ${fill(t.most, { count: units.count(MOST).value })}` : ""}</span>;
  return <div class="tl-grid"><Await of={asked} rows={5}>{(data) => <Grid id="spans" table={data} columns={columns} search={["name", "kind", "op_type"]} sort="start_ns" what={t.what} height="100%" chips={note} rowKey={(table, row) => table.str("span")[row] ?? ""} selected={of.selected.value ? String(of.selected.value.span) : null} onOpen={open} label={t.eventsTab} />}</Await></div>;
}
