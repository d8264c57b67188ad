"""Which frameworks `make test` installs, from where, and what it says of those that are left out."""

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import frameworks
from programs import free_port

TESTS = Path(__file__).parent


class Index(http.server.BaseHTTPRequestHandler):
    """An index that has PyTorch and nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/whl/cpu/torch/" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="the index of CPU builds is for Linux")
def test_cpu_builds_are_preferred_where_their_index_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}/whl/cpu"
        monkeypatch.setattr(frameworks, "TORCH_CPU_INDEX", index)
        assert frameworks.cpu_index_options() == ["--extra-index-url", index]
        monkeypatch.setattr(frameworks, "TORCH_CPU_INDEX", index + "/elsewhere")
        assert frameworks.cpu_index_options() == []
        server.shutdown()


def test_the_default_index_is_used_where_that_of_cpu_builds_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "TORCH_CPU_INDEX", f"http://127.0.0.1:{free_port()}/whl/cpu")
    assert frameworks.cpu_index_options() == []


def test_an_unknown_framework_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert frameworks.main(["torch", "tocrh"]) == 2
    assert capsys.readouterr().err == "unknown framework: tocrh. Choose from torch, jax, mindspore, tensorflow.\n"


def test_the_last_lines_name_the_frameworks_that_were_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_both.py").write_text(
        "from programs import needs\ndef test_one(): needs('jax')\ndef test_other(): needs('tensorflow')\ndef test_third(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "-p", "conftest", str(tmp_path)]
    environment = os.environ | {"STEPSCOPE_TEST_FRAMEWORKS": "torch mindspore", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    for name in ("jax", "tensorflow"):
        assert f"1 tests skipped: {name}: left out by FRAMEWORKS=torch mindspore" in done.stdout
