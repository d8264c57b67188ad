"""Draw the terminal output of `stepscope summary` as docs/images/summary.svg: `make docs`."""

import io
import os
import pty
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from stepscope.cli.setup.demo import RECORDING

PICTURE = Path(__file__).parent / "images" / "summary.svg"
WIDTH = 110
ENVIRONMENT = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(WIDTH), "LINES": "60"}
# rich's default frame loads fonts from the web; a picture in a README must not contact other hosts.
FRAME = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code", "ui-monospace, Menlo, Consolas")


def picture(folder: str, command: tuple[str, ...]) -> str:
    """An SVG of the command and its terminal output, run in that folder so that no path of this machine is shown."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(f"[bold green]$[/] {' '.join(command)}", highlight=False)
    terminal_output(folder, command)  # fills the cache, so that the second run shows no progress bar
    console.print(Text.from_ansi(terminal_output(folder, command)))
    console.print()  # the frame cuts off descenders of the last line
    return console.export_svg(title="stepscope", code_format=FRAME)


def terminal_output(folder: str, command: tuple[str, ...]) -> str:
    """The output of the command on a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= ENVIRONMENT | {"STEPSCOPE_CACHE": f"{folder}/cache"}
        os.environ.pop("NO_COLOR", None)
        os.chdir(folder)
        os.execv(Path(sys.executable).with_name(command[0]), command)
    output = b""
    try:
        while chunk := os.read(terminal, 65536):
            output += chunk
    except OSError:  # on Linux, the other end of the terminal is closed
        pass
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"{' '.join(command)} ended with {code}:\n{output.decode()}")
    return output.decode().replace("\r\n", "\n").rstrip()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(RECORDING, Path(folder) / RECORDING.name)
        svg = picture(folder, ("stepscope", "summary", RECORDING.name))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg, encoding="utf-8")
