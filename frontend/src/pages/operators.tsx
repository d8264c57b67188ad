// page: {"order": 40, "group": "performance", "icon": "operators", "needs": ["op", "kernel", "copy"]}
import "./operators.css";
import { FAMILIES, family, type Family, token } from "../colors";
import { info, useTable } from "../data";
import { familyNames, familyOf } from "../families";
import { familySums } from "../operators/families";
import { Picture } from "../operators/picture";
import { Totals } from "../operators/totals";
import { TypeView } from "../operators/types";
import { AllView, ScopeView } from "../operators/views";
import { Await, Chip, Segmented, Tabs, Verdict } from "../parts/basics";
import { Time } from "../parts/quantity";
import { useRecordedSteps } from "../coverage";
import { go, param } from "../state";
import { fill, Sentence, strings } from "../strings";
import { Table } from "../table";
import * as units from "../units";
import { useVerdict, VerdictOf } from "../verdict";
import { useMemo } from "preact/hooks";

const text = strings("operators");

const DEVICES = ["aicore", "aicpu", "hostcpu", "gpu", "tpu", "cpu"] as const;

export default function Operators() {
  const t = text();
  const types = useTable("operator_types");
  const devices = useMemo(() => {
    const counts = new Map<string, number>();
    types.data?.str("device").forEach((device) => counts.set(device!, (counts.get(device!) ?? 0) + 1));
    return DEVICES.filter((device) => counts.has(device)).map((device) => ({
      id: device as string,
      label: t[device],
      count: counts.get(device)!,
    }));
  }, [types.data, t]);
  if (types.error || !types.data)
    return (
      <>
        <Verdict>{info.value?.name}</Verdict>
        <Await of={types}>{() => null}</Await>
      </>
    );
  if (!devices.length) return <Totals />;
  const requested = param("tab");
  const device = devices.find((item) => item.id === requested)?.id ?? devices[0].id;
  return (
    <div class={`oppage ${types.waiting ? "stale" : ""}`}>
      <Body types={types.data} device={device} devices={devices} />
    </div>
  );
}

function Body({
  types,
  device,
  devices,
}: {
  types: Table;
  device: string;
  devices: { id: string; label: string; count: number }[];
}) {
  const t = text();
  const mine = useMemo(() => types.pick(types.where((row) => types.str("device")[row] === device)), [types, device]);
  const verdict = useVerdict("operators");
  const recorded = useRecordedSteps(device !== "cpu");
  // A type such as "fusion" does not show what its operators compute.
  const vague = useMemo(
    () => mine.str("type").some((type) => family(type ?? "") === "other" || /fusion/.test(type ?? "")),
    [mine],
  );
  const named = useTable("operators", { device }, { skip: !vague }).data ?? mine;
  const families = useMemo(
    () =>
      familySums(
        named,
        (row) => familyOf(named.str("type")[row], named.has("name") ? named.str("name")[row] : null),
        (key) => familyNames()[key as Family],
        (key) => `var(${token(key as Family)})`,
      ),
    [named, t],
  );
  const inFamily = useMemo(() => {
    const names = new Set<string>();
    for (let row = 0; row < named.rows; row++)
      names.add(
        `${familyOf(named.str("type")[row], named.has("name") ? named.str("name")[row] : null)} ${named.str("type")[row]}`,
      );
    return names;
  }, [named]);
  const total = mine.num("self_ns").reduce((all, item) => all + item, 0);
  const calls = mine.num("calls").reduce((all, item) => all + item, 0);
  const counted = new Set(mine.str("calls_of").flatMap((item) => (item ?? "").split(", ")));
  const steps = useSteps();
  const view = param("view") ?? "type";
  const wanted = param("family") as Family | undefined;
  const set = (name: string, fallback: string) => (id: string) =>
    go({ params: { [name]: id === fallback ? null : id, sel: null } });
  const tools = (
    <Segmented
      label={t.view}
      value={view}
      onChange={set("view", "type")}
      choices={[
        { id: "all", label: t.viewAll },
        { id: "type", label: t.viewType },
        { id: "scope", label: t.viewScope },
      ]}
    />
  );
  const chips = wanted && FAMILIES.includes(wanted) && (
    <Chip tone="acc" onRemove={() => go({ params: { family: null } })}>
      {fill(t.only, { family: familyNames()[wanted] })}
    </Chip>
  );
  return (
    <>
      <VerdictOf
        of={verdict.data && verdict.data.filter((row) => row.device === device)}
        facts={[
          recorded,
          mine.rows === 1 ? t.typesOne : fill(t.types, { count: units.count(mine.rows).value }),
          fill(!counted.has("kernel") ? t.calls : counted.size === 1 ? t.callsKernels : t.callsBoth, {
            count: units.count(calls).value,
          }),
          <Sentence template={t.whole} time={<Time ns={total} />} />,
          steps > 0 && (steps === 1 ? t.stepsOne : fill(t.steps, { count: units.count(steps).value })),
          device === "cpu" && t.hostNote,
        ]}
      />
      <Tabs
        label={t.device}
        choices={devices}
        value={device}
        onChange={(id) => go({ params: { tab: id === devices[0].id ? null : id, sel: null, family: null } })}
      />
      <Picture mine={mine} families={families} total={total} />
      <section class="card opcard">
        {view === "scope" ? (
          <ScopeView device={device} wanted={wanted} tools={tools} chips={chips} />
        ) : view === "all" ? (
          <AllView device={device} wanted={wanted} tools={tools} chips={chips} />
        ) : (
          <TypeView mine={mine} inFamily={inFamily} device={device} wanted={wanted} tools={tools} chips={chips} />
        )}
      </section>
    </>
  );
}

/** The number of steps that the figures cover. */
function useSteps(): number {
  const steps = useTable("tables/steps", { columns: "rank,step,start_ns,end_ns" });
  return new Set(steps.data?.num("step")).size;
}
