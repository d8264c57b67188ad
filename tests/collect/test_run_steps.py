"""Where `stepscope run` ends a step: real jobs, whose iterations are counted by hand."""

from pathlib import Path

import pytest

import preloaded
import stepscope
from programs import needs, only, recordings, run, run_command, script, steps
from volume import mostly_deep

TORCH = """
    import gc, sys
    import torch
    from torch import nn
    torch.manual_seed(0)
    def network():
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    def train(net, *optimizers):
        for optimizer in optimizers:
            optimizer.zero_grad()
        net(torch.ones(4, 8)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
"""


def problems(recording: Path) -> list[str]:
    return stepscope.open(recording, cache=False).problems.collect()["what"].to_list()


def test_a_step_ends_after_pytorchs_own_range_of_the_optimizer(tmp_path: Path) -> None:
    """The range that PyTorch opens around the optimizer lies within the step, its end included."""
    needs("torch")
    script(tmp_path, TORCH + "    net = network()\n    sgd = torch.optim.SGD(net.parameters())\n    for _ in range(4): train(net, sgd)\n")
    run(tmp_path, "--steps", "1:2", "train.py")
    trace = stepscope.open(only(recordings(tmp_path / "data")), cache=False)
    ranges = trace.spans.collect().filter(name="Optimizer.step#SGD.step").sort("start_ns")
    found = trace.steps.collect().sort("start_ns")
    assert found["step"].to_list() == [1, 2] and ranges.height == 2
    for (start, duration), (begin, end) in zip(
        ranges.select("start_ns", "dur_ns").rows(), found.select("start_ns", "end_ns").rows(), strict=True
    ):
        assert begin <= start and start + duration <= end


COMPILED = """
    import warnings
    import torch._dynamo
    warnings.simplefilter("always")
    net = network()
    adam = torch.optim.Adam(net.parameters())
    if sys.argv[1] == "loop":
        train = torch.compile(train, backend="eager")
    else:
        adam.step = torch.compile(adam.step, backend="eager")
    for _ in range(4):
        train(net, adam)
    print([parameter.double().sum().item() for parameter in net.parameters()])
    counters = torch._dynamo.utils.counters
    print(dict(counters["graph_break"]), dict(counters["stats"]))
"""


@pytest.mark.parametrize("kind", mostly_deep(["loop", "optimizer"], keep=["loop"]))
def test_what_is_compiled_is_compiled_as_without_us(tmp_path: Path, kind: str) -> None:
    needs("torch")
    script(tmp_path, TORCH + COMPILED)
    bare, under = run_command(tmp_path, "python", "train.py", kind), run(tmp_path, "--steps", "1:2", "train.py", kind)
    assert under.returncode == 0 and under.stdout == bare.stdout
    assert under.stderr.count("Warning:") == bare.stderr.count("Warning:")
    assert steps(only(recordings(tmp_path / "data"))) == [1, 2]


def test_an_optimizer_that_calls_another_makes_one_step_with_it(tmp_path: Path) -> None:
    needs("torch")
    wrapper = """
    class Twice(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})
        def step(self, closure=None):
            self.inner.step()
            self.inner.step()
    net = network()
    outer = Twice(torch.optim.SGD(net.parameters()))
    for _ in range(5):
        train(net, outer)
    """
    script(tmp_path, TORCH + wrapper)
    run(tmp_path, "train.py")
    assert steps(only(recordings(tmp_path / "data"))) == [0, 1, 2, 3, 4]


def test_an_iteration_whose_infinite_gradients_were_skipped_is_a_step_too(tmp_path: Path) -> None:
    needs("torch")
    scaled = """
    net = network()
    sgd = torch.optim.SGD(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127)
    for _ in range(5):
        sgd.zero_grad()
        scaler.scale(net(torch.ones(4, 8)).mul(1000).square().mean()).backward()
        scaler.step(sgd)
        scaler.update()
    assert scaler.get_scale() == 2.0 ** 122, scaler.get_scale()
    """
    script(tmp_path, TORCH + scaled)
    under = run(tmp_path, "train.py")
    assert under.returncode == 0, under.stderr
    assert steps(only(recordings(tmp_path / "data"))) == [0, 1, 2, 3, 4]


def test_the_first_forward_pass_has_the_scopes_of_every_other(tmp_path: Path) -> None:
    needs("torch")
    nested = """
    net = nn.Sequential(network(), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    sgd = torch.optim.SGD(net.parameters())
    for _ in range(3):
        train(net, sgd)
    """
    script(tmp_path, TORCH + nested)
    run(tmp_path, "train.py")
    modules = stepscope.open(only(recordings(tmp_path / "data")), cache=False).spans.collect().filter(kind="scope")
    scopes = {step: sorted(modules.filter(step=step)["scope"].to_list()) for step in (0, 1, 2)}
    assert scopes[0] == scopes[1] == scopes[2]
    assert scopes[0] == sorted(["Sequential", *(f"Sequential/{path}" for path in ("0", "0/0", "0/1", "0/2", "1", "1/0", "1/1"))])


TWO_PHASES = """
    net = network()
    head, everything = torch.optim.SGD(net[2].parameters()), torch.optim.Adam(net.parameters())
    for _ in range(10): train(net, head)
    for _ in range(40): train(net, everything)
"""
FOLDS = """
    kept = []
    for fold in range(5):
        net = network()
        optimizer = torch.optim.SGD(net.parameters())
        if sys.argv[1] == "kept": kept.append(optimizer)
        for _ in range(30): train(net, optimizer)
"""
GAN = """
    generator, critic = nn.Linear(4, 8), network()
    g, d = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(20):
        for _ in range(int(sys.argv[1])):
            d.zero_grad()
            (critic(torch.ones(4, 8)) - critic(generator(torch.ones(4, 4)).detach())).mean().backward()
            d.step()
        g.zero_grad()
        critic(generator(torch.ones(4, 4))).mean().backward()
        g.step()
"""
LAYERS = """
    net = network()
    layers = [torch.optim.SGD(layer.parameters()) for layer in net if list(layer.parameters())]
    for _ in range(20): train(net, *layers)
"""
IN_BACKWARD = """
    net = network()
    own = {parameter: torch.optim.SGD([parameter]) for parameter in net.parameters()}
    def update(parameter):
        own[parameter].step()
        own[parameter].zero_grad()
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(20):
        net(torch.ones(4, 8)).square().mean().backward()
"""


@pytest.mark.parametrize(
    ("job", "word", "count"),
    [
        (TWO_PHASES, "", 50),
        (FOLDS, "deleted", 150),
        pytest.param(FOLDS, "kept", 150, marks=pytest.mark.deep),
        (GAN, "5", 20),
        pytest.param(GAN, "1", 20, marks=pytest.mark.deep),
        pytest.param(LAYERS, "", 20, marks=pytest.mark.deep),
        (IN_BACKWARD, "", 20),
    ],
)
def test_a_step_is_an_iteration_however_many_optimizers_there_are(tmp_path: Path, job: str, word: str, count: int) -> None:
    needs("torch")
    script(tmp_path, TORCH + job)
    under = run(tmp_path, "train.py", word)
    assert under.returncode == 0, under.stderr
    recording = only(recordings(tmp_path / "data"))
    assert steps(recording) == list(range(count)) and not [what for what in problems(recording) if "step" in what]


def test_steps_that_may_be_cut_wrongly_are_a_problem_that_names_the_way_out(tmp_path: Path) -> None:
    needs("torch")
    apart = """
    first, second = network(), network()
    one, other = torch.optim.SGD(first.parameters()), torch.optim.SGD(second.parameters())
    for _ in range(10): train(first, one)
    for _ in range(10): train(second, other)
    """
    script(tmp_path, TORCH + apart)
    run(tmp_path, "train.py")
    recording = only(recordings(tmp_path / "data"))
    assert steps(recording) == list(range(15))
    notice = only([what for what in problems(recording) if "step" in what])
    assert "step 0 contains 6 calls of SGD" in notice and "--step-on optimizer:NAME" in notice


# Steps that the user names

INFERENCE = """
    import json
    from stepscope import record_function, mstx
    net = network()
    data = torch.utils.data.DataLoader(torch.ones(12, 8), batch_size=4)
    def answer(batch):
        with torch.profiler.record_function("answer"), torch.no_grad():
            return net(batch)
    class Server:
        def serve(self, batch):
            with record_function("serve"):
                number = mstx.range_start("marked")
                result = answer(batch)
                mstx.range_end(number)
                return result
        @staticmethod
        def fixed(batch):
            return answer(batch)
    if __name__ == "__main__":
        for epoch in range(2):
            for batch in data:
                Server().serve(batch)
                Server.fixed(batch)
"""


# How often each is called in the job.
CHOICES = [
    ("function:__main__.answer", 12),
    ("function:__main__.Server.serve", 6),
    ("function:__main__.Server.fixed", 6),
    ("function:torch.nn.modules.linear.Linear.forward", 24),
    ("annotation:answer", 12),
    ("annotation:serve", 6),
    ("annotation:marked", 6),
    ("dataloader", 6),
]


# Each kind of choice; a Profiler, below, has all of them.
@pytest.mark.parametrize(("choice", "count"), mostly_deep(CHOICES, keep=[CHOICES[0], CHOICES[6], CHOICES[7]]))
def test_a_loop_without_an_optimizer_has_the_steps_that_the_user_names(tmp_path: Path, choice: str, count: int) -> None:
    needs("torch")
    script(tmp_path, TORCH + INFERENCE)
    under = run(tmp_path, "--step-on", choice, "train.py")
    assert under.returncode == 0, under.stderr
    check_choice(only(recordings(tmp_path / "data")), choice, count)


def check_choice(recording: Path, choice: str, count: int) -> None:
    assert steps(recording) == list(range(count))
    # Two multiplications per forward pass: none is divided. A step that ends with the first of two calls begins with the second before.
    spans = stepscope.open(recording, cache=False).spans.collect()
    per_step = [spans.filter(step=step, name="aten::addmm").height for step in range(count)]
    first = 2 if choice.endswith(("serve", "marked")) else 24 // count
    assert per_step == [first, *[24 // count] * (count - 1)]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("optimizer:SGD", [0, 1, 2, 3, 4]), ("optimizer:2", [0, 1]), pytest.param("optimizer:Adam", [0, 1], marks=pytest.mark.deep)],
)
def test_an_optimizer_is_named_by_its_class_or_by_its_number(tmp_path: Path, choice: str, expected: list[int]) -> None:
    needs("torch")
    two = """
    net = network()
    first, second = torch.optim.SGD(net.parameters()), torch.optim.Adam(net.parameters())
    for number in range(5):
        train(net, first)
        if number % 2:
            train(net, second)
    """
    script(tmp_path, TORCH + two)
    run(tmp_path, "--step-on", choice, "train.py")
    assert steps(only(recordings(tmp_path / "data"))) == expected


def test_a_function_is_found_in_a_module_imported_later_and_after_it_was_compiled(tmp_path: Path) -> None:
    needs("torch")
    package = tmp_path / "package"
    package.mkdir()
    script(package, "", "__init__.py")
    script(package, "def work(net, data):\n    return net(data)\n", "loop.py")
    script(
        tmp_path,
        TORCH
        + """
    def work(net, data):
        return net(data)
    if sys.argv[1] == "later":
        from package.loop import work
    else:
        work = torch.compile(work, backend="eager")
    def main():
        net = network()
        for _ in range(4):
            work(net, torch.ones(4, 8))
    main()
    """,
    )
    for word, choice in (("later", "function:package.loop.work"), ("compiled", "function:__main__.work")):
        under = run(tmp_path, "--step-on", choice, "--out", word, "train.py", word)
        assert under.returncode == 0 and steps(only(recordings(tmp_path / word))) == [0, 1, 2, 3], under.stderr


def test_the_script_is_traced_only_until_its_function_is_called(tmp_path: Path) -> None:
    """Neither the loop nor the processes that load its data are slowed down."""
    script(
        tmp_path,
        """
        import multiprocessing, sys
        def traced(_=None):
            return sys.gettrace() is not None
        def train():
            return traced()
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(traced, [0]))
            print(traced(), train(), traced())
        """,
    )
    assert run(tmp_path, "--step-on", "function:__main__.train", "train.py").stdout == "[False]\n[False]\nTrue False False\n"


def test_a_function_of_jax_is_a_step(tmp_path: Path) -> None:
    needs("jax")
    script(
        tmp_path,
        """
        import jax, jax.numpy as jnp
        @jax.jit
        def update(w, x):
            return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        w, x = jnp.ones((8, 4)), jnp.ones((2, 8))
        update.lower(w, x)
        for number in range(6):
            with jax.profiler.TraceAnnotation("update"):
                w = update(w, x).block_until_ready()
        """,
    )
    for choice in ("function:__main__.update", "annotation:update"):
        under = run(tmp_path, "--steps", "2:4", "--step-on", choice, "--out", choice[:4], "train.py")
        assert under.returncode == 0 and steps(only(recordings(tmp_path / choice[:4]))) == [2, 3, 4], under.stderr


@pytest.mark.parametrize(
    "choice", ["function", "function:train", "function:a b.c", "optimizer:", "optimizer:0", "dataloader:x", "banana", ""]
)
def test_a_step_that_is_not_named_in_one_of_the_forms_is_refused(tmp_path: Path, choice: str) -> None:
    script(tmp_path, "print('ran')")
    under = run(tmp_path, "--step-on", choice, "train.py")
    assert under.returncode == 2 and not under.stdout
    assert f"--step-on is '{choice}'; expected optimizer:NAME, function:MODULE.NAME, annotation:NAME or dataloader, such as" in under.stderr


def test_where_no_step_is_seen_the_last_words_say_how_to_name_one(tmp_path: Path) -> None:
    needs("torch")
    script(tmp_path, TORCH + INFERENCE)
    assert "choose one, such as --step-on dataloader or --step-on function:__main__.train_step" in run(tmp_path, "train.py").stderr
    wrong = run(tmp_path, "train.py", STEPSCOPE_STEP_ON="function:server.answer")
    assert "there is no function server.answer; for a function of the script use function:__main__.answer" in wrong.stderr


# The same for a Profiler


def profiled(folder: Path, text: str, under_run: bool = False) -> list[list[int]]:
    """The steps of each window that the script leaves in `data`."""
    needs("torch")
    script(folder, TORCH + "    from stepscope import Profiler, schedule\n" + text)
    done = run(folder, "train.py") if under_run else preloaded.run("torch", folder, "train.py")
    assert done.returncode == 0, done.stderr
    return [steps(recording) for recording in recordings(folder / "data")]


def test_step_on_marks_the_steps_of_a_profiler_also_of_optimizers_that_exist(tmp_path: Path) -> None:
    text = """
    net = network()
    sgd = torch.optim.SGD(net.parameters())
    rate = torch.optim.lr_scheduler.StepLR(sgd, 1)
    with Profiler(step_on="optimizer:SGD", host_interval_ms=0) as profiler:
        for _ in range(4):
            train(net, sgd)
            rate.step()
    """
    assert profiled(tmp_path, text) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(("choice", "count"), CHOICES)
def test_a_profiler_has_the_steps_that_the_user_names_too(tmp_path: Path, choice: str, count: int) -> None:
    main = '    if __name__ == "__main__":\n'
    started = f"{main}        from stepscope import Profiler\n        profiler = Profiler(step_on={choice!r}, host_interval_ms=0)\n"
    script(tmp_path, TORCH + INFERENCE.replace(main, started) + "        profiler.stop()\n")
    done = preloaded.run("torch", tmp_path, "train.py")
    assert done.returncode == 0, done.stderr
    check_choice(only(recordings(tmp_path / "data")), choice, count)


def test_step_on_moves_a_schedule_and_functions_imported_by_name_are_found(tmp_path: Path) -> None:
    script(tmp_path, "def work(net, data):\n    return net(data)\n", "loop.py")
    text = """
    from loop import work as forward
    profiler = Profiler(step_on="function:loop.work", schedule=schedule(wait=1, active=2, repeat=2), host_interval_ms=0)
    net = network()
    for _ in range(6):
        forward(net, torch.ones(4, 8))
    profiler.stop()
    """
    assert profiled(tmp_path, text) == [[1, 2], [4, 5]]


def test_step_and_step_on_exclude_one_another_and_what_is_not_there_is_refused(tmp_path: Path) -> None:
    text = """
    from stepscope.errors import UsageError
    def refused(call):
        try:
            call()
        except UsageError as error:
            print(error)
    profiler = Profiler(step_on="dataloader", start_profile=False)
    refused(profiler.step)
    refused(lambda: Profiler(step_on="function:__main__.absent"))
    refused(lambda: Profiler(step_on="loader"))
    sgd = torch.optim.SGD(network().parameters())
    refused(lambda: Profiler(step_on="optimizer:1"))
    """
    needs("torch")
    script(tmp_path, TORCH + "    from stepscope import Profiler, schedule\n" + text)
    lines = run_command(tmp_path, "python", "train.py").stdout.splitlines()
    assert [line[:70] for line in lines] == [
        "step() of a profiler with step_on='dataloader', which marks the steps: use"[:70],
        "step_on is 'function:__main__.absent', but the script has no function of this"[:70],
        "step_on is 'loader'; expected optimizer:NAME, function:MODULE.NAME, annotation"[:70],
        "step_on is 'optimizer:1', but the order of the existing optimizers is not known"[:70],
    ]


LATE = """
    net = network()
    sgd = torch.optim.SGD(net.parameters())
    profiler = Profiler(start_profile=False, host_interval_ms=0{plan})
    for number in range(10):
        if number == 4:
            profiler.start()
        train(net, sgd)
        if number >= {first}:
            profiler.step()
        if number == 7:
            profiler.stop()
            print(profiler.step_num)
"""


@pytest.mark.parametrize(("plan", "expected"), [("", [[4, 5, 6, 7]]), (", schedule=schedule(wait=1, active=2, repeat=1)", [[5, 6]])])
@pytest.mark.parametrize("first", [0, 4])
def test_a_profiler_started_in_mid_run_numbers_its_steps_as_the_job_does(
    tmp_path: Path, plan: str, expected: list[list[int]], first: int
) -> None:
    """It knows the steps before its start by step(), or from `stepscope run`."""
    assert profiled(tmp_path, LATE.format(plan=plan, first=first), under_run=first == 4) == expected


@pytest.mark.parametrize(
    "choice", mostly_deep(["optimizer:SGD", "optimizer:1", "dataloader", "function:__main__.train"], ["optimizer:1", "dataloader"])
)
def test_steps_of_mindspore_can_be_named_too(tmp_path: Path, choice: str) -> None:
    needs("mindspore")
    script(
        tmp_path,
        """
        import numpy as np
        import mindspore as ms
        from mindspore import nn
        net = nn.Dense(8, 2)
        sgd = nn.SGD(net.trainable_params(), 0.1)
        gradients = ms.value_and_grad(lambda data: net(data).mean(), None, net.trainable_params())
        def train(data):
            sgd(gradients(data)[1])
        data = ms.dataset.NumpySlicesDataset(np.ones((12, 8), np.float32), shuffle=False).batch(4)
        for epoch in range(2):
            for (batch,) in data.create_tuple_iterator():
                train(batch)
        """,
    )
    under = run(tmp_path, "--step-on", choice, "train.py")
    assert under.returncode == 0, under.stderr
    assert steps(only(recordings(tmp_path / "data"))) == [0, 1, 2, 3, 4, 5]
