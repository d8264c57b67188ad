"""The demo prints its summary and then serves the pages of the same recording, where someone is there to end it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from urllib.parse import urlsplit

import pytest

DEMO = [sys.executable, "-m", "stepscope", "demo", "--view", "--no-browser"]


def test_the_demo_serves_the_recording_it_summarised_until_it_is_interrupted() -> None:
    outside, inside = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    with subprocess.Popen(DEMO, stdout=inside, env=environment) as process, os.fdopen(outside, encoding="utf-8") as terminal:
        os.close(inside)
        entries = []
        for line in terminal:
            entries.append(re.sub(r"\x1b\[[0-9;]*m", "", line).strip())
            if entries[-1].startswith("http://127.0.0.1:"):
                break
        address = urlsplit(entries[-1])
        token = re.fullmatch(r"token=([\w-]+)", address.query)
        assert token is not None
        requests = urllib.request.Request(f"http://{address.netloc}/api/runs", headers={"Authorization": f"Bearer {token[1]}"})
        with urllib.request.urlopen(requests, timeout=30) as answer:
            assert [run["name"] for run in json.load(answer)["runs"]] == ["gpt2_h200"]
        assert any("A step takes" in line for line in entries)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.parametrize("ci", [None, "true"])
def test_the_demo_ends_with_its_summary_where_nobody_is_there_to_end_it(ci: str | None) -> None:
    """Without a terminal, or with CI set even where there is one."""
    environment = {key: value for key, value in os.environ.items() if key != "CI"} | ({"CI": ci} if ci else {})
    if ci is None:
        done = subprocess.run(DEMO, capture_output=True, env=environment, timeout=120, check=False)
        code, text = done.returncode, done.stdout.decode()
    else:
        outside, inside = pty.openpty()
        with subprocess.Popen(DEMO, stdout=inside, env=environment) as process, os.fdopen(outside, "rb", buffering=0) as terminal:
            os.close(inside)
            parts = []
            try:
                while part := terminal.read(1 << 16):
                    parts.append(part)
            except OSError:  # Linux ends a terminal that nobody writes to any more so
                pass
            code, text = process.wait(120), b"".join(parts).decode()
    assert code == 0
    assert "A step takes" in text and "http://" not in text
