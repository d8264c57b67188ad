"""Which optimizer calls end a step: sequences written by hand, one letter per call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.recording.steps.rounds import Rounds


class Optimizer:
    """`shared`: the letters of those that train the same parameters."""

    def __init__(self, name: str, shared: str = "") -> None:
        self.name, self.shared = name, shared


def apart(one: Any, other: Any) -> bool:
    return one.name not in other.shared and other.name not in one.shared


def cut(calls: str, created: str = "", shared: str = "") -> tuple[str, list[str]]:
    """The calls with a bar after each that ends a step. `created` before the first call; others with their first, and unknown before."""
    steps = 0
    rounds = Rounds(lambda: steps, apart)
    optimizers: dict[str, Optimizer] = {}
    for name in created:
        optimizers[name] = Optimizer(name, shared)
        rounds.created(optimizers[name])
    text = ""
    for name in calls:
        if name not in optimizers:
            optimizers[name] = Optimizer(name, shared)
            rounds.created(optimizers[name])
        ends = rounds.stepped(optimizers[name])
        steps += ends
        text += name + "|" * ends
    return text, rounds.notices


@pytest.mark.parametrize(
    ("created", "shared", "calls", "expected"),
    [
        ("a", "", "aaaa", "a|a|a|a|"),
        ("dg", "", "dgdgdg", "dg|dg|dg|"),  # a GAN
        ("dg", "", "dddddg" * 3, "dddddg|" * 3),  # five critics per generator
        ("dg", "", "dgdddddgdddddg", "dg|dddddg|dddddg|"),  # the generator in every fifth iteration, and in the first
        ("dg", "", "gdddgdddgddd", "gd|ddg|ddd" + "g|ddd"),  # the generator first
        ("abcd", "", "abcdabcdabcd", "abcd|abcd|abcd|"),  # one per layer
        ("abcd", "", "abcddcbaabcd", "abcd|dcba|abcd|"),  # in any order
        ("a", "", "aaabbb", "a|a|a|b|b|b|"),  # a second one is created later: another phase
        ("ab", "ab", "aaabbb", "a|a|a|b|b|b|"),  # both exist and train the same parameters: a head, then everything
        ("ab", "ab", "aaabbbaaabbb", "a|a|a|b|b|b|a|a|a|b|b|b|"),  # phases
        ("a", "", "aabbccdd", "a|a|b|b|c|c|d|d|"),  # folds
        ("ab", "ab", "abababab", "a|ba|ba|ba|b"),  # the second joins the first round
    ],
)
def test_a_step_is_a_round_of_the_optimizers_that_take_part(created: str, shared: str, calls: str, expected: str) -> None:
    assert cut(calls, created, shared) == (expected, [])


def test_an_optimizer_that_never_comes_is_waited_for_and_that_is_told() -> None:
    text, notices = cut("a" * 8 + "b" * 3, "ab")
    assert text == "aaaaaa|a|a|b|b|b|"
    assert [
        notice for notice in notices if "step 0 contains 6 calls of Optimizer" in notice and "--step-on optimizer:NAME" in notice
    ] == notices


def test_layers_that_are_never_trained_are_not_waited_for_once_the_others_repeat() -> None:
    text, notices = cut("abcabcabc", "abcz")
    assert text == "abcabc|abc|" and len(notices) == 1


def test_a_pattern_that_repeats_twice_is_one_step_from_then_on() -> None:
    text, notices = cut("dddg" * 5, "d")  # the second is created later, in the first iteration
    assert text == "d|d|d|g|" * 2 + "dddg|" * 3
    assert len(notices) == 1 and "take turns: up to step 7 calls of one ended a step, from then on a round of 4 calls does" in notices[0]


def test_a_critic_of_ten_is_found_too_after_two_iterations() -> None:
    text, notices = cut(("d" * 10 + "g") * 4, "dg")
    assert text.endswith("dddddddddd" + "g|" + "dddddddddd" + "g|")
    assert len(notices) == 2


def test_without_a_clear_pattern_the_most_frequent_leads_and_that_is_told() -> None:
    calls = "aabacabbacaabcacbaacabacbbacab"
    text, notices = cut(calls, "abc", "abc")
    assert "no clear pattern from step" in notices[-1]
    assert all(step.count(name) <= 2 for step in text.split("|") for name in "abc"), text


@given(st.text("abc", max_size=200), st.sampled_from(["abc", ""]), st.sampled_from(["abc", "a", ""]))
def test_no_step_holds_many_calls_of_an_optimizer_unless_that_is_told(calls: str, shared: str, created: str) -> None:
    text, notices = cut(calls, created, shared)
    assert text.replace("|", "") == calls
    assert notices or all(step.count(name) <= 10 for step in text.split("|") for name in "abc")


def test_an_optimizer_that_is_gone_is_not_waited_for() -> None:
    rounds = Rounds(lambda: 0)
    first, second = Optimizer("a"), Optimizer("b")
    for one in (first, second):
        rounds.created(one)
    assert [rounds.stepped(one) for one in (first, second, first, second)] == [False, True, False, True]
    del second, one
    assert [rounds.stepped(first) for _ in range(3)] == [True, True, True] and not rounds.notices
