/** The drawer below the picture: the selected span, the selected range, and the spans in it. */
import { allStepsParam, info } from "../data";
import { Segmented, Tabs } from "../parts/basics";
import { Icon } from "../parts/icon";
import { source } from "../source";
import { link, remember, remembered } from "../state";
import { strings } from "../strings";
import * as units from "../units";
import { write } from "./address";
import type { Tab, Timeline } from "./model";
import { Details, Flow } from "./span_details";
import { Events } from "./span_table";
import { spansSql } from "./sql";
import { Selection } from "./sum_table";
import { useRef, useState } from "preact/hooks";

const text = strings("timeline");

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
      <i
        class="tl-grip"
        role="separator"
        aria-orientation="horizontal"
        aria-label={t.size}
        aria-valuenow={height}
        tabIndex={0}
        onPointerDown={resize}
        onKeyDown={keys}
        onDblClick={() => set(USUAL)}
      />
      <header>
        <Tabs
          label={t.event}
          value={tab}
          onChange={choose}
          choices={[
            { id: "area", label: area ? `${t.area} ${units.text(units.time(area.t1 - area.t0))}` : t.area },
            { id: "event", label: t.event },
            { id: "events", label: t.eventsTab },
            { id: "flow", label: t.flow, count: flows || undefined },
          ]}
        />
        <span class="sp" />
        {tab === "area" && area && (
          <Segmented
            label={t.by}
            value={by}
            onChange={setBy}
            choices={[
              { id: "name", label: t.byName },
              { id: "lane", label: t.byLane },
              { id: "kind", label: t.byKind },
            ]}
          />
        )}
        {!source().isReport && (
          <a
            class="btn sm"
            href={link({
              page: "query",
              params: { sql: spansSql(of, info.value!), rank: null, steps: allStepsParam() },
            })}
            title={t.queryNote}
          >
            {t.query}
          </a>
        )}
        <button class="pick bare" aria-label={t.close} title={`${t.close} (Esc)`} onClick={close}>
          <Icon name="close" size={14} />
        </button>
      </header>
      <div class="tl-body">
        {tab === "area" ? (
          <Selection of={of} by={by} />
        ) : tab === "event" ? (
          <Details of={of} />
        ) : tab === "events" ? (
          <Events of={of} />
        ) : (
          <Flow of={of} />
        )}
      </div>
    </section>
  );
}
