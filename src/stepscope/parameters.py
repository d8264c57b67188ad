"""Parameters of analyses and exporters as text gives them, on a command line or in a URL: typed by the function's annotations."""

import difflib
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from stepscope.errors import UsageError

_SHORT_LIST = 24
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def type_of(parameter: inspect.Parameter) -> type:
    """int of `int`, `int | None` and `Optional[int]`."""
    annotation = parameter.annotation
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(one for one in typing.get_args(annotation) if one is not type(None))
    return annotation if isinstance(annotation, type) else str


def value(kind: type, name: str, word: str) -> Any:
    """The word as a value of that type; a wrong one is refused by the parameter's name."""
    if kind is bool:
        if word.lower() in (*_YES, *_NO):
            return word.lower() in _YES
        raise UsageError(f"{name} is '{word}'; expected 1 or 0")
    try:
        return kind(word)
    except ValueError:
        raise UsageError(f"{name} is '{word}'; expected {'a whole number' if kind is int else 'a number'}") from None


def values(words: Mapping[str, str], parameters: Mapping[str, inspect.Parameter], what: str) -> dict[str, Any]:
    """All words of a URL as the parameters of `what`; one that it does not have is refused with a suggestion."""
    for name in words:
        if name not in parameters:
            raise UsageError(f"{what} has no parameter '{name}'" + nearest(name, parameters))
    return {name: value(type_of(parameters[name]), name, word) for name, word in words.items()}


def steps(text: str) -> tuple[int, int]:
    """The first and the last step of `2:5`; `3` is that step alone."""
    first, colon, last = text.partition(":")
    if not _is_step(first) or (colon and not _is_step(last)) or int(first) > int(last or first):
        raise UsageError(f"steps is '{text}'; expected FIRST:LAST, such as 2:5 for the steps 2, 3, 4 and 5")
    return int(first), int(last or first)


def nearest(word: str, words: Iterable[str], least: float = 0.6) -> str:
    """The end of an error message: what was probably meant, where a word is at least that similar."""
    near = difflib.get_close_matches(word.replace("-", "_") if not word.startswith("-") else word, list(words), 1, least)
    return f"; did you mean '{near[0]}'?" if near else ""


def suggestion(word: str, words: Iterable[str]) -> str:
    """The end of an error message: the nearest accepted word, and the list of them where it is short or nothing is near."""
    accepted = list(words)
    near = nearest(word, accepted)
    if near:
        return f"{near} Accepted: {', '.join(accepted)}" if 1 < len(accepted) <= _SHORT_LIST else near
    return f"; expected {listing(accepted)}" if accepted else ""


def check_word(what: str, word: str, words: Iterable[str]) -> str:
    """The word, if it is one of those accepted; else a UsageError that lists them."""
    accepted = list(words)
    if word not in accepted:
        raise UsageError(f"no {what} '{word}'" + suggestion(word, accepted))
    return word


def listing(words: Iterable[str]) -> str:
    """a, b or c"""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _is_step(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10
