"""What damaged documents say: numbers that a column holds or none, text or a sign in its place."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stepscope.readers.ascend.prof.files import number
from stepscope.readers.common.documents import digits_in, files, parse_json, replace_lone_surrogates, to_index, to_int


def test_half_a_character_becomes_a_sign_and_whole_ones_stay() -> None:
    assert parse_json(rb'["\ud800", "\udC00x", "\ud83d\ude00", "\\ud800", "a\ud83d"]') == [
        "\ufffd",
        "\ufffdx",
        "\U0001f600",
        "\\ud800",
        "a\ufffd",
    ]
    data = rb'{"\uD800": "\ud83d\ud83d\ude00"}'
    assert len(replace_lone_surrogates(data)) == len(data)
    assert parse_json(data) == {"\ufffd": "\ufffd\U0001f600"}


def test_bytes_that_are_no_text_become_a_sign() -> None:
    assert parse_json(b'\xef\xbb\xbf["\xff"]') == ["\ufffd"]


def test_a_number_is_exact_within_a_column_and_refused_beyond_it() -> None:
    assert to_int("1700000000000000001") == 1_700_000_000_000_000_001
    assert to_int(1.5, 1000) == 1500
    assert to_int(1_700_000_000_001, 1_000_000) == 1_700_000_000_001_000_000  # no float holds it
    assert to_int(-3) == -3
    wrong: Any
    for wrong in (None, "x", "", [], {}, True, float("nan"), float("inf"), 1e308, 2**62, "9" * 30, 10**400):
        with pytest.raises(ValueError):
            to_int(wrong)


def test_a_rank_has_32_bits() -> None:
    assert (to_index("7"), to_index(2**31 - 1)) == (7, 2**31 - 1)
    wrong: Any
    for wrong in (None, "x", "²", 1.0, True, 2**31, "9" * 30, []):
        with pytest.raises(ValueError):
            to_index(wrong)
    assert (digits_in("step 12"), digits_in("step"), digits_in("9" * 12)) == (12, None, None)


@pytest.mark.parametrize("strange", ["1e999999999", "1e-999999999", "9" * 5000, "1/3", "²", "nan", None, [], "0x10"])
def test_what_is_no_number_in_a_small_file_is_0_at_once(strange: object) -> None:
    assert number(strange) == 0


def test_what_only_bears_the_name_of_a_file_is_none(tmp_path: Path) -> None:
    for name in ("a_0.json", "a_1.json"):
        (tmp_path / name).write_text(json.dumps({}))
    (tmp_path / "a_2.json").mkdir()
    (tmp_path / "a_3.json").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "a_4.json")
    assert [file.name for file in files(tmp_path, "a_*.json")] == ["a_0.json", "a_1.json"]
