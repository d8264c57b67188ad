/** The operator types with the most time. */
import { color } from "../colors";
import { useTable } from "../data";
import { Await, Card, Empty, InlineBar, Segmented, Swatch } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { Ring } from "../parts/ring";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, strings } from "../strings";
import * as units from "../units";

const text = strings("overview");

const TOP = 10;

export function OperatorTypes({ overview }: { overview: Table }) {
  const t = text();
  const types = useTable("operator_types");
  const view = (param("types") ?? "bar") as "bar" | "pie";
  const steps = overview.rows ? overview.num("steps")[0] + overview.num("left_out")[0] : 0;
  const whole = !overview.rows || overview.str("steps_how")[0] === "whole";
  const tools = (
    <>
      <Segmented
        label={t.view}
        value={view}
        onChange={(id) => go({ params: { types: id === "bar" ? null : id } }, true)}
        choices={[
          { id: "bar", label: t.bar },
          { id: "pie", label: t.pie },
        ]}
      />
      <a href={link({ page: "operators" })}>{t.operatorsPage}</a>
    </>
  );
  const device = types.data?.str("device").find((item) => item !== "cpu") ?? types.data?.str("device")[0] ?? "";
  const word =
    { gpu: "GPU", cpu: "CPU", aicore: "AI Core", aicpu: "AI CPU", hostcpu: "CPU" }[device ?? ""] ?? device ?? "";
  const ranges =
    overview.rows && types.data?.str("device").some((item) => item !== "cpu")
      ? overview.str("device_step_ranges")[0]
      : null;
  const span = ranges
    ? fill(t.stepRanges, { ranges })
    : whole
      ? t.recording
      : steps === 1
        ? t.stepCount
        : fill(t.stepsCount, { count: units.count(steps).value });
  return (
    <Card
      class="ov-types"
      title={t.types}
      note={types.data?.rows ? fill(t.typesNote, { device: word, steps: span }) : undefined}
      tools={tools}
    >
      <Await of={types} rows={11}>
        {(data) => {
          if (!data.rows)
            return (
              <Empty title={t.noTypes} height={200}>
                {t.noTypesHow} · <a href={link({ page: "operators" })}>{t.kernelsPage}</a>
              </Empty>
            );
          const [name, self, share] = [data.str("type"), data.num("self_ns"), data.num("share")];
          const rows = data.where((row) => data.str("device")[row] === device).sort((a, b) => self[b] - self[a]);
          const top = rows.slice(0, rows.length > TOP + 1 ? TOP : rows.length);
          const rest = rows.slice(top.length);
          const restTime = rest.reduce((sum, row) => sum + self[row], 0);
          const restShare = rest.reduce((sum, row) => sum + share[row], 0);
          const more = fill(t.more, { count: rest.length });
          const most = Math.max(self[top[0]], restTime);
          const unit = units.timeUnit(self[top[0]]);
          const list = (bars: boolean) => (
            <div class="ov-list" style={{ maxHeight: `${(top.length + Number(rest.length > 0)) * 34}px` }}>
              {top.map((row) => (
                <a
                  key={row}
                  class="ov-rank"
                  href={link({ page: "operators", params: { sel: JSON.stringify([name[row]]) } })}
                >
                  <span class="mono cut" title={name[row] ?? ""}>
                    {!bars && (
                      <>
                        <Swatch color={color(name[row] ?? "")} />{" "}
                      </>
                    )}
                    {name[row]}
                  </span>
                  {bars ? <InlineBar share={self[row] / most} color={color(name[row] ?? "", true)} /> : <span />}
                  <span class="r">
                    <Time ns={self[row]} unit={unit} figure={`type ${device} ${name[row]} self_ns`} />
                  </span>
                  <span class="r d2">
                    <Share of={share[row]} figure={`type ${device} ${name[row]} share`} />
                  </span>
                </a>
              ))}
              {rest.length > 0 && (
                <a class="ov-rank" href={link({ page: "operators" })}>
                  <span class="d2">
                    {!bars && (
                      <>
                        <Swatch color="var(--border-strong)" />{" "}
                      </>
                    )}
                    {more}
                  </span>
                  {bars ? <InlineBar share={restTime / most} color="var(--border-strong)" /> : <span />}
                  <span class="r">
                    <Time ns={restTime} unit={units.timeIn(restTime, unit) < 9999.5 ? unit : undefined} />
                  </span>
                  <span class="r d2">
                    <Share of={restShare} />
                  </span>
                </a>
              )}
            </div>
          );
          if (view === "bar") return list(true);
          const total = units.time(rows.reduce((sum, row) => sum + self[row], 0));
          const slices = [
            ...top.map((row) => ({ name: name[row] ?? "–", value: self[row], color: color(name[row] ?? "") })),
            ...(rest.length ? [{ name: more, value: restTime, color: "var(--border-strong)" }] : []),
          ];
          return (
            <div class="ov-pie">
              <Ring
                slices={slices}
                total={total.value}
                unit={total.unit}
                size={200}
                label={t.types}
                onPick={(picked) =>
                  go({ page: "operators", params: { sel: picked === more ? null : JSON.stringify([picked]) } })
                }
              />
              {list(false)}
            </div>
          );
        }}
      </Await>
    </Card>
  );
}
