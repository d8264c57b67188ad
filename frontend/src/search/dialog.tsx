/** The palette: everything that has a name, with its main figure. */
import { warmupParams, info, useFetched, useTable } from "../data";
import { Swatch } from "../parts/basics";
import { Icon } from "../parts/icon";
import { commandItems, kernelItems, pageItems, runItems, stepItems, typeItems } from "./items";
import { bestMatches, type Item } from "./match";
import { type Run, source } from "../source";
import { go, language, place, theme } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const text = strings("search");

export function SearchDialog({ close }: { close: () => void }) {
  const t = text();
  const [find, setFind] = useState("");
  const [at, setAt] = useState(0);
  const before = useRef(document.activeElement as HTMLElement | null);
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const open = place.value.run !== null && info.value !== null;
  const overview = useTable("overview", warmupParams(), { skip: !open });
  const steps = useTable("step_trace", { columns: "step,start_ns,end_ns,total_ns" }, { skip: !open });
  const types = useTable("operator_types", {}, { skip: !open });
  const kernels = useTable("kernels", {}, { skip: !open });
  const runs = useFetched<Run[]>("\nruns", () => source().runs());
  // Synchronously, so that no letter of a fast typist is lost.
  useLayoutEffect(() => {
    input.current?.focus();
    const outside = (event: Event) => !list.current?.contains(event.target as Node) && close();
    document.addEventListener("pointerdown", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      if (document.activeElement === document.body || list.current?.contains(document.activeElement))
        before.current?.focus?.();
    };
  }, []);
  const items = useMemo(
    () => [
      ...pageItems(overview.data, runs.data),
      ...stepItems(steps.data),
      ...typeItems(types.data),
      ...kernelItems(kernels.data),
      ...runItems(runs.data),
      ...commandItems(),
    ],
    [overview.data, steps.data, types.data, kernels.data, runs.data, language(), theme()],
  );
  const groups = useMemo(() => bestMatches(items, find), [items, find]);
  const flat = groups.flatMap((group) => group.items);
  const now = Math.min(at, flat.length - 1);
  useEffect(() => list.current?.querySelector(".on")?.scrollIntoView({ block: "nearest" }), [now, groups]);
  const take = async (item: Item, onTimeline: boolean) => {
    close();
    const where = onTimeline && item.timeline ? await item.timeline() : null;
    if (where) go({ page: "timeline", params: where });
    else item.act();
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by !== undefined)
      setAt(
        Math.abs(by) === 1
          ? (now + by + flat.length) % Math.max(1, flat.length)
          : Math.max(0, Math.min(flat.length - 1, now + by)),
      );
    else if (event.key === "Enter" && flat[now]) void take(flat[now], event.ctrlKey || event.metaKey);
    else if (event.key === "Escape") close();
    else if (event.key !== "Tab") return;
    event.preventDefault();
    event.stopPropagation();
  };
  let index = -1;
  return (
    <div class="palette" ref={list} role="dialog" aria-label={t.find} onKeyDown={keys}>
      <label class="palettefind">
        <Icon name="search" size={16} />
        <input
          ref={input}
          type="text"
          placeholder={t.find}
          value={find}
          spellcheck={false}
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-label={t.find}
          aria-activedescendant={flat.length ? `palette-${now}` : undefined}
          onInput={(event) => {
            setFind(event.currentTarget.value);
            setAt(0);
          }}
        />
        <span class="kbd">Esc</span>
      </label>
      <div class="palettelist" id="palette-list" role="listbox" aria-label={t.find}>
        {groups.map((group) => (
          <div key={group.name} role="group" aria-label={t[group.name]}>
            <h3>
              {t[group.name]}
              {group.left > 0 && <span class="d3"> {fill(t.more, { count: units.count(group.left).value })}</span>}
            </h3>
            {group.items.map((item) => {
              index += 1;
              const mine = index;
              return (
                <div
                  key={item.key}
                  id={`palette-${mine}`}
                  role="option"
                  aria-selected={mine === now}
                  class={`found ${mine === now ? "on" : ""}`}
                  onPointerMove={() => mine !== now && setAt(mine)}
                  onClick={(event) => void take(item, event.ctrlKey || event.metaKey)}
                >
                  {item.color ? <Swatch color={item.color} /> : <Icon name={item.icon ?? "right"} size={14} />}
                  <span class={`cut ${item.code ? "mono" : ""}`} title={item.name}>
                    {item.name}
                  </span>
                  <span class="sp" />
                  <span class="d3 nowrap">{item.figure}</span>
                </div>
              );
            })}
          </div>
        ))}
        {!flat.length && <p class="d2 nomatch">{open && types.waiting ? t.loading : t.none}</p>}
      </div>
      <p class="palettekeys d3">{t.keys}</p>
    </div>
  );
}
