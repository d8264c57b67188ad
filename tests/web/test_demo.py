"""The demo prints its summary and then serves the pages of the same recording."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from urllib.parse import urlsplit


def test_the_demo_serves_the_recording_it_summarised_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "stepscope", "demo", "--view", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("http://127.0.0.1:"):
                break
        address = urlsplit(said[-1].strip())
        token = re.fullmatch(r"token=([\w-]+)", address.query)
        assert token is not None
        asked = urllib.request.Request(f"http://{address.netloc}/api/runs", headers={"Authorization": f"Bearer {token[1]}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert [run["name"] for run in json.load(answer)["runs"]] == ["gpt2_h200"]
        assert any("A step takes" in line for line in said)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
