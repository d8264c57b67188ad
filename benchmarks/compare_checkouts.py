"""Compare two checkouts of stepscope: every table, analysis, summary and (with --exports) export of every sample, exactly.

python benchmarks/compare_checkouts.py BEFORE AFTER [--only GLOB] [--jobs N] [--exports] [--expected FILE] [--keep FOLDER]

Inputs are all paths that BEFORE lists in tests/samples and ../shared/data of the checkout of this file. Both read the same paths.
Prints one line per difference: input, table, what differs, first differing row. Exits with 1 if there is a difference.
Two kinds of lines do not count as differences: "wording" (messages whose text changed and whose numbers did not) and "unstable" (BEFORE
itself gives another result when it runs again).
Lines of the --expected file are `REGEX  # reason` (matched against a difference), `rename TABLE OLD NEW` (a column; TABLE may be *)
or `rename TABLE NEW` (a table or an analysis).
"""

import argparse
import contextlib
import fnmatch
import gzip
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

ROOT = Path(__file__).resolve().parent.parent
_TEXTS = {"what", "where"}  # columns of `problems` that hold prose
_SHOWN = 160
_ATTEMPTS = 3


class Renames(NamedTuple):
    """Names that changed on purpose: tables, and columns by table (`*` is every table)."""

    tables: dict[str, str]
    columns: dict[str, dict[str, str]]

    def of_column(self, table: str, column: str) -> str:
        return self.columns.get(table, {}).get(column) or self.columns.get("*", {}).get(column, column)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="Source tree that has the expected results.")
    parser.add_argument("after", type=Path, help="Source tree to check.")
    parser.add_argument("--only", default="*", metavar="GLOB", help="Compare only inputs whose path matches. Default: all.")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="Inputs compared at a time. Default: 2.")
    parser.add_argument("--exports", action="store_true", help="Compare the files of every exporter, too.")
    parser.add_argument("--expected", type=Path, metavar="FILE", help="Differences and renames that are intended.")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="Keep the results of BEFORE here, and reuse them.")
    parser.add_argument("--inputs", type=Path, nargs="+", metavar="PATH", help="Files and folders to read instead of the samples.")
    parser.add_argument("--timeout", type=int, default=300, metavar="S", help="Seconds per input and checkout. Default: 300.")
    parser.add_argument("--memory", type=int, default=8, metavar="GB", help="Address space per process. Default: 8.")
    args = parser.parse_args()
    expected, renames = read_expected(args.expected)
    with tempfile.TemporaryDirectory(prefix="compare_checkouts.") as scratch:
        args.scratch = Path(scratch)
        every = find_inputs(args)
        chosen = [path for path in every if fnmatch.fnmatch(str(path), args.only)]
        tables, counts, seen = 0, dict.fromkeys(("difference", "wording", "unstable", "expected"), 0), set()
        with ThreadPoolExecutor(args.jobs) as pool:
            for path, (compared, lines) in zip(chosen, pool.map(partial(compare_input, args, renames), chosen), strict=True):
                tables += compared
                for kind, line in lines:
                    text = f"{_short(path)}: {line}"
                    reason = next((pattern for pattern in expected if pattern.search(text)), None)
                    seen.add(reason)
                    counts["expected" if reason else kind] += 1
                    if not reason:
                        print(f"{kind}: {text}", flush=True)
    if args.only == "*":
        for pattern in expected.keys() - seen:
            print(f"note: no difference matches the expected {pattern.pattern!r} ({expected[pattern]})")
    print(
        f"{len(chosen)} of {len(every)} inputs, {tables:,} tables and documents: {counts['difference']} differences, "
        f"{counts['wording']} in wording only, {counts['unstable']} unstable, {counts['expected']} expected"
    )
    return 1 if counts["difference"] or not chosen else 0


def read_expected(path: Path | None) -> tuple[dict[re.Pattern[str], str], Renames]:
    """The patterns of intended differences with their reasons, and the names that changed."""
    patterns, renames = dict[re.Pattern[str], str](), Renames({}, {})
    for line in path.read_text().splitlines() if path else ():
        text, _, reason = (part.strip() for part in line.partition("  #"))
        words = text.split()
        if not text or text.startswith("#"):
            continue
        if words[0] == "rename" and len(words) == 4:
            renames.columns.setdefault(words[1], {})[words[2]] = words[3]
        elif words[0] == "rename" and len(words) == 3:
            renames.tables[words[1]] = words[2]
        elif not reason:
            sys.exit(f"{path}: no reason for {text!r}; expected `REGEX  # reason`")
        else:
            patterns[re.compile(text)] = reason
    return patterns, renames


def find_inputs(args: argparse.Namespace) -> list[Path]:
    """Every path that BEFORE lists, and the parts of folders that open alone, such as the ranks of a job."""
    roots = args.inputs or [ROOT / "tests" / "samples", ROOT.parent / "shared" / "data"]
    runs = _listed(args, [path.resolve() for path in roots if path.exists()])
    inside = [child for run in runs if run.is_dir() for child in sorted(run.iterdir())]
    return list(dict.fromkeys([*runs, *_listed(args, inside)]))


def _listed(args: argparse.Namespace, paths: list[Path]) -> list[Path]:
    if not paths:  # without a path, the command lists the current folder
        return []
    command = [sys.executable, "-m", "stepscope", "list", *map(str, paths), "--format", "json"]
    answer = subprocess.run(command, env=_environment(args.before, args.scratch / "list"), capture_output=True, check=False)
    return [Path(row["path"]) for row in json.loads(answer.stdout)["rows"]]


def compare_input(args: argparse.Namespace, renames: Renames, path: Path) -> tuple[int, list[tuple[str, str]]]:
    """How many tables and documents of an input were compared, and its differences: kind and text."""
    before = run_checkout(args, args.before, path, args.keep or args.scratch / "before")
    after = run_checkout(args, args.after, path, args.scratch / "after")
    compared, found = compare_folders(before, after, renames)
    unstable: set[Path] = set()
    for attempt in range(_ATTEMPTS if found else 0):  # a table that BEFORE does not repeat cannot be compared
        again = run_checkout(args, args.before, path, args.scratch / f"again_{attempt}")
        unstable |= compare_folders(before, again, Renames({}, {}))[1].keys()
        shutil.rmtree(again)
    shutil.rmtree(after)
    if args.keep is None:
        shutil.rmtree(before)
    return compared, [("unstable" if file in unstable else kind, f"{file}: {text}") for file, (kind, text) in found.items()]


def compare_folders(before: Path, after: Path, renames: Renames) -> tuple[int, dict[Path, tuple[str, str]]]:
    """How many files there are in either folder, and the first difference of each that differs."""
    old, new = ({file.relative_to(folder): file for file in folder.rglob("*") if file.is_file()} for folder in (before, after))
    old = {_renamed(name, renames): file for name, file in old.items()}
    found: dict[Path, tuple[str, str]] = {}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            found[name] = "difference", f"only in {'BEFORE' if name in old else 'AFTER'}{_first_line(old.get(name) or new[name])}"
        elif difference := compare_files(old[name], new[name], renames):
            found[name] = difference
    return len(old.keys() | new.keys()), found


def _renamed(file: Path, renames: Renames) -> Path:
    return file.with_stem(renames.tables.get(file.stem, file.stem)) if file.parts[0] in ("tables", "analyses") else file


def _first_line(file: Path) -> str:
    return f" ({file.read_text()[:_SHOWN].strip()})" if file.suffix == ".txt" else ""


def run_checkout(args: argparse.Namespace, checkout: Path, path: Path, results: Path) -> Path:
    """The folder with what a checkout makes of an input; a process that fails leaves `crash.txt` there."""
    folder = results.resolve() / ("exports" if args.exports else "tables") / re.sub(r"\W+", "_", str(path))
    if folder.exists():
        return folder
    draft = Path(tempfile.mkdtemp(dir=args.scratch)) / "results"
    draft.mkdir()
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "checkout_results.py"),
        str(path),
        str(draft),
        str(args.memory),
        *(["--exports"] if args.exports else []),
    ]
    process = subprocess.Popen(
        command,
        env=_environment(checkout, args.scratch / f"cache_{results.name}"),
        cwd=draft.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, error = process.communicate(timeout=args.timeout)
        failure = f"exit status {process.returncode}: {error.strip()[-_SHOWN:]}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"not finished after {args.timeout} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it started
        process.communicate()
    if failure:
        (draft / "crash.txt").write_text(failure)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(draft, folder))


def _environment(checkout: Path, cache: Path) -> dict[str, str]:
    # One thread: sums of floats are then made in the same order each time.
    own = {"PYTHONPATH": str(checkout.resolve() / "src"), "STEPSCOPE_CACHE": str(cache), "POLARS_MAX_THREADS": "1", "CI": "1"}
    return {**os.environ, **own}


def compare_files(before: Path, after: Path, renames: Renames) -> tuple[str, str] | None:
    """The first difference of two files, as kind and text; None for equal content."""
    with before.open("rb") as first, after.open("rb") as second:
        if first.read() == second.read():
            return None
    if before.suffix in (".arrow", ".parquet"):
        read = pl.read_parquet if before.suffix == ".parquet" else pl.read_ipc
        return compare_frames(read(before.read_bytes()), read(after.read_bytes()), after.stem, renames)
    if after.name in ("meta.json", "summary.json"):
        values = [dict(_leaves(json.loads(file.read_text() or "null"), renames if file == before else None)) for file in (before, after)]
        names = [name for name in values[0].keys() | values[1].keys() if values[0].get(name, "absent") != values[1].get(name, "absent")]
        pairs = [(values[0].get(name, "absent"), values[1].get(name, "absent"), name) for name in sorted(names)]
    else:
        pairs = [(old, new, f"line {at + 1}") for at, (old, new) in enumerate(zip_longest(_lines(before), _lines(after))) if old != new]
    if not pairs:
        return None
    prose = before.suffix == ".txt" or all(name.rpartition(".")[2] in _TEXTS for *_, name in pairs)
    kind = "wording" if prose and all(_numbers(old) == _numbers(new) for old, new, _ in pairs) else "difference"
    old, new, name = pairs[0]
    return kind, f"{name}: {_cut(old)} became {_cut(new)}" + (f" (and {len(pairs) - 1:,} more)" if len(pairs) > 1 else "")


def compare_frames(before: pl.DataFrame, after: pl.DataFrame, table: str, renames: Renames) -> tuple[str, str] | None:
    """The first difference of two tables: columns and their order, types, row count, values."""
    before = before.rename({column: renames.of_column(table, column) for column in before.columns})
    if before.columns != after.columns:
        gone, new = ([name for name in one.columns if name not in other.columns] for one, other in ((before, after), (after, before)))
        return "difference", f"columns: gone {gone}, new {new}" if gone or new else f"column order: {before.columns} became {after.columns}"
    if types := [name for name in before.columns if before.schema[name] != after.schema[name]]:
        return "difference", f"{types[0]}: type {before.schema[types[0]]} became {after.schema[types[0]]}"
    if before.height != after.height:
        return "difference", f"rows: {before.height:,} became {after.height:,}"
    text = pl.col(pl.Categorical).cast(pl.String)  # codes of categories may differ where texts do not
    pairs = zip(before.with_columns(text), after.with_columns(text), strict=True)
    unequal = {old.name: rows for old, new in pairs if (rows := old.ne_missing(new).arg_true()).len()}
    if not unequal:
        return None
    column, rows = min(unequal.items(), key=lambda item: int(item[1][0]))
    old, new = (frame[column].to_list() for frame in (before, after))
    wording = table == "problems" and unequal.keys() <= _TEXTS and all(_numbers(old[row]) == _numbers(new[row]) for row in rows)
    what = (
        f"{column}: {rows.len():,} of {before.height:,} rows differ, first row {rows[0]}: {_cut(old[rows[0]])} became {_cut(new[rows[0]])}"
    )
    return "wording" if wording else "difference", what + (f" (other columns: {', '.join(unequal)})" if len(unequal) > 1 else "")


def _leaves(value: Any, renames: Renames | None, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, renames, f"{name}.{renames.of_column('*', key) if renames and isinstance(key, str) else key}")
    else:
        yield name, value


def _lines(file: Path) -> list[str]:
    """Content as comparable lines: of compressed files what is inside, of databases the statements that make them."""
    if file.suffix == ".db":
        with contextlib.closing(sqlite3.connect(file)) as database:
            return list(database.iterdump())
    data = file.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return data.decode(errors="backslashreplace").replace("},", "},\n").splitlines()


def _numbers(text: Any) -> list[str]:
    return re.findall(r"\d+", str(text).replace(",", ""))


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _short(path: Path) -> str:
    return os.path.relpath(path, ROOT) if path.is_relative_to(ROOT.parent) else str(path)


if __name__ == "__main__":
    sys.exit(main())
