/** Step breakdown: time of the device and stages of the host, as shares, in order, or as a table. */
import { info, type Fetched, useTable } from "../data";
import { deviceWord, onDevice } from "../device";
import { recordedTag } from "../overhead";
import { Await, Card, Empty, Legend, Segmented, Swatch } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { type Stage, StageBar } from "../parts/stage_bar";
import { hasPage } from "../page_links";
import { type Info, source } from "../source";
import type { Change } from "../place";
import { go, link, param } from "../state";
import type { Table } from "../table";
import { fill, Sentence, strings, type Strings } from "../strings";
import * as units from "../units";
import type { SelectedStep } from "./selected_step";
import { Columns } from "./columns";
import { type HostStage, HostStages, stageRows } from "./stages";

const text = strings("overview");

interface Piece extends Stage {
  inSentence: string;
  /** The page with the rows behind it. */
  to?: Change & { page: string };
}

const CAUSE_WORDS: Record<string, "cause_host" | "cause_launch" | "cause_sync" | "cause_comm" | "wait"> = {
  "host-bound": "cause_host",
  "launch latency": "cause_launch",
  sync: "cause_sync",
  communication: "cause_comm",
  "data wait": "wait",
};

function stepPieces(
  t: Strings["overview"],
  now: Info,
  overlap: Table,
  chosen: SelectedStep,
  causes: Table | null,
): Piece[] {
  const value = (name: string) => overlap.num(name)[chosen.row];
  const device = onDevice(now);
  const work = device ? t.compute : t.operators;
  const all: Piece[] = [
    {
      name: work,
      inSentence: work.toLowerCase(),
      ns: value("computing_ns"),
      color: "var(--kind-compute)",
      to: { page: device ? "kernels" : "operators" },
    },
    {
      name: t.copy,
      inSentence: t.copy.toLowerCase(),
      ns: value("copy_ns"),
      color: "var(--kind-copy)",
      to: { page: "kernels", params: { tab: "copies" } },
    },
    {
      name: t.comm,
      inSentence: t.comm.toLowerCase(),
      ns: value("device_exposed_ns"),
      color: "var(--kind-communication)",
      to: { page: "communication" },
    },
  ];
  const ownRows = causes?.where((row) => causes.num("step")[row] === chosen.step) ?? [];
  const idle = ownRows.reduce((sum, row) => sum + causes!.num("total_ns")[row], 0);
  // If the causes explain the idle time of the step exactly (one device), each has its piece; else the idle time is one
  // piece.
  if (device && causes && idle === value("free_ns")) {
    const parts = ownRows.map((row) => ({ cause: causes.str("cause")[row] ?? "", ns: causes.num("total_ns")[row] }));
    parts.sort((a, b) => Number(b.cause === "data wait") - Number(a.cause === "data wait"));
    for (const { cause, ns } of parts) {
      const name = t[CAUSE_WORDS[cause] ?? "cause_unknown"];
      all.push(
        cause === "data wait"
          ? { name, inSentence: name.toLowerCase(), ns, color: "var(--kind-wait)", dark: true, to: { page: "data" } }
          : { name, inSentence: name, ns, hatch: true, to: { page: "advice" } },
      );
    }
  } else if (value("free_ns") > 0) {
    const name = device ? t.idleKind : t.noOperator;
    all.push({ name, inSentence: name.toLowerCase(), ns: value("free_ns"), hatch: true });
  }
  return all.filter((piece) => piece.ns > 0);
}

export function StepPicture({
  now,
  overlap,
  chosen,
  overview,
}: {
  now: Info;
  overlap: Fetched<Table>;
  chosen: SelectedStep | null;
  overview: Table;
}) {
  const t = text();
  const device = onDevice(now);
  const causes = useTable("gap_causes", { per_step: 1 }, { skip: !device });
  const stages = useTable("step_stages");
  const steps = useTable("step_trace", { columns: "rank,step,start_ns,end_ns,total_ns" });
  const at = chosen && steps.data ? steps.data.num("step").indexOf(chosen.step) : -1;
  const view = (param("view") ?? "share") as "share" | "order" | "table";
  const note =
    chosen &&
    fill({ median: t.theMedian, near: t.nearMedian, chosen: t.theStep, whole: t.theWhole }[chosen.how], {
      step: chosen.step,
    });
  const kinds = [
    { label: device ? t.compute : t.operators, color: "var(--kind-compute)" },
    { label: t.copy, color: "var(--kind-copy)" },
    { label: t.wait, color: "var(--kind-wait)" },
    { label: t.comm, color: "var(--kind-communication)" },
    { label: t.idleKind, hatch: true },
  ];
  const tools = (
    <>
      <Legend of={kinds} />
      {at >= 0 && (
        <a
          href={link({
            page: "timeline",
            params: { t0: Math.round(steps.data!.num("start_ns")[at]), t1: Math.round(steps.data!.num("end_ns")[at]) },
          })}
        >
          {t.timeline}
        </a>
      )}
      <Segmented
        label={t.view}
        value={view}
        onChange={(id) => go({ params: { view: id === "share" ? null : id } }, true)}
        choices={[
          { id: "share", label: t.shareView },
          { id: "order", label: t.order, off: source().isReport },
          { id: "table", label: t.tableView },
        ]}
      />
    </>
  );
  return (
    <Card
      title={t.where}
      note={note && [note, device && recordedTag(overview, 0)].filter(Boolean).join(" · ")}
      tools={overlap.data?.rows === 0 ? undefined : tools}
    >
      <Await of={overlap} rows={3}>
        {(data) => {
          if (!chosen) return <HostOnly />;
          const [total, time] = [data.num("total_ns")[chosen.row], data.num("device_ns")[chosen.row]];
          const parts = stepPieces(t, now, data, chosen, causes.data);
          const host = stageRows(t, stages.data, chosen.step);
          if (view === "table") return <StepTable parts={parts} host={host} total={total} time={time} now={now} />;
          const summary = parts
            .map(
              (piece) =>
                `${piece.name} ${units.text(units.time(piece.ns))} (${units.text(units.share(piece.ns / time))})`,
            )
            .join(", ");
          const scale = Math.max(total, time); // one axis for both: a step may be longer on the device than on the host
          return (
            <div class="ov-step">
              <span class="who">{device ? (deviceWord(now) ?? t.device) : "CPU"}</span>
              {Number.isNaN(data.num("free_ns")[chosen.row]) ? (
                <span class="d3">{t.notRecordedStep}</span>
              ) : view === "share" ? (
                <StageBar height={32} total={time} scale={scale} label={summary} stages={parts} />
              ) : (
                <InOrder step={chosen.step} total={scale} label={summary} />
              )}
              <span class="who low">{t.host_}</span>
              <HostStages rows={host} total={total} scale={scale} order={view === "order"} />
              <span />
              <Axis total={scale} />
            </div>
          );
        }}
      </Await>
    </Card>
  );
}

function Axis({ total }: { total: number }) {
  const unit = units.timeUnit(total);
  const marks = units.ticks(0, units.timeIn(total, unit), 7).filter((at) => at < units.timeIn(total, unit) * 0.985);
  return (
    <div class="ov-axis" aria-hidden="true">
      {marks.map((at) => (
        <span key={at} style={{ left: `${(at / units.timeIn(total, unit)) * 100}%` }}>
          {at === 0 ? `0 ${unit}` : +at.toPrecision(6)}
        </span>
      ))}
    </div>
  );
}

/** Without operators and kernels only the stages of the host are known. */
function HostOnly() {
  const t = text();
  return (
    <Empty title={t.noActivity} height={72}>
      <Sentence template={t.noWorkHow} totals={<a href={link({ page: "operators" })}>{t.kernelsPage}</a>} />
    </Empty>
  );
}

function InOrder({ step, total, label }: { step: number; total: number; label: string }) {
  const activity = useTable("activity", { step, buckets: 400 }, { allSteps: !info.value!.part });
  return (
    <Await of={activity} rows={1}>
      {(data) => (
        <Columns
          data={data}
          rows={data.where((row) => equal(data.num("device")[row], data.num("device")[0]))}
          height={32}
          from={data.num("at_ns")[0]}
          to={data.num("at_ns")[0] + total}
          label={label}
        />
      )}
    </Await>
  );
}

function equal(a: number, b: number): boolean {
  return a === b || (Number.isNaN(a) && Number.isNaN(b));
}

function StepTable({
  parts,
  host,
  total,
  time,
  now,
}: {
  parts: Piece[];
  host: HostStage[];
  total: number;
  time: number;
  now: Info;
}) {
  const t = text();
  const word = onDevice(now) ? (deviceWord(now) ?? t.device) : "CPU";
  return (
    <table>
      <thead>
        <tr>
          <th>{t.part}</th>
          <th />
          <th>{t.time}</th>
          <th>{t.share}</th>
        </tr>
      </thead>
      <tbody>
        {parts.map((piece) => (
          <tr key={piece.name}>
            <td>
              <Swatch color={piece.color} hatch={piece.hatch} />{" "}
              {piece.to && hasPage(piece.to.page) ? <a href={link(piece.to)}>{piece.name}</a> : piece.name}
            </td>
            <td class="d3">{word}</td>
            <td>
              <Time ns={piece.ns} />
            </td>
            <td>
              <Share of={piece.ns / time} />
            </td>
          </tr>
        ))}
        {host.map((row) => (
          <tr key={row.name}>
            <td>{row.name}</td>
            <td class="d3">{t.host_}</td>
            <td>
              <Time ns={row.ns} />
            </td>
            <td>
              <Share of={row.ns / total} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
