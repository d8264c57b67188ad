"""Checkpoints or logging stop the program in some steps.

Fires for functions, operators and ranges that are named after saving, checkpoints or logging. The gain per step is their time over all
steps. The fix writes in another thread or process, or less often.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.shared.steps.host_phases import host_spans, main_threads
from stepscope.model import intervals

NEEDS = ("steps", "ranges")
HOST_BOUND = True
APPLIES = ()
LINK = "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.async_save"
FIX = {
    "pytorch": "torch.distributed.checkpoint.async_save(state, checkpoint_id=path)  # writes while the training continues",
    "mindspore": "mindspore.save_checkpoint(net, path, async_save=True)",
    "jax": "orbax.checkpoint.AsyncCheckpointer(orbax.checkpoint.PyTreeCheckpointHandler()).save(path, state)",
    "tensorflow": "tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)",
}
_SAVES = (
    r"(?i)torch[./]serialization.*save|torch\.save|"
    r"(^|[^a-z])(save_(checkpoint|state|model|pretrained)|checkpoint_?save|async_save|checkpoint)([^a-z]|$)"
)
_LOGS = (
    r"(?i)(^|[/\\])(tensorboard\w*|wandb|mlflow|logging|json)[/\\].*: (add_\w+|log\w*|info|debug|warning|write\w*|dump)$|summary_?writer|"
    r"(^|[^a-z])add_(scalar|histogram|image)|(^|[^a-z])(log(ging|_metrics|ger)?|print|fsync)([^a-z]|$)"
)
_NOT = (
    r"(?i)log_?softmax|logits|logsumexp|logical|^aten::|activation_?checkpoint|CheckpointFunction|"
    r"checkpoint\.py\(\d+\): (forward|backward|checkpoint)"
)


def pauses(run: Run) -> Iterator[Finding]:
    steps = run.all_steps
    main = main_threads(run.trace).lazy()
    ranges = host_spans(run.trace).filter(pl.col("kind").cast(pl.String).is_in(["python", "annotation", "scope"]))
    name = pl.col("name").cast(pl.String)
    # The name of a function in the files of the program, not the name of its file: `log.py(3): step` does not log.
    called = name.str.replace(r"^[^/\\]*\(\d+\): ", "")
    rows = (
        ranges.join(main, on=["rank", "thread"], how="semi")
        .with_columns(name=name, called=called)
        .filter(called.str.contains(f"{_SAVES}|{_LOGS}"), ~name.str.contains(_NOT))
        .select("rank", "span", "name", "called", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .collect()
    )
    rows = run.in_all_steps(rows, "start_ns")
    for kind, pattern in (("checkpoint", _SAVES), ("logging", _LOGS)):
        part = rows.filter(pl.col("called").str.contains(pattern))
        if part.is_empty() or steps.is_empty():
            continue
        whole = intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        gain = round(int(np.sum(whole.ends - whole.starts)) / steps.height)
        longest = part.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns")).sort("dur_ns", "name", descending=[True, False])
        culprit = str(longest["name"][0])
        rare = 2 * part["step"].n_unique() <= steps.height  # the median step has no pause
        yield Finding(
            parameters={"name": culprit, "pauses": len(whole.starts), "time": gain, "longest": int(longest["dur_ns"][0])},
            evidence=Evidence("totals", {}, {"name": culprit}, {"pause_ns": gain}),
            culprit=culprit,
            source=run.source_of(longest.head(1)),
            changes=() if rare else (scale_host(part),),
            gain_ns=gain if rare else None,
            spans=longest.select("rank", "step", "span"),
            confidence="medium",
            code=f"advice-pauses-{kind}",
        )
