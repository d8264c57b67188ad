"""Many real trainings, recorded in every way, under glibc's checks of the heap: `python tests/soak/soak.py --runs 200`.

Each form is first run alone, for --seconds; what is recorded then makes the same number of steps, and must train the same to the last bit.
The order is random, and the same for the same --seed. A table says what was run; the exit code is 1 where anything failed.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)  # as pytest has it: `soak` is this folder

from soak.harness import FORMS, VARIANTS, Case, Outcome, malloc_checker, play, play_ranges, play_valgrind, why_absent  # noqa: E402
from soak.job import WAYS  # noqa: E402

_MEGABYTE = 2**20


def main() -> int:
    args = _arguments()
    checks = "MALLOC_PERTURB_=165, " + ("MALLOC_CHECK_=3" if malloc_checker() else "no MALLOC_CHECK_: libc_malloc_debug.so.0 is absent")
    print(f"Heap checks: {checks}. Seed {args.seed}.")
    folder = args.keep or Path(tempfile.mkdtemp(prefix="stepscope-soak-"))
    outcomes: list[Outcome] = []
    try:
        for outcome in _series(args, folder.absolute()):
            outcomes.append(outcome)
            _print_outcome(outcome)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("", *_table(outcomes), sep="\n")
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    crashed = sum(bool(outcome.crashes) for outcome in outcomes)
    print(f"\n{len(outcomes)} runs, {crashed} crashed, {failed - crashed} failed otherwise.")
    return 1 if failed or not outcomes else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="how many recorded jobs; default 200")
    parser.add_argument("--minutes", type=float, help="begin no further job after so long; default: no bound")
    parser.add_argument("--seconds", type=float, default=60, help="how long each job trains when it is left alone; default 60")
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a job sleeps in each step; default 0.03")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time; default 1")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order; default: another each time")
    parser.add_argument("--windows", type=int, default=300, help="at each place of torch_ranges.py; default 300, 0 for none")
    parser.add_argument(
        "--valgrind", type=int, default=6, help="windows of one run under valgrind, where it is installed; default 6, 0 for none"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep recordings and output here; default: nothing is kept")
    lists = {"forms": [*FORMS], "ways": [*WAYS], "variants": [*VARIANTS]}
    for name, known in lists.items():
        parser.add_argument(f"--{name}", default=",".join(known), help=f"comma-separated; default {','.join(known)}")
    args = parser.parse_args()
    for name, known in lists.items():
        chosen = getattr(args, name).split(",")
        if wrong := [word for word in chosen if word not in known]:
            parser.error(f"--{name} has {wrong[0]!r}; expected some of {', '.join(known)}")
        setattr(args, name, chosen)
    return args


def _series(args: argparse.Namespace, folder: Path) -> Iterator[Outcome]:
    end = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")
    limit_s = 300 + 20 * args.seconds  # recorded with everything on, beside others on a slow machine
    references: dict[str, Outcome] = {}
    for form in args.forms:
        if why := why_absent(form):
            print(f"SKIPPED  {form}: {why}")
            continue
        bounds = {"steps": 1_000_000, "seconds": args.seconds, "pause": args.pause, "limit_s": limit_s}
        reference = play(Case(form, "bare"), folder / f"{form}-alone", **bounds, reference=None)
        yield reference
        if not reference.failures:
            references[form] = reference

    def played(number: int, case: Case) -> Outcome:
        alone = references[case.form]
        bounds = {"steps": alone.result["steps"], "seconds": limit_s, "pause": args.pause, "limit_s": limit_s}
        return play(case, _place(number), **bounds, reference=alone)

    def _place(number: int) -> Path:
        return folder / f"run{number:04d}"

    order = random.Random(args.seed)
    tasks: list[Callable[[int], Outcome]] = []
    for case in _cases(references, args, order):
        tasks.append(lambda number, case=case: played(number, case))  # type: ignore[misc]
    if args.windows and set(args.forms) & {"eager"} and "schedule" in args.ways and not why_absent("eager"):
        from soak.torch_ranges import PLACES

        for place in PLACES:
            checks = {"windows": args.windows, "limit_s": limit_s, "python_malloc": order.random() < 0.5}
            tasks.append(lambda number, place=place, checks=checks: play_ranges(place, _place(number), **checks))  # type: ignore[misc]
        if args.valgrind and not shutil.which("valgrind"):
            print("SKIPPED  valgrind: not installed")
        elif args.valgrind:
            tasks.append(lambda number: play_valgrind("optimizer_hook", _place(number), windows=args.valgrind, limit_s=3600))
    order.shuffle(tasks)

    def turn(number: int) -> Outcome | None:
        if time.monotonic() > end:
            return None
        outcome = tasks[number](number)
        if not args.keep or not outcome.failures:
            shutil.rmtree(_place(number), ignore_errors=True)  # recordings of an hour fill a disk; what failed is kept
        return outcome

    with ThreadPoolExecutor(args.jobs) as pool:
        for done in as_completed([pool.submit(turn, number) for number in range(len(tasks))]):
            if (outcome := done.result()) is not None:
                yield outcome


def _cases(references: dict[str, Outcome], args: argparse.Namespace, order: random.Random) -> Iterator[Case]:
    """Every form in every way, again and again, each time with something else."""
    every = [(form, way) for form in references for way in args.ways if way != "bare"]
    for number in range(args.runs if every else 0):
        form, way = every[number % len(every)]
        known = ["plain"] if form == "mindspore" else args.variants
        variant = order.choice(known)
        last = references[form].result["steps"] // 2
        steps = f"{min(5, last - 1)}:{last}" if way == "run" and order.random() < 0.3 else ""
        yield Case(form, way, variant, steps, python_malloc=order.random() < 0.3)


def _print_outcome(outcome: Outcome) -> None:
    word = "CRASHED " if outcome.crashes else "FAILED  " if outcome.failures else "ok      "
    print(f"{word} {outcome.case}: {outcome.seconds:.0f} s, {outcome.windows} windows, {outcome.steps} steps recorded", flush=True)
    for failure in outcome.failures:
        print(f"         {failure}", flush=True)


def _table(outcomes: list[Outcome]) -> Iterator[str]:
    """What was run, by form and way. Memory is the most that a job took; a step's time is the median of the medians."""
    heads = ("form", "way", "runs", "crashes", "mismatches", "memory", "faults", "windows", "minutes", "max RSS MB", "step ms")
    rows: list[tuple[str, ...]] = [heads]
    for key in dict.fromkeys((one.case.form, one.case.way) for one in sorted(outcomes, key=lambda one: (one.case.form, one.case.way))):
        those = [one for one in outcomes if (one.case.form, one.case.way) == key]
        counts = [sum(bool(getattr(one, kind)) for one in those) for kind in ("crashes", "mismatches", "memory", "faults")]
        rss = [one.result["rss_max"] for one in those if "rss_max" in one.result]
        medians = sorted(one.result["step_ms_median"] for one in those if "step_ms_median" in one.result)
        rows.append(
            (
                *key,
                *map(str, [len(those), *counts, sum(one.windows for one in those)]),
                f"{sum(one.seconds for one in those) / 60:.1f}",
                f"{max(rss) / _MEGABYTE:.0f}" if rss else "",
                f"{medians[len(medians) // 2]:.1f}" if medians else "",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if number < 2 else cell.rjust(width) for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )


if __name__ == "__main__":
    sys.exit(main())
