"""The errors. The command line prints each as one line."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


class StepscopeError(Exception):
    """A message for the user: one line that names the file, the place in it and the expected content."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(_line(str(message)))


def _line(text: str) -> str:
    """The text without line ends, and shortened: texts from a file may contain them and may be long."""
    text = text if text.isprintable() else "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


_LONGEST = 2000


class UsageError(StepscopeError):
    """Wrong use: an unknown analysis, a parameter of the wrong type, a missing argument."""

    exit_code = 2


class SummaryError(UsageError):
    """A question that a summary of ranks has no data for."""


class DataError(StepscopeError):
    """Invalid data at `path`: `where` in it, and `what` is wrong."""

    def __init__(self, path: "Path | str", what: str, where: str = "") -> None:
        self.path, self.what, self.where = str(path), what, where
        super().__init__(": ".join(part for part in (self.path, where, what) if part))

    def __reduce__(self) -> tuple[type["DataError"], tuple[str, str, str]]:
        return type(self), (self.path, self.what, self.where)


class UnknownFormatError(DataError):
    """No reader knows this file."""


class NoRoomError(DataError):
    """The disk that `path` is written to is full or read-only."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error: ours are always one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
