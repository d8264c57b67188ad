"""SQL from the page."""

import asyncio
from typing import Any

from stepscope import queries, tables
from stepscope.errors import UsageError
from stepscope.trace import Trace


class Asker:
    async def ask(self, trace: Trace, key: tuple[Any, ...], asked: dict[str, Any], ending: asyncio.Event) -> tuple[bytes, int]:
        sql = asked.get("sql")
        if not isinstance(sql, str):
            raise UsageError('sql is missing: expected {"sql": "select ..."}')
        frame = await asyncio.to_thread(lambda: queries.answer(trace, sql))
        return tables.arrow(frame), frame.height

    def close(self) -> None:
        pass
