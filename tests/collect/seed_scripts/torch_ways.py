"""The six ways of turning profiling on, in a PyTorch program: `python torch_ways.py WAY`."""

import sys

import summed  # noqa: F401 - before PyTorch, with which recording may begin
import torch

from stepscope import DynamicProfilerMonitor, Profiler

net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train():
    optimizer.zero_grad()
    net(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()


def by_step():
    profiler = Profiler(start_profile=False, output_path="profiler_data")
    for step in range(6):
        if step == 2:
            profiler.start()
        train()
        if step == 4:
            profiler.stop()
    profiler.analyse()


def by_epoch():
    profiler = Profiler(start_profile=False, output_path="profiler_data")
    for epoch in range(3):
        if epoch == 1:
            profiler.start()
        for _ in range(3):
            train()
        if epoch == 1:
            profiler.stop()
    profiler.analyse()


def custom_loop():
    profiler = Profiler(output_path="profiler_data")
    for _ in range(3):
        train()
        profiler.step()
    profiler.analyse()


def callback():
    class StopAtStep:
        def step_begin(self, step):
            if step == 2:
                self.profiler = Profiler(output_path="profiler_data")

        def step_end(self, step):
            if step == 4:
                self.profiler.analyse()

    stop_at_step = StopAtStep()
    for step in range(6):
        stop_at_step.step_begin(step)
        train()
        stop_at_step.step_end(step)


def unprofiled():
    for _ in range(3):
        train()


def dynamic_config():
    monitor = DynamicProfilerMonitor(cfg_path="./dyn_cfg", output_path="./profiler_data")
    for _ in range(8):
        train()
        monitor.step()


globals()[sys.argv[1]]()
