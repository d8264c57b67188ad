/** Why the device waits: idle time in steps by cause, with what the host does then. */
import { useTable, warmupParams } from "../data";
import { info } from "../data";
import { deviceWord } from "../device";
import { OverheadNote, overheadOf } from "../overhead";
import { Await, Card, Empty } from "../parts/basics";
import { Share, Time } from "../parts/quantity";
import { PageLink } from "../page_links";
import type { Change } from "../place";
import { fill, Sentence, strings } from "../strings";
import type { Table } from "../table";
import * as units from "../units";
import { CulpritText, useCulprits } from "./culprit";

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

export function Causes() {
  const t = text();
  const word = deviceWord(info.value!) ?? "device";
  const causes = useTable("gap_causes", warmupParams());
  const overview = useTable("overview", warmupParams());
  const over = overview.data !== null && overheadOf(overview.data, 0) !== null;
  const none = overview.data?.rows && overview.data.num("device_steps")[0] === 0 ? t.unrecorded : t.none;
  return (
    <Card title={fill(t.causes, { device: word })} note={t.note}>
      <OverheadNote />
      <Await of={causes}>
        {(data) =>
          data.rows === 0 ? (
            <Empty title={fill(none, { device: word })} />
          ) : (
            <>
              <p>
                <Sentence
                  template={over ? t.mostOver : t.most}
                  device={word}
                  share={
                    <b>
                      <Share of={data.num("share")[0]} />
                    </b>
                  }
                  left={
                    <b>
                      <Share of={data.num("unprofiled_share")[0]} />
                    </b>
                  }
                  cause={<b>{t[CAUSES[data.str("cause")[0] ?? ""]?.[0] ?? "why_unknown"]}</b>}
                />
              </p>
              <CauseRows data={data} over={over} />
            </>
          )
        }
      </Await>
    </Card>
  );
}

function CauseRows({ data, over }: { data: Table; over: boolean }) {
  const t = text();
  const { known, waiting } = useCulprits(false);
  return (
    <div class="adv-rows" aria-busy={waiting}>
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
              const cause = data.str("cause")[row];
              const [why, to, where] = CAUSES[cause ?? ""] ?? CAUSES.unknown;
              return (
                <tr key={row}>
                  <td>
                    {t[why]} <span class="d3 mono">{cause}</span>{" "}
                    <CulpritText of={known} cause={cause} device={data.num("device")[row]} />
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
    </div>
  );
}
