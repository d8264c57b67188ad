/** Upload of trace files. */
import { Trouble } from "../parts/basics";
import { go } from "../state";
import { fill, strings } from "../strings";
import * as units from "../units";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const text = strings("runs");

// Files dropped on the page

interface Sending {
  name: string;
  size: number;
  sent: number;
  request: XMLHttpRequest;
}

/** Accepts files dropped anywhere, or chosen with its button. */
export function Upload({ children }: { children: (button: ComponentChildren) => ComponentChildren }) {
  const t = text();
  const [over, setOver] = useState(false);
  const [sending, setSending] = useState<Sending | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const depth = useRef(0);

  // Ranks of one job are dropped together: they are sent one by one, and become a run with the last one.
  const send = ([file, ...others]: File[], together = Math.random().toString(36).slice(2)) => {
    if (!file) return;
    setRefused(null);
    // fetch does not report upload progress; this does.
    const request = new XMLHttpRequest();
    const state = { name: file.name, size: file.size, sent: 0, request };
    const fail = (why: string) => {
      setSending(null);
      setRefused(fill(t.refused, { name: file.name, why }));
    };
    request.upload.onprogress = (event) => setSending({ ...state, sent: event.loaded });
    request.onload = () => {
      let answer: { id?: string; error?: string } = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        /* a response that is not ours: its status is enough */
      }
      if (request.status < 300 && others.length) send(others, together);
      else if (request.status < 300 && answer.id) go({ run: answer.id, page: "overview" });
      else fail(answer.error ?? `${request.status} ${request.statusText}`);
    };
    request.onerror = () => fail(t.lost);
    request.onabort = () => setSending(null);
    request.open(
      "POST",
      `api/uploads?name=${encodeURIComponent(file.name)}&together=${together}${others.length ? "&more=1" : ""}`,
    );
    request.send(file);
    setSending(state);
  };

  useEffect(() => {
    const files = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const enter = (event: DragEvent) => {
      if (files(event)) {
        depth.current += 1;
        setOver(true);
      }
    };
    const leave = (event: DragEvent) => {
      if (files(event) && (depth.current -= 1) <= 0) {
        depth.current = 0;
        setOver(false);
      }
    };
    const move = (event: DragEvent) => {
      if (files(event)) event.preventDefault();
    };
    const drop = (event: DragEvent) => {
      if (!files(event)) return;
      event.preventDefault();
      depth.current = 0;
      setOver(false);
      const item = event.dataTransfer!.items[0];
      if (item?.webkitGetAsEntry?.()?.isDirectory) setRefused(t.folder);
      else send([...event.dataTransfer!.files]);
    };
    window.addEventListener("dragenter", enter);
    window.addEventListener("dragleave", leave);
    window.addEventListener("dragover", move);
    window.addEventListener("drop", drop);
    return () => {
      window.removeEventListener("dragenter", enter);
      window.removeEventListener("dragleave", leave);
      window.removeEventListener("dragover", move);
      window.removeEventListener("drop", drop);
    };
  }, []);

  const done = sending !== null && sending.sent >= sending.size;
  return (
    <>
      {over && (
        <div class="runs-drop" role="status">
          <b>{t.dropHere}</b>
          <span class="d2">{t.dropHow}</span>
        </div>
      )}
      {refused && <Trouble error={refused} />}
      {sending && (
        <div class="runs-upload" role="status">
          <span>
            {done
              ? fill(t.readingUpload, { name: sending.name })
              : fill(t.uploading, {
                  name: sending.name,
                  percent: units.text(units.share(sending.sent / (sending.size || 1))),
                  size: units.text(units.bytes(sending.size)),
                })}
          </span>
          <progress max={sending.size || 1} value={done ? undefined : sending.sent} aria-label={sending.name} />
          <button class="btn sm" onClick={() => sending.request.abort()}>
            {t.cancel}
          </button>
        </div>
      )}
      {children(
        <label class="btn sm runs-open">
          {t.openFile}
          <input
            type="file"
            multiple
            disabled={sending !== null}
            onChange={(event) => {
              send([...(event.currentTarget.files ?? [])]);
              event.currentTarget.value = "";
            }}
          />
        </label>,
      )}
    </>
  );
}
