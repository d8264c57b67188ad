"""Show the web pages of every run at or below some paths, in a browser on this machine.

The address that is printed holds a token: who does not know it sees nothing. From another machine, reach it through an SSH tunnel.
"""

import argparse
import contextlib
import os
import re
import sys
from pathlib import Path

from stepscope.cli import _text
from stepscope.cli._arguments import add_how, byte_count
from stepscope.errors import DataError, UsageError

_PATIENCE_S = 3.0  # reading ends within that, and removes what it has written


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help="files or folders; the current one if none")
    add_how(parser)
    add_serving(parser)


def add_serving(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("serving")
    group.add_argument("--port", type=_port, metavar="N", help="the port; otherwise 7007, or the next that is free")
    group.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="listen on this address; default 127.0.0.1, this machine only"
    )
    group.add_argument("--no-browser", action="store_true", help="do not open a browser")
    group.add_argument("--no-token", action="store_true", help="let every user of this machine in; only with a loopback address")
    group.add_argument("--path-prefix", type=_prefix, default="", metavar="/X", help="serve below this path, behind a proxy")
    group.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a name that a browser may call this server by")
    group.add_argument(
        "--max-upload", type=_size, default=2 * 10**9, metavar="SIZE", help="the largest file to take from a page; default 2GB"
    )


def run(args: argparse.Namespace) -> int:
    import secrets

    from stepscope.web import serving
    from stepscope.web.access import is_loopback
    from stepscope.web.app import Settings

    open_to_others = not is_loopback(args.host)
    if open_to_others and args.no_token:
        raise UsageError(f"--no-token with --host {args.host} would let everyone in who can reach this machine")
    for path in args.paths:
        if not path.exists():
            raise DataError(path, "no such file or folder")
    settings = Settings(
        roots=[Path(os.path.abspath(path)) for path in args.paths],  # noqa: PTH100 - links stay as they were given
        token=None if args.no_token else secrets.token_urlsafe(32),
        hosts=[*args.allow_host, *([_hostname()] if open_to_others else [])],
        addresses=open_to_others,
        prefix=args.path_prefix,
        partial=args.partial,
        step_name=args.step_name,
        cache=not args.no_cache,
        max_upload=args.max_upload,
        debug=bool(os.environ.get("STEPSCOPE_DEBUG")),
    )
    listener = serving.bound(args.host, args.port)
    address = serving.address(listener, settings.prefix, settings.token)

    def ready() -> None:
        _say(address, listener.getsockname()[1], open_to_others)
        if not args.no_browser and _is_desktop():
            _show(address)

    with contextlib.suppress(KeyboardInterrupt):
        serving.serve(settings, listener, ready)
    sys.stdout.write("\rstopped\n" if sys.stdout.isatty() else "stopped\n")
    _leave()
    return 0


def _leave() -> None:
    """Python waits at its end for threads that compute; nobody waits for what they would find."""
    import atexit
    import threading
    import time

    deadline = time.monotonic() + _PATIENCE_S
    while any(thread.name.startswith("stepscope-") for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            sys.stdout.flush()
            atexit._run_exitfuncs()  # temporary files
            os._exit(0)
        time.sleep(0.02)


def _say(address: str, port: int, open_to_others: bool) -> None:
    sys.stdout.write(f"{address}\n")
    if sys.stdout.isatty():
        name = _text.clean(_hostname())
        if open_to_others:
            sys.stdout.write(f"Others reach it by this machine's name, {name}, or address, and need the token.\n")
        else:
            sys.stdout.write(f"From another machine: ssh -N -L {port}:127.0.0.1:{port} {name}, and open the same address there.\n")
        sys.stdout.write("Ctrl-C ends it.\n")
    sys.stdout.flush()


def _is_desktop() -> bool:
    """Is there someone in front of this machine to open a browser for?"""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show(address: str) -> None:
    """Through a file that only its owner can read: the arguments of a browser's process are everyone's to see."""
    import atexit
    import html
    import tempfile
    import threading
    import webbrowser

    with tempfile.NamedTemporaryFile("w", prefix="stepscope.", suffix=".html", delete=False, encoding="utf-8") as file:
        file.write(f'<!doctype html><meta charset=utf-8><meta http-equiv="refresh" content="0;url={html.escape(address)}">')
    atexit.register(Path(file.name).unlink, missing_ok=True)
    threading.Thread(target=webbrowser.open, args=(Path(file.name).as_uri(),), daemon=True).start()


def _hostname() -> str:
    import socket

    return socket.gethostname().lower()


def _port(word: str) -> int:
    if not word.isascii() or not word.isdigit() or int(word) > 65535:
        raise UsageError(f"--port is '{word}'; expected a number from 0 to 65535, 0 for any that is free")
    return int(word)


def _prefix(word: str) -> str:
    if word.strip("/") and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", "/" + word.strip("/")):
        raise UsageError(f"--path-prefix is '{word}'; expected a path such as /stepscope")
    return "/" + word.strip("/") if word.strip("/") else ""


def _size(word: str) -> int:
    return byte_count("--max-upload", word)
