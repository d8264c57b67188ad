// page: {"order": 160, "group": "tools", "icon": "live", "alone": true}
import "./live.css";
import { dropResults, info, useFetched } from "../data";
import { type News, Recording } from "../live/recording";
import { LiveRun } from "../live/live_run";
import { Card, CopyButton, Loading, Trouble, Verdict } from "../parts/basics";
import { type Run, source } from "../source";
import { link, place } from "../state";
import { Sentence, strings } from "../strings";
import { useEffect, useRef, useState } from "preact/hooks";

const text = strings("live");

export default function Live() {
  const run = place.value.run;
  return run === null ? <LiveRuns /> : <FollowedRun key={run} run={run} />;
}

/** Without a run: the runs that are being recorded. */
function LiveRuns() {
  const t = text();
  const [list, setList] = useState<Run[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const load = () =>
      source()
        .runs()
        .then((runs) => setList(runs.filter((run) => run.state === "live")), setError);
    void load();
    return source().listen("api/events", (event) => event === "runs" && void load());
  }, []);
  if (error) return <Trouble error={error} />;
  if (!list) return <Loading />;
  return (
    <>
      <Verdict>
        {list.length ? (
          <Sentence template={list.length === 1 ? t.some : t.many} count={<b>{list.length}</b>} />
        ) : (
          t.none
        )}
      </Verdict>
      {list.length ? (
        <Card title={t.live}>
          <ul class="live-list">
            {list.map((run) => (
              <li key={run.id}>
                <span class="live-dot on" /> <a href={link({ run: run.id, page: "live" })}>{run.name}</a>{" "}
                <span class="d3 small">{run.path}</span>
              </li>
            ))}
          </ul>
        </Card>
      ) : (
        <How />
      )}
    </>
  );
}

function How() {
  const t = text();
  const command = "stepscope run train.py";
  return (
    <Card title={t.record}>
      <p class="d2">{t.how}</p>
      <div class="codeline">
        <pre class="code">{command}</pre>
        <CopyButton value={command} />
      </div>
    </Card>
  );
}

function FollowedRun({ run }: { run: string }) {
  const t = text();
  const recording = useRef(new Recording());
  const [version, setVersion] = useState(0);
  const [pending, setPending] = useState(0);
  const [paused, setPaused] = useState(false);
  const [over, setOver] = useState(false);
  const still = useRef(false);
  const runs = useFetched<Run[]>("\nruns", () => source().runs());
  useEffect(() => {
    const close = source().listen(`api/runs/${encodeURIComponent(run)}/live`, (event, data) => {
      if (event === "state") {
        recording.current.add(data as News);
        if (still.current) setPending((count) => count + 1);
        else setVersion((count) => count + 1);
      } else if (event === "finished") {
        close(); // or the browser would reconnect
        dropResults(run); // what was read during the recording is incomplete
        dropResults("");
        setOver(true);
        setVersion((count) => count + 1);
      }
    });
    return close;
  }, [run]);
  const toggle = () => {
    still.current = !paused;
    setPaused(!paused);
    setPending(0);
    if (paused) setVersion((count) => count + 1);
  };
  const now = recording.current;
  const name = runs.data?.find((one) => one.id === run)?.name ?? info.value?.name ?? run;
  if (over && now.ranks.size === 0) {
    return (
      <>
        <Verdict>
          <Sentence template={t.notLive} name={<b>{name}</b>} />
        </Verdict>
        <p>
          <a class="btn pri" href={link({ run, page: "overview" })}>
            {t.open}
          </a>
        </p>
        <How />
      </>
    );
  }
  return (
    <LiveRun
      key={run}
      t={t}
      run={run}
      now={now}
      version={version}
      paused={paused}
      pending={pending}
      over={over}
      toggle={toggle}
    />
  );
}
