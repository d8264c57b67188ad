"""What can go wrong, in four words. Raised where found, printed once by the command line."""

from pathlib import Path


class StepscopeError(Exception):
    """A message for the user: one line that names the file, the place and what was expected."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(_line(str(message)))


def _line(text: str) -> str:
    """What came from a file may hold line ends and may be long: neither gets into a message."""
    text = text if text.isprintable() else "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


_LONGEST = 2000


class UsageError(StepscopeError):
    """The question was wrong: an unknown analysis, a parameter of the wrong type, a missing argument."""

    exit_code = 2


class DataError(StepscopeError):
    """The data was wrong: what is at `path`, `where` in it, and what was expected there."""

    def __init__(self, path: Path | str, what: str, where: str = "") -> None:
        self.path, self.what, self.where = str(path), what, where
        super().__init__(": ".join(part for part in (self.path, where, what) if part))

    def __reduce__(self) -> tuple[type["DataError"], tuple[str, str, str]]:
        return type(self), (self.path, self.what, self.where)


class UnknownFormatError(DataError):
    """No reader knows this file."""
