/** Idle causes of the device. */
import type { ComponentChildren } from "preact";
import { CulpritText, useCulprits } from "../advice/culprit";
import { type Fetched, rank } from "../data";
import { deviceWord } from "../device";
import { overheadOf } from "../overhead";
import { Await, Card, InlineBar } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { type Info, source } from "../source";
import { link } from "../state";
import type { Table } from "../table";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";

const text = strings("overview");

const WHY: Record<string, "why_host" | "why_launch" | "why_data" | "why_sync" | "why_comm" | "why_unknown"> = {
  "host-bound": "why_host",
  "launch latency": "why_launch",
  "data wait": "why_data",
  sync: "why_sync",
  communication: "why_comm",
  unknown: "why_unknown",
};

/** A number of gaps as a link to them, longest first, each with its place on the timeline. A report has no queries. */
function gapLink(cause: string, device: number, label: string): ComponentChildren {
  if (source().isReport) return label;
  const where = [
    `cause = '${cause}'`,
    rank() !== null && `rank = ${rank()}`,
    Number.isFinite(device) && `device = ${device}`,
  ]
    .filter(Boolean)
    .join(" and ");
  return (
    <a
      href={link({
        page: "query",
        params: {
          sql: `select start_ns, dur_ns, step, host_activity, next_kernel, share_of_step from gaps\nwhere ${where}\norder by dur_ns desc`,
        },
      })}
    >
      {label}
    </a>
  );
}

export function WhyCard({ now, causes, overview }: { now: Info; causes: Fetched<Table>; overview: Table }) {
  const t = text();
  const { known, waiting } = useCulprits(!causes.data?.rows);
  if (causes.data && causes.data.rows === 0) return null;
  const word = deviceWord(now) ?? t.device;
  const over = overheadOf(overview, 0) !== null;
  return (
    <Card title={fill(t.why, { device: word })} note={t.whyNote}>
      <Await of={causes} rows={3}>
        {(data) => {
          const devices = new Set(data.num("device")).size;
          const most = Math.max(...data.num("total_ns"));
          return (
            <table aria-busy={waiting}>
              {over && (
                <thead>
                  <tr>
                    <th />
                    <th />
                    <th />
                    <th>{t.time}</th>
                    <th>{t.recordedHead}</th>
                    <th>{t.unprofiledHead}</th>
                  </tr>
                </thead>
              )}
              <tbody>
                {data
                  .where((row) => row < 12)
                  .map((row) => {
                    const cause = data.str("cause")[row] ?? "";
                    return (
                      <tr key={row}>
                        <td title={fill(t.longest, { time: units.text(units.time(data.num("max_ns")[row])) })}>
                          {t[WHY[cause] ?? "why_unknown"]}
                          {devices > 1 && <span class="d3"> · {data.num("device")[row]}</span>}
                          <CulpritText of={known} cause={cause} device={data.num("device")[row]} />
                        </td>
                        <td class="d3 wide">
                          {gapLink(
                            cause,
                            data.num("device")[row],
                            data.num("gaps")[row] === 1
                              ? t.oneGap
                              : fill(t.gapsCount, { count: units.count(data.num("gaps")[row]).value }),
                          )}
                        </td>
                        <td class="ov-why">
                          <InlineBar
                            share={data.num("total_ns")[row] / most}
                            color={
                              cause === "data wait"
                                ? "var(--kind-wait)"
                                : cause === "communication"
                                  ? "var(--kind-communication)"
                                  : "var(--text-3)"
                            }
                          />
                        </td>
                        <td>
                          <Time ns={data.num("total_ns")[row]} />
                        </td>
                        <td class="b">
                          <Share of={data.num("share")[row]} />
                        </td>
                        {over && (
                          <td class="d2">
                            <Sentence template={t.about} share={<Share of={data.num("unprofiled_share")[row]} />} />
                          </td>
                        )}
                      </tr>
                    );
                  })}
              </tbody>
            </table>
          );
        }}
      </Await>
    </Card>
  );
}
