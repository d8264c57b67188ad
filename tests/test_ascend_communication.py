"""communication.json and communication_matrix.json: by hand, and against what Ascend's own tools wrote of real operators."""

import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from prof_directories import NO_CONTEXT, Directory, small_network
from stepscope.cli import main
from stepscope.exporters.msprof import communication
from stepscope.readers import Options
from stepscope.readers.ascend.ascend_db import reader as ascend_db

NAME = "PROF_000001_20231114221320000_ABCDEFGH"
LEVEL1 = "ascend/torch_npu/db/level1"


def test_time_in_transit_waiting_and_idle_add_up_and_bytes_are_on_their_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = small_network().write(tmp_path / NAME)
    assert main(["msprof", "--analyze=on", f"--output={raw}"]) == 0
    found = json.loads((raw / "analyze" / "communication.json").read_text())
    operators = [key for key in found if key != "Total Op Info"]
    assert len(operators) == 3 and all(key.endswith("@hccl_world_group") for key in operators)
    times = found[operators[0]]["Communication Time Info"]
    # A wait of 10 us, 10 us of nothing, and a copy of 70 us.
    assert (times["Elapse Time(ms)"], times["Wait Time(ms)"], times["Transit Time(ms)"], times["Idle Time(ms)"]) == (0.09, 0.01, 0.07, 0.01)
    assert (times["Synchronization Time(ms)"], times["Wait Time Ratio"], times["Synchronization Time Ratio"]) == (0.01, 0.125, 0.125)
    over = found[operators[0]]["Communication Bandwidth Info"]
    assert over["HCCS"]["Size Distribution"] == {"1.048576": [1, 0.07]} and over["HCCS"]["Bandwidth(GB/s)"] == 14.9797
    assert (over["SDMA"]["Transit Size(MB)"], over["RDMA"]["Transit Size(MB)"]) == (1.048576, 0)
    assert found["Total Op Info"]["Communication Time Info"]["Elapse Time(ms)"] == pytest.approx(0.27)
    matrix = json.loads((raw / "analyze" / "communication_matrix.json").read_text())
    assert matrix[operators[2]]["0-1"]["Transport Type"] == "HCCS" and matrix["Total Op Info"]["0-1"]["Transit Size(MB)"] == 3.145728
    assert "wrote analyze/communication.json" in capsys.readouterr().out


def test_one_rule_and_the_database_alone_are_written_where_asked_for(tmp_path: Path) -> None:
    raw = small_network().write(tmp_path / NAME)
    assert main(["msprof", "--analyze=on", "--type=db", "--rule=communication_matrix", f"--output={raw}"]) == 0
    assert [file.name for file in (raw / "analyze").iterdir()] == ["communication_analyzer.db"]
    with closing(sqlite3.connect(raw / "analyze" / "communication_analyzer.db")) as database:
        tables = database.execute("select name from sqlite_master").fetchall()
        link = "select group_name, src_rank, dst_rank, transport_type, transit_size from CommAnalyzerMatrix limit 1"
        assert tables == [("CommAnalyzerMatrix",)] and database.execute(link).fetchone() == ("hccl_world_group", "0", "1", "HCCS", 1.048576)


def test_without_communication_there_is_nothing_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Directory()
    made.run(3, 1, 0, 0, 10)
    raw = made.write(tmp_path / NAME)
    assert main(["msprof", "--analyze=on", f"--output={raw}"]) == 0
    assert "nothing to analyze" in capsys.readouterr().out and not (raw / "analyze").exists()


def payloads(root: Path) -> Path:
    """Two RDMA payloads of 1 and 3 MB to rank 1 that follow one another, and the four tasks after which they have arrived, each 10 us."""
    made = Directory()
    group, name = made.hash("hccl_world_group"), made.hash("hcom_allReduce_")
    words = ["RDMASend", "RDMASend", "RDMASend", "Notify_Wait", "RDMASend", "Notify_Wait"]
    made.call("node", "launch", 0, 100, name)
    for number, word in enumerate(words):
        called, sends = 2 + number * 10, number < 2
        made.call("communication", "master", called, called + 8, made.hash(word))
        made.launch(called + 2, 10, number, "RDMA_SEND")
        size = (1_000_000, 3_000_000)[number] if sends else 0
        transport, rdma = 1, 1 if sends else 0
        details = struct.pack(
            "<3Q6IQ2Id3Q6I", made.hash(word), 0, group, 0, 1, 2, 0, 0, NO_CONTEXT, 5, 0, 0, 1.0, 0, 0, size, 0, 4, 3, transport, rdma, 0
        )
        made.say("additional.hccl_info", "communication", called + 4, details)
        made.run(10, number, 16, 200 + number * 10, 210 + number * 10)
    made.say("compact.node_basic_info", "node", 95, struct.pack("<QIQIIB", name, 9, name, 0, 0, 0))
    made.say("compact.hccl_op_info", "node", 96, struct.pack("<BBQQQ", 0, 4, made.hash("RING"), 1 << 18, group))
    return made.write(root)


def test_payloads_that_follow_one_another_are_one_transfer_until_they_have_arrived(tmp_path: Path) -> None:
    raw = payloads(tmp_path / NAME)
    assert main(["msprof", "--analyze=on", f"--output={raw}"]) == 0
    (key, found), *_ = json.loads((raw / "analyze" / "communication.json").read_text()).items()
    over = found["Communication Bandwidth Info"]["RDMA"]
    # From the first payload's start to the end of the fourth task behind the second: 60 us. A packet over half a megabyte is large.
    assert over["Size Distribution"] == {"4.0": [1, pytest.approx(0.06)]} and over["Large Packet Ratio"] == 1.0
    assert found["Communication Time Info"]["Transit Time(ms)"] == 0.06
    link = json.loads((raw / "analyze" / "communication_matrix.json").read_text())[key]["0-1"]
    assert (link["Transport Type"], link["Transit Size(MB)"]) == ("RDMA", 4.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_real_operators_have_the_times_packets_and_links_that_ascend_gave_them(rank: int, shared: Path, tmp_path: Path) -> None:
    """Ascend rounds each task's times by up to a nanosecond: 14 packets of an operator by as many."""
    folder = shared / LEVEL1 / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    trace = ascend_db.read(folder / f"ascend_pytorch_profiler_{rank}.db", Options(scratch=tmp_path))
    (found,) = communication.of_devices(trace).values()
    times = {key.partition("@")[0]: one for key, one in found.times().items()}
    matrix = {key.partition("@")[0]: one for key, one in found.links().items()}
    near = pytest.approx
    with closing(sqlite3.connect(folder / "analysis.db")) as database:
        rows = database.execute("select * from CommAnalyzerTime").fetchall()
        for name, _, _, *expected, _, _ in rows:
            info = times[name]["Communication Time Info"]
            own = [info[f"{word} Time(ms)"] for word in ("Elapse", "Transit", "Wait", "Synchronization", "Idle")]
            assert own == near(expected, abs=5e-6)
        packets = database.execute("select * from CommAnalyzerBandwidth where count > 0").fetchall()
        for name, _, kind, size, time, rate, large, package, count, took, *_ in packets:
            over = times[name]["Communication Bandwidth Info"][kind]
            rates: Any = (over["Transit Size(MB)"], over["Transit Time(ms)"], over["Bandwidth(GB/s)"], over["Large Packet Ratio"])
            assert rates == (near(size), near(time, abs=14e-6), near(rate, abs=2e-4), large)
            assert over["Size Distribution"][repr(package)] == [count, near(took, abs=14e-6)]
        links = database.execute("select * from CommAnalyzerMatrix where op_name is not null and op_name != ''").fetchall()
        for _, _, src, dst, kind, size, time, _, _, _, name in links:
            link = matrix[name][f"{src}-{dst}"]
            assert (link["Transport Type"], link["Transit Size(MB)"], link["Transit Time(ms)"]) == (kind, near(size), near(time, abs=4e-6))
        assert len(rows) == 4 and len(packets) == 8 and len(links) > 20
