"""Names of kernels in sentences."""

import re

_LONGEST = 60  # characters in a sentence
_KERNEL = re.compile(r"^void |::.*[<(]|\w\(.*\)\Z", re.ASCII)
_SPACES = re.compile(r"\b(at|native|std|cuda|detail|c10|cub|internal)::", re.ASCII)


def short_name(name: str) -> str:
    """The name of a kernel without namespaces and parameters: as the pages write it, but cut after 60 characters."""
    bare = _without_parameters(name)
    return bare if len(bare) <= _LONGEST else bare[: _LONGEST - 1] + "…"


def _without_parameters(name: str) -> str:
    if not _KERNEL.search(name):
        return name
    bare = _SPACES.sub("", name.removeprefix("void ").replace("(anonymous namespace)::", ""))
    depth = 0
    for at, letter in enumerate(bare):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and at > 0 and bare[at - 1] != " ":
            return bare[:at]
    return bare
