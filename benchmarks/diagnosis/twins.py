"""Measures a script and its repaired twin in turns, unprofiled: one request as a line of JSON on the standard input, one answer per line.

PyTorch is imported once, and every twin is a fork of this process: the import takes longer than the measurement. Other frameworks start
threads when they are imported, so their twins are new processes.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

HERE = Path(__file__).parent
ROUNDS = 4
BLOCK_NS = 60_000_000
PERIOD = 4  # steps of a block are a multiple: what happens every fourth step is in each block
_PATIENCE_S = 180


class Twin(NamedTuple):
    """The processes of one variant, and the pipes to its rank 0."""

    processes: list[int]
    requests: IO[str]
    answers: IO[str]

    def block(self, steps: int) -> list[float]:
        """The mean duration of a step in ns, and its mean CPU time on rank 0."""
        self.requests.write(f"{steps}\n")
        self.requests.flush()
        return [int(word) / steps for word in self.answers.readline().split()]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.requests.close()
        self.answers.close()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def measure(script: str, world: int, forks: bool) -> dict[str, Any]:
    """Durations of a step of both variants, per round."""
    twins = []
    try:
        for fixed in (False, True):
            twins.append(_start(script, world, fixed, forks))
            line = twins[-1].answers.readline()
            if line.strip() != "ready":
                raise RuntimeError(f"{'the twin' if fixed else 'the script'} ended before its first step")
        steps = [_steps(twin) for twin in twins]
        rounds: list[list[list[float]]] = []
        for number in range(ROUNDS):
            times: list[list[float]] = [[], []]
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                times[which] = twins[which].block(steps[which])
            rounds.append(times)
    finally:
        for twin in twins:
            twin.close()
    return {"wall": _summary(rounds, 0), "cpu": _summary(rounds, 1), "steps": steps}


def _summary(rounds: list[list[list[float]]], clock: int) -> dict[str, Any]:
    """Minimum and median per variant. Other programs only make a block longer: the minimum is disturbed least."""
    faulty, fixed = ([times[variant][clock] for times in rounds] for variant in (0, 1))
    low, _, high = statistics.quantiles([before - after for before, after in zip(faulty, fixed, strict=True)], n=4)
    return {
        "faulty_ns": min(faulty),
        "fixed_ns": min(fixed),
        "faulty_median_ns": statistics.median(faulty),
        "fixed_median_ns": statistics.median(fixed),
        "gain_quartiles_ns": [low, high],
    }


def _steps(twin: Twin) -> int:
    """Steps for about a tenth of a second."""
    mean = twin.block(PERIOD)[0]
    return max(PERIOD, round(BLOCK_NS / mean / PERIOD) * PERIOD)


def _start(script: str, world: int, fixed: bool, forks: bool) -> Twin:
    environment = {"FIXED": str(int(fixed)), "TIMED": "1"}
    if world > 1:
        environment |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    request_end, requests = os.pipe()
    answers, answer_end = os.pipe()
    processes = []
    for rank in range(world):
        variables = environment | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if world > 1 else {})
        streams = (request_end, answer_end) if rank == 0 else (None, None)
        processes.append(_forked(script, variables, *streams) if forks else _started(script, variables, *streams))
    os.close(request_end)
    os.close(answer_end)
    return Twin(processes, os.fdopen(requests, "w"), os.fdopen(answers))


def _started(script: str, variables: dict[str, str], stdin: int | None, stdout: int | None) -> int:
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, script],
        stdin=null if stdin is None else stdin,
        stdout=null if stdout is None else stdout,
        stderr=null,
        env=os.environ | variables | {"PYTHONPATH": str(HERE)},
    )
    process.returncode = 0  # waited for by its id
    return process.pid


def _forked(script: str, variables: dict[str, str], stdin: int | None, stdout: int | None) -> int:
    process = os.fork()
    if process:
        return process
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, target in ((stdin, 0), (stdout, 1), (None, 2)):
            os.dup2(null if descriptor is None else descriptor, target)
        os.closerange(3, 64)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        os.environ.update(variables)
        sys.argv = [script]
        sys.path.insert(0, str(HERE))
        runpy.run_path(script, run_name="__main__")
    finally:
        os._exit(0)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _too_late(*_: Any) -> None:
    raise TimeoutError(f"not measured within {_PATIENCE_S} s")


def main() -> None:
    import torch  # noqa: F401  for the forks

    signal.signal(signal.SIGALRM, _too_late)
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(_PATIENCE_S)
        begun = time.monotonic()
        try:
            answer = measure(**request)
        except (RuntimeError, TimeoutError, ValueError, OSError) as error:
            answer = {"error": str(error) or type(error).__name__}
        signal.alarm(0)
        print(json.dumps(answer | {"took_s": time.monotonic() - begun}), flush=True)


if __name__ == "__main__":
    main()
