"""Serve the web pages of every run at or below some paths, and open them in a browser.

The printed address contains a token, without which the server refuses requests. From another machine, use an SSH tunnel.
"""

import argparse
import contextlib
import os
import re
import sys
from pathlib import Path

from stepscope.cli.shared import layout
from stepscope.cli.shared.arguments import PATHS_HELP, add_read_options, size_of
from stepscope.errors import UsageError

_PATIENCE_S = 3.0  # time for readers to stop and remove their files

EXAMPLES = """\
stepscope view trace.json.gz
stepscope view runs/ --port 8080 --no-browser
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()], metavar="PATH", help=PATHS_HELP)
    add_read_options(parser)
    add_serving(parser)


def add_serving(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("serving")
    group.add_argument("--port", type=_port, metavar="N", help="Listen on port N. Default: 7007, or the next free one.")
    text = "Listen on this address. Default: 127.0.0.1, this machine only."
    group.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=text)
    group.add_argument("--no-browser", action="store_true", help="Do not open a browser. Default: open one on a desktop.")
    text = "Serve every user of this machine; only with a loopback address. Default: require a token."
    group.add_argument("--no-token", action="store_true", help=text)
    group.add_argument("--path-prefix", type=_prefix, default="", metavar="/X", help="Serve below this path, behind a proxy. Default: /.")
    text = "Accept requests to this host name as well; may be repeated. Default: the names of this machine."
    group.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=text)
    text = "Accept uploads of at most SIZE. Default: 2GB."
    group.add_argument("--max-upload", type=size_of("--max-upload"), default=2 * 10**9, metavar="SIZE", help=text)


def run(args: argparse.Namespace) -> int:
    import secrets

    from stepscope.io import cache
    from stepscope.io.sources import missing
    from stepscope.server.app import Settings
    from stepscope.server.http import http_server
    from stepscope.server.http.access import is_loopback

    open_to_others = not is_loopback(args.host)
    if open_to_others and args.no_token:
        raise UsageError(f"--no-token with --host {args.host} would serve everyone who can reach this machine; remove one of them")
    for path in args.paths:
        if not path.exists():
            raise missing(path)
    if not args.no_cache:
        cache.limit()  # raises for an invalid STEPSCOPE_CACHE_LIMIT
    settings = Settings(
        roots=[Path(os.path.abspath(path)) for path in args.paths],  # noqa: PTH100 - links are kept
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
    listener = http_server.listen(args.host, args.port)
    address = http_server.address(listener, settings.prefix, settings.token)

    def ready(page: str) -> None:
        if open_to_others:
            sys.stderr.write(f"stepscope: {_exposure_warning(args.host)}\n")
        _print_address(address + page, listener.getsockname()[1], open_to_others)
        if not args.no_browser and _is_desktop():
            _open_browser(address + page)

    with contextlib.suppress(KeyboardInterrupt):
        http_server.serve(settings, listener, ready)
    with contextlib.suppress(OSError):  # the terminal may be closed
        sys.stdout.write("\rstopped\n" if sys.stdout.isatty() else "stopped\n")
    leave()
    return 0


def leave() -> None:
    """End without waiting for threads that compute, which Python would do."""
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


def _print_address(address: str, port: int, open_to_others: bool) -> None:
    sys.stdout.write(f"{address}\n")
    if sys.stdout.isatty():
        name = layout.clean(_hostname())
        if not open_to_others:
            sys.stdout.write(f"From another machine: ssh -N -L {port}:127.0.0.1:{port} {name}, then open the same address there.\n")
        sys.stdout.write("Stop with Ctrl-C.\n")
    sys.stdout.flush()


def _exposure_warning(host: str) -> str:
    """The warning about an address beyond this machine; it is also written to logs."""
    where = f"{layout.clean(host)} can be reached from other machines, as {layout.clean(_hostname())} or by its addresses"
    return (
        f"{where}: everyone with the token can see the runs, and the connection is not encrypted. Omit --host to serve only this machine."
    )


def _is_desktop() -> bool:
    """Is the user at a desktop on this machine?"""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open_browser(address: str) -> None:
    """Pass the address in a private file: every user can see the arguments of a browser process."""
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
    if not re.fullmatch(r"[0-9]{1,5}", word) or int(word) > 65535:
        raise UsageError(f"--port is '{word}'; expected a number from 0 to 65535; 0 means any free port")
    return int(word)


def _prefix(word: str) -> str:
    if word.strip("/") and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", "/" + word.strip("/")):
        raise UsageError(f"--path-prefix is '{word}'; expected a path such as /stepscope")
    return "/" + word.strip("/") if word.strip("/") else ""
