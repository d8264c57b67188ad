"""Ranks at an address: a real server of the S3 protocol, and the file systems of fsspec."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import rank_folders
import stepscope
from programs import free_port
from settling import until
from stepscope.cluster import summarize
from stepscope.cluster.remote import fetched, parts_at
from stepscope.errors import DataError, UsageError

BUCKET = "s3://traces"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket on a server of this process."""
    for name in ("moto", "s3fs", "flask_cors"):
        pytest.importorskip(name)
    server, url = started_server()
    with pytest.MonkeyPatch.context() as patch:
        names = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in names.items():
            patch.setenv(name, value)
        try:
            import fsspec

            fsspec.filesystem("s3").mkdir("traces")
            yield BUCKET
        finally:
            server.kill()
            server.wait()


def started_server() -> tuple[subprocess.Popen[bytes], str]:
    """A server that answers. Another process may take the free port before it does: then it ends, and another port is tried."""
    for _ in range(5):
        port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        if until(lambda server=server, url=url: server.poll() is not None or answers(url)) and server.poll() is None:  # type: ignore[misc]
            return server, url
        server.kill()
        server.wait()
    raise AssertionError("no server has started")


def answers(url: str) -> bool:
    """Whether moto answers, not another server."""
    try:
        with urllib.request.urlopen(f"{url}/moto-api/", timeout=5) as answer:
            return b"moto" in answer.read().lower()
    except OSError:
        return False


def upload(folder: Path, url: str) -> None:
    import fsspec

    system, root = fsspec.core.url_to_fs(url)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            system.pipe(f"{root}/{file.relative_to(folder)}", file.read_bytes())


def test_ranks_in_a_bucket_have_the_tables_of_local_ones(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rank_folders.write(tmp_path / "job", 3)
    damaged = (job / "rank1" / "spans.parquet").read_bytes()[:-50]
    (job / "rank1" / "spans.parquet").write_bytes(damaged)
    upload(job, f"{bucket}/jobs/17")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    summary = summarize(f"{bucket}/jobs/17", tmp_path / "summary", workers=1)
    assert summary is not None
    assert summary.meta.ranks == [0, 2]
    assert summary.table("rank_figures").collect()["source"].to_list() == [f"{bucket}/jobs/17/rank0", f"{bucket}/jobs/17/rank2"]
    assert summary.problems.select("rank", "file").collect().rows() == [(1, f"{bucket}/jobs/17/rank1/spans.parquet")]
    local = stepscope.open(job)
    for name in ("overview", "cluster_steps", "stragglers", "communication"):
        assert_frame_equal(summary.analyse(name), local.analyse(name))
    assert not list((tmp_path / "temporary").iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["job", "summary", "temporary"]


def test_a_summary_is_written_to_a_bucket(bucket: str, tmp_path: Path) -> None:
    import fsspec

    job = rank_folders.write(tmp_path / "job", 2)
    assert summarize(job, f"{bucket}/summaries/18", workers=1) is None
    system = fsspec.filesystem("s3")
    system.get("traces/summaries/18", str(tmp_path / "copy"), recursive=True)
    summarize(job, tmp_path / "summary", workers=1)
    assert rank_folders.digests(tmp_path / "copy") == rank_folders.digests(tmp_path / "summary")
    system.invalidate_cache()
    with pytest.raises(UsageError, match="exists; choose another name"):
        summarize(job, f"{bucket}/summaries/18", workers=1)


def test_recordings_below_an_address_are_run_folders_folders_of_ranks_and_files(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    names = [
        "rank10/a.json",
        "rank10/b.json",
        "x/PROF_1/device_0/data/c",
        "x/y_ascend_pt/d",
        "host/rank2.json.gz",
        "run/run.json",
        "run/spans.parquet",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12")
    found = [(part.url.removeprefix(f"file://{tmp_path}/"), part.expected_rank, part.size) for part in parts_at(f"file://{tmp_path}")]
    others = [("run", None, 4), ("x/PROF_1", None, 2), ("x/y_ascend_pt", None, 2)]
    assert found == [("host/rank2.json.gz", 2, 2), ("rank10", 10, 4), *others]


def test_an_address_without_files_or_with_an_unknown_protocol_is_an_error(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no files at this address"):
        summarize(f"{bucket}/nothing", tmp_path / "summary")
    with pytest.raises(UsageError, match="gopher"):
        summarize("gopher://host/job", tmp_path / "summary")


def test_without_fsspec_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"pip install 'stepscope\[cluster\]'"):
        summarize("s3://bucket/job", tmp_path / "summary")
    assert not list(tmp_path.iterdir())


def test_no_key_leads_out_of_the_folder_that_is_fetched_into(bucket: str, tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("s3").pipe(f"{bucket}/hostile/PROF_1/../../escaped.json", b"[]")
    with pytest.raises(DataError, match="leads out of its folder"), fetched(f"{bucket}/hostile/PROF_1", tmp_path):
        pass
    assert not list(tmp_path.rglob("escaped.json"))
