"""The optimizer call that ends a step, where there are several optimizers: decided while the calls happen.

A step is one round: every member has stepped at least once. One optimizer is a round by itself; the round of a GAN whose critic steps
five times ends with the generator; the round of one optimizer per layer ends with the last layer.

Members of a round:
- Optimizers that exist when the first of them steps, share no parameter with it and have never stepped are expected in its round.
  If they do not step, the round ends without them after _PATIENCE calls, or when the calls of the others repeat; a notice reports it.
- An optimizer that is not expected replaces the members: the next fold, or the next phase of the training. Each of its calls ends a
  step. Only where the members made a single round, and it was not created later, it is the second optimizer of a first round.
- Optimizers that replace one another in a repeating pattern are members of one round from its second repetition on.
- Where optimizers replace one another all the time and no pattern repeats, the one that steps most often ends the steps; a notice
  reports it.

So a step contains more than one iteration only where a notice reports it.
"""

import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_PATIENCE = 5  # calls of one optimizer while another is expected: how often most GANs train their critic
_LONGEST = 32  # calls in the longest pattern that is recognized
_UNCLEAR = 8  # with this many replacements in _LONGEST calls, they are not phases
_HINT = "Choose the step with --step-on optimizer:NAME."


@dataclass(eq=False)
class _Optimizer:
    name: str
    reference: "weakref.ref[Any]"
    created: int  # after this many calls
    expected: bool = False  # its creation was observed, and it has not stepped
    stepped: bool = False


class Rounds:
    """`step` returns the number of the current step, `train_apart` whether two optimizers train different parameters."""

    def __init__(self, step: Callable[[], int], train_apart: Callable[[Any, Any], bool] = lambda first, second: True) -> None:
        self._step, self._train_apart = step, train_apart
        self.notices: list[str] = []  # for the caller to remove and report
        self._optimizers: dict[int, _Optimizer] = {}  # by id, as long as they exist
        self._calls = 0
        self._recent: deque[_Optimizer] = deque(maxlen=2 * _LONGEST)
        self._replacements: deque[int] = deque(maxlen=_UNCLEAR)  # numbers of the calls
        self._leader: _Optimizer | None = None  # where there is no clear pattern
        self._others: set[_Optimizer] = set()  # that stepped since the leader did
        self._set_members(set())

    def created(self, optimizer: Any) -> None:
        self._entry(optimizer).expected = True

    def stepped(self, optimizer: Any) -> bool:
        """Whether a step ends with this call."""
        entry = self._entry(optimizer)
        self._calls += 1
        self._recent.append(entry)
        first, entry.stepped, entry.expected = not entry.stepped, True, False
        if self._leader is not None:
            return self._ends_led_step(entry)
        if entry not in self._members and self._replaces(entry, first):
            return True
        self._missing.discard(entry)
        self._round.append(entry)
        self._counts[entry] += 1
        if self._missing:
            return self._gives_up(entry)
        self._patience = max(_PATIENCE, 2 * max(self._counts.values()))
        self._rounds += 1
        self._begin_round()
        return True

    def _entry(self, optimizer: Any) -> _Optimizer:
        entry = self._optimizers.get(id(optimizer))
        if entry is None or entry.reference() is not optimizer:
            key = id(optimizer)
            entry = _Optimizer(type(optimizer).__name__, weakref.ref(optimizer, lambda _: self._forget(key)), self._calls)
            self._optimizers[key] = entry
        return entry

    def _forget(self, key: int) -> None:
        entry = self._optimizers.get(key)
        if entry is not None and entry.reference() is None:
            del self._optimizers[key]
            self._members.discard(entry)
            self._missing.discard(entry)

    def _set_members(self, members: set[_Optimizer]) -> None:
        self._members = members
        self._rounds, self._since, self._patience = 0, self._calls, _PATIENCE
        self._begin_round()

    def _begin_round(self) -> None:
        self._missing = set(self._members)
        self._round: list[_Optimizer] = []
        self._counts: Counter[_Optimizer] = Counter()

    def _replaces(self, entry: _Optimizer, first: bool) -> bool:
        """An optimizer steps that is no member. Whether that ends a step; if not, it is a member from now on."""
        optimizer = entry.reference()
        expected = {
            other for other in self._optimizers.values() if first and other.expected and self._train_apart(optimizer, other.reference())
        }
        if expected:
            self._set_members({entry, *expected})
            return False
        in_first_round = self._rounds <= 1 and len(self._counts) == len(self._round)
        if first and self._members and in_first_round and entry.created <= self._since:
            self._members.add(entry)
            self._missing.add(entry)
            self._patience = 2
            return False
        if self._members:
            self._replacements.append(self._calls)
        self._set_members({entry})
        self._rounds = 1
        if pattern := self._pattern():
            self._follow(pattern)
        elif len(self._replacements) == _UNCLEAR and self._calls - self._replacements[0] < _LONGEST:
            self._leader = Counter(self._recent).most_common(1)[0][0]
            self._others.clear()
            self.notices.append(
                f"several optimizers stepped in no clear pattern from step {self._step()} on: a step ends when {self._leader.name}"
                f" has stepped, and may be cut wrongly. {_HINT}"
            )
        return True

    def _pattern(self) -> list[_Optimizer]:
        """The latest calls, where they repeat the calls before and contain several optimizers."""
        recent = list(self._recent)
        for length in range(2, len(recent) // 2 + 1):
            last = recent[-length:]
            if last == recent[-2 * length : -length] and len(set(last)) > 1:
                return last
        return []

    def _follow(self, pattern: list[_Optimizer]) -> None:
        counts = Counter(pattern)
        self._leader = None
        self._replacements.clear()
        self._set_members(set(counts))
        self._patience = max(_PATIENCE, 2 * max(counts.values()))
        self.notices.append(
            f"{_listed(counts)} take turns: up to step {self._step()} calls of one ended a step, from then on a round of"
            f" {len(pattern)} calls does. {_HINT}"
        )

    def _gives_up(self, entry: _Optimizer) -> bool:
        """Whether the round ends without the missing members."""
        half, rest = divmod(len(self._round), 2)
        repeats = not self._rounds and not rest and len(self._counts) > 1 and self._counts[entry] == 2 and self._round[half - 1] is entry
        if self._counts[entry] <= self._patience and not (repeats and self._round[:half] == self._round[half:]):
            return False
        self.notices.append(
            f"step {self._step()} contains {self._counts[entry]} calls of {entry.name}: {_listed(self._missing)} could have been"
            f" part of it and did not step. Later steps end without it. {_HINT}"
        )
        for missing in self._missing:
            missing.expected = False
        self._set_members(self._members - self._missing)
        self._rounds = 1
        return True

    def _ends_led_step(self, entry: _Optimizer) -> bool:
        """Without a clear pattern the calls of the leader end a step; an optimizer that steps twice without the leader replaces it."""
        if entry is not self._leader and entry not in self._others:
            self._others.add(entry)
            return False
        changed, self._leader = entry is not self._leader, entry
        self._others.clear()
        if changed and (pattern := self._pattern()):
            self._follow(pattern)
        return True


def _listed(optimizers: Iterable[_Optimizer]) -> str:
    """Their names, with the number of optimizers of each name."""
    names = Counter(optimizer.name for optimizer in optimizers)
    return " and ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())
