"""Findings of `advice` that the user dismissed, each with a reason: one small file per run beside the cache.

A finding is known by its rule, culprit and source line, so that it stays dismissed when its figures change a little.
"""

import contextlib
import hashlib
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from stepscope.errors import DataError, UsageError
from stepscope.io import cache_folder

FOLDER = "dismissed"
_MOST = 200  # per run
_LONGEST = {"rule": 100, "culprit": 2000, "source": 2000, "reason": 500}  # characters
_LARGEST = 4 << 20  # bytes of a file that is read


class Dismissal(msgspec.Struct, frozen=True):
    """A dismissed finding."""

    rule: str
    culprit: str
    source: str
    reason: str
    at_s: int  # seconds since 1970


class Dismissals:
    """The dismissed findings of the runs of a server. Without a cache they are kept until the server ends."""

    def __init__(self, *, use_cache: bool) -> None:
        self._use_cache = use_cache
        self._lock = threading.Lock()
        self._unsaved: dict[Path, list[Dismissal]] = {}

    def answer(self, place: Path) -> dict[str, Any]:
        """The dismissed findings of the run with this `place`, and whether they outlive the server."""
        with self._lock:
            return self._answer(place, self._load(place))

    def change(self, place: Path, body: dict[str, Any]) -> dict[str, Any]:
        """Dismiss a finding, or with `undo` restore it."""
        undo = body.get("undo", False)
        if not isinstance(undo, bool) or not set(body) <= {*_LONGEST, "undo"}:
            raise UsageError(f"expected {', '.join(_LONGEST)} and undo")
        texts = {name: _text(name, body.get(name)) for name in _LONGEST}
        if not texts["rule"]:
            raise UsageError("rule is missing")
        made = Dismissal(**texts, at_s=int(time.time()))
        with self._lock:
            rows = [row for row in self._load(place) if _key(row) != _key(made)]
            if not undo:
                if len(rows) >= _MOST:
                    raise UsageError(f"{_MOST} findings of this run are dismissed; restore one first")
                rows.append(made)
            self._save(place, rows)
            return self._answer(place, rows)

    def _answer(self, place: Path, rows: list[Dismissal]) -> dict[str, Any]:
        return {"dismissed": rows, "kept": place not in self._unsaved}

    def _load(self, place: Path) -> list[Dismissal]:
        if not self._use_cache or place in self._unsaved:
            return self._unsaved.setdefault(place, [])
        try:
            file = _file(place)
            with file.open("rb") as stream:
                content = stream.read(_LARGEST + 1)
        except FileNotFoundError:
            return []
        except (OSError, UsageError):  # there is no cache to read
            return self._unsaved.setdefault(place, [])
        try:
            return msgspec.json.decode(content, type=list[Dismissal])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(file, f"not a list of dismissed findings ({error}); remove the file") from error

    def _save(self, place: Path, rows: list[Dismissal]) -> None:
        if not self._use_cache or place in self._unsaved:
            self._unsaved[place] = rows
            return
        file = _file(place)  # `_load` found a cache
        draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(msgspec.json.encode(rows))
            draft.replace(file)
        except OSError:  # a full disk, or a folder that cannot be written: the page shows that they are not kept
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            self._unsaved[place] = rows


def _key(row: Dismissal) -> tuple[str, str, str]:
    return row.rule, row.culprit, row.source


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _LONGEST[name]:
        raise UsageError(f"{name} is not a text of at most {_LONGEST[name]:,} characters")
    return value


def _file(place: Path) -> Path:
    name = hashlib.sha256(str(place).encode(errors="surrogateescape")).hexdigest()[:32]
    return cache_folder.trusted_folder() / FOLDER / f"{name}.json"
