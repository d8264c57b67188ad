// page: {"order": 120, "group": "tools", "icon": "advice", "en": "Advice", "zh": "建议"}
import { counting, info, useTable } from "../data";
import { deviceWord, onDevice } from "../finding";
import { OverheadNote, overheadOf } from "../overhead";
import { Await, Card, CopyButton, Empty, Share, Time, Verdict } from "../parts/basics";
import { PageLink } from "../reachable";
import type { Change } from "../state";
import { fill, Say, texts } from "../text";
import * as units from "../units";

const text = texts({
  en: {
    later: "advice comes with a later release: what is wrong, the evidence, how much it could save at most, and what to write instead",
    most: "Most idle time of the {device}, {share} of the steps: {cause}.", mostOver: "Most idle time of the {device}, {share} of the recorded steps and about {left} of unprofiled ones: {cause}.", unprofiled: "Unprofiled, about", none: "The {device} is never idle inside a step.", noDevice: "No device work is recorded: what the host does is on the pages Step trace and Operators.", unrecorded: "The work of the {device} is not recorded: its idle time is not known.",
    causes: "Why the {device} waits", note: "gap_causes: idle time inside steps, by cause", cause: "Cause", gaps: "Gaps", total: "Time", share: "Of the steps", longest: "Longest", look: "Look at",
    why_host: "the host launches work too late", why_launch: "work was launched, the device had not started it", why_data: "the host waits for input data", why_sync: "the host had waited for the device", why_comm: "the host waits for other ranks", why_unknown: "the recording does not say what launched the work",
    to_operators: "Operators on the host", to_kernels: "Kernels: launches and their delay", to_data: "Data preparation", to_steps: "Step trace", to_communication: "Communication", to_timeline: "Timeline",
    terminal: "In a terminal", sum: "the same in all", each: "every gap of at least 100 µs, with what the host did", launches: "launches by kernel: which came late, which are shorter than their launch", sql: "any question of your own",
  },
  zh: {
    later: "建议将在后续版本提供：问题、证据、最多可节省多少，以及该如何改写",
    most: "{device} 的空闲主要（占迭代的 {share}）是因为：{cause}。", mostOver: "{device} 的空闲主要（占所记录迭代的 {share}，未记录时约 {left}）是因为：{cause}。", unprofiled: "未记录时约", none: "{device} 在迭代内没有空闲。", noDevice: "没有设备侧任务：主机的情况见迭代轨迹和算子页面。", unrecorded: "没有记录 {device} 的任务：空闲时间未知。",
    causes: "{device} 为何等待", note: "gap_causes：迭代内的空闲时间，按原因", cause: "原因", gaps: "段数", total: "时间", share: "占迭代", longest: "最长", look: "查看",
    why_host: "主机下发任务太晚", why_launch: "任务已下发，设备尚未启动", why_data: "主机在等待输入数据", why_sync: "主机曾等待设备", why_comm: "主机在等待其他 rank", why_unknown: "记录没有说明由谁下发",
    to_operators: "主机上的算子", to_kernels: "内核：下发及其延迟", to_data: "数据准备", to_steps: "迭代轨迹", to_communication: "通信", to_timeline: "时间线",
    terminal: "在终端中", sum: "同样的汇总", each: "每段不少于 100 µs 的空闲，以及主机在做什么", launches: "按内核的下发：哪些太晚，哪些比下发还短", sql: "任何自己的问题",
  },
});

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
  const causes = useTable("gap_causes", counting(), { skip: !device });
  const overview = useTable("overview", counting(), { skip: !device });
  const over = overview.data !== null && overheadOf(overview.data, 0) !== null;
  const none = overview.data?.rows && overview.data.num("device_steps")[0] === 0 ? t.unrecorded : t.none;
  // Several trace files of one folder are one run here; on the command line they are named one by one.
  const path = now.ranks.length > 1 && now.format === "chrome" ? "PATH" : /[^\w./-]/.test(now.path) ? `'${now.path.replaceAll("'", "'\\''")}'` : now.path;
  const commands = [
    [`stepscope show gap_causes ${path}`, t.sum],
    [`stepscope show gaps ${path} --min-ns 100000`, t.each],
    [`stepscope show launches ${path}`, t.launches],
    [`stepscope query ${path} "select cause, sum(dur_ns) from gaps group by cause"`, t.sql],
  ];
  return (
    <>
      <Verdict facts={[t.later]}>
        {!device ? t.noDevice : causes.data ? (causes.data.rows ? <Say of={over ? t.mostOver : t.most} device={word} share={<b><Share of={causes.data.num("share")[0]} /></b>} left={<b><Share of={causes.data.num("unprofiled_share")[0]} /></b>} cause={<b>{t[CAUSES[causes.data.str("cause")[0] ?? ""]?.[0] ?? "why_unknown"]}</b>} /> : fill(none, { device: word })) : "…"}
      </Verdict>
      {device && (
        <Card title={fill(t.causes, { device: word })} note={t.note}>
          <OverheadNote overview={overview.data} device={word} />
          <Await of={causes}>
            {(data) =>
              data.rows === 0 ? <Empty title={fill(none, { device: word })} /> : (
                <table>
                  <thead><tr><th>{t.cause}</th><th>{t.gaps}</th><th>{t.total}</th><th>{t.share}</th>{over && <th>{t.unprofiled}</th>}<th>{t.longest}</th><th class="tl">{t.look}</th></tr></thead>
                  <tbody>
                    {data.where(() => true).map((row) => {
                      const [why, to, where] = CAUSES[data.str("cause")[row] ?? ""] ?? CAUSES.unknown;
                      return (
                        <tr key={row}>
                          <td>{t[why]} <span class="d3 mono">{data.str("cause")[row]}</span></td>
                          <td>{units.count(data.num("gaps")[row]).value}</td>
                          <td><Time ns={data.num("total_ns")[row]} /></td>
                          <td class="b"><Share of={data.num("share")[row]} /></td>
                          {over && <td><Share of={data.num("unprofiled_share")[row]} /></td>}
                          <td><Time ns={data.num("max_ns")[row]} /></td>
                          <td class="tl"><PageLink to={where}>{t[to]}</PageLink></td>
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
        {commands.map(([command, about]) => <div key={command} class="codeline"><pre class="code">{command}</pre><span class="d3 small">{about}</span><CopyButton value={command} /></div>)}
      </Card>
    </>
  );
}
