"""The page Files and problems: what was read, and every line of what was lost."""

import gzip
from pathlib import Path
from typing import Any

import polars as pl

import stepscope

SAMPLES = Path(__file__).parent.parent / "samples"
NOTHING_LOST = "No rows were lost while reading, and there are no remarks."
RECORDING = SAMPLES / "run/stepscope-0.1.0/resnet50_h200"


def test_tables_kinds_and_counters_have_the_rows_of_the_recording(server: Any, page: Any) -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/files"))
    page.wait_for_selector(".filesgrid")
    trace = stepscope.open(RECORDING)
    shown: dict[str, int] = {}
    for cells in page.locator(".filesgrid tr").evaluate_all("all => all.map(r => [...r.cells].map(c => c.textContent))"):
        if len(cells) >= 3 and cells[0] not in shown:
            shown[cells[0]] = int(cells[2].replace(",", "")) if cells[2].replace(",", "").isdigit() else -1
    for name, frame in trace.tables.items():
        assert shown[name] == frame.select(pl.len()).collect().item(), name
    for kind, count in trace.spans.group_by(pl.col("kind").cast(pl.String)).len().collect().iter_rows():
        # A kind and a table may share a name; the table stands first.
        assert kind in trace.tables or shown[kind] == count, kind
    rows = sum(frame.select(pl.len()).collect().item() for frame in trace.tables.values())
    assert f"{rows:,} rows over" in page.locator(".facts").inner_text()
    assert page.locator("h1").inner_text() == trace.verdict(topic="problems")["text"].item() == NOTHING_LOST


def test_whole_numbers_of_the_source_stay_exact(server: Any, page: Any) -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/files"))
    page.wait_for_selector("#files-extra")
    document = dict(page.locator("#files-extra tr").evaluate_all("all => all.map(r => [...r.cells].map(c => c.textContent))"))
    assert document["start_ns"] == str(stepscope.open(RECORDING).meta.extra["start_ns"])


def test_what_a_damaged_file_lost_is_said_in_full(server: Any, page: Any, tmp_path: Path) -> None:
    whole = gzip.decompress((SAMPLES / "chrome/torch-2.13.0/cpu_training.json.gz").read_bytes())
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) // 2])
    served = server(tmp_path, partial=True)
    page.goto(served.url(f"#/{served.run('cut')}/files"))
    page.wait_for_selector("[aria-label='Problems and remarks'] [role=rowgroup] [role=row]")
    problem = stepscope.open(tmp_path / "cut.json", partial=True).problems.collect().row(0, named=True)
    shown = page.locator("[aria-label='Problems and remarks']").inner_text()
    assert problem["what"] in shown and problem["where"] in shown
    assert page.locator(".top .chip.warn").get_attribute("href").endswith("/files")
