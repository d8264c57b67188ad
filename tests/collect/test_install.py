"""Recording changes a process in one place, the runtime, and uninstalling restores every attribute that was replaced."""

import json
import sys
from pathlib import Path

import pytest

from programs import needs, run_command, script

# Each defines train(), which ends two steps.
TRAINING = {
    "torch": """
        import torch, torch.utils.data
        torch.set_num_threads(1)
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4)

        def train():
            for batch in data:
                with torch.profiler.record_function("step"):
                    net(batch).sum().backward()
                optimizer.step()
    """,
    "mindspore": """
        import mindspore, mindspore.dataset
        import numpy as np
        from mindspore import nn
        net = nn.Dense(4, 4)
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        grad = mindspore.value_and_grad(lambda batch: net(batch).sum(), None, optimizer.parameters)

        def train():
            for _ in range(2):
                optimizer(grad(mindspore.Tensor(np.ones((4, 4), np.float32)))[1])
    """,
    "jax": """
        import jax, jax.numpy

        def train():
            for number in range(2):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    jax.numpy.ones((4, 4)).sum().block_until_ready()
    """,
}
CHECK = """
        import json, os, signal, sys
        from pathlib import Path
        import stepscope
        from stepscope import Profiler
        from stepscope.recording import hooks
        from stepscope.recording.hooks.process import this_process
        from stepscope.recording.process.runtime import runtime

        def attributes():
            \"\"\"Functions and classes of the framework's modules and classes, of os and of the signals.\"\"\"
            found = {}
            for module in [os, *(module for name, module in list(sys.modules.items()) if name.split(".")[0] == sys.argv[1])]:
                for name, value in list(getattr(module, "__dict__", {}).items()):
                    if callable(value):
                        found[module.__name__, name] = value
                    if isinstance(value, type):
                        for attribute, content in list(vars(value).items()):
                            if callable(content) or isinstance(content, (staticmethod, classmethod)):
                                found[value.__module__ + "." + value.__qualname__, attribute] = content
            if "optimizer" in globals() and "step" in vars(optimizer):
                found["optimizer", "step"] = vars(optimizer)["step"]
            return found | {("signal", number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}

        def changed(before):
            after = attributes()
            return sorted(str(key) for key in before if key in after and after[key] is not before[key])

        def patched():
            entries = runtime.patches.attributes()
            return sorted((getattr(owner, "__name__", type(owner).__name__), name, len(keys)) for owner, name, keys in entries)
"""


def check(framework: str, way: str, folder: Path) -> dict[str, object]:
    needs(framework)
    program = script(folder, TRAINING[framework] + CHECK + way)
    settings = {"job": "job", "options": {"host_interval_ms": 0}, "out": str(folder / "out"), "journal": str(folder / "journal")}
    done = run_command(folder, sys.executable, str(program), framework, STEPSCOPE_RUN=json.dumps(settings))
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("framework", list(TRAINING))
def test_uninstalling_restores_every_attribute_and_a_second_install_patches_nothing_twice(framework: str, tmp_path: Path) -> None:
    way = """
        train()
        finders, before = list(sys.meta_path), attributes()
        hooks.install()
        train()
        first, replaced = patched(), changed(before)
        hooks.install()
        twice = patched()
        steps = this_process().recorder.step
        hooks.uninstall()
        left = changed(before)
        train()
        hooks.install()
        train()
        second = patched()
        hooks.uninstall()
        print(json.dumps({"first": first, "replaced": replaced, "twice": twice, "left": left, "second": second, "steps": steps,
            "again": changed(before), "rest": [len(runtime.patches.attributes()), len(runtime.listeners), sys.meta_path == finders],
            "windows": len(list(Path("out").glob("*.capture")))}))
    """
    result = check(framework, way, tmp_path)
    assert result["steps"] == 2 and result["windows"] == 2, "it recorded in between"
    assert result["replaced"], "the check sees replaced attributes"
    assert result["twice"] == result["first"] == result["second"]
    assert result["left"] == result["again"] == []
    assert result["rest"] == [0, 0, True]


@pytest.mark.parametrize("framework", list(TRAINING))
def test_uninstalling_also_ends_the_window_of_a_profiler_and_another_can_follow(framework: str, tmp_path: Path) -> None:
    way = """
        train()
        before, results = attributes(), []
        for _ in range(2):
            profiler = Profiler(output_path="out", host_interval_ms=0)
            train()
            replaced = changed(before)
            runtime.uninstall()
            results.append([bool(replaced), changed(before), runtime.window is None])
        print(json.dumps({"results": results, "windows": len(list(Path("out").glob("*.capture")))}))
    """
    result = check(framework, way, tmp_path)
    assert result == {"results": [[True, [], True]] * 2, "windows": 2}
