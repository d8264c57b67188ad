/** The runs on both sides of a comparison, in the address: the open run and `base` are A, `with` is B. */
import { useFetched } from "../data";
import { Await, Card, Chip, Empty } from "../parts/basics";
import { listed } from "../place";
import { source, type Info, type Run } from "../source";
import { go, link, param, place } from "../state";
import { fill, strings } from "../strings";

const text = strings("compare");

/** The most runs on a side that the server compares. */
const MOST = 16;

export function sideIds(now: Info): { a: string[]; b: string[] } {
  const ids = (name: string) => (param(name) ?? "").split(",").filter(Boolean);
  return { a: [now.id, ...ids("base")], b: ids("with") };
}

function useRuns() {
  return useFetched<Run[]>("\nruns", () => source().runs());
}

/** The runs to choose from, where none is chosen. */
export function Choose({ now }: { now: Info }) {
  const t = text();
  const runs = useRuns();
  return (
    <Card title={t.chooseTitle}>
      <Await of={runs}>
        {(list) => {
          const others = list.filter((run) => run.id !== listed(now.id) && run.state === "finished");
          if (!others.length) return <Empty title={t.noOther}>{t.noOtherHow}</Empty>;
          return (
            <ul class="cmp-list">
              {others.map((run) => (
                <li key={run.id}>
                  <a href={link({ params: { with: run.id } })}>{run.name}</a> <span class="d3 small">{run.path}</span>
                </li>
              ))}
            </ul>
          );
        }}
      </Await>
    </Card>
  );
}

/** Both sides as chips, with menus to add runs, and a link that swaps the sides. */
export function Sides({ now }: { now: Info }) {
  const t = text();
  const runs = useRuns();
  const { a, b } = sideIds(now);
  const name = (id: string) =>
    (id === now.id ? now.name : null) ?? runs.data?.find((run) => run.id === listed(id))?.name ?? id;
  const others = (runs.data ?? []).filter(
    (run) => run.state === "finished" && ![...a, ...b].some((id) => listed(id) === run.id),
  );
  const list = (key: "base" | "with", ids: string[]) => go({ params: { [key]: ids.join(",") || null } });
  const swapped = { run: b[0], page: "compare", params: { base: b.slice(1).join(",") || null, with: a.join(",") } };
  return (
    <section class="cmp-sides" aria-label={t.sides}>
      <Side label="A" t={t} others={others} full={a.length >= MOST} add={(id) => list("base", [...a.slice(1), id])}>
        {a.map((id, at) => (
          <Chip
            key={id}
            onRemove={
              at
                ? () =>
                    list(
                      "base",
                      a.slice(1).filter((one) => one !== id),
                    )
                : undefined
            }
          >
            {name(id)}
          </Chip>
        ))}
      </Side>
      <Side label="B" t={t} others={others} full={b.length >= MOST} add={(id) => list("with", [...b, id])}>
        {b.map((id) => (
          <Chip
            key={id}
            onRemove={() =>
              list(
                "with",
                b.filter((one) => one !== id),
              )
            }
          >
            {b.length === 1 ? <a href={link({ run: id, page: "overview", params: {} })}>{name(id)}</a> : name(id)}
          </Chip>
        ))}
      </Side>
      <a class="btn sm" href={link(swapped)}>
        {t.swap}
      </a>
    </section>
  );
}

interface SideProps {
  label: "A" | "B";
  t: ReturnType<typeof text>;
  others: Run[];
  full: boolean;
  add: (id: string) => void;
  children: preact.ComponentChildren;
}

function Side({ label, t, others, full, add, children }: SideProps) {
  return (
    <div class="cmp-side">
      <b class={`cmp-mark ${label.toLowerCase()}`}>{label}</b>
      {children}
      {others.length > 0 && !full && (
        <select
          class="cmp-add"
          aria-label={fill(t.addTo, { side: label })}
          value=""
          onChange={(event) => add((event.target as HTMLSelectElement).value)}
        >
          <option value="" disabled>
            {t.add}
          </option>
          {others.map((run) => (
            <option key={run.id} value={run.id}>
              {run.name}
            </option>
          ))}
        </select>
      )}
    </div>
  );
}

/** Where a link swaps or opens a run, the parameters of this page do not follow. */
export function isCompared(): boolean {
  return place.value.params.with !== undefined;
}
