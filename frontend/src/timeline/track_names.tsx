/** Names of groups and tracks, beside the picture. */
import { Icon } from "../parts/icon";
import { fill, strings } from "../strings";
import * as units from "../units";
import type { Head, Placed } from "./layout";
import type { Timeline } from "./model";
import { MINI, TOP } from "./scene";
import { useState } from "preact/hooks";

const text = strings("timeline");

export function Corner({ of }: { of: Timeline }) {
  const t = text();
  const { t0, t1 } = of.sight.seen.value;
  const inStep = of.steps.some((step) => Math.min(t1, step.end) - Math.max(t0, step.start) > (t1 - t0) * 0.3);
  const words = { length: units.text(units.time(of.end)), count: units.count(of.header.events).value };
  return (
    <>
      <div class="tl-corner" style={{ height: `${MINI}px` }}>
        <span class="d2">{t.whole}</span>
        <span class="d3">{fill(of.header.events === 1 ? t.event1 : t.events, words)}</span>
      </div>
      <div class="tl-corner ruler" style={{ height: `${TOP - MINI}px` }}>
        <span class="d2">{of.steps.length ? t.step : t.time}</span>
        <span class="d3">{inStep ? t.inStep : t.sinceStart}</span>
      </div>
    </>
  );
}

export function GroupName({ of, head }: { of: Timeline; head: Head }) {
  const t = text();
  const { group } = head;
  const ranks = new Set(of.header.groups.map((item) => item.rank)).size > 1;
  const note = [
    group.busy_share !== null &&
      group.busy_share !== undefined &&
      fill(t.busy, { share: units.text(units.share(group.busy_share)) }),
    group.note,
  ]
    .filter(Boolean)
    .join(" · ");
  const label = ranks && group.label !== `rank ${group.rank}` ? `${group.label} · rank ${group.rank}` : group.label;
  return (
    <button
      class="tl-group"
      style={{ top: `${head.y}px` }}
      aria-expanded={!head.folded}
      aria-label={fill(head.folded ? t.unfold : t.fold, { group: label })}
      onClick={() => of.toggle("folded", group.id)}
      title={[label, note].filter(Boolean).join(" · ")}
    >
      <Icon name={head.folded ? "right" : "down"} size={12} />
      <b>{label}</b>
      <span class="d3 cut">{note}</span>
    </button>
  );
}

export function LaneName({ of, placed, top }: { of: Timeline; placed: Placed; top: number }) {
  const t = text();
  const { lane } = placed;
  const [held, setHeld] = useState<number | null>(null);
  const label = lane.label;
  const resize = (event: PointerEvent) => {
    event.stopPropagation();
    event.preventDefault();
    const target = event.currentTarget as HTMLElement;
    target.setPointerCapture(event.pointerId);
    const [from, before] = [event.clientY, placed.height];
    const move = (now: PointerEvent) =>
      of.rearrange(
        {
          sizes: {
            ...of.arrangement.peek().sizes,
            [lane.id]: Math.max(14, Math.min(600, before + now.clientY - from)),
          },
        },
        false,
      );
    const done = () => {
      target.removeEventListener("pointermove", move);
      of.rearrange({});
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", done, { once: true });
  };
  const unsize = () => {
    const { [lane.id]: _, ...rest } = of.arrangement.peek().sizes;
    of.rearrange({ sizes: rest });
  };
  // The track goes to the middle of the dragged name.
  const carry = (event: PointerEvent) => {
    if (event.button !== 0 || (event.target as HTMLElement).closest("button, .tl-size")) return;
    const target = event.currentTarget as HTMLElement;
    target.setPointerCapture(event.pointerId);
    const from = event.clientY;
    let by = 0;
    const move = (now: PointerEvent) => {
      by = now.clientY - from;
      if (Math.abs(by) > 4) setHeld(by);
    };
    const done = () => {
      target.removeEventListener("pointermove", move);
      setHeld(null);
      if (Math.abs(by) <= 4) return;
      const list = (placed.pinned ? of.layout.peek().pinned : of.layout.peek().lanes).filter(
        (item) => placed.pinned || item.lane.group === lane.group,
      );
      const to = placed.y + by + (by > 0 ? placed.height : 0);
      const before = list.find((item) => item.lane.id !== lane.id && to < item.y + item.height / 2);
      of.move(lane.id, before?.lane.id ?? null);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", done, { once: true });
  };
  const keys = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget) return;
    const list = (placed.pinned ? of.layout.peek().pinned : of.layout.peek().lanes).filter(
      (item) => placed.pinned || item.lane.group === lane.group,
    );
    const at = list.findIndex((item) => item.lane.id === lane.id);
    if (event.altKey && event.key === "ArrowUp" && at > 0) of.move(lane.id, list[at - 1].lane.id);
    else if (event.altKey && event.key === "ArrowDown" && at < list.length - 1)
      of.move(lane.id, list[at + 2]?.lane.id ?? null);
    else if (event.key === "+" || event.key === "-")
      of.rearrange({
        sizes: {
          ...of.arrangement.peek().sizes,
          [lane.id]: Math.max(14, placed.height + (event.key === "+" ? 10 : -10)),
        },
      });
    else if (event.key === "p") of.toggle("pins", lane.id);
    else if (event.key === "Delete") of.toggle("hidden", lane.id);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const pinned = of.arrangement.value.pins.includes(lane.id);
  const rows =
    lane.kind === "overlap"
      ? placed.rows.map((row, at) =>
          (at ? [row] : [row, ...placed.also]).map((item) => lane.row_labels?.[item] ?? "").join(", "),
        )
      : [];
  return (
    <div
      class={`tl-lane ${held !== null ? "held" : ""} ${placed.height < 24 ? "narrow" : ""}`}
      data-lane={lane.id}
      style={{ top: `${top + placed.y + (held ?? 0)}px`, height: `${placed.height}px` }}
      tabIndex={0}
      role="group"
      aria-label={`${t.lane} ${label}`}
      aria-keyshortcuts="P Delete Alt+ArrowUp Alt+ArrowDown"
      onPointerDown={carry}
      onKeyDown={keys}
      title={[label, lane.note].filter(Boolean).join(" · ")}
    >
      {rows.length > 1 ? (
        <span class="tl-rows">
          {rows.map((name) => (
            <span key={name} style={{ height: `${placed.rowHeight}px`, lineHeight: `${placed.rowHeight}px` }}>
              {name}
            </span>
          ))}
        </span>
      ) : (
        <>
          <span class="cut">{squeezed(label)}</span>
          <span class="d3 cut tl-noted">
            <span>{rows.length ? rows.join(", ") : lane.kind === "counter" ? "" : lane.note}</span>
          </span>
        </>
      )}
      <span class="tl-tools">
        <button
          tabIndex={-1}
          class={pinned ? "on" : ""}
          aria-pressed={pinned}
          aria-label={fill(pinned ? t.unpin : t.pin, { track: label })}
          title={fill(pinned ? t.unpin : t.pin, { track: label })}
          onClick={() => of.toggle("pins", lane.id)}
        >
          <Icon name="pin" size={12} />
        </button>
        <button
          tabIndex={-1}
          aria-label={fill(t.hide, { track: label })}
          title={fill(t.hide, { track: label })}
          onClick={() => of.toggle("hidden", lane.id)}
        >
          <Icon name="close" size={11} />
        </button>
      </span>
      <i
        class="tl-size"
        role="separator"
        aria-label={fill(t.height, { track: label })}
        onPointerDown={resize}
        onDblClick={unsize}
      />
    </div>
  );
}

/** Long names without their middle: names of process groups differ at their ends. */
function squeezed(label: string): string {
  return label.replace(/\S{21,}/g, (word) => `${word.slice(0, 9)}…${word.slice(-9)}`);
}
