"""Does the real MindInsight 2.3.1 show what we export? A check by hand, not a test: it installs MindInsight into a virtual environment.

    python benchmarks/mindinsight_check.py [--venv DIR] [--pictures DIR] PATH...

Each PATH is anything that stepscope opens. It is exported, MindInsight is started on the exports, each of its endpoints is asked, and a
line says what it answered. With --pictures (needs Playwright and Chromium), its pages are opened and photographed. Exit code 1 where a
page that the recording has data for is empty.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import stepscope
from stepscope.exporters.mindinsight import exporter as mindinsight

VERSION = "2.3.1"
API = "/v1/mindinsight"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / f"mindinsight-{VERSION}")
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    program = installed(args.venv)
    with tempfile.TemporaryDirectory() as room:
        base = Path(room) / "summaries"
        base.mkdir()
        names = [exported(path, base, number) for number, path in enumerate(args.paths)]
        with started(program, base, Path(room)) as server:
            jobs = {job["train_id"]: job for job in asked(server, "/datavisual/train-jobs?limit=100&offset=0")["train_jobs"]}
            fine = [checked(server, name, jobs.get(f"./{name}"), base / name / "profiler") for name in names]
            if args.pictures:
                args.pictures.mkdir(parents=True, exist_ok=True)
                for name in names:
                    photographed(server, name, jobs.get(f"./{name}") or {}, args.pictures)
    return 0 if all(fine) else 1


def installed(venv: Path) -> Path:
    program = venv / "bin" / "mindinsight"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", f"mindinsight=={VERSION}", "setuptools<81"], check=True)
    return program


def exported(path: Path, base: Path, number: int) -> str:
    name = f"{number}-" + re.sub(r"[^\w.]+", "_", path.resolve().name)
    mindinsight.export(stepscope.open(path), base / name)
    return name


@contextlib.contextmanager
def started(program: Path, base: Path, room: Path) -> Iterator[str]:
    """MindInsight on a free port. It starts gunicorn by its bare name, which must therefore be found."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    around = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(room)}
    said = ["--port", port, "--workspace", str(room / "workspace")]
    subprocess.run([str(program), "start", *said, "--summary-base-dir", str(base)], env=around, check=True, stdout=subprocess.DEVNULL)
    try:
        server = f"http://127.0.0.1:{port}"
        for _ in range(100):
            with contextlib.suppress(urllib.error.URLError):
                asked(server, "/datavisual/train-jobs?limit=1&offset=0")
                break
            time.sleep(0.2)
        yield server
    finally:
        subprocess.run([str(program), "stop", *said[:2]], env=around, check=False, stdout=subprocess.DEVNULL)


def asked(server: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(f"{server}{API}{path}", None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return {"error": f"HTTP {error.code} {error.read()[:200].decode(errors='replace')}"}


def checked(server: str, name: str, job: dict[str, Any] | None, folder: Path) -> bool:
    if job is None:
        print(f"{name}: NOT LISTED")
        return False
    print(f"\n{name}: listed, {job['profiler_type']} pages, {job['profiler_dir']}")
    fine = True
    devices = asked(server, f"/profile/devices?profile=profiler&train_id={quoted(name)}")
    print(f"  ranks: {devices}")
    for rank in devices["device_list"]:
        for what, file, path, body, told in questions(name, rank, job["profiler_type"]):
            if not list(folder.glob(file.format(rank))):
                continue
            answer = asked(server, path, body)
            try:
                found = told(answer)
            except (KeyError, TypeError, IndexError):
                found = ""
            fine &= bool(found)
            print(f"  rank {rank} {what:24} {found or f'EMPTY {json.dumps(answer)[:160]}'}")
    return fine


def quoted(name: str) -> str:
    return urllib.parse.quote(f"./{name}", safe="")


Question = tuple[str, str, str, Any, Callable[[Any], str]]


def questions(name: str, rank: str, pages: str) -> list[Question]:
    """What to ask where there is such a file, and what an answer that has something in it says."""
    of, where = f"profile=profiler&train_id={quoted(name)}&device_id={rank}", f"dir={quoted(name)}&device_id={rank}"

    def table(kind: str, file: str) -> Question:
        body = {"op_type": kind, "device_id": rank, "filter_condition": {}, "group_condition": {"limit": 100, "offset": 0}}
        return kind, file, f"/profile/ops/search?{of}", body, lambda a: f"{a['size']} rows, first {a['object'][0]}" if a["size"] else ""

    return [
        ("step trace", "step_trace_raw_{}_*", f"/profile/training-trace/graph?{where}&type=0", None, lambda a: str(a["summary"])),
        ("one step", "step_trace_raw_{}_*", f"/profile/training-trace/graph?{where}&type=1", None,
         lambda a: " ".join(f"{part['name']} {part['duration']} ms" for part in a["training_trace_graph"][1])),
        ("intervals", "step_trace_raw_{}_*", f"/profile/training-trace/target-time-info?{where}&type=iteration_interval", None,
         lambda a: f"{a['size']} steps" if a["size"] else ""),
        table("aicore_type", "aicore_intermediate_{}_type.csv"), table("aicore_detail", "aicore_intermediate_{}_detail.csv"),
        table("aicpu_type", "aicpu_intermediate_{}.csv"), table("aicpu_detail", "aicpu_intermediate_{}.csv"),
        table("gpu_op_type", "gpu_op_type_info_{}.csv"), table("gpu_op_info", "gpu_op_detail_info_{}.csv"),
        table("gpu_cuda_activity", "gpu_activity_data_{}.csv"),
        table("cpu_op_type", "cpu_op_type_info_{}.csv"), table("cpu_op_info", "cpu_op_detail_info_{}.csv"),
        ("queues", "*_profiling_{}.txt", f"/profile/process_summary?{of}", None, lambda a: str(a["device_queue_info"]["summary"])),
        ("queue by batch", "*_profiling_{}.txt", f"/profile/queue_info?{of}&type=device_queue", None,
         lambda a: str(a["info"]["queue"][:12])),
        ("batch times", "*_profiling_{}.txt", f"/profile/minddata_op?{of}&type=device_queue", None, lambda a: str(a["summary"])),
        ("pipeline", "minddata_pipeline_raw_{}.csv", f"/profile/minddata-pipeline/op-queue?{of}", {"device_id": rank},
         lambda a: " ".join(f"{row[0]} {row[1]} {row[4]}" for row in a["object"])),
        ("CPU", "minddata_cpu_utilization_{}.json", f"/profile/minddata-cpu-utilization-summary?{of}", {"device_id": rank},
         lambda a: str({key: value["avg_value"] for key, value in a["device_info"].items()})),
        ("timeline summary", "*timeline_summary_{}.json", f"/profile/timeline-summary?{where}&device_type={pages}", None,
         lambda a: str(a) if a.get("op_exe_times") else ""),
        ("timeline", "*timeline_display_{}.json", f"/profile/timeline?{where}&device_type={pages}&scope_name_num=0", None,
         lambda a: f"{len(a)} events" if isinstance(a, list) and a else ""),
        ("memory", "memory_usage_summary_{}.json", f"/profile/memory-summary?{where}&device_type=ascend", None,
         lambda a: str(a["summary"]) if a["summary"]["peak_mem"] else ""),
        ("memory by moment", "memory_usage_details_{}.json", f"/profile/memory-graphics?{where}&device_type=ascend", None,
         lambda a: f"{len(a['0']['lines'])} moments"),
        ("tensors alive", "memory_usage_details_{}.json", f"/profile/memory-breakdowns?{where}&device_type=ascend&node_id=5", None,
         lambda a: f"{len(a['breakdowns'])} tensors"),
        ("FLOPs", "flops_summary_{}.json", f"/profile/flops-summary?train_id={quoted(name)}&device_id={rank}", None,
         lambda a: str(a) if a.get("cube_FLOPs") is not None else ""),
        ("steps of the cluster", "step_trace_raw_{}_*", f"/profile/cluster-step-trace-summary?train_id={quoted(name)}", {},
         lambda a: str(a["info"][0]) if a["info"] else ""),
        ("communication", "hccl_raw_{}.csv", f"/profile/search-cluster-communication?train_id={quoted(name)}", {},
         lambda a: str([(one["rank_id"], one["communication_info"][:2]) for one in a["communication"]])),
        ("links", "hccl_raw_{}.csv", f"/profile/search-cluster-link?train_id={quoted(name)}", {},
         lambda a: str(a["cluster_link_info"][:2]) if a["size"] else ""),
        ("advice", "step_trace_raw_{}_*", f"/profile/summary/propose?{of}", None, ", ".join),
    ]  # fmt: skip


def photographed(server: str, name: str, job: dict[str, Any], folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    kind = {"gpu": "profiling-gpu", "cpu": "profiling-cpu"}.get(job.get("profiler_type", ""), "profiling")
    ranks = asked(server, f"/profile/devices?profile=profiler&train_id={quoted(name)}")["device_list"]
    every = urllib.parse.quote(json.dumps(ranks))
    asking = f"dir=profiler&id={quoted(name)}&path={quoted(name)}&graphMode=static&mode=graph&rankID={ranks[0]}&rankIDList={every}"
    words = {
        "profiling": ["single/performance", "single/step-trace", "single/operator", "single/data-process", "single/resource",
                      "single/cpu-utilization", "single/memory-utilization", "cluster/performance", "cluster/step-trace",
                      "cluster/communication"],
        "profiling-gpu": ["single/profiling-dashboard", "single/step-trace", "single/operator", "single/data-process", "single/cpu-detail",
                          "cluster/step-trace"],
        "profiling-cpu": ["performance-dashboard", "operator", "resource-dashboard"],
    }[kind]  # fmt: skip
    pages = {"list": "/summary-manage"} | {word.replace("/", "_"): f"/{kind}/{word}?{asking}" for word in words}
    with sync_playwright() as playing:
        found = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)
        browser = playing.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000}, locale="en-US")
        page.add_init_script("localStorage.setItem('milang', 'en-us')")
        for word, path in pages.items():
            page.goto(f"{server}/#{path}")
            page.reload()
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(2500)
            page.screenshot(path=folder / f"{name}_{word}.png")
        browser.close()


if __name__ == "__main__":
    raise SystemExit(main())
