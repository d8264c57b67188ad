/** Details of the selected span. */
import { kindOf, spanColor } from "../colors";
import { CopyButton, Empty, Facts, Swatch } from "../parts/basics";
import { Quantity, Time } from "../parts/quantity";
import { link } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import { visit } from "./navigation";
import { Arrows, Connections, onPath } from "./connections";
import { shown } from "./labels";
import type { Timeline } from "./model";
import type { Event } from "./wire";

const text = strings("timeline");

/** A name as in the bars; the full name on hover. */
export function ColoredName({ name, color: shade }: { name: string; color: string }) {
  return (
    <span class="tl-named">
      <Swatch color={shade} />
      <span class="mono cut" title={name}>
        {shown(name)}
      </span>
    </span>
  );
}

export function EmptyPanel({ title, how }: { title: string; how?: string }) {
  return (
    <div class="tl-nothing">
      <Empty title={title} height={80}>
        {how}
      </Empty>
    </div>
  );
}

// One event

export function Details({ of }: { of: Timeline }) {
  const t = text();
  const [event, known] = [of.selected.value, of.details.value];
  if (!event) return <EmptyPanel title={t.noEvent} how={t.noEventHow} />;
  const reply = known?.said ?? {};
  const lane = of.lane(event.lane);
  const step = of.steps.find((item) => event.start >= item.start && event.start < item.end);
  const number = (name: string, as: units.Quantity) =>
    typeof reply[name] === "number" ? <Quantity value={reply[name] as number} as={as} /> : null;
  const word = (name: string) =>
    typeof reply[name] === "string" && reply[name] !== "" ? <span class="mono">{reply[name] as string}</span> : null;
  const json = (name: string) =>
    reply[name] === null || reply[name] === undefined ? null : (
      <span class="mono">
        {typeof reply[name] === "string" ? (reply[name] as string) : JSON.stringify(reply[name])}
      </span>
    );
  const launch = known?.into[0];
  const exact = known !== null;
  const path = onPath(known);
  const facts: [string, unknown][] = [
    [
      t.kind,
      event.kind && (
        <>
          <Swatch color={`var(--kind-${kindOf(event.kind)})`} /> {event.kind}
        </>
      ),
    ],
    [t.dur, <Time ns={event.dur} />],
    [t.self, number("self", "time")],
    [t.start, <Moment ns={event.start} from={step?.start} />],
    [t.endAt, <Moment ns={event.start + event.dur} from={step?.start} />],
    [
      t.stepColumn,
      step ? (
        <a href={link({ page: "steps", params: { sel: step.step } })}>{step.step}</a>
      ) : (
        (number("step", "count") as unknown)
      ),
    ],
    [t.shareOfStep, exact && step ? units.text(units.share(event.dur / Math.max(1, step.end - step.start))) : null],
    [t.laneColumn, lane && `${lane.label}${lane.rows > 1 ? ` · ${t.row} ${event.row}` : ""}`],
    [
      t.queued,
      launch && of.lane(event.lane) && event.kind === "kernel" ? (
        <Time ns={Math.max(0, event.start - (launch.start + launch.dur))} />
      ) : null,
    ],
    ...(path ? [path as [string, unknown]] : []),
    [t.type, word("op_type")],
    [t.scope, word("scope")],
    [t.shapes, json("shapes")],
    [t.dtypes, json("dtypes")],
    [t.flops, number("flops", "flops")],
    [t.bytes, number("bytes", "bytes")],
    [t.correlation, number("correlation", "count")],
    [t.category, word("category")],
  ];
  const rows = facts.filter(
    ([, value]) => value !== null && value !== undefined && value !== false && value !== "",
  ) as [string, string][];
  const third = Math.ceil(rows.length / 2);
  const args =
    reply.args && typeof reply.args === "object" ? Object.entries(reply.args as Record<string, unknown>) : [];
  const type = typeof reply.op_type === "string" ? reply.op_type : null;
  return (
    <div class="tl-details">
      <div class="tl-title">
        <Swatch color={spanColor(event.name, event.kind ?? "", type)} />
        <b class="mono cut" title={event.name}>
          {event.name}
        </b>
        <CopyButton value={event.name} />
        <span class="sp" />
        <span class="d3 small">{t.sameName}</span>
        <button
          class="btn sm"
          disabled={!known?.previous}
          title="["
          onClick={() => known?.previous && visit(of, known.previous)}
        >
          ‹ <span class="kbd">[</span>
        </button>
        <button class="btn sm" disabled={!known?.next} title="]" onClick={() => known?.next && visit(of, known.next)}>
          <span class="kbd">]</span> ›
        </button>
        <button class="btn sm" onClick={() => of.sight.focus(event)}>
          {t.zoomTo} <span class="kbd">F</span>
        </button>
        {event.kind === "kernel" && (
          <a class="btn sm" href={link({ page: "kernels", params: { "kernels.find": event.name } })}>
            {t.kernelPage}
          </a>
        )}
        {type && (
          <a class="btn sm" href={link({ page: "operators", params: { sel: JSON.stringify([type]) } })}>
            {t.operatorPage}
          </a>
        )}
      </div>
      <div class="tl-facts">
        <Facts of={rows.slice(0, third)} />
        <Facts of={rows.slice(third)} />
        <div>
          {known && known.parents.length > 0 && (
            <>
              <p class="d3 small">{t.inside}</p>
              {known.parents.map((item) => (
                <EventLine key={item.span} of={of} event={item} />
              ))}
            </>
          )}
          {known && <Connections of={of} known={known} />}
        </div>
      </div>
      {args.length > 0 && (
        <>
          <p class="d3 small tl-argshead">{t.args}</p>
          <dl class="kv tl-args">
            {args.map(([name, value]) => [
              <dt key={name} class="mono">
                {name}
              </dt>,
              <dd key={`${name} value`} class="mono">
                {typeof value === "string" ? value : JSON.stringify(value)}
              </dd>,
            ])}
          </dl>
        </>
      )}
    </div>
  );
}

/** To the microsecond; with the time in its step. */
function Moment({ ns, from }: { ns: number; from?: number }) {
  const t = text();
  const written = (of: number) =>
    `${(of / 1e6).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} ms`;
  return (
    <span title={units.exact(ns, "time")}>
      {written(ns)}
      {from !== undefined && <span class="d3"> · {fill(t.inThisStep, { time: written(ns - from) })}</span>}
    </span>
  );
}

function EventLine({ of, event }: { of: Timeline; event: Event }) {
  return (
    <button class="tl-line" onClick={() => visit(of, event)} title={event.name}>
      <span class="mono cut">{shown(event.name)}</span>
      <span class="d3 small nowrap">{units.text(units.time(event.dur))}</span>
    </button>
  );
}

export function Flow({ of }: { of: Timeline }) {
  const t = text();
  const known = of.details.value;
  if (!of.selected.value) return <EmptyPanel title={t.noEvent} how={t.noEventHow} />;
  return known && known.arrows.length ? <Arrows of={of} known={known} /> : <EmptyPanel title={t.noFlow} />;
}
