/** What-if: choose what changes and by how much, and see the predicted step. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { info, useTable } from "../data";
import { Await, Card, Segmented, Trouble } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { source } from "../source";
import { go, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { limitName } from "./finding";

const text = strings("advice");

const WAIT_MS = 300;
/** Kinds of time that can be removed: those of `stepscope whatif --remove`. */
const REMOVABLE = ["input_wait", "sync", "launch_latency", "copy", "communication", "host", "device"] as const;
/** Names that the list offers; others can be typed. */
const OFFERED = 200;

export function WhatIf() {
  const t = text();
  const [kind, setKind] = useState<"scale" | "remove">(param("remove") ? "remove" : "scale");
  const names = useNames();
  const name = param("scale") ?? names[0] ?? "";
  const removed = param("remove") ?? "sync";
  const factor = Math.max(0, Math.min(2, Number(param("factor") ?? "0.5") || 0));
  const [asked, setAsked] = useState<{ scale?: string; remove?: string } | null>(null);
  const wanted = kind === "scale" ? (name ? { scale: `${name}=${factor}` } : null) : { remove: removed };
  const key = JSON.stringify(wanted);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(wanted), WAIT_MS);
    return () => clearTimeout(timer);
  }, [key]);
  const predicted = useTable("whatif", asked ?? {}, { skip: asked === null, allRanks: true });
  if (source().isReport) return null;
  return (
    <Card title={t.whatif} note={t.whatifNote} class="adv-whatif">
      <div class="adv-controls">
        <Segmented
          label={t.whatif}
          value={kind}
          choices={[
            { id: "scale", label: t.scaleKind },
            { id: "remove", label: t.removeKind },
          ]}
          onChange={(id) => {
            setKind(id);
            go({ params: id === "scale" ? { remove: null } : { remove: removed, scale: null, factor: null } }, true);
          }}
        />
        {kind === "scale" ? (
          <ScaleControls name={name} names={names} factor={factor} />
        ) : (
          <select
            aria-label={t.removeKind}
            value={removed}
            onChange={(event) => go({ params: { remove: event.currentTarget.value } }, true)}
          >
            {REMOVABLE.map((word) => (
              <option key={word} value={word}>
                {t[`remove_${word}`]}
              </option>
            ))}
          </select>
        )}
      </div>
      {JSON.stringify(asked) !== key ? (
        <p class="d3" aria-busy="true">
          {t.whatifWait}
        </p>
      ) : asked === null ? (
        <p class="d3">{t.whatifChoose}</p>
      ) : predicted.error ? (
        <Trouble error={predicted.error} />
      ) : (
        <Await of={predicted} rows={2}>
          {(table) => (table.rows ? <Prediction of={table} /> : <p class="d3">{t.noSteps}</p>)}
        </Await>
      )}
    </Card>
  );
}

function ScaleControls({ name, names, factor }: { name: string; names: string[]; factor: number }) {
  const t = text();
  const [typed, setTyped] = useState(name);
  useEffect(() => setTyped(name), [name]);
  return (
    <>
      <input
        type="text"
        class="mono"
        list="whatif-names"
        value={typed}
        placeholder={t.whatifName}
        aria-label={t.whatifName}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          // A name from the list is used at once; a typed one when it is complete.
          if (names.includes(event.currentTarget.value)) go({ params: { scale: event.currentTarget.value } }, true);
        }}
        onChange={(event) => go({ params: { scale: event.currentTarget.value.trim() || null } }, true)}
      />
      <datalist id="whatif-names">
        {names.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <label class="adv-factor">
        <input
          type="range"
          min="0"
          max="2"
          step="0.05"
          value={factor}
          aria-label={t.factor}
          aria-valuetext={fill(t.factorText, { factor: factor.toFixed(2) })}
          onInput={(event) => go({ params: { factor: event.currentTarget.value } }, true)}
        />
        <span>{fill(t.factorText, { factor: factor.toFixed(2) })}</span>
      </label>
    </>
  );
}

/** Operators, kernels and modules, the longest first. */
function useNames(): string[] {
  const types = useTable("operator_types");
  const kernels = useTable("kernels");
  const scoped = (info.value?.kinds.scope ?? 0) > 0;
  const modules = useTable("modules", {}, { skip: !scoped });
  return useMemo(() => {
    const named = (table: Table | null, name: string, by: string): [string, number][] =>
      table
        ? table
            .str(name)
            .map((text, row) => [text ?? "", table.has(by) ? table.num(by)[row] || 0 : 0] as [string, number])
        : [];
    const all = [
      ...named(types.data, "type", "self_ns"),
      ...named(kernels.data, "name", "total_ns"),
      ...named(modules.data, "scope", "device_ns"),
    ];
    all.sort((a, b) => b[1] - a[1]);
    return [...new Set(all.map(([text]) => text).filter(Boolean))].slice(0, OFFERED);
  }, [types.data, kernels.data, modules.data]);
}

/** The slowest rank: the step as recorded, replayed and predicted. */
function Prediction({ of }: { of: Table }) {
  const t = text();
  const replayed = of.num("replayed_ns");
  const row = replayed.reduce((best, value, at) => (value > replayed[best] ? at : best), 0);
  const [before, after, recorded] = [replayed[row], of.num("predicted_ns")[row], of.num("step_ns")[row]];
  const gain = of.num("gain_ns")[row];
  const error = recorded ? before / recorded - 1 : 0;
  const most = Math.max(before, after);
  const same = units.text(units.time(before)) === units.text(units.time(after));
  return (
    <div class="adv-predicted" aria-live="polite">
      <p class="adv-answer">
        <Sentence
          template={same ? t.whatifSame : gain > 0 ? t.whatifLess : t.whatifMore}
          before={<Time ns={before} />}
          after={
            <b>
              <Time ns={after} />
            </b>
          }
          gain={
            <b>
              <Time ns={Math.abs(gain)} />
            </b>
          }
          share={<Share of={Math.abs(of.num("gain_share")[row])} />}
        />
      </p>
      <ol class="adv-fall">
        {(
          [
            [t.replayed, before],
            [t.predicted, after],
          ] as const
        ).map(([label, ns]) => (
          <li key={label}>
            <span class="name">{label}</span>
            <span class="adv-bar" aria-hidden="true">
              <i style={{ width: `${(ns / most) * 100}%` }} />
            </span>
            <Time ns={ns} />
            <span class="d3" />
          </li>
        ))}
      </ol>
      <p class="d3 small">
        <Sentence
          template={t.whatifFacts}
          limit={limitName(of.str("bottleneck")[row])}
          part={<Share of={of.num("bottleneck_share")[row]} />}
          count={of.num("steps")[row]}
          steps={of.str("coverage")[row] ?? ""}
          error={<Share of={Math.abs(error)} />}
        />
      </p>
    </div>
  );
}
