"""Serve runs to agents with the Model Context Protocol, over standard input and output.

An agent starts this command. It can read the runs at or below the paths, and nothing else.
Needs `pip install 'stepscope[mcp]'`. docs/agents.md has the configuration of usual clients.
"""

import argparse
import atexit
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stepscope.cli.shared import signals
from stepscope.cli.shared.arguments import add_read_options
from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from stepscope.server.agents.library import Library

EXAMPLES = """\
stepscope mcp runs/
stepscope mcp runs/ /data/traces --partial
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="Serve the runs at or below these files or folders.")
    add_read_options(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.io.sources import missing

    for path in args.paths:
        if not path.exists():
            raise missing(path)
    import asyncio

    from stepscope.cli.analysis.view import leave
    from stepscope.io import cache

    if not args.no_cache:
        cache.limit()  # raises for an invalid STEPSCOPE_CACHE_LIMIT
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise StepscopeError(f"{error.name} is not installed, which serving agents needs: pip install 'stepscope[mcp]'") from error
    from stepscope.server.agents import service
    from stepscope.server.agents.library import Library

    async def serve() -> None:
        folders = [Path(os.path.abspath(path)) for path in args.paths]  # noqa: PTH100 - links are kept
        library = Library(folders, partial=args.partial, step_name=args.step_name, cache=not args.no_cache)
        for number in (signal.SIGINT, *signals.ENDING):
            if signal.getsignal(number) != signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, _end, library, number)
        try:
            await service.serve(library)
        finally:
            library.close()

    asyncio.run(serve())
    leave()
    return 0


def _end(library: "Library", number: int) -> NoReturn:
    """End at once: the thread that waits for the client's next request cannot be interrupted."""
    library.close()
    atexit._run_exitfuncs()  # temporary files
    os._exit(signals.exit_code(number))
