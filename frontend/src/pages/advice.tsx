// page: {"order": 120, "group": "tools", "icon": "advice"}
import { warmupParams, info, useTable } from "../data";
import { deviceWord, onDevice } from "../device";
import { OverheadNote, overheadOf } from "../overhead";
import { Await, Card, CopyButton, Empty, Verdict } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { PageLink } from "../page_links";
import type { Change } from "../place";
import { fill, Sentence, strings } from "../strings";
import * as units from "../units";

const text = strings("advice");

type Words = ReturnType<typeof text>;

const CAUSES: Record<string, [keyof Words, keyof Words, Change & { page: string }]> = {
  "host-bound": ["why_host", "to_operators", { page: "operators" }],
  "launch latency": ["why_launch", "to_kernels", { page: "kernels" }],
  "data wait": ["why_data", "to_data", { page: "data" }],
  sync: ["why_sync", "to_steps", { page: "steps" }],
  communication: ["why_comm", "to_communication", { page: "communication" }],
  unknown: ["why_unknown", "to_timeline", { page: "timeline" }],
};

export default function Advice() {
  const t = text();
  const now = info.value!;
  const device = onDevice(now);
  const word = deviceWord(now) ?? "device";
  const causes = useTable("gap_causes", warmupParams(), { skip: !device });
  const overview = useTable("overview", warmupParams(), { skip: !device });
  const over = overview.data !== null && overheadOf(overview.data, 0) !== null;
  const none = overview.data?.rows && overview.data.num("device_steps")[0] === 0 ? t.unrecorded : t.none;
  // Several trace files in a folder are one run here; on the command line each is named.
  const path =
    now.ranks.length > 1 && now.format === "chrome"
      ? "PATH"
      : /[^\w./-]/.test(now.path)
        ? `'${now.path.replaceAll("'", "'\\''")}'`
        : now.path;
  const commands = [
    [`stepscope show gap_causes ${path}`, t.sum],
    [`stepscope show gaps ${path} --min-ns 100000`, t.each],
    [`stepscope show launches ${path}`, t.launches],
    [`stepscope query ${path} "select cause, sum(dur_ns) from gaps group by cause"`, t.sql],
  ];
  return (
    <>
      <Verdict facts={[t.later]}>
        {!device ? (
          t.noDevice
        ) : causes.data ? (
          causes.data.rows ? (
            <Sentence
              template={over ? t.mostOver : t.most}
              device={word}
              share={
                <b>
                  <Share of={causes.data.num("share")[0]} />
                </b>
              }
              left={
                <b>
                  <Share of={causes.data.num("unprofiled_share")[0]} />
                </b>
              }
              cause={<b>{t[CAUSES[causes.data.str("cause")[0] ?? ""]?.[0] ?? "why_unknown"]}</b>}
            />
          ) : (
            fill(none, { device: word })
          )
        ) : (
          "…"
        )}
      </Verdict>
      {device && (
        <Card title={fill(t.causes, { device: word })} note={t.note}>
          <OverheadNote />
          <Await of={causes}>
            {(data) =>
              data.rows === 0 ? (
                <Empty title={fill(none, { device: word })} />
              ) : (
                <table>
                  <thead>
                    <tr>
                      <th>{t.cause}</th>
                      <th>{t.gaps}</th>
                      <th>{t.total}</th>
                      <th>{t.share}</th>
                      {over && <th>{t.unprofiled}</th>}
                      <th>{t.longest}</th>
                      <th class="tl">{t.look}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {data
                      .where(() => true)
                      .map((row) => {
                        const [why, to, where] = CAUSES[data.str("cause")[row] ?? ""] ?? CAUSES.unknown;
                        return (
                          <tr key={row}>
                            <td>
                              {t[why]} <span class="d3 mono">{data.str("cause")[row]}</span>
                            </td>
                            <td>{units.count(data.num("gaps")[row]).value}</td>
                            <td>
                              <Time ns={data.num("total_ns")[row]} />
                            </td>
                            <td class="b">
                              <Share of={data.num("share")[row]} />
                            </td>
                            {over && (
                              <td>
                                <Share of={data.num("unprofiled_share")[row]} />
                              </td>
                            )}
                            <td>
                              <Time ns={data.num("max_ns")[row]} />
                            </td>
                            <td class="tl">
                              <PageLink to={where}>{t[to]}</PageLink>
                            </td>
                          </tr>
                        );
                      })}
                  </tbody>
                </table>
              )
            }
          </Await>
        </Card>
      )}
      <Card title={t.terminal}>
        {commands.map(([command, about]) => (
          <div key={command} class="codeline">
            <pre class="code">{command}</pre>
            <span class="d3 small">{about}</span>
            <CopyButton value={command} />
          </div>
        ))}
      </Card>
    </>
  );
}
