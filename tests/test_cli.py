"""The command line: what it prints, where, and with which exit code."""

import argparse
import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope import exporters
from stepscope.cli import COMMANDS, main, parser
from stepscope.cli.setup import completion
from stepscope.cli.shared.arguments import Parser
from stepscope.errors import UsageError
from stepscope.io import store
from stepscope.model import schema
from stepscope.model.trace import Trace, analysis, analysis_names
from stepscope.server import RUN_PAGES
from volume import mostly_deep

SPANS = """
    kind    track  name                 start_ns  dur_ns  step
    op      0      aten::mm             1000000   40000   0
    kernel  1      "gemm_[bold]x[/]"    1010000   20000   0
    kernel  1      "relu_kernel"        1030000   5000    0
    op      0      aten::mm             2000000   30000   1
    kernel  1      "gemm_[bold]x[/]"    2010000   10000   1
"""
STEPS = """
    step  start_ns  end_ns   how
    0     1000000   1100000  marker
    1     2000000   2100000  marker
"""
TRACKS = """
    track  label   kind    device
    0      main    thread  -
    1      s7      stream  0
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STEPSCOPE_DEBUG", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def run(tmp_path: Path) -> str:
    return written(tiny.trace(spans=SPANS, steps=STEPS, tracks=TRACKS), tmp_path / "run")


def written(trace: Trace, path: Path) -> str:
    store.write(trace, path)
    return str(path)


class Said:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str) -> Said:
        code = main(list(words))
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


def on_terminal(*words: str, columns: int = 80, **environment: str) -> tuple[int, str]:
    """Run the real command on a terminal of that width; its exit code and everything that the terminal would show."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        # Not os.execv: readline, which pytest loads, sets COLUMNS behind Python's back.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        os.execve(sys.executable, [sys.executable, "-m", "stepscope", *words], inherited | {"TERM": "xterm-256color"} | environment)
    said = b""
    try:
        while some := os.read(terminal, 65536):
            said += some
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode().replace("\r\n", "\n")


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


# Starting


def test_help_version_and_completion_load_nothing_heavy() -> None:
    for words in (["--help"], ["--version"], ["completion", "bash"], ["show", "--help"], ["export", "--help"]):
        code = f"import sys; from stepscope.cli import main; code = main({words!r}); print(*sys.modules, file=sys.stderr); sys.exit(code)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert not {"polars", "numpy", "rich", "msgspec"} & set(done.stderr.split()), words
        assert done.stdout


def test_rich_is_loaded_only_for_a_terminal(run: str) -> None:
    code = f"import sys; from stepscope.cli import main; main(['summary', {run!r}]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "polars" in done.stderr.split() and "rich" not in done.stderr.split()


def test_the_command_is_installed_and_is_a_module_too() -> None:
    command = Path(sys.executable).with_name("stepscope")
    for words in ([sys.executable, "-m", "stepscope"], [str(command)] if command.exists() else [sys.executable, "-m", "stepscope"]):
        done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"stepscope {stepscope.__version__}\n"


def test_every_command_has_help(say) -> None:  # type: ignore[no-untyped-def]
    for name in COMMANDS:
        said = say(name, "--help")
        assert said.code == 0 and said.out.startswith(f"usage: stepscope {name}") and not said.err
    assert say().out == say("--help").out


def every_help() -> dict[str, Parser]:
    """The parser of each command, of each analysis and of each exporter."""
    words = [[name] for name in COMMANDS] + [["show", name] for name in analysis_names()]
    words += [["export", "--to", name] for name in exporters.names()]
    return {" ".join(command): parser(command).commands[command[0]] for command in words}


@pytest.mark.parametrize(("name", "help_of"), every_help().items())
def test_every_help_has_an_example_and_the_default_of_each_option(name: str, help_of: Parser) -> None:
    assert re.search(rf"^examples:\n(  .*\n)*  .*stepscope {name.split(maxsplit=1)[0]}", help_of.format_help(), re.MULTILINE)
    options = [action for action in help_of.actions if action.option_strings and action.nargs != 0 and not action.required]
    for action in options:
        assert action.help is not None
        if action.help != argparse.SUPPRESS:
            assert re.search(r" Default: .+\.$|^Default: .+\.$", action.help), (name, action.option_strings, action.help)
    for action in help_of.actions:
        shown = action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
        assert not shown or (action.help and action.help[0].isupper() | (action.help[0] in "[b") and action.help.endswith(".")), (
            name,
            action.help,
        )


EXAMPLES = [
    (name, example)
    for name, help_of in {"": parser([]), **every_help()}.items()
    for example in re.findall(r"stepscope (.*?)\)?(?: \|.*)?$", (help_of.epilog or "").partition("examples:")[2], re.MULTILINE)
]


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_the_examples_of_help_are_understood(name: str, example: str) -> None:
    words = shlex.split(example)
    if "--help" not in words:
        _, extra = parser(words).commands[words[0]].parse_anywhere(words[1:])
        assert extra == [], example
    assert name in (words[0], "", f"show {words[1:] and words[1]}", f"export --to {''.join(words[3:4])}"), example


@pytest.mark.parametrize("name", ["summary", "show", "query", "list", "export", "report", "cache", "completion", "jobs"])
def test_the_examples_of_help_work(name: str, tmp_path: Path, say, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    lines = [
        f"{rank} {kind} {track} x {step * 1000 + 1} 10 {step}"
        for rank in (0, 1)
        for kind, track in (("op", 0), ("kernel", 1))
        for step in range(13)
    ]
    steps = [f"{rank} {step} {step * 1000} {step * 1000 + 900} marker" for rank in (0, 1) for step in range(13)]
    tracks = [f"{rank} {track}" for rank in (0, 1) for track in ("0 main thread -", "1 s7 stream 0")]
    trace = tiny.trace(
        spans="\n".join(["rank kind track name start_ns dur_ns step", *lines]),
        steps="\n".join(["rank step start_ns end_ns how", *steps]),
        tracks="\n".join(["rank track label kind device", *tracks]),
    )
    trace = trace.with_meta(ranks=[0, 1])
    exporters.exporter("chrome").function(trace.of_rank(0), Path("trace.json.gz"))
    exporters.exporter("chrome").function(trace, Path("runs/job-17"))
    for of, example in EXAMPLES:
        if of == name:
            said = say(*shlex.split(example))
            assert said.code == 0 and (said.out or any(tmp_path.iterdir())), (example, said.err)


# Wrong use and bad data


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sumary", "RUN"], "no command 'sumary'; did you mean 'summary'?"),
        (["--sumary"], "no flag --sumary"),
        (["summary"], "missing PATH"),
        (["summary", ""], "an argument is empty: is a variable of the shell unset?"),
        (["summary", "--rank"], "--rank needs a value"),
        (["--summary", "RUN"], "no flag --summary; commands have no dashes: stepscope summary"),
        (["-v"], "no flag -v; `stepscope --help` lists the commands"),
        (["summary", "RUN", "extra"], "unexpected argument 'extra': stepscope summary accepts PATH"),
        (
            ["export", "RUN", "OUT", "--to", "chrome", "-o", "X"],
            "unexpected argument 'OUT': stepscope export accepts PATH; to write to it, use -o OUT",
        ),
        (["summary", "RUN", "--partail"], "no flag --partail; did you mean '--partial'?"),
        (["summary", "RUN", "--rank", "x"], "--rank is 'x'; expected a whole number"),
        (["summary", "RUN", "--rank", "5"], "no rank 5"),
        (["show", "overlapp", "RUN"], "no analysis or table 'overlapp'; did you mean 'overlap'?"),
        (["show", "step-trace", "RUN"], "no analysis or table 'step-trace'; did you mean 'step_trace'?"),
        (["show", "span", "RUN"], "no analysis or table 'span'; did you mean 'spans'?"),
        (["show", "zzzz", "RUN"], "no analysis or table 'zzzz'; `stepscope show` lists them"),
        (["show", "overlap"], "missing PATH: stepscope show overlap PATH"),
        (["show", "RUN"], "missing ANALYSIS: stepscope show operators "),
        (["RUN"], "to open a trace: stepscope view "),
        (["zzzz"], "no command 'zzzz'; `stepscope --help` lists the commands"),
        (["show", "overlap", "RUN", "--format", "jsn"], "no format 'jsn'; did you mean 'json'?"),
        (["show", "overlap", "RUN", "--sort", "stap"], "no column 'stap'; did you mean 'step'?"),
        (["show", "overlap", "RUN", "--columns", "rank,stap"], "no column 'stap'; did you mean 'step'?"),
        (["show", "overlap", "RUN", "--ascending"], "--ascending needs --sort COLUMN"),
        (["show", "overlap", "RUN", "--limit", "-1"], "--limit is -1; expected a whole number from 0 to 4294967295"),
        (["show", "overlap", "RUN", "--limit", "9223372036854775808"], "--limit is 9223372036854775808; expected a whole number from 0 to"),
        (
            ["show", "activity", "RUN", "--buckets", "9223372036854775807"],
            "--buckets is 9223372036854775807; expected a whole number from 1 to",
        ),
        (["show", "hot_paths", "RUN", "--min-share", "nan"], "--min-share is 'nan'; expected a number from 0 to 1"),
        (["show", "gaps", "RUN", "--min-ns", "x"], "--min-ns is 'x'; expected a whole number"),
        (["show", "overlap", "RUN", "--min-ns", "3"], "no flag --min-ns"),
        (["query", "RUN"], 'missing SQL: stepscope query PATH "select ..."'),
        (["query", "select name from spans"], 'missing PATH: stepscope query PATH "select ..."'),
        (["export", "RUN", "--to", "chrme", "-o", "OUT"], "no format 'chrme'; did you mean 'chrome'?"),
        (["export", "RUN", "--to", "chrome"], "missing -o/--output"),
        (["cache", "cleer"], "no action 'cleer'; did you mean 'clear'?"),
        (["cache", "zzzz"], "no action 'zzzz'; expected clear\n"),
        (["completion", "tcsh"], "no shell 'tcsh'; expected bash, zsh or fish\n"),
        (["completion", "bsh"], "no shell 'bsh'; did you mean 'bash'? Accepted: bash, zsh, fish\n"),
        (["run"], "missing SCRIPT: stepscope run train.py"),
        (["run", "--lr", "0.1", "train.py"], "flags of the script follow the script: stepscope run train.py --lr 0.1 "),
        (["run", "--memory", "--lr=0.1", "-m", "a.b"], "flags of the script follow the script: stepscope run --memory -m a.b --lr=0.1 "),
        (["run", "--step", "1:2", "train.py"], "no flag --step; did you mean '--steps'? Flags of the script follow the script: "),
        (["run", "--verbose"], "flags of the script follow the script: stepscope run SCRIPT --verbose "),
    ],
)
def test_wrong_use_is_one_line_with_a_suggestion_and_exit_code_2(words: list[str], message: str, run: str, say) -> None:  # type: ignore[no-untyped-def]
    said = say(*(run if word == "RUN" else word for word in words))
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("stepscope: ") and said.err.count("\n") == 1
    assert message in said.err


@pytest.mark.parametrize("command", ["summary", "view", "list"])
def test_an_address_is_not_taken_for_a_missing_file(command: str, say) -> None:  # type: ignore[no-untyped-def]
    said = say(command, "https://example.com/trace.json.gz")
    assert said.code == 1
    assert said.err.endswith("no such file or folder; download it: only `stepscope cluster summarize` reads addresses\n")


@pytest.mark.parametrize("words", [["summary"], ["show", "overlap"], ["list"], ["query"], ["export", "--to", "csv", "-o", "out"]])
def test_bad_data_is_one_line_that_names_the_file_and_exit_code_1(words: list[str], tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "noise.bin"
    file.write_bytes(b"\x00noise" * 99)
    said = say(*words, str(file), *(["select 1"] if words == ["query"] else []))
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"stepscope: {file}: not a trace") and said.err.count("\n") == 1


def test_a_traceback_only_when_asked_for(tmp_path: Path, say, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    words = ("summary", str(tmp_path / "missing"))
    assert "Traceback" not in say(*words).err
    assert "Traceback" in say(*words, "--debug").err
    monkeypatch.setenv("STEPSCOPE_DEBUG", "1")
    assert "Traceback" in say(*words).err


def test_errors_of_other_libraries_are_one_line_too(run: str, say, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def failing(error: Exception):  # type: ignore[no-untyped-def]
        def analyse(self: Trace, name: str, **parameters: object) -> pl.DataFrame:
            raise error

        monkeypatch.setattr(Trace, "analyse", analyse)
        return say("show", "overlap", run)

    said = failing(pl.exceptions.ComputeError("cannot\n\nlong plan"))
    assert (said.code, said.err) == (1, "stepscope: cannot\n")
    said = failing(PermissionError(13, "Permission denied", "/some/file"))
    assert (said.code, said.err) == (1, "stepscope: /some/file: Permission denied\n")
    said = failing(MemoryError())
    assert (said.code, said.err) == (1, "stepscope: out of memory\n")
    said = failing(KeyError("x"))
    assert said.code == 1 and said.err.startswith("stepscope: internal error: KeyError: 'x'") and said.err.count("\n") == 1


def test_an_error_message_cannot_steer_the_terminal(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    said = say("summary", str(tmp_path / "a\x1b[31m\nb"))
    assert "\x1b" not in said.err and said.err.count("\n") == 1
    assert "a\\u001b[31m\\u000ab" in said.err


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    spans = tiny.trace(spans=SPANS).spans.collect()
    run = written(Trace({"spans": pl.concat([spans] * 20_000)}), tmp_path / "run")
    words = [sys.executable, "-m", "stepscope", "show", "spans", run, "--format", "csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"span,rank,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_reader_that_never_read_is_no_error_either(run: str) -> None:
    words = [sys.executable, "-m", "stepscope", "show", "overlap", run]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    code = "import os, signal, threading\nfrom stepscope.io import open_run as opening\nfrom stepscope.cli import main\nimport sys, time\n"
    code += "opening.open = lambda *a, **k: (threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start(), time.sleep(20))\n"
    code += "sys.exit(main(['summary', 'x']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=15)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_standard_output_is_one_line(run: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", "show", "overlap", run], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "stepscope: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    [
        "show spans RUN --limit 2 --format csv --columns name",
        "show spans --limit 2 RUN --format csv --columns name",
        "show --limit 2 spans --format csv RUN --columns=name",
        "show --limit=2 --format csv --columns name -- spans RUN",
        "show RUN spans --limit 2 --format csv --columns name",
        "show RUN --limit 2 spans --format csv --columns name",
        "--limit 2 show spans RUN --format csv --columns name",
        "--debug show --limit 2 spans RUN --format csv --columns name",
        "query RUN SQL --format csv",
        "query RUN --format csv SQL",
        "query --format csv SQL RUN",
        "query SQL --format csv RUN",
    ],
)
def test_options_stand_anywhere_and_both_orders_of_arguments_are_understood(words: str, run: str, say) -> None:  # type: ignore[no-untyped-def]
    said = {"RUN": run, "SQL": "-- the first two\nselect name from spans limit 2"}
    given = [said.get(word, word) for word in words.split()]
    assert (say(*given).out, say(*given).err) == ("name\naten::mm\ngemm [bold]x[/]\n", "")


def test_what_follows_the_script_is_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    words = ["run", "--seconds", "60", "train.py", "--limit", "2", "x", "--debug", "--seconds", "1"]
    done = subprocess.run([sys.executable, "-m", "stepscope", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "['--limit', '2', 'x', '--debug', '--seconds', '1']" in done.stdout


def test_a_folder_may_be_called_like_a_command_or_an_analysis(tmp_path: Path, say, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    for name in ("run", "gaps", "spans"):
        written(tiny.trace(spans=SPANS, steps=STEPS), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert say("summary", "run", "--debug").code == 0
    assert say("show", "steps", "gaps", "--format", "csv").out.startswith("rank,step,model")
    assert say("show", "overlap", "spans", "--format", "csv").out.startswith("rank,step,total_ns")


# show


def test_show_without_arguments_lists_every_analysis_with_its_question(say) -> None:  # type: ignore[no-untyped-def]
    said = say("show")
    for name in analysis_names():
        assert re.search(rf"^  {name} +{re.escape(analysis(name).question.splitlines()[0])}$", said.out, re.MULTILINE)
    for name in schema.TABLES:
        assert f"  {name} " in said.out


def test_on_a_pipe_a_table_is_plain_aligned_text_of_all_rows(run: str, say) -> None:  # type: ignore[no-untyped-def]
    said = say("show", "spans", run, "--columns", "name,kind,start_ns,dur_ns,args")
    assert said.out == (
        "name             kind    start_ns   dur_ns  args\n"
        "aten::mm         op         +0 ns  40.0 µs\n"
        "gemm [bold]x[/]  kernel  +10.0 µs  20.0 µs\n"
        "relu kernel      kernel  +30.0 µs  5.00 µs\n"
        "aten::mm         op      +1.00 ms  30.0 µs\n"
        "gemm [bold]x[/]  kernel  +1.01 ms  10.0 µs\n"
    )


def test_csv_has_raw_integers(run: str, say) -> None:  # type: ignore[no-untyped-def]
    assert (
        say("show", "steps", run, "--format", "csv", "--columns", "step,start_ns,how").out
        == "step,start_ns,how\n0,1000000,marker\n1,2000000,marker\n"
    )
    assert say("show", "links", run, "--format", "csv").out.startswith("rank,src,dst,")


def test_json_says_what_it_is(run: str, say) -> None:  # type: ignore[no-untyped-def]
    said = json.loads(say("show", "overlap", run, "--format", "json", "--columns", "rank,step,computing_ns").out)
    assert said == {
        "analysis": "overlap",
        "source": "tiny",
        "columns": [{"name": "rank", "type": "integer"}, {"name": "step", "type": "integer"}, {"name": "computing_ns", "type": "integer"}],
        "rows": [{"rank": 0, "step": 0, "computing_ns": 25000}, {"rank": 0, "step": 1, "computing_ns": 10000}],
    }
    types = {one["name"]: one["type"] for one in json.loads(say("show", "counters", run, "--format", "json").out)["columns"]}
    assert {"rank": "integer", "name": "text", "at_ns": "integer", "value": "number", "unit": "text"}.items() <= types.items()


def test_json_and_csv_know_no_nan(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    run = written(tiny.trace(counters="name at_ns value\na 0 nan\nb 1 inf\nc 2 1.5", spans=SPANS), tmp_path / "run")
    rows = json.loads(say("show", "counters", run, "--format", "json").out, parse_constant=pytest.fail)["rows"]
    assert [row["value"] for row in rows] == [None, None, 1.5]
    assert say("show", "counters", run, "--format", "csv", "--columns", "value").out.splitlines() == ["value", "", "", "1.5"]


HOSTILE = {  # as a kernel is named, and as CSV has it
    "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    '=HYPERLINK("http://x","y")': '"\'=HYPERLINK(""http://x"",""y"")"',
    "+1+cmd": "'+1+cmd",
    "-2+3": "'-2+3",
    "@SUM(A1)": "'@SUM(A1)",
    "\t=1": "'\t=1",
    "\r=1": r"\u000d=1",
    "\uff1d1": "'\uff1d1",
    "a\x1b]0;owned\x07\x9bb\u202ec\x00": r"a\u001b]0;owned\u0007\u009bb\u202ec\u0000",
    "two\nlines": '"two\nlines"',
    "-5": "-5",
    "+1.5e-3": "+1.5e-3",
    "a=b": "a=b",
    "aten::mm": "aten::mm",
}


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    rows = "\n".join(f"kernel x {at * 10} 10 {-at}" for at in range(len(HOSTILE)))
    spans = tiny.trace(spans=f"kind name start_ns dur_ns step\n{rows}").spans.collect()
    return written(Trace({"spans": spans.with_columns(name=pl.Series(list(HOSTILE)).cast(pl.Categorical))}), tmp_path / "hostile")


def test_no_cell_of_csv_is_a_formula_or_steers_a_terminal(hostile: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    expected = "".join(f"{cell},{-at}\n" for at, cell in enumerate(HOSTILE.values()))
    words = ("show", "spans", hostile, "--columns", "name,step")
    assert say(*words, "--format", "csv").out == "name,step\n" + expected
    assert say(*words, "-o", str(tmp_path / "out.csv")).code == 0
    assert (tmp_path / "out.csv").read_bytes().decode() == "name,step\n" + expected
    assert say("query", hostile, "select name, step from spans", "--format", "csv").out == "name,step\n" + expected
    header = say("query", hostile, """select step as "=a,b", step as "\x1b[2Jc" from spans limit 1""", "--format", "csv")
    assert header.out == '"\'=a,b",\\u001b[2Jc\n0,0\n'


def test_exported_csv_has_no_formulas_either_and_other_formats_are_exact(hostile: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    assert say("export", hostile, "--to", "csv", "-o", str(tmp_path / "tables"), "--analyses").code == 0
    read = (tmp_path / "tables" / "spans.csv").read_bytes().decode()
    assert all(f",{cell}," in read for cell in HOSTILE.values())
    for file in (tmp_path / "tables").iterdir():
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", file.read_bytes().decode()), file
        assert not re.search(r'(^|,)"?[=@]', file.read_bytes().decode(), re.MULTILINE), file
    rows = json.loads(say("show", "spans", hostile, "--format", "json").out)["rows"]
    assert [row["name"] for row in rows] == list(HOSTILE)
    assert say("show", "spans", hostile, "-o", str(tmp_path / "x.parquet")).code == 0
    assert pl.read_parquet(tmp_path / "x.parquet")["name"].cast(pl.String).to_list() == list(HOSTILE)


@pytest.mark.parametrize("words", [["spans"], ["spans", "--wide"], ["problems"], ["problems", "--wide"], ["kernels", "--wide"]])
def test_nothing_that_is_shown_steers_a_terminal(words: list[str], hostile: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    problem = {"file": "a\x1b[31m.json", "where": "b\x07", "what": "c\x9b31m\u202e", "lost": 1}
    run = written(stepscope.open(hostile).with_problems([problem]), tmp_path / "run")
    piped = say("show", *words, run)
    shown = bare(on_terminal("show", *words, run, columns=120)[1])
    summary = bare(on_terminal("summary", run, columns=120)[1]) + say("summary", run).out
    for text in (piped.out, piped.err, shown, summary):
        assert text and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_names_of_columns_and_files_do_not_steer_a_terminal(run: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    question = 'select 1 as "a\x1b[31mb" from steps'
    for text in (say("query", run, question).out, bare(on_terminal("query", run, question)[1])):
        assert r"a\u001b[31mb" in text and "\x1b" not in text
    odd = tmp_path / "odd\x1b[31m"
    odd.mkdir()
    _, said = on_terminal("export", run, "--to", "chrome", "-o", str(odd / "t.json"), columns=300)
    assert r"odd\u001b[31m" in said and "\x1b" not in bare(said)
    for words in (["report", run, "-o", str(odd / "r.html")], ["list", str(odd)], ["cache"]):
        said = say(*words)
        assert "\x1b" not in said.out + said.err, words


def test_parquet_goes_to_a_file_or_a_pipe(run: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    assert say("show", "overlap", run, "-o", str(tmp_path / "x.parquet")).code == 0
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "show", "overlap", run, "--format", "parquet"], capture_output=True, check=True
    )
    assert pl.read_parquet(tmp_path / "x.parquet").equals(pl.read_parquet(io.BytesIO(done.stdout)))
    assert pl.read_parquet(tmp_path / "x.parquet")["computing_ns"].to_list() == [25000, 10000]


def test_sorting_limiting_and_choosing_columns(run: str, say) -> None:  # type: ignore[no-untyped-def]
    words = ("show", "spans", run, "--format", "csv", "--columns", "dur_ns", "--sort", "dur_ns")
    assert say(*words).out.split() == ["dur_ns", "40000", "30000", "20000", "10000", "5000"]
    assert say(*words, "--ascending", "--limit", "2").out.split() == ["dur_ns", "5000", "10000"]
    assert say(*words, "--limit", "0").out.count("\n") == 6


def test_an_analysis_has_its_own_flags(run: str, say) -> None:  # type: ignore[no-untyped-def]
    words = ("show", "gaps", run, "--format", "csv", "--columns", "dur_ns")
    everything = [int(word) for word in say(*words).out.split()[1:]]
    long = [int(word) for word in say(*words, "--min-ns", "50000").out.split()[1:]]
    assert long == [gap for gap in everything if gap >= 50000] and 0 < len(long) < len(everything)
    assert "--min-ns" in say("show", "gaps", "--help").out
    assert "--copies" in say("show", "kernels", "--help").out
    assert say("show", "--copies", "kernels", run).code == 0


@pytest.mark.parametrize("name", analysis_names())
def test_the_flags_of_every_analysis_can_be_said(name: str) -> None:
    """A parameter named like a flag that every analysis has could not be added."""
    help_text = parser(["show", name]).format_help()
    assert help_text
    own = {"--" + word.replace("_", "-") for word in analysis(name).parameters}
    assert {flag.replace("--no-", "--") for flag in completion.analysis_flags().get(name, [])} == own


def test_a_file_is_whole_and_not_replaced_unless_told(run: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out.csv"
    assert say("show", "overlap", run, "-o", str(out)).code == 0
    assert out.read_text().startswith("rank,step,")
    said = say("show", "steps", run, "-o", str(out))
    assert said.code == 2 and "exists; choose another name, or replace it with --force" in said.err
    assert out.read_text().startswith("rank,step,total_ns")
    assert say("show", "steps", run, "-o", str(out), "--force").code == 0
    assert out.read_text().startswith("rank,step,model")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out.csv"}


@pytest.mark.parametrize(
    ("words", "ending", "message"),
    [
        (
            ["show", "overlap", "RUN"],
            ".xlsx",
            "the ending sets the format, or --format does, not '.xlsx'; expected .txt, .csv, .json or .parquet",
        ),
        (["show", "overlap", "RUN"], ".cvs", "did you mean '.csv'? Accepted: .txt, .csv, .json, .parquet"),
        (["query", "RUN", "select 1 as a from steps"], ".xlsx", "expected .txt, .csv, .json or .parquet"),
        (["list", "RUN"], ".xlsx", "expected .txt, .csv, .json or .parquet"),
        (["report", "RUN"], ".pdf", "a report is one HTML file, not '.pdf'; expected .html or .htm"),
        (["export", "RUN", "--to", "chrome"], ".csv", "chrome writes one file for each rank, not '.csv'; expected .json or .gz"),
        (["export", "RUN", "--to", "csv"], ".csv", "csv writes a folder, not '.csv'; expected the name of a folder, without an ending"),
        (
            ["export", "RUN", "--to", "parquet"],
            ".xlsx",
            "parquet writes a folder, not '.xlsx'; expected the name of a folder, without an ending",
        ),
    ],
)
def test_an_output_whose_ending_promises_another_format_is_refused(  # type: ignore[no-untyped-def]
    words: list[str], ending: str, message: str, run: str, tmp_path: Path, say
) -> None:
    out = tmp_path / f"out{ending}"
    said = say(*(run if word == "RUN" else word for word in words), "-o", str(out))
    assert (said.code, said.out, out.exists()) == (2, "", False)
    assert message in said.err and str(out) in said.err and said.err.count("\n") == 1
    if words[0] in ("show", "query", "list"):  # who says the format knows what is in the file
        assert say(*(run if word == "RUN" else word for word in words), "-o", str(out), "--format", "csv").code == 0
        assert out.read_bytes().count(b"\n") > 1


OUTPUTS = [
    (["show", "overlap", "RUN"], "out.csv"),
    (["query", "RUN", "select 1 as a from steps"], "out.json"),
    (["list", "RUN"], "out.txt"),
    (["report", "RUN"], "out.html"),
    *((["export", "RUN", "--to", form], "out") for form in ("csv", "parquet", "mindinsight", "msprof")),
    *((["export", "RUN", "--to", form], "out.json") for form in ("chrome", "perfetto", "speedscope")),
    (["export", "RUN", "--to", "msprof_db"], "out.db"),
]


@pytest.mark.parametrize(("words", "name"), OUTPUTS, ids=lambda value: " ".join(value) if isinstance(value, list) else value)
def test_existing_output_is_treated_alike_everywhere(words: list[str], name: str, run: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / name
    command = [*(run if word == "RUN" else word for word in words), "-o", str(out)]
    assert say(*command).code == 0
    files = {file: file.read_bytes() for file in [out, *out.rglob("*")] if file.is_file()}
    said = say(*command)
    assert said.code == 2 and said.out == ""
    assert said.err == f"stepscope: {out} exists; choose another name, or replace it with --force (in Python: overwrite=True)\n"
    assert {file: file.read_bytes() for file in [out, *out.rglob("*")] if file.is_file()} == files
    assert say(*command, "--force").code == 0
    # Whatever is said, a folder with something else in it is not replaced, nor is a folder by a file.
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").write_text("years")
    said = say(*command[:-1], str(other), "--force")
    assert said.code == 2 and (other / "thesis.tex").read_text() == "years" and said.err.count("\n") == 1


def test_every_format_is_among_the_outputs_above() -> None:
    assert {words[3] for words, _ in OUTPUTS if words[0] == "export"} == set(exporters.names())


def test_existing_output_is_refused_before_anything_is_read(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "out.json").write_text("mine")
    for words in (["show", "spans"], ["export", "--to", "chrome"]):
        assert "out.json exists" in say(*words, "no such trace", "-o", str(tmp_path / "out.json")).err
    (tmp_path / "report.html").write_text("mine")
    assert "report.html exists" in say("report", "no such trace", "-o", str(tmp_path / "report.html")).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "RUN", "--page", "nopage"], "no page 'nopage'; expected overview, steps, operators, "),
        (["report", "RUN", "--page", "memroy"], "no page 'memroy'; did you mean 'memory'? Accepted: overview, steps, "),
        (["report", "RUN", "--page", "compare"], "no page 'compare'; expected overview, "),
        (["report", "RUN", "--max-size", "1"], "--max-size is 1 B; expected more than "),
        (["report", "RUN", "--max-size", "3kB"], "--max-size is 3.00 kB; expected more than "),
        (["report", "RUN", "--max-size", "inf"], "--max-size is 'inf'; expected a size such as 500kB, 20MB or 2GB"),
        (["report", "RUN", "--max-size=-5MB"], "--max-size is '-5MB'; expected a size such as"),
        (["view", "RUN", "--max-upload", "x"], "--max-upload is 'x'; expected a size such as"),
        (["show", "operators", "RUN", "--device", "gpus"], "no device 'gpus'; did you mean 'gpu'? Accepted: aicore, aicpu, "),
        (["show", "operator_types", "RUN", "--device", "0"], "no device '0'; expected aicore, aicpu, hostcpu, gpu, tpu or cpu"),
        *((["show", name, "RUN", "--device", "gpu 1"], "no device 'gpu 1'; did you mean 'gpu 0'? Accepted: cpu, gpu 0")
          for name in ("memory", "memory_peaks", "memory_by_category", "allocations_by_op", "live_tensors")),
        (["show", "durations", "RUN", "--by", "names"], "no grouping 'names'; expected type, operator or shape"),
        (["show", "totals", "RUN", "--kind", "kernels"], "no kind of span 'kernels'; did you mean 'kernel'?"),
        (["show", "cpu", "RUN", "--of", "thread"], "no kind of sample 'thread'; expected machine, process or operator"),
    ],
)  # fmt: skip
def test_an_unknown_page_device_kind_or_size_is_refused_with_those_that_are_accepted(  # type: ignore[no-untyped-def]
    words: list[str], message: str, tmp_path: Path, say
) -> None:
    allocations = 'device bytes alloc_ns free_ns\n"gpu_0" 100 0 50\ncpu 100 0 50'
    counters = 'name at_ns value unit\n"allocated_gpu_0" 0 100 bytes'
    run = written(tiny.trace(spans=SPANS, steps=STEPS, allocations=allocations, counters=counters), tmp_path / "run")
    said = say(*(run if word == "RUN" else word for word in words))
    assert (said.code, said.out) == (2, "")
    assert message in said.err and said.err.count("\n") == 1


def test_a_device_that_only_another_rank_has_is_known(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    allocations = 'rank device bytes alloc_ns free_ns\n0 cpu 100 0 50\n1 "gpu_0" 100 0 50'
    spans = "rank kind name start_ns dur_ns\n0 op a 0 10\n1 op a 0 10"
    run = written(tiny.trace(spans=spans, allocations=allocations), tmp_path / "run")
    said = say("show", "allocations_by_op", run, "--device", "gpu 0", "--rank", "0", "--format", "csv")
    assert (said.code, said.out.count("\n"), said.err) == (0, 1, "")


def test_the_pages_of_a_report_are_those_of_the_front_end() -> None:
    frontend = Path(__file__).parent.parent / "frontend" / "src"
    order = {
        json.loads(file.read_text().splitlines()[0].removeprefix("// page: "))["order"]: file.stem for file in frontend.glob("pages/*.tsx")
    }
    without = json.loads(re.search(r"NOT_IN_REPORT = (\[.*?\])", (frontend / "page_links.tsx").read_text())[1])  # type: ignore[index]
    assert [name for _, name in sorted(order.items()) if name not in without] == list(RUN_PAGES)


def test_a_notebook_refuses_an_unknown_page(run: str) -> None:
    with pytest.raises(UsageError, match=r"no page 'nopage'; expected overview, steps, .* or files"):
        stepscope.open(run).view("nopage")


@pytest.mark.parametrize(("count", "words"), [(1, "1 row could not be read;"), (2, "2 rows could not be read;")])
def test_one_is_singular(count: int, words: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    run = written(tiny.trace(spans=SPANS, problems=f"file where what lost\nf a b {count}"), tmp_path / "run")
    assert words in say("show", "spans", run).err
    assert f"{count} of {count} row{'s' * (count > 1)}" in bare(on_terminal("query", run, f"select name from spans limit {count}")[1])


def test_missing_rows_are_told_on_standard_error(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    run = written(tiny.trace(spans=SPANS, problems='file where what lost\nf "byte_9" "cut_off" 1234'), tmp_path / "run")
    said = say("show", "spans", run, "--format", "csv")
    assert said.code == 0 and "1,234 rows could not be read" in said.err and "1,234" not in said.out


# On a terminal


def test_a_terminal_shows_the_first_rows_and_says_how_many_there_are(tmp_path: Path) -> None:
    spans = tiny.trace(spans=SPANS).spans.collect()
    run = written(Trace({"spans": pl.concat([spans] * 20)}), tmp_path / "run")
    code, said = on_terminal("show", "spans", run, columns=90)
    lines = bare(said).splitlines()
    assert code == 0
    assert len([line for line in lines if "aten::mm" in line or "kernel" in line.split()]) == 30
    assert any(line.startswith("30 of 100 rows; --limit 0 shows all") for line in lines)
    assert any(line.startswith("no values: ") and "scope" in line for line in lines)
    assert all(len(line) <= 90 for line in lines)
    assert "100 of 100 rows" in bare(on_terminal("show", "spans", run, "--limit", "0")[1])


def test_a_narrow_terminal_names_the_columns_that_found_no_room(run: str) -> None:
    said = bare(on_terminal("show", "overlap", run, columns=60)[1])
    shown = said.splitlines()[1].split()
    hidden = re.search(r"too wide: (.*) \(select with --columns\)", said.replace("\n", " "))
    assert hidden is not None
    assert shown + hidden[1].replace(",", "").split() == list(analysis("overlap").columns)
    assert "too wide" not in bare(on_terminal("show", "overlap", run, columns=180)[1])


def test_long_names_lose_their_middle_and_stay_whole_where_there_is_room(tmp_path: Path) -> None:
    name = "cutlass_80_tensorop_" + "s16816gemm_" * 8 + "align8"
    run = written(tiny.trace(spans=f"kind name start_ns dur_ns\nkernel {name} 0 10"), tmp_path / "run")
    words = ("show", "spans", run, "--columns", "name,dur_ns")
    narrow, wide = bare(on_terminal(*words, columns=50)[1]), bare(on_terminal(*words, columns=160)[1])
    assert name not in narrow and re.search(r"cutlass_80_\w+…\w+align8", narrow)
    assert name in wide
    assert name in bare(on_terminal(*words, "--wide", columns=50)[1])


def test_a_pipe_has_every_row_and_column_with_long_names_cut_and_wide_has_them_whole(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    names = [f"void_at::native::{letter}_kernel<{'c10::BFloat16,' * 28}4>" for letter in "ab"]
    assert all(len(name) > 400 for name in names)
    rows = "\n".join(f"kernel {name} {at * 100} 10" for at, name in enumerate(names))
    run = written(tiny.trace(spans=f"kind name start_ns dur_ns\n{rows}"), tmp_path / "run")
    said = say("show", "kernels", run)
    lines = said.out.splitlines()
    assert lines[0].split() == list(analysis("kernels").columns)
    assert len(lines) == 3 and all("…" in line for line in lines[1:])
    assert max(map(len, lines)) < 320
    assert said.err == "stepscope: long values of name are cut; use --wide, CSV or JSON for all of them\n"
    narrow = say("show", "spans", run, "--columns", "name,dur_ns")
    assert [len(line) for line in narrow.out.splitlines()[1:]] == [100, 100]
    for words in (("--wide",), ("--format", "csv"), ("--format", "json")):
        whole = say("show", "kernels", run, *words)
        assert all(name in whole.out for name in names) and not whole.err
    file = tmp_path / "kernels.txt"
    assert say("show", "kernels", run, "-o", str(file)).code == 0
    assert all(name in file.read_text() for name in names)


def test_sentences_are_whole_on_a_pipe(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    what = "_".join(["word"] * 60)
    run = written(tiny.trace(problems=f'file where what lost\ntrace.json line_3 "{what}" 0'), tmp_path / "run")
    assert what.replace("_", " ") in say("show", "problems", run).out


def test_names_in_a_trace_are_neither_markup_nor_escapes(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    hostile = "a\x1b]0;owned\x07\x9b31m\u202eb[red]c[/red]:smile:"
    spans = tiny.trace(spans="kind name start_ns dur_ns\nkernel x 0 10").spans.collect()
    steps = tiny.trace(steps="step start_ns end_ns how\n0 0 100 marker").steps
    spans = spans.with_columns(name=pl.lit(hostile).cast(pl.Categorical), args=pl.lit(hostile))
    run = written(Trace({"spans": spans, "steps": steps}), tmp_path / "run")
    for words in (
        ["show", "spans", run],
        ["summary", run],
        ["show", "spans", run, "--format", "csv"],
        ["show", "spans", run, "--format", "json"],
    ):
        _, said = on_terminal(*words, columns=200)
        left = bare(said)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", left), words
        assert "owned" in left and "[red]c[/red]:smile:" in left, words
    piped = say("show", "spans", run).out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", piped)
    assert json.loads(say("show", "spans", run, "--format", "json").out)["rows"][0]["name"] == hostile


def test_colours_are_the_terminals_own_and_go_where_they_are_not_wanted(run: str) -> None:
    _, coloured = on_terminal("summary", run)
    assert "\x1b[34m" in coloured  # blue
    assert not re.search(r"\x1b\[[0-9;]*(38|48);", coloured)  # no colour that a light or dark background could swallow
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        _, plain = on_terminal("summary", run, columns=80, **environment)
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)
        assert bare(plain) == bare(coloured)


def test_wide_characters_keep_columns_aligned(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    run = written(tiny.trace(spans="kind name start_ns dur_ns\nop 矩阵乘 0 10\nop ab 10 10"), tmp_path / "run")
    assert say("show", "spans", run, "--columns", "name,dur_ns").out == "name    dur_ns\n矩阵乘   10 ns\nab       10 ns\n"


def test_progress_is_for_terminals_that_wait(tmp_path: Path) -> None:
    code = """
import sys, time
from stepscope.io import open_run as opening
from stepscope.cli import main
real, clock, later = opening.open, time.monotonic, 0.0
time.monotonic = lambda: clock() + later
def slow(path, *, progress, **options):
    global later
    for done in range(8):
        later += 0.15
        progress(done * 1000, 8000)
    return real(path, progress=progress, **options)
opening.open = slow
sys.exit(main(['show', 'overlap', sys.argv[1]]))
"""
    (tmp_path / "slow.py").write_text(code)
    run = written(tiny.trace(spans=SPANS, steps=STEPS), tmp_path / "run")
    quiet = subprocess.run([sys.executable, str(tmp_path / "slow.py"), run], capture_output=True, text=True, check=True)
    assert quiet.stderr == ""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, str(tmp_path / "slow.py"), run])
    said = b""
    try:
        while some := os.read(terminal, 65536):
            said += some
    except OSError:
        pass
    os.waitpid(child, 0)
    assert b"reading" in said and b"6.8/7.8" in said


# summary


def test_the_summary_answers_first_and_says_what_it_is(run: str, say) -> None:  # type: ignore[no-untyped-def]
    lines = say("summary", run).out.splitlines()
    assert lines[0] == "run   rank 0"
    assert lines[2].endswith("is idle 82.5 % of each step, for several or unknown reasons.")
    assert lines[3] == "A step takes 100 µs. Device: 17.5 % compute, 82.5 % idle. Recording overhead is unknown."
    page = "\n".join(lines)
    assert "2 steps (0 to 1), marked by the profiler" in page
    assert re.search(r"computing 17\.5 µs 17\.5 %.*idle 82\.5 µs 82\.5 %", page)
    assert re.search(r"^gemm \[bold\]x\[/\] +2 +30\.0 µs +85\.7 %  ━+$", page, re.MULTILINE)
    assert re.search(r"^relu kernel +1 +5\.00 µs +14\.3 %  ━+$", page, re.MULTILINE)
    assert f"next  stepscope show gaps {run}" in page
    assert "remark" not in page and "could not be read" not in page


def test_the_summary_has_a_stable_form_for_scripts(run: str, say) -> None:  # type: ignore[no-untyped-def]
    said = json.loads(say("summary", run, "--format", "json").out)
    assert list(said) == [
        "source", "format", "framework", "versions", "world_size", "ranks", "devices", "verdict", "advice", "overview", "unprofiled_steps",
        "steps", "average_step", "stages", "operator_types", "kernels", "idle_causes", "totals", "memory_peaks", "problems",
    ]  # fmt: skip
    assert said["steps"] == [{"rank": 0, "step": 0, "total_ns": 100000}, {"rank": 0, "step": 1, "total_ns": 100000}]
    assert said["average_step"]["computing_ns"] == 17500 and said["average_step"]["free_ns"] == 82500
    assert said["kernels"]["count"] == 2 and said["kernels"]["total_ns"] == 35000
    assert said["kernels"]["rows"][0] == {"name": "gemm [bold]x[/]", "calls": 2, "total_ns": 30000, "share": 30 / 35}


def test_the_summary_shows_every_problem_or_how_many_more(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    lines = "".join(f'\n/a/trace.json "byte_{n}" "lost_block" 1' for n in range(12))
    run = written(tiny.trace(spans=SPANS, steps=STEPS, problems=f"file where what lost{lines}"), tmp_path / "run")
    page = say("summary", run).out
    assert "not everything could be read" in page
    assert "! trace.json: byte 0: lost block" in page and "! trace.json: byte 9: lost block" in page
    assert f"and 2 more: stepscope show problems {run}" in page
    remark = written(tiny.trace(spans=SPANS, steps=STEPS, problems='file where what lost\nf - "no_step_markers" 0'), tmp_path / "remark")
    page = say("summary", remark).out
    assert "1 remark while reading" in page and "  f: no step markers" in page and "!" not in page


@pytest.mark.parametrize("spans", [SPANS, "kind name start_ns dur_ns\nop a 0 10", "kind name start_ns dur_ns\nop a 0 0"])
def test_a_trace_without_steps_still_has_a_summary(spans: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    said = say("summary", written(tiny.trace(spans=spans), tmp_path / "run"))
    assert said.code == 0 and "This recording has no steps." in said.out
    empty = say("summary", written(tiny.trace(steps="step start_ns end_ns how\n0 5 5 marker"), tmp_path / "empty"))
    assert empty.code == 0


def test_the_summary_gives_the_coverage_of_each_topic(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    """Of two launches of rank 1, one has its kernel."""
    cells = ["0 7 kernel MatMul 10 60 0 -", "0 7 kernel Add 70 20 1 -", *(f"1 0 api cudaLaunchKernel {at} 1 {at} -" for at in (10, 20))]
    spans = " 0\n".join([*cells, "1 7 communication AllReduce 30 900 2 20 0"])
    tracks = "rank track kind device\n0 7 stream 0\n1 0 thread -\n1 7 stream 0"
    trace = tiny.trace(
        spans="rank track kind name start_ns dur_ns span flow_in step\n" + spans,
        tracks=tracks,
        steps="rank step start_ns end_ns how\n0 0 0 100 marker\n1 0 0 1000 marker",
    )
    page = " ".join(say("summary", written(trace, tmp_path / "run")).out.split())
    operators, kernels = page.index("operators 75.0 %"), page.index("kernels 75.0 %")
    left_out = "1 of 2 ranks are left out: their device work is not completely recorded."
    assert left_out in page[operators:kernels] and left_out in page[kernels:]


def test_steps_without_a_duration_have_a_summary(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    trace = tiny.trace(spans="kind name start_ns dur_ns\nkernel k 5 0", steps="step start_ns end_ns how\n0 5 5 marker\n1 5 5 marker")
    page = say("summary", written(trace, tmp_path / "run"))
    assert page.code == 0 and "2 steps (0 to 1)" in page.out


def test_an_empty_trace_has_a_summary(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    run = written(tiny.trace(), tmp_path / "run")
    assert say("summary", run).code == 0
    assert json.loads(say("summary", run, "--format", "json").out)["average_step"] is None


@pytest.mark.parametrize("columns", mostly_deep([60, 80, 140, 300], [60, 140]))
def test_the_summary_fits_its_terminal(columns: int, shared: Path, say) -> None:  # type: ignore[no-untyped-def]
    for name in ("torch_h200/gpt2_full.json.gz", "torch_public/two_ranks"):
        say("summary", str(shared / name))  # so that no progress is shown below
        code, said = on_terminal("summary", str(shared / name), columns=columns)
        lines = bare(said).splitlines()
        assert code == 0
        # The command to copy stays whole, whatever the width.
        assert [line for line in lines if len(line) > columns and not line.startswith("next  ")] == []


def test_many_steps_share_bars_and_say_so(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    rows = "".join(f"\n{n} {n * 1000} {n * 1000 + (900 if n == 150 else 100)} marker" for n in range(200))
    run = written(tiny.trace(spans="kind name start_ns dur_ns\nop a 0 10", steps=f"step start_ns end_ns how{rows}"), tmp_path / "run")
    line = next(line for line in say("summary", run).out.splitlines() if line.startswith("steps "))
    bars = line.split()[1]
    assert len(bars) == 50 and bars.count("█") == 1 and bars[150 // 4] == "█"
    assert "a bar is the longest of 4" in line


# query


def test_sql_over_tables_and_analyses(run: str, say) -> None:  # type: ignore[no-untyped-def]
    words = ("query", run, "--format", "csv")
    question = "select name, sum(dur_ns) from spans where kind='kernel' group by name order by 2 desc limit 10"
    assert say(*words[:2], question, *words[2:]).out == "name,dur_ns\ngemm [bold]x[/],30000\nrelu kernel,5000\n"
    for question, answer in (
        ("select count(*) as n from spans where name like 'gemm%' and kind in ('kernel','copy')", "n\n2\n"),
        ("select name || '!' as n from spans where name ilike 'RELU%'", "n\nrelu kernel!\n"),
        ("with long as (select * from spans where dur_ns > 20000) select max(dur_ns) as m from long", "m\n40000\n"),
        ("select s.step, o.computing_ns as c from steps s join overlap o on s.step = o.step order by 1", "step,c\n0,25000\n1,10000\n"),
        ("-- a remark\nSELECT step FROM overlap ORDER BY step DESC", "step\n1\n0\n"),
    ):  # fmt: skip
        said = say(*words[:2], question, *words[2:])
        assert (said.out, said.err) == (answer, ""), question
    assert "spans" in say("query", run, "show tables").out.split()
    assert say("query", run, "explain select name from spans").code == 0


def test_only_the_analyses_that_are_asked_for_are_computed(run: str, say, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    asked: list[str] = []
    analyse = Trace.analyse

    def noted(self: Trace, name: str, **parameters: object) -> pl.DataFrame:
        asked.append(name)
        return analyse(self, name, **parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(Trace, "analyse", noted)
    say("query", run, "select 'kernels' as x, * from overlap -- operators")
    assert asked == ["overlap"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("select nam from spans", 'column "nam" not found in FROM clause! Candidate bindings: "name"'),
        ("select * from spanz", "no table 'spanz'; did you mean 'spans'?"),
        ("selec 1", 'syntax error at or near "selec"'),
        ("", "an argument is empty: is a variable of the shell unset?"),
        ("drop table spans", "DROP is not a query; expected SELECT"),
        ("delete from spans", "DELETE is not a query"),
        ("create table x as select 1", "CREATE is not a query"),
        ("insert into spans values (1)", "INSERT is not a query"),
        ("select 1; drop table spans", "2 statements; expected one query"),
        ("select nosuch(name) from spans", "Function with name nosuch does not exist"),
    ],
)
def test_a_wrong_question_is_one_line(question: str, message: str, run: str, say) -> None:  # type: ignore[no-untyped-def]
    said = say("query", run, question)
    assert (said.code, said.out) == (2, "")
    assert message in said.err and said.err.count("\n") == 1


@pytest.mark.parametrize(
    "question",
    [
        "select * from read_csv('FILE')",
        r"select 'a' like 'a' escape E'\'', * from read_csv('FILE') b where 'x'='x'",
        "select * from 'FILE'",
        "copy (select 1) to 'FILE'",
        "attach 'FILE' as x",
    ],
)
def test_sql_does_not_reach_files(question: str, run: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    """Of all the ways in tests/test_queries.py."""
    (tmp_path / "secret.csv").write_text("secret\nxyzzy\n")
    said = say("query", run, question.replace("FILE", str(tmp_path / "secret.csv")))
    assert said.code == 2
    assert "xyzzy" not in said.out + said.err and said.out == ""
    assert (tmp_path / "secret.csv").read_text() == "secret\nxyzzy\n"


def test_a_query_that_needs_more_than_memory_allows_ends_with_a_line(run: str, say) -> None:  # type: ignore[no-untyped-def]
    question = "select a.range || 'x' as z from range(100000) a cross join range(100000) b order by z desc limit 10000000"
    said = say("query", run, question, "--memory", "100MB")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "stepscope: the query needed more than 0.1 GB of memory; ask for fewer rows or columns, "
        "or allow more with `stepscope query --memory`\n"
    )
    assert "--memory is 'lots'; expected a size such as 500kB, 20MB or 2GB" in say("query", run, "select 1", "--memory", "lots").err


def test_a_name_that_looks_like_a_file_function_can_be_asked_for(run: str, say) -> None:  # type: ignore[no-untyped-def]
    assert say("query", run, "select count(*) as n from spans where name = 'read_csv(x)'").code == 0


def test_tables_lists_tables_and_analyses_with_their_columns(say) -> None:  # type: ignore[no-untyped-def]
    lines = say("query", "--tables").out.splitlines()
    assert any(line.startswith("spans ") and "dur_ns" in line for line in lines)
    assert any(line.startswith("overlap ") and "exposed_ns" in line for line in lines)


# list, export, cache, demo, completion


def chrome(path: Path, rank: int = 0) -> Path:
    op = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "schemaVersion": 1, "traceEvents": [op]}))
    return path


def test_list_shows_every_trace_and_reads_none_unless_told(tmp_path: Path, say, cache: Path) -> None:  # type: ignore[no-untyped-def]
    written(tiny.trace(spans=SPANS, steps=STEPS), tmp_path / "in" / "run")
    chrome(tmp_path / "in" / "deep" / "x_rank3.json", 3)
    rows = json.loads(say("list", str(tmp_path / "in"), "--format", "json").out)["rows"]
    found = [(Path(row["path"]).name, row["format"], row["framework"], row["ranks"], row["steps"]) for row in rows]
    assert found == [("x_rank3.json", "chrome", None, "3", None), ("run", "run", None, "0", 2)]
    assert rows[0]["size_bytes"] == (tmp_path / "in" / "deep" / "x_rank3.json").stat().st_size
    assert not cache.exists()
    rows = json.loads(say("list", str(tmp_path / "in"), "--deep", "--format", "json").out)["rows"]
    assert (rows[0]["framework"], rows[0]["steps"]) == ("pytorch", 1)
    rows = json.loads(say("list", str(tmp_path / "in"), "--format", "json").out)["rows"]
    assert (rows[0]["framework"], rows[0]["steps"]) == ("pytorch", 1)  # known from the cache now


def test_list_says_the_rank_that_a_file_says_at_its_head(tmp_path: Path, say, cache: Path) -> None:  # type: ignore[no-untyped-def]
    chrome(tmp_path / "trace.json", 5)
    (row,) = json.loads(say("list", str(tmp_path), "--format", "json").out)["rows"]
    assert row["ranks"] == "5" and row["steps"] is None and not cache.exists()


def test_list_counts_the_ranks_of_the_job_that_have_no_recording(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    for rank in (0, 3):
        place = chrome(tmp_path / "job" / f"rank{rank}.json", rank)
        place.write_text(place.read_text().replace('{"rank"', '{"world_size": 8, "rank"'))
    (row,) = json.loads(say("list", str(tmp_path), "--deep", "--format", "json").out)["rows"]
    assert (row["ranks"], row["missing"]) == ("0, 3", 6)
    assert say("cluster", "summarize", str(tmp_path / "job"), "-o", str(tmp_path / "summary")).code == 0
    (row,) = json.loads(say("list", str(tmp_path / "summary"), "--format", "json").out)["rows"]
    assert (row["ranks"], row["missing"]) == ("0, 3", 6)


def test_list_counts_the_files_in_folders_of_a_recording(say) -> None:  # type: ignore[no-untyped-def]
    folder = Path(__file__).parent / "samples" / "prof"
    (row,) = json.loads(say("list", str(folder), "--format", "json").out)["rows"]
    assert row["size_bytes"] == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) > 0
    assert not row["changed"].startswith("1970")


def test_list_goes_on_past_what_cannot_be_read_and_says_so(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    broken = written(tiny.trace(spans=SPANS), tmp_path / "a")
    (Path(broken) / "run.json").write_text("{")
    written(tiny.trace(spans=SPANS), tmp_path / "b")
    said = say("list", str(tmp_path))
    assert said.code == 1
    assert [line.split()[0] for line in said.out.splitlines()] == ["path", str(tmp_path / "b")]
    assert said.err.startswith(f"stepscope: {broken}/run.json: not a run folder's header") and said.err.count("\n") == 1


def test_list_of_several_paths_goes_on_past_one_that_is_missing(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    written(tiny.trace(spans=SPANS), tmp_path / "b")
    said = say("list", str(tmp_path / "missing"), str(tmp_path / "b"), "--format", "csv")
    assert said.code == 1 and said.out.count("\n") == 2 and str(tmp_path / "b") in said.out
    assert said.err == f"stepscope: {tmp_path / 'missing'}: no such file or folder\n"


def test_list_of_nothing_is_an_empty_table(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    said = say("list", str(tmp_path), "--format", "csv")
    assert (said.code, said.out, said.err) == (0, "path,format,framework,ranks,missing,steps,size_bytes,changed,problems\n", said.err)
    assert said.err.startswith(f"stepscope: {tmp_path}: no trace in this folder: the folder has no files. Known: PyTorch")


def test_list_names_what_it_cannot_read(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "profile.nsys-rep").write_bytes(b"NSYS")
    said = say("list", str(tmp_path))
    assert said.code == 0
    assert "profile.nsys-rep is an Nsight Systems report, which stepscope does not read" in said.err


def test_list_looks_here_when_not_told_where(tmp_path: Path, say, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    written(tiny.trace(spans=SPANS), tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    assert "here" in say("list").out


def test_export_writes_and_reopens(run: str, tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    for form, out in (("chrome", "t.json.gz"), ("perfetto", "p.json"), ("parquet", "again"), ("csv", "tables")):
        said = say("export", run, "--to", form, "-o", str(tmp_path / out))
        assert (said.code, said.out, said.err) == (0, "", "")
        if form != "csv":
            assert stepscope.open(tmp_path / out).overlap().equals(stepscope.open(run).overlap())
    assert (tmp_path / "tables" / "spans.csv").exists() and not (tmp_path / "tables" / "overlap.csv").exists()
    assert say("export", run, "--to", "csv", "-o", str(tmp_path / "more"), "--analyses").code == 0
    assert (tmp_path / "more" / "overlap.csv").exists()
    said = say("export", run, "--to", "csv", "-o", str(tmp_path / "more"))
    assert said.code == 2 and "with --force" in said.err
    assert say("export", run, "--to", "csv", "-o", str(tmp_path / "more"), "--force").code == 0


def test_export_of_one_rank_of_several(tmp_path: Path, say) -> None:  # type: ignore[no-untyped-def]
    for rank in (0, 1):
        chrome(tmp_path / "in" / f"r{rank}.json", rank)
    assert say("export", str(tmp_path / "in"), "--to", "chrome", "-o", str(tmp_path / "one.json")).code == 2
    assert say("export", str(tmp_path / "in"), "--to", "chrome", "-o", str(tmp_path / "one.json"), "--rank", "1").code == 0
    assert stepscope.open(tmp_path / "one.json").meta.ranks == [1]
    both = written(stepscope.open(tmp_path / "in"), tmp_path / "both")
    assert say("export", both, "--to", "chrome", "-o", str(tmp_path / "again.json"), "--rank", "1").code == 0
    assert "rank 1" in say("summary", both, "--rank", "1").out and "2 ranks" in say("summary", both).out


def test_the_cache_says_what_it_holds_and_can_be_cleared(tmp_path: Path, say, cache: Path) -> None:  # type: ignore[no-untyped-def]
    assert say("cache").out == f"{cache}\n0 entries, 0 B of at most 20.0 GiB\n"
    file = chrome(tmp_path / "in" / "trace.json")
    say("summary", str(file))
    said = say("cache").out
    assert "2 entries, " in said and str(file) in said and f"{file} (summary)" in said
    assert say("summary", str(file), "--no-cache").code == 0
    assert say("cache", "clear").out.startswith("removed 2 entries, ")
    assert say("cache").out == f"{cache}\n0 entries, 0 B of at most 20.0 GiB\n"


def test_the_demo_shows_a_real_recording(say) -> None:  # type: ignore[no-untyped-def]
    said = say("demo")
    assert said.code == 0 and said.err == ""
    assert "NVIDIA H200" in said.out and "A step takes 57.7 ms." in said.out and "aten::mm" in said.out
    assert json.loads(say("demo", "--format", "json").out)["framework"] == "pytorch"


def complete(*words: str) -> list[str]:
    """What bash offers for the last word."""
    script = (
        f'source <("{sys.executable}" -m stepscope completion bash)\n'
        f"COMP_WORDS=({' '.join(repr(word) for word in ('stepscope', *words))}); COMP_CWORD={len(words)}\n"
        '_stepscope; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_analyses_flags_and_formats() -> None:
    assert complete("") == [*COMMANDS, "--help", "--version"]
    assert complete("su") == ["summary"]
    assert {"step_trace", "step_stages"} <= set(complete("show", "step")) and "spans" in complete("show", "sp")
    assert complete("show", "gaps", "run", "--min") == ["--min-ns"]
    assert complete("show", "gaps", "run", "--lim") == ["--limit"]
    assert complete("show", "overlap", "run", "--min") == []
    assert complete("show", "overlap", "--format", "") == ["table", "csv", "json", "parquet"]
    assert complete("summary", "run", "--format", "") == ["text", "json"] == complete("demo", "--format", "")
    assert complete("export", "run", "--to", "c") == ["chrome", "csv"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    assert complete("cache", "") == ["clear"]
    assert complete("show", "overlap", "ru") == []  # files, which bash offers by itself then


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_that_names_everything(shell: str, say) -> None:  # type: ignore[no-untyped-def]
    script = say("completion", shell).out
    for word in [*COMMANDS, *analysis_names(), *schema.TABLES, "min-ns", "step-name", "parquet"]:
        assert word in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


# The notebook


def test_a_notebook_shows_the_trace(run: str) -> None:
    page = stepscope.open(run)._repr_html_()
    assert "<th>step_ns</th>" in page and "<td>100 µs</td>" in page and "<td>aten::mm</td>" in page
    hostile = tiny.trace(spans='kind name start_ns dur_ns\nop "<script>x</script>" 0 10', steps="step start_ns end_ns how\n0 0 100 marker")
    assert "<script>" not in hostile._repr_html_() and "&lt;script&gt;" in hostile._repr_html_()
    assert tiny.trace()._repr_html_() == "<p>tiny</p>"
    assert repr(tiny.trace(spans=SPANS)) == "Trace('tiny', framework='', ranks=0)"


def test_a_terminal_is_told_where_an_export_went(run: str, tmp_path: Path) -> None:
    code, said = on_terminal("export", run, "--to", "chrome", "-o", str(tmp_path / "t.json"), columns=200)
    assert (code, said) == (0, f"wrote {tmp_path / 't.json'}\n")


def test_a_terminal_gets_no_parquet(run: str) -> None:
    code, said = on_terminal("show", "overlap", run, "--format", "parquet")
    assert code == 2 and "Parquet cannot be shown on a terminal" in said


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_sigterm_leaves_no_draft_under_the_name(tmp_path: Path, run: str) -> None:
    out = tmp_path / "out.json"
    code = (
        "import os, signal, sys\nfrom stepscope.exporters import chrome\nfrom stepscope.cli import main\n"
        "real = chrome._flow_lines\n"
        f"chrome._flow_lines = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"main(['export', {run!r}, '--to', 'chrome', '-o', {str(out)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
