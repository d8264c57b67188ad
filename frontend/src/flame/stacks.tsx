/** How to record Python functions, per framework. */
import { info } from "../data";
import { Sentence, strings } from "../strings";

const text = strings("flame");

/** Profilers of frameworks that have the same switch; elsewhere that of stepscope. */
const CODE: Record<string, string> = {
  pytorch: "torch.profiler.profile(with_stack=True)",
  mindspore: "mindspore.profiler.profile(with_stack=True)",
};

/** A line above the graph of a recording without Python functions. */
export function NoStacks() {
  const t = text();
  const now = info.value!;
  if (now.kinds.python) return null;
  return (
    <p class="flame-nostack" role="note">
      {t.noPython}{" "}
      <Sentence
        template={t.noPythonHow}
        flag={<span class="mono">stepscope run --stack train.py</span>}
        code={<span class="mono">{CODE[now.framework] ?? "stepscope.Profiler(with_stack=True)"}</span>}
      />
    </p>
  );
}
