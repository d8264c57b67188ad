"""Where the cache is, and whether its content can be trusted: another user could have put other results there."""

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

from stepscope.errors import UsageError


def folder() -> Path:
    """The folder of the cache: STEPSCOPE_CACHE, or the platform's cache directory."""
    if path := os.environ.get("STEPSCOPE_CACHE"):
        return Path(path)
    try:
        home = Path.home()
    except RuntimeError:  # a container's user without a name
        raise UsageError("there is no home folder to keep a cache in; set STEPSCOPE_CACHE to a folder") from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "stepscope"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "stepscope"


def trusted_folder() -> Path:
    """The folder of the cache. Another user who made it could put other results there: then only STEPSCOPE_CACHE makes it trusted."""
    path = folder()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not os.environ.get("STEPSCOPE_CACHE") and path.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
    return path


def is_trusted(entry: Path) -> bool:
    """Whether an entry was made by this user, or by the owner of the cache: a user may choose a folder that is open to others, as /tmp."""
    try:
        status = entry.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid in (os.geteuid(), entry.parent.stat().st_uid)
    except OSError:
        return False


def private_folder() -> Path:
    """The folder of the cache, created if missing: closed to other users, unless the user chose one that is open."""
    path = trusted_folder()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.stat()
    if not os.environ.get("STEPSCOPE_CACHE") and status.st_uid == os.geteuid() and status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def is_open_to_others() -> bool:
    """Whether other users can list the folder. They see only names: the entries are closed."""
    try:
        return bool(folder().stat().st_mode & 0o077)
    except OSError:
        return False
