// page: {"order": 50, "group": "performance", "icon": "kernels", "needs": ["kernel", "copy", "set"]}
import "./operators.css";
import { color, family } from "../colors";
import { info, useTable } from "../data";
import { familyNames } from "../families";
import { Activities, add, byName, rowKey } from "../kernels/activities";
import { Launches } from "../kernels/launches";
import { OverheadNote } from "../overhead";
import { Await, Chip, Empty, Swatch, Tabs, Verdict } from "../parts/basics";
import { Calls } from "../parts/calls";
import { Drawer } from "../parts/drawer";
import { Share, Time } from "../parts/quantity";
import { shortName } from "../parts/shapes";
import { useRecordedSteps } from "../coverage";
import { go, link, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { tone, useVerdict, VerdictOf } from "../verdict";
import { useMemo } from "preact/hooks";

const text = strings("kernels");

export default function Kernels() {
  const t = text();
  const scoped = param("by") === "scope" ? true : undefined;
  const kernels = useTable("kernels", { by_scope: scoped });
  const withCopies = useTable("kernels", { copies: true, by_scope: scoped });
  const launches = useTable("launches");
  const verdict = useVerdict("kernels");
  const tab = param("tab") ?? "kernels";
  const copies = useMemo(() => {
    if (!withCopies.data || !kernels.data) return null;
    const known = new Set(Array.from({ length: kernels.data.rows }, (_, row) => rowKey(kernels.data!, row)));
    return withCopies.data.pick(withCopies.data.where((row) => !known.has(rowKey(withCopies.data!, row))));
  }, [withCopies.data, kernels.data]);
  const names = useMemo(() => (kernels.data ? byName(kernels.data) : []), [kernels.data]);
  const recorded = useRecordedSteps();
  if (!kernels.data || !copies)
    return (
      <>
        <Verdict>{info.value?.name}</Verdict>
        <Await of={kernels.error ? kernels : withCopies}>{() => null}</Await>
      </>
    );
  if (!kernels.data.rows && !copies.rows)
    return (
      <>
        <VerdictOf of={verdict.data} />
        <Empty title={t.none}>
          <Sentence template={t.noneHow} flag={<span class="mono">stepscope run</span>} />
        </Empty>
      </>
    );
  const copied = copies.num("total_ns").reduce((all, item) => all + item, 0);
  const calls = kernels.data.num("calls").reduce((all, item) => all + item, 0);
  return (
    <div class={`oppage ${kernels.waiting ? "stale" : ""}`}>
      <VerdictOf
        of={verdict.data}
        facts={[
          recorded,
          names.length > 0 && fill(t.kernelCount, { count: units.count(names.length).value }),
          kernels.data.rows !== names.length && fill(t.distinct, { count: units.count(kernels.data.rows).value }),
          names.length > 0 && fill(t.calls, { count: units.count(calls).value }),
          copied > 0 && <Sentence template={t.copyNote} time={<Time ns={copied} />} />,
        ]}
      />
      <Tabs
        label={t.tab}
        value={tab}
        onChange={(id) => go({ params: { tab: id === "kernels" ? null : id, sel: null } })}
        choices={[
          { id: "kernels", label: t.kernels, count: kernels.data.rows },
          { id: "copies", label: t.copies, count: copies.rows },
          { id: "launches", label: t.launches, count: launches.data?.rows },
        ]}
      />
      {tab === "launches" ? (
        <>
          <OverheadNote />
          <Await of={launches} rows={10}>
            {(data) => (
              <Launches data={data} tone={tone(verdict.data?.find((row) => row.code === "launches-host-bound"))} />
            )}
          </Await>
        </>
      ) : (
        <Activities table={tab === "copies" ? copies : kernels.data} id={tab} />
      )}
      <Chosen kernels={kernels.data} copies={copies} />
    </div>
  );
}

function Chosen({ kernels, copies }: { kernels: Table; copies: Table }) {
  const t = text();
  const sel = param("sel");
  const parts = useMemo(() => {
    try {
      return sel ? (JSON.parse(sel) as (string | null)[]) : null;
    } catch {
      return null;
    }
  }, [sel]);
  if (!parts) return null;
  const [name, op, device, scope] = parts;
  const table = kernels.str("name").includes(name) ? kernels : copies;
  const rows = table.where(
    (row) =>
      table.str("name")[row] === name &&
      (parts.length < 2 ||
        (table.str("op")[row] === op &&
          table.raw("device", row) === device &&
          (parts.length < 4 || table.str("scope")[row] === scope))),
  );
  if (!rows.length || name === null) return null;
  const of = table.pick(rows);
  const total = add(of, "total_ns"),
    calls = add(of, "calls");
  const shadeOf = color(name, true);
  const item = rows.length === 1 ? rows[0] : -1;
  return (
    <Drawer
      key={sel}
      onClose={() => go({ params: { sel: null } })}
      title={
        <>
          <Swatch color={shadeOf} />
          <b class="mono cut" title={name}>
            {shortName(name)}
          </b>
        </>
      }
    >
      <p class="mono d2 wrapname">{name}</p>
      <Calls
        which={{ kernel: name }}
        of={sel!}
        keep={
          parts.length < 2
            ? undefined
            : (all, row) =>
                all.str("type")[row] === (op ?? name) &&
                all.raw("number", row) === device &&
                (parts.length < 4 || all.str("scope")[row] === scope)
        }
        color={shadeOf}
        figures={{ total, calls, mean: total / calls, share: add(of, "share") }}
        chips={
          <>
            <Chip>{familyNames()[family(name)]}</Chip>
            {item >= 0 && table.str("op")[item] && (
              <a
                class="chip"
                href={link({ page: "operators", params: { sel: JSON.stringify([table.str("op")[item]]) } })}
                title={t.open}
              >
                <span class="mono">{table.str("op")[item]}</span>
              </a>
            )}
            {item >= 0 && table.str("grid")[item] && (
              <Chip>
                {t.grid} {table.str("grid")[item]}
              </Chip>
            )}
            {item >= 0 && table.str("block")[item] && (
              <Chip>
                {t.block} {table.str("block")[item]}
              </Chip>
            )}
            {item >= 0 && Number.isFinite(table.num("registers")[item]) && (
              <Chip>
                {t.registers} {table.num("registers")[item]}
              </Chip>
            )}
            {item >= 0 && Number.isFinite(table.num("occupancy")[item]) && (
              <Chip>
                {t.occupancy} <Share of={table.num("occupancy")[item]} />
              </Chip>
            )}
          </>
        }
      />
    </Drawer>
  );
}
