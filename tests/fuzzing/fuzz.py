"""Read mutants of recorded files and look at what opens: `python tests/fuzzing/fuzz.py --jobs 16 --seconds 600 --keep FOLDER`.

A mutant is named target/input:seed:number, and is the same whenever it is made: `--replay NAME` tries one again and shows where it fails.
Accepted ends: it opens, and everything asked of it is answered; or it is refused in one line that names the file. An exception, a law that
does not hold, more than 30 s of processor time or more than 2 GB is a finding. Findings are told apart by exception and place; of each
the smallest is kept.
Nothing but files and the packages that reading needs is used: no framework, no network.
"""

import argparse
import contextlib
import faulthandler
import hashlib
import itertools
import json
import os
import random
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).absolute().parents[1]
if str(TESTS) not in sys.path:  # run as a script
    sys.path[0] = str(TESTS)  # as pytest has it: `fuzzing` is this folder
    sys.path.insert(1, str(TESTS.parent / "src"))

CORPUS = Path(__file__).parent / "corpus"
LIMIT_S = 30.0  # of processor time: a busy machine makes no hang
_WAITING_S = 120.0  # for a mutant that waits and computes nothing
LIMIT_BYTES = 2 << 30
_ADDRESSES = 4 << 30  # beside what the worker has: libraries reserve more than they use
_RECYCLED = 1500  # mutants after which a worker is replaced: temporary folders are only forgotten when a process ends
_SOURCE = str(TESTS.parent / "src" / "stepscope")


def main() -> int:
    args = _arguments()
    if args.worker:
        return _work(args.worker)
    room = Path(tempfile.mkdtemp(prefix="stepscope-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        inputs = args.inputs or room / "inputs"
        if not inputs.is_dir():
            own = {"STEPSCOPE_FUZZ_OWN": "1"} if args.own else {}
            subprocess.run([sys.executable, __file__, "--worker", f"inputs:{inputs}"], check=True, env=_environment(room) | own)
        if args.replay:
            _replay(args.replay, inputs, room, args.add, args.ask)
            return 0
        return _fuzz(args, inputs, room)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", metavar="NAME", help="only this target; may be repeated. Default: all")
    parser.add_argument("--seconds", type=float, help="begin no further mutant after so long. Default: no bound")
    parser.add_argument("--mutants", type=int, help="of each target. Default: no bound")
    parser.add_argument("--whole", action="store_true", help="try the inputs as they are, and ask everything of them")
    parser.add_argument("--seed", type=int, default=1, help="of all mutants. Default: 1")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first mutant. Default: 0")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes. Default: 1")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write findings here. Default: none are kept")
    parser.add_argument(
        "--inputs", type=Path, metavar="FOLDER", help="whole inputs; made there if there is no such folder. Default: made anew"
    )
    parser.add_argument(
        "--replay", metavar="NAME", help="try one mutant again, by name or as the folder of a finding, and show where it fails"
    )
    parser.add_argument("--add", metavar="CASE", help="with --replay: add the mutant to the corpus under this name, if it passes")
    parser.add_argument("--ask", default="", metavar="A,B", help="with --add: what is asked of it; default: to open, no more")
    parser.add_argument("--own", action="store_true", help="only inputs that come with the project, no real data beside it")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not (args.seconds or args.mutants or args.whole or args.replay or args.worker):
        parser.error("say how much: --seconds N, --mutants N or --whole")
    return args


# The side that hands out mutants


@dataclass
class Tally:
    mutants: int = 0
    opened: int = 0
    refused: int = 0
    signatures: set[str] = field(default_factory=set)
    findings: int = 0
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    most_bytes: int = 0


@dataclass
class Finding:
    signature: str
    name: str
    size: int
    text: str
    count: int = 1


class Worker:
    """A process that tries one mutant after another."""

    def __init__(self, room: Path, inputs: Path) -> None:
        room.mkdir()
        self.room = room
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", f"{room}:{inputs}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(room / "stderr").open("wb"),
            env=_environment(room),
            text=True,
        )
        self.name: str | None = None
        self.begun = self.cpu_before = 0.0
        self.tried = 0

    def give(self, name: str) -> None:
        self.name, self.begun, self.cpu_before = name, time.monotonic(), self.cpu_s()
        self.tried += 1
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it ended: what it answers says so
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()

    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            return 0.0
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with the children that it waited for

    def is_stuck(self) -> bool:
        limit_s = LIMIT_S + (10 if self.tried == 1 else 0)  # the first one also imports
        return self.cpu_s() - self.cpu_before > limit_s or time.monotonic() - self.begun > max(_WAITING_S, limit_s)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if line:
            return dict(json.loads(line))
        status = self.process.wait()
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        return self._ended(f"process ended: {how}", (self.room / "stderr").read_text(errors="replace")[-6000:])

    def hangs(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGUSR1)  # faulthandler says where
        time.sleep(1)
        self.process.kill()
        self.process.wait()
        return self._ended("hang", (self.room / "stderr").read_text(errors="replace")[-6000:])

    def _ended(self, what: str, text: str) -> dict[str, Any]:
        if not (self.room / "doing").exists():
            raise SystemExit(f"no worker can start: {text}")
        doing = (self.room / "doing").read_text().strip()
        frames = re.findall(rf'File "{re.escape(_SOURCE)}/(\S+)", line \d+ in (\w+)', text)
        place = ":".join(frames[0]) if frames else doing
        return {"end": "finding", "signature": f"{what} in {place}", "text": f"while: {doing}\n{text}", "bytes": 0, "size": 1 << 40}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.room, ignore_errors=True)


def _environment(room: Path) -> dict[str, str]:
    own = {
        "POLARS_MAX_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "STEPSCOPE_CACHE": str(room / "no cache"),
    }
    return os.environ | own | {"RUST_BACKTRACE": "0", "TMPDIR": str(room)}


def _fuzz(args: argparse.Namespace, inputs: Path, room: Path) -> int:
    known = {target.name: sorted(one.name for one in target.iterdir()) for target in sorted(inputs.iterdir())}
    if unknown := set(args.target or ()) - set(known):
        raise SystemExit(f"no target '{min(unknown)}'; there are {', '.join(known)}")
    targets = {name: found for name, found in known.items() if found and (not args.target or name in args.target)}
    tallies = {name: Tally() for name in targets}
    findings: dict[str, Finding] = {}
    numbers = itertools.count() if args.mutants is None else range(args.mutants)
    names = (_mutant(target, targets[target], args.seed, args.first + number) for number in numbers for target in targets)
    if args.whole:
        names = (f"{target}/{name}:whole" for target, inputs_ in targets.items() for name in inputs_)
    print(f"{len(targets)} targets, {sum(map(len, targets.values()))} inputs, seed {args.seed}, {args.jobs} processes", flush=True)
    began, output = time.monotonic(), time.monotonic()
    selector, made = selectors.DefaultSelector(), itertools.count()
    workers: list[Worker] = []

    def start() -> None:
        worker = Worker(room / f"worker{next(made)}", inputs)
        workers.append(worker)
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        _next(worker)

    def stop(worker: Worker) -> None:
        selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        workers.remove(worker)
        worker.close()

    def _next(worker: Worker) -> None:
        over = args.seconds and time.monotonic() - began > args.seconds
        name = None if over else next(names, None)
        worker.name = None
        if name is None:
            stop(worker)
        elif worker.tried >= _RECYCLED:
            stop(worker)
            fresh = Worker(room / f"worker{next(made)}", inputs)
            workers.append(fresh)
            selector.register(fresh.process.stdout, selectors.EVENT_READ, fresh)  # type: ignore[arg-type]
            fresh.give(name)
        else:
            worker.give(name)

    def note(worker: Worker, answer: dict[str, Any]) -> None:
        _note(worker, answer, tallies[worker.name.split("/")[0]], findings, args.keep)  # type: ignore[union-attr]

    try:
        for _ in range(args.jobs):
            start()
        while workers:
            for key, _ in selector.select(timeout=1.0):
                worker = key.data
                answer = worker.answer()
                note(worker, answer)
                if worker.process.poll() is not None:
                    stop(worker)
                    start()
                else:
                    _next(worker)
            for worker in list(workers):
                if worker.is_stuck():
                    note(worker, worker.hangs())
                    stop(worker)
                    start()
            if time.monotonic() - output > 30:
                output = time.monotonic()
                done = sum(tally.mutants for tally in tallies.values())
                print(f"{output - began:6.0f} s: {done:,} mutants, {len(findings)} findings", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        for worker in list(workers):
            worker.close()
    lines = [*_table(tallies), "", *_list(findings, args)]
    print(f"\n{time.monotonic() - began:.0f} s", *lines, sep="\n")
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        (args.keep / "table.txt").write_text("\n".join(lines) + "\n")
    return 1 if findings else 0


def _mutant(target: str, inputs: list[str], seed: int, number: int) -> str:
    return f"{target}/{random.Random(f'{target}:{seed}:{number}').choice(inputs)}:{seed}:{number}"


def _note(worker: Worker, answer: dict[str, Any], tally: Tally, findings: dict[str, Finding], keep: Path | None) -> None:
    name = str(worker.name)
    seconds = time.monotonic() - worker.begun
    if worker.tried == 1:
        seconds = float(answer.get("seconds", 0))  # less what it took to import
    tally.mutants += 1
    tally.seconds += seconds
    tally.slowest = max(tally.slowest, (seconds, name))
    tally.most_bytes = max(tally.most_bytes, answer["bytes"])
    if answer["end"] != "finding":
        setattr(tally, answer["end"], getattr(tally, answer["end"]) + 1)
        return
    tally.findings += 1
    signature, size = answer["signature"], answer["size"]
    tally.signatures.add(signature)
    mutant = worker.room / "mutant"
    old = findings.get(signature)
    if old and old.size <= size:
        old.count += 1
        return
    findings[signature] = Finding(signature, name, size, answer["text"], old.count + 1 if old else 1)
    if old is None:
        print(f"finding: {signature}\n  {name}", flush=True)
    if keep:
        place = keep / (re.sub(r"[^\w.]+", "-", signature)[:80] + "-" + hashlib.sha256(signature.encode()).hexdigest()[:6])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "finding.txt").write_text(f"{name}\n{signature}\n\n{answer['text']}\n")
        if mutant.exists():
            shutil.copytree(mutant, place / "mutant", symlinks=True, ignore=_no_pipes)


def _no_pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(folder) / name).is_symlink() and (Path(folder) / name).is_fifo()]


def _table(tallies: dict[str, Tally]) -> Iterator[str]:
    heads = ("mutants", "opened", "refused", "findings", "distinct", "mean ms")
    yield " ".join([f"{'target':18}", *(f"{head:>8}" for head in heads), "slowest s", " peak MB"])
    total = Tally()
    for name, tally in tallies.items():
        yield _row(name, tally)
        total.mutants, total.opened, total.refused = (
            total.mutants + tally.mutants,
            total.opened + tally.opened,
            total.refused + tally.refused,
        )
        total.findings, total.seconds = total.findings + tally.findings, total.seconds + tally.seconds
        total.signatures |= tally.signatures
        total.slowest, total.most_bytes = max(total.slowest, tally.slowest), max(total.most_bytes, tally.most_bytes)
    yield _row("all", total)
    yield f"slowest: {total.slowest[1]}"


def _row(name: str, tally: Tally) -> str:
    mean = 1000 * tally.seconds / max(tally.mutants, 1)
    numbers = f"{tally.mutants:8,} {tally.opened:8,} {tally.refused:8,} {tally.findings:8,} {len(tally.signatures):8,}"
    return f"{name:18} {numbers} {mean:8.0f} {tally.slowest[0]:9.1f} {tally.most_bytes / 2**20:8.0f}"


def _list(findings: dict[str, Finding], args: argparse.Namespace) -> Iterator[str]:
    for found in sorted(findings.values(), key=lambda one: -one.count):
        yield f"{found.count:6,} x {found.signature}"
        yield f"         --replay '{found.name}'"
    yield f"{len(findings)} findings" + (f", in {args.keep}" if args.keep and findings else "")


# The side that tries them


def _work(settings: str) -> int:
    room, inputs = (Path(part) for part in settings.split(":"))
    from fuzzing import inputs as whole

    if str(room) == "inputs":
        whole.make(inputs, own=bool(os.environ.get("STEPSCOPE_FUZZ_OWN")))
        return 0
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the code under test prints is no answer
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    known = whole.find_inputs(inputs)
    doing = os.open(room / "doing", os.O_RDWR | os.O_CREAT)
    _limit_memory()
    for line in sys.stdin:
        answer = _try(line.strip(), known, room, doing)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ADDRESSES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _try(name: str, known: dict[str, dict[str, Path]], room: Path, doing: int) -> dict[str, Any]:
    from fuzzing import targets

    target, _, rest = name.partition("/")
    own = room / "mutant"
    for place in (own, room / "work"):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    chance = Chance(name)
    path = _made(known[target][rest.split(":")[0]], own, target, chance)
    size = sum(file.lstat().st_size for file in own.rglob("*") if not file.is_dir())
    tempfile.tempdir = str(room / "work")

    def report(what: str) -> None:
        os.pwrite(doing, what.ljust(60).encode(), 0)

    began, before = time.monotonic(), _forget_peak()
    answer: dict[str, Any]
    try:
        answer = {"end": targets.examine(target, path, targets.Trial(room / "work", chance, chance.whole, report))}
    except BaseException as error:  # noqa: BLE001  whatever it is, it is what is looked for
        answer = {"end": "finding", "signature": _signature(error), "text": "".join(traceback.format_exception(error))[-6000:]}
    answer |= {"bytes": max(_peak() - before, 0), "size": size, "seconds": time.monotonic() - began}
    if answer["bytes"] > LIMIT_BYTES and answer["end"] != "finding":
        answer |= {"end": "finding", "signature": f"memory above 2 GB in {target}", "text": f"{answer['bytes']:,} bytes"}
    return answer


class Chance(random.Random):
    """What happens to the mutant of a name. A name that ends with `:whole` is of the input as it is."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.whole = name.endswith(":whole")


def _made(whole: Path, own: Path, target: str, chance: "Chance") -> Path:
    from fuzzing import mutators, targets

    path = own / whole.name
    (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
    if target not in targets.OWN_MUTATION and not chance.whole:
        aside = own.with_name("aside")
        if target == "timeline":
            (path / "run").rename(aside)  # the trace that it is of stays whole
        mutators.mutate(path, chance, targets.extra_mutators(target))
        if aside.is_dir():
            aside.rename(path / "run")
    return path


def _signature(error: BaseException) -> str:
    """The exception and the innermost place in our code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_SOURCE)]
    place = f"{Path(frames[-1].filename).relative_to(_SOURCE)}:{frames[-1].name}" if frames else "fuzzing"
    law = f" '{error.law}'" if hasattr(error, "law") else ""
    return f"{type(error).__name__}{law} in {place}"


def _forget_peak() -> int:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def _replay(name: str, inputs: Path, room: Path, add: str | None, ask: str) -> None:
    """One mutant, with everything asked of it, in this process; then it may become a case of the corpus."""
    os.environ |= _environment(room)
    from fuzzing import inputs as whole
    from fuzzing import targets

    folder = Path(name)
    kept = (folder / "finding.txt").is_file()
    title = (folder / "finding.txt").read_text().splitlines()[0] if kept else name
    target = title.partition("/")[0]
    for partial in (False, True):
        work = room / f"work{partial}"
        work.mkdir()
        tempfile.tempdir = str(work)
        chance = Chance(title)
        own = room / f"mutant{partial}"
        own.mkdir()
        if kept and target not in targets.OWN_MUTATION:
            shutil.rmtree(own)
            shutil.copytree(folder / "mutant", own, symlinks=True)
            path = next(own.iterdir())
        else:
            path = _made(whole.find_inputs(inputs)[target][title.partition("/")[2].split(":")[0]], own, target, chance)
        if add and not partial:
            shutil.copytree(own, room / "case", symlinks=True)
        trial = targets.Trial(work, chance, True, lambda what: None)
        if partial:
            trial.partial = not trial.partial
        began = time.monotonic()
        print(f"{title}, {'with' if trial.partial else 'without'} --partial: ", end="", flush=True)
        print(f"{targets.examine(target, path, trial)}, {time.monotonic() - began:.1f} s")
    if add:
        case = CORPUS / add
        case.mkdir(parents=True)
        shutil.move(room / "case", case / "mutant")
        (case / "case.txt").write_text(f"{title}\n{ask}\n")


def try_case(case: Path, room: Path) -> list[str]:
    """What becomes of a case of the corpus, without and with --partial: opened or refused. Any other end is an exception."""
    from fuzzing import targets

    title, ask, *_ = (case / "case.txt").read_text().split("\n")
    ends = []
    for partial in (False, True):
        work, own = room / f"work{partial}", room / f"mutant{partial}"
        work.mkdir()
        shutil.copytree(case / "mutant", own, symlinks=True)
        trial = targets.Trial(work, random.Random(title), False, lambda what: None)
        trial.partial, trial.asked = partial, [word for word in ask.split(",") if word]
        ends.append(targets.examine(title.partition("/")[0], next(own.iterdir()), trial))
    return ends


if __name__ == "__main__":
    sys.exit(main())
