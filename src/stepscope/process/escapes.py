"""Escapes for characters that control a terminal: names from other programs may contain them."""

import re

# Control characters control a terminal, direction marks reorder text.
CONTROLS = "".join(
    map(
        chr,
        (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF),
    )
)
_UNSAFE = re.compile(f"[{CONTROLS}\ud800-\udfff]")  # lone surrogates cannot be printed


def escape_controls(text: str) -> str:
    """The text with every character that could control the terminal written as an escape."""
    return text if text.isprintable() else _UNSAFE.sub(lambda match: escape(match[0]), text)


def escape(character: str) -> str:
    return f"\\u{ord(character):04x}"
