/** Calls grouped by shape or kernel. */
import { color } from "../colors";
import type { Change } from "../place";
import { link } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import { Count, Time } from "./quantity";
import { Empty, Swatch } from "./basics";
import { shapeText, shortName, typeText } from "./shapes";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

const text = strings("calls");

interface Part {
  key: string;
  note: string;
  calls: number;
  total: number;
}

function parts(table: Table, key: string, note?: string): Part[] {
  const groups = new Map<string, Part>();
  const keys = table.str(key),
    notes = note ? table.str(note) : null,
    time = table.num("dur_ns");
  for (let row = 0; row < table.rows; row++) {
    if (keys[row] === null) continue;
    const name = `${keys[row]}\n${notes?.[row] ?? ""}`;
    let part = groups.get(name);
    if (!part) groups.set(name, (part = { key: keys[row]!, note: notes?.[row] ?? "", calls: 0, total: 0 }));
    part.calls += 1;
    part.total += time[row];
  }
  return [...groups.values()].sort((a, b) => b.total - a.total);
}

export function Shapes({ calls }: { calls: Table }) {
  const t = text();
  const result = useMemo(() => parts(calls, "shapes", "dtypes"), [calls]);
  return (
    <section>
      <h3>
        {t.shapes}
        {result.length > 1 && <span class="d3 small">{result.length}</span>}
      </h3>
      {result.length === 0 ? (
        <Empty title={t.shapeNone} height={64}>
          <Sentence template={t.shapeFlag} flag={<span class="mono">--shapes</span>} />
        </Empty>
      ) : (
        <Parts
          found={result}
          show={(part) => (
            <>
              <span class="mono">{shapeText(part.key)}</span> <span class="d3">{typeText(part.note)}</span>
            </>
          )}
          title={(part) => `${part.key}\n${part.note}`}
        />
      )}
    </section>
  );
}

export function Grouped({
  table,
  by,
  title,
  one,
  many,
  page,
}: {
  table: Table;
  by: "kernel" | "name";
  title: string;
  one: string;
  many: string;
  page: string;
}) {
  const result = useMemo(() => parts(table, by), [table, by]);
  if (!result.length) return null;
  const device = table.str("device")[0];
  const to = (part: Part): Change =>
    page === "kernels"
      ? { page, params: { sel: JSON.stringify([part.key]) } }
      : { page, params: { tab: device, view: "all", "all.find": part.key } };
  return (
    <section>
      <h3>
        {title}
        <span class="d3 small">{result.length === 1 ? one : fill(many, { count: result.length })}</span>
      </h3>
      <Parts
        found={result}
        show={(part) => (
          <>
            <Swatch color={color(part.key, true)} />
            <a class="mono" href={link(to(part))}>
              {shortName(part.key)}
            </a>
          </>
        )}
        title={(part) => part.key}
      />
    </section>
  );
}

function Parts({
  found,
  show,
  title,
}: {
  found: Part[];
  show: (part: Part) => ComponentChildren;
  title: (part: Part) => string;
}) {
  const t = text();
  const [all, setAll] = useState(false);
  return (
    <>
      <ul class="parts">
        {(all ? found.slice(0, 200) : found.slice(0, 4)).map((part) => (
          <li key={`${part.key}\n${part.note}`} title={title(part)}>
            <span class="what">{show(part)}</span>
            <span class="d3 small nowrap">
              <Count of={part.calls} /> ×
            </span>
            <span class="r nowrap">
              <Time ns={part.total} />
            </span>
          </li>
        ))}
      </ul>
      {!all && found.length > 4 && (
        <button class="aslink small" onClick={() => setAll(true)}>
          {fill(t.more, { count: found.length - 4 })}
        </button>
      )}
    </>
  );
}
