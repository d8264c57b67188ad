"""Small trainings that record themselves, each run in a process of its own: `torch_job.py SCENARIO FOLDER [OPTIONS AS JSON]`."""

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from stepscope.model.captures import Capture
from stepscope.recording.collectors.options import Options
from stepscope.recording.collectors.torch import collector as collector_module
from stepscope.recording.collectors.torch import events, older_events
from stepscope.recording.collectors.torch.collector import Collector
from stepscope.recording.collectors.torch.sessions import budget


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(2))
        self.head = torch.nn.Linear(8, 2)
        self.angry = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.angry:
            raise ValueError("angry")
        for block in self.blocks:
            x = block(x)
        return self.head(torch.cat([x, x])[: len(x)])


class Job:
    def __init__(self, folder: Path, choices: dict[str, Any]) -> None:
        torch.manual_seed(0)
        self.folder = folder
        self.net = Net()
        self.model: Any = self.net
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.options = Options(**choices)
        self.collector = Collector(self.options)
        self.collector.keep_events = True
        self.number = 0

    def train(self, batch: torch.Tensor) -> None:
        torch.nn.functional.mse_loss(self.model(batch), torch.zeros(len(batch), 2)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.number += 1
        self.collector.step(self.number)

    @contextlib.contextmanager
    def recording(self, name: str = "job") -> Iterator[Capture]:
        capture = Capture(self.folder / f"{name}.capture", {"rank": 0, "world_size": 1, "pid": os.getpid(), "program": "torch_job.py"})
        self.collector.start(capture)
        self.collector.step(self.number)
        try:
            yield capture
        finally:
            self.collector.stop()
            capture.finish()
            print(*(output["what"] for output in capture.header["notices"]), sep="\n", file=sys.stderr)


def steps(job: Job, count: int = 3) -> None:
    for _ in range(count):
        job.train(torch.randn(4, 8))


def plain(job: Job) -> None:
    """The same session as a capture, as Kineto's own file and as torch's own summary."""
    with job.recording():
        steps(job)
    job.collector.profiler.export_chrome_trace(str(job.folder / "kineto.json"))
    if job.options.with_stack:  # PyTorch 2.13's own summary now and then trips over names of frames that it has freed
        return
    summary = [
        {"name": e.key, "calls": e.count, "total_us": e.cpu_time_total, "self_us": e.self_cpu_time_total, "flops": e.flops}
        for e in job.collector.profiler.key_averages()
    ]
    (job.folder / "summary.json").write_text(json.dumps(summary))


def older(job: Job) -> None:
    """As on a release of PyTorch that does not hand over Kineto's records."""
    events.pieces = older_events.pieces
    plain(job)


def strange(job: Job) -> None:
    """As on a release of PyTorch that keeps its events elsewhere."""
    events.pieces = lambda results, options: iter(results.events_of_another_name())  # type: ignore[assignment,misc]
    with job.recording():
        steps(job)


def sessions(job: Job, looks_s: float = 3600) -> None:
    # How long a step lasts must not matter: neither is one cut, nor is the heap looked at again, unless at each step.
    collector_module._SIZE_CHECK_S, budget._OFTEN_S, budget._WINDOW_S = 3600, looks_s, looks_s
    with job.recording():
        steps(job, 8)


def short_sessions(job: Job) -> None:
    sessions(job, looks_s=0)


def loader(job: Job) -> None:
    from torch.utils.data import dataloader

    before = dataloader._MultiProcessingDataLoaderIter._next_data
    batches = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4, num_workers=2, prefetch_factor=3)
    with job.recording():
        for _ in range(2):
            iterator = iter(batches)
            for number, (batch,) in enumerate(iterator):
                while number < 5 and not ahead(iterator):  # so slow that the next one waits; there are six
                    time.sleep(0.001)
                job.train(batch)
    assert dataloader._MultiProcessingDataLoaderIter._next_data is before


def ahead(iterator: Any) -> bool:
    """Whether a batch is there, in the queue or taken from it out of turn."""
    return not iterator._worker_result_queue.empty() or any(len(task) == 2 for task in iterator._task_info.values())


def raising(job: Job) -> None:
    with job.recording():
        job.train(torch.randn(4, 8))
        job.net.angry = True
        with contextlib.suppress(ValueError):
            job.net(torch.randn(4, 8))
        job.net.angry = False
        steps(job, 1)
    assert not torch.nn.modules.module._has_any_global_hook()


def wrapped(job: Job) -> None:
    job.model = torch.nn.DataParallel(job.net)
    with job.recording():
        steps(job)


def compiled(job: Job) -> None:
    warnings.simplefilter("error")
    filters = list(warnings.filters)
    graphs = []
    job.model = torch.compile(job.net, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)  # type: ignore[func-returns-value]
    steps(job, 1)
    with job.recording():
        steps(job)
    assert len(graphs) == 1, "recording made it compile again"
    assert list(warnings.filters) == filters


def ranks(job: Job) -> None:
    torch.multiprocessing.spawn(rank, (str(job.folder),), nprocs=2)


def rank(number: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    job = Job(Path(folder), {"record_shapes": True})
    job.model = torch.nn.parallel.DistributedDataParallel(job.net)
    with job.recording(f"rank{number}"):
        steps(job)
    torch.distributed.destroy_process_group()
    os._exit(0)  # a thread of gloo may still hold Python objects: PyTorch 2.13 then waits for ever, or aborts, as the interpreter goes


if __name__ == "__main__":
    scenario, folder, *choices = sys.argv[1:]
    globals()[scenario](Job(Path(folder), json.loads(choices[0]) if choices else {}))
