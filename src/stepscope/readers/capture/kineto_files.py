"""Sessions of torch.profiler that a capture contains as Kineto's own files, in the form of the sessions that it contains as columns."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl

from stepscope.errors import DataError
from stepscope.model import captures
from stepscope.readers import Options
from stepscope.readers.capture.tables import load_table
from stepscope.readers.chrome.columns import ANNOTATIONS
from stepscope.readers.chrome.parts import part_files, write_parts
from stepscope.readers.chrome.reader import DecodedFile, decode_file
from stepscope.readers.chrome.records import Report
from stepscope.readers.chrome.steps import STEP_LIKE
from stepscope.readers.common.problems import Problem

_PARTS = ("spans", "flows", "memory")
_COLLECTIVE = "record_param_comms"
# Nothing uses these arguments, and they make each text different.
_NUMBERS = r'"(?:External id|Ev Idx|Record function id|Sequence number|Fwd thread id)": ?\d+,?\s*'


class PartialSteps(NamedTuple):
    """Steps that were recorded in part."""

    names: frozenset[str]
    until_ns: int | None  # no step is complete after this time
    ranges: Sequence[tuple[str, int, int]] = ()  # name, and the time in which a session began or ended inside of it


def decode(path: Path, header: dict[str, Any], partial: PartialSteps, options: Options, reports: list[Report]) -> list[Problem]:
    """Add the columns of all files to those in the scratch folder, and their reports. Returns what could not be read."""
    entries = header.get("kineto", {})
    problems = [Problem(name, "missing: its events are lost", 1) for name in entries if not (path / name).exists()]
    flops = load_table(path, "torch_flops")
    for file in sorted(path.glob("kineto.[0-9]*.json")):
        scratch = options.scratch / file.stem
        scratch.mkdir()
        try:
            decoded = decode_file(file, msgspec.structs.replace(options, scratch=scratch, partial=True))
            session = _Session(decoded, entries.get(file.name, {}).get("ahead_ns", 0), partial, options.scratch)
            counts = flops.filter(pl.col("session") == int(file.suffixes[0][1:])) if flops.height else flops
            reports += session.add(scratch, len(reports), counts)
            lost = (problem for problem in decoded.problems if problem.lost)  # Kineto's errors in JSON are repaired without loss
            problems += [problem._replace(where=f"{file.name} {problem.where}".strip()) for problem in lost]
        except (*captures.DAMAGE, DataError, pl.exceptions.PolarsError) as error:
            problems.append(Problem(file.name, f"the file is damaged ({error}): its events are lost", 1))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return problems


class _Session:
    """A decoded file, with what must change in it."""

    def __init__(self, decoded: DecodedFile, ahead_ns: int, partial: PartialSteps, folder: Path) -> None:
        base = decoded.header.get("baseTimeNanoseconds")
        if not isinstance(base, int) or not 0 <= base < 2**62:
            raise ValueError(f"baseTimeNanoseconds is unusable: {str(base)[:60]}")
        self._decoded, self._partial, self._folder = decoded, partial, folder
        self._shift_ns = base - ahead_ns
        # Numbers that relate events start again in each session.
        numbers = pl.concat([pl.scan_ipc(file).select("correlation", "external") for file in part_files(folder, "spans")])
        self._first_number = numbers.select(pl.max_horizontal(pl.all().max()).fill_null(0)).collect().item()
        flows = [pl.scan_ipc(file).select(pl.col("flow").cast(pl.Int64).max()) for file in part_files(folder, "flows")]
        self._first_flow = pl.concat(flows).select(pl.col("flow").max().fill_null(0)).collect().item() if flows else 0
        self._order = pl.scan_ipc(part_files(folder, "spans")[0]).collect_schema().names()

    def add(self, scratch: Path, first: int, flops: pl.DataFrame) -> list[Report]:
        reports = []
        for number, report in enumerate(self._decoded.reports):
            files = {part: scratch / f"{part}.{number:06d}.arrow" for part in _PARTS}
            parts = {part: pl.scan_ipc(file).collect() for part, file in files.items() if file.exists()}
            if "spans" in parts:
                parts["spans"] = self._spans(parts["spans"], report, flops).select(self._order)
            if "flows" in parts:
                flow = (pl.col("flow").cast(pl.Int64, strict=False) + self._first_flow).cast(pl.String)
                parts["flows"] = parts["flows"].with_columns(flow, at_ns=pl.col("at_ns") + self._shift_ns)
            if "memory" in parts:
                parts["memory"] = parts["memory"].with_columns(at_ns=pl.col("at_ns") + self._shift_ns)
            write_parts(parts, self._folder, first + number)
            reports.append(Report(events=report.events, rows=report.rows, tracks=report.tracks))
        return reports

    def _spans(self, spans: pl.DataFrame, report: Report, flops: pl.DataFrame) -> pl.DataFrame:
        # Kineto's own entries belong to no process: their process is a text.
        no_process = [track for track, (pid, _, _) in enumerate(report.tracks) if isinstance(pid, str)]
        category, name = pl.col("category").cast(pl.String), pl.col("name").cast(pl.String)
        start = pl.col("start_ns") + self._shift_ns
        spans = spans.filter(~pl.col("track").is_in(no_process)).with_columns(start_ns=start)
        spans = spans.with_columns(name=self._marked_name(category, name), args=_short_args(category, name))
        end = pl.col("start_ns") + pl.col("dur_ns")
        incomplete = name.is_in(list(self._partial.names))
        if self._partial.until_ns is not None:
            incomplete |= name.str.starts_with("ProfilerStep#") & (end > self._partial.until_ns)
        spans = spans.filter(~(category.is_in(list(ANNOTATIONS)) & incomplete).fill_null(False))
        if flops.height:
            counts = flops.select(external=pl.col("number").cast(pl.Int64), counted=pl.col("flops").cast(pl.Int64))
            spans = spans.join(counts, on="external", how="left", maintain_order="left")
            spans = spans.with_columns(flops=pl.when(category == "cpu_op").then("counted"))
        related = ("correlation", "external")
        return spans.with_columns(pl.when(pl.col(column) > 0).then(pl.col(column) + self._first_number) for column in related)

    def _marked_name(self, category: pl.Expr, name: pl.Expr) -> pl.Expr:
        """Names like those of steps get a mark where the range was open when recording began or ended."""
        start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns")
        marked = name
        for text, since_ns, until_ns in self._partial.ranges:
            if re.match(STEP_LIKE, text):
                at_border = start.is_between(since_ns, until_ns) | end.is_between(since_ns, until_ns)
                is_partial = (category == "user_annotation") & (name == text) & at_border
                marked = pl.when(is_partial).then(pl.lit(f"{text} (in part)")).otherwise(marked)
        return marked.cast(pl.Categorical)


def _short_args(category: pl.Expr, name: pl.Expr) -> pl.Expr:
    """As the recorder shortens them in columns."""
    useless = category.is_in(["cpu_op", "user_annotation"]) & ~pl.col("args").str.contains('"Input Dims"', literal=True)
    useless = (useless & (name != _COLLECTIVE)) | (category == "python_function")
    text = (
        pl.when(~useless.fill_null(False))
        .then("args")
        .str.replace_all(_NUMBERS, "")
        .str.replace_all(r"\s*\n\s*", "")
        .str.replace(r",\s*\}$", "}")
    )
    return pl.when(~text.is_in(["{}", ""])).then(text)
