/** "Fix A, then B": the step after each fix, and the floors that no fix can pass. */
import { useTable } from "../data";
import { Await, Card } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { strings } from "../strings";
import type { Table } from "../table";
import { limitName } from "./finding";
import type { Advice, Fall } from "./rows";

const text = strings("advice");

export function Waterfall({ rows, findings }: { rows: Fall[]; findings: Advice[] }) {
  const t = text();
  if (!rows.length) return null;
  const first = rows[0].before;
  return (
    <Card title={t.waterfall} note={t.waterfallNote}>
      <ol class="adv-fall">
        <li>
          <span class="name">{rows[0].ofStep === "unprofiled" ? t.unprofiledStep : t.asRecorded}</span>
          <Bar after={first} before={first} whole={first} />
          <Time ns={first} />
          <span class="d3" />
        </li>
        {rows.map((row, at) => {
          const finding = findings.find((one) => one.rule === row.rule && one.culprit === row.culprit);
          return (
            <li key={at}>
              <span class="name">
                {at ? t.then : t.first}{" "}
                {finding ? (
                  <a class="mono" href={`#finding-${finding.position}`} onClick={(event) => show(event, finding)}>
                    {row.rule}
                  </a>
                ) : (
                  <span class="mono">{row.rule}</span>
                )}
                {row.culprit && (
                  <span class="d3 mono cut" title={row.culprit}>
                    {" "}
                    {row.culprit}
                  </span>
                )}
              </span>
              <Bar after={row.after} before={row.before} whole={first} />
              <span>
                <Time ns={row.after} />
              </span>
              <span class="d3">
                {row.gain ? (
                  <>
                    −<Share of={row.share} />
                  </>
                ) : (
                  t.noMore
                )}
                {row.bottleneck && <> · {limitName(row.bottleneck)}</>}
              </span>
            </li>
          );
        })}
      </ol>
    </Card>
  );
}

/** The fragment of the address is the place; an element is shown without it. */
function show(event: MouseEvent, { position }: Advice): void {
  event.preventDefault();
  const card = document.getElementById(`finding-${position}`);
  card?.scrollIntoView({ block: "start" });
  card?.querySelector<HTMLElement>("a, button, summary")?.focus({ preventScroll: true });
}

function Bar({ after, before, whole }: { after: number; before: number; whole: number }) {
  const part = (value: number) => `${Math.max(0, Math.min(1, value / whole)) * 100}%`;
  return (
    <span class="adv-bar" aria-hidden="true">
      <i style={{ width: part(after) }} />
      <i class="saved" style={{ width: part(before - after) }} />
    </span>
  );
}

/** The step if one resource alone took time. */
export function Floors() {
  const t = text();
  const asked = useTable("floors");
  return (
    <Card title={t.floors} note={t.floorsNote}>
      <Await of={asked} rows={3}>
        {(table) => (table.rows ? <FloorRows table={table} /> : <p class="d3">{t.noSteps}</p>)}
      </Await>
    </Card>
  );
}

function FloorRows({ table }: { table: Table }) {
  const t = text();
  const times = table.num("step_ns");
  const limiting = table.has("limits") ? table.str("limits") : [];
  const whole = Math.max(...times);
  const names: Record<string, string> = {
    measured: t.floor_measured,
    device: t.floor_device,
    host: t.floor_host,
    input: t.floor_input,
    communication: t.floor_communication,
    arithmetic: t.floor_arithmetic,
  };
  return (
    <ol class="adv-fall floors">
      {Array.from({ length: table.rows }, (_, row) => {
        const name = table.str("floor")[row] ?? "";
        return (
          <li key={row} class={limiting[row] === "true" ? "on" : ""}>
            <span class="name">{names[name] ?? name}</span>
            <Bar after={times[row]} before={times[row]} whole={whole} />
            <Time ns={times[row]} />
            <span class="d3">
              {limiting[row] === "true" ? t.limits : name === "measured" ? "" : <Share of={table.num("ratio")[row]} />}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
