"""Sentences of the analysis `verdict`: a message code with parameters, rendered from the catalog of a language.

A catalog is a file in `strings/`: code to template, and `word:NAME` to the translation of a word. A template contains placeholders
`{name:format}`. The formats `share`, `duration`, `flops`, `rate` (of FLOPs) and `count` are those of `units`, `bytes` is a decimal size as
on the pages, `change` is `+55 %`; a pair of numbers is a range. `word` looks up a translation, `list` does so for each part of `a, b, c`.
`text`, the default, copies, and so does `name`: a name in code, which pages set in another font, with the parameter `NAME_full` on hover
if there is one. `[step|steps]` chooses by the value before it. `<...>` is left out where one of its parameters is missing.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepscope.model import units
from stepscope.model.parameters import check_word

LANGUAGES = ("en", "zh")
_OPTIONAL, _PLACEHOLDER, _PLURAL = re.compile(r"<([^<>]*)>"), re.compile(r"\{(\w+)(?::(\w+))?\}"), re.compile(r"\[([^|\]]*)\|([^\]]*)\]")
_SPACE_IN_CHINESE = re.compile("(?<=[\u2e80-\u9fff\uff00-\uffef]) (?=[\u2e80-\u9fff\uff00-\uffef])")
_NUMBERS: dict[str, Callable[[float], str]] = {
    "share": units.share,
    "duration": units.duration,
    "bytes": lambda value: units.decimal_size(round(value)),
    "flops": lambda value: units.rate(value, "FLOP"),
    "rate": lambda value: units.rate(value, "FLOP/s"),
    "count": lambda value: units.cell("count", int(value) if float(value).is_integer() else value),
    "change": lambda value: f"{value * 100:+.0f} %",
}


@functools.cache
def catalog(language: str) -> dict[str, str]:
    """The templates of a language by code."""
    file = Path(__file__).parent / f"{check_word('language', language, LANGUAGES)}.json"
    templates: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return templates


def render(code: str, parameters: Mapping[str, Any], language: str = "en") -> str:
    """The sentence of a code with its parameters."""
    templates = catalog(language)
    template = _OPTIONAL.sub(lambda part: part[1] if placeholders(part[1]) <= parameters.keys() else "", templates[code])
    text, *pieces = _PLACEHOLDER.split(template)
    for name, form, literal in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        value = _formatted(parameters[name], form or "text", templates)
        text += value + _PLURAL.sub(r"\1" if value == "1" else r"\2", literal)
    return _SPACE_IN_CHINESE.sub("", text)


def placeholders(template: str) -> set[str]:
    """The names of the parameters in a template."""
    return {name for name, _ in _PLACEHOLDER.findall(template)}


def _formatted(value: Any, form: str, templates: Mapping[str, str]) -> str:
    if form in _NUMBERS:
        texts = [_NUMBERS[form](number) for number in (value if isinstance(value, list) else [value])]
        return templates["word:to"].join(dict.fromkeys(texts))
    if form == "list":
        *first, last = (templates.get(f"word:{part}", part) for part in str(value).split(", "))
        return templates["word:and"].join([templates["word:comma"].join(first), last] if first else [last])
    return templates.get(f"word:{value}", str(value)) if form == "word" else str(value)
