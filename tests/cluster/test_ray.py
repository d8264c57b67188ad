"""The engine Ray: the same files as the pool, also where a worker is killed and a node is lost in the middle of the job."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rank_folders
from programs import free_port
from stepscope.cluster import summaries, summarize
from stepscope.errors import UsageError

ROOT = Path(__file__).parents[2]
# A process of its own: Ray starts threads and processes that live as long as the process that uses it.
JOB = """
import json, os, signal, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from stepscope.cluster import summaries, summarize

job, out, disturbed = sys.argv[1], sys.argv[2], sys.argv[3]
summaries._BATCH_PARTS = 2
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
seen = {"nodes": 2}

def ray_workers():
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::perform_on_node"):
                yield int(folder.name)
        except OSError:
            pass

def disturb(done, total):
    if "killed" not in seen and done >= 2 and done < total:
        for pid in ray_workers():
            os.kill(pid, signal.SIGKILL)
            seen["killed"] = done
            break
    if "lost" not in seen and done >= 6 and done < total:
        cluster.remove_node(second, allow_graceful=False)
        seen["lost"] = done

summarize(job, out, engine="ray", address=cluster.address)
summarize(job, disturbed, engine="ray", address=cluster.address, on_progress=disturb)
print(json.dumps(seen))
cluster.shutdown()
"""


def test_ray_writes_the_files_of_the_pool_also_after_losing_a_worker_and_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    job = rank_folders.write(tmp_path / "job", 40)
    process = subprocess.run(
        [sys.executable, "-c", JOB, str(job), str(tmp_path / "ray"), str(tmp_path / "disturbed")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    seen = json.loads(process.stdout.strip().splitlines()[-1])
    assert {"killed", "lost"} <= set(seen)
    monkeypatch.setattr(summaries, "_BATCH_PARTS", 2)
    summarize(job, tmp_path / "pool", workers=2)
    usual = rank_folders.digests(tmp_path / "pool")
    assert rank_folders.digests(tmp_path / "ray") == usual
    assert rank_folders.digests(tmp_path / "disturbed") == usual


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("127.0.0.1:FREE", "no Ray cluster at 127.0.0.1:FREE: Connection refused. Is it running? `ray start --head` prints its address"),
        ("[::1]:FREE", "no Ray cluster at [::1]:FREE: "),
        ("head.invalid:6379", "no Ray cluster at head.invalid:6379: "),
        ("127.0.0.1", "the address of the Ray cluster is '127.0.0.1'; expected auto, local, HOST:PORT or ray://HOST:PORT"),
        ("127.0.0.1:70000", "the address of the Ray cluster is '127.0.0.1:70000'; expected auto, local, HOST:PORT or ray://HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there_is_refused_before_ray_waits_for_it(
    address: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("Ray waits for minutes"))
    port = str(free_port())
    job = rank_folders.write(tmp_path / "job", 1)
    for chosen in (address.replace("FREE", port), "auto"):
        monkeypatch.setenv("RAY_ADDRESS", address.replace("FREE", port))
        with pytest.raises(UsageError) as refused:
            summarize(job, tmp_path / "x", engine="ray", address=chosen)
        assert str(refused.value).startswith(line.replace("FREE", port))


def test_an_address_of_rays_client_names_the_package_that_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if importlib.util.find_spec("grpc"):
        pytest.skip("the client is installed")
    job = rank_folders.write(tmp_path / "job", 2)
    command = [sys.executable, "-m", "stepscope", "cluster", "summarize", str(job), "-o", str(tmp_path / "x"), "--engine", "ray"]
    process = subprocess.run([*command, "--address", "ray://127.0.0.1:9"], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr == "stepscope: an address that begins with ray:// needs Ray's client: pip install 'ray[client]'\n"


def test_without_ray_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'stepscope\[cluster\]'"):
        summarize(rank_folders.write(tmp_path / "job", 2), tmp_path / "summary", engine="ray")
