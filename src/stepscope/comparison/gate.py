"""Does a run keep its limits? Pass, slower, or cannot tell: noise larger than the limit, or a figure that is not recorded."""

import re
from typing import NamedTuple

from stepscope.comparison import figures
from stepscope.comparison.compare import Comparison
from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.parameters import suggestion

PASS, SLOWER, CANNOT_TELL = 0, 3, 4  # exit codes
RESULTS = {PASS: "pass", SLOWER: "fail", CANNOT_TELL: "cannot tell"}
STEP = "step_ns"
_LIMIT = re.compile(r"\s*([+-]?)\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Zµμ%/]*)\s*")
_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}


class Limit(NamedTuple):
    """The largest or smallest allowed value of a figure, or change of it from A to B."""

    figure: str
    text: str  # as given: +5%, +2pp, 8GB
    amount: float
    kind: str  # value, change, share of A
    largest: bool


class Check(NamedTuple):
    """A limit and what the comparison says about it."""

    limit: Limit
    code: int  # PASS, SLOWER, CANNOT_TELL
    a: float | None
    b: float | None
    low: float | None  # of the interval of what is limited: a value, a change, or a share
    high: float | None
    measured: float | None  # what is limited
    reason: str | None  # of CANNOT_TELL: noise, not recorded, no steps


def slowdown_limit(text: str) -> Limit:
    """The limit of `--max-slowdown 5%`: by how much the median step may be longer."""
    match = re.fullmatch(r"\s*\+?(\d{1,6}(?:\.\d{1,9})?)\s*%\s*", text)
    if match is None:
        raise UsageError(f"--max-slowdown is '{text}'; expected a percentage such as 5%")
    return Limit(STEP, f"+{match[1]}%", float(match[1]) / 100, "share", True)


def parse_limit(text: str, known: list[str], flag: str) -> Limit:
    """The limit of `--max FIGURE=LIMIT` or `--min FIGURE=LIMIT`.

    `+5%` and `-5%` are a change relative to A, `+2pp` a change of a share in percentage points, `+200MB` or `+2ms` a change; without a
    sign the limit is a value of B: `8GB`, `25ms`, `30%`.
    """
    name, sign, amount = text.partition("=")
    name, match = name.strip(), _LIMIT.fullmatch(amount)
    if not sign or match is None:
        raise UsageError(f"{flag} is '{text}'; expected FIGURE=LIMIT, such as peak_memory_bytes=+5%, idle_share=+2pp or step_ns=25ms")
    if name not in known:
        raise UsageError(f"{flag}: no figure '{name}'{suggestion(name, known)}")
    number, unit = float(match[2]) * (-1 if match[1] == "-" else 1), match[3]
    is_change, is_share = bool(match[1]), figures.is_share(name)
    if unit == "%" and is_change and not is_share:
        return Limit(name, amount.strip(), number / 100, "share", flag == "--max")
    if (unit == "pp" and is_change and is_share) or (unit == "%" and not is_change and is_share):
        return Limit(name, amount.strip(), number / 100, "change" if is_change else "value", flag == "--max")
    if unit == "%" and is_share:
        raise UsageError(f"{flag} {text}: {name} is a share; write {match[1]}{match[2]}pp for percentage points")
    return Limit(name, amount.strip(), number * _factor(name, unit, text, flag), "change" if is_change else "value", flag == "--max")


def check(comparison: Comparison, limit: Limit) -> Check:
    """The result of one limit."""
    a, b = comparison.a.figure(limit.figure), comparison.b.figure(limit.figure)
    if limit.figure == STEP:
        a, b = comparison.a.step(), comparison.b.step()
    first, second = a and a.value, b and b.value
    needs_a = limit.kind != "value"
    if second is None or (needs_a and (first is None or (limit.kind == "share" and first == 0))):
        return Check(limit, CANNOT_TELL, first, second, None, None, None, "no steps" if limit.figure == STEP else "not recorded")
    low: float | None
    high: float | None
    if limit.figure == STEP and limit.kind != "value":
        change = comparison.change
        if change is None or change.low is None or change.high is None or first is None:
            return Check(limit, CANNOT_TELL, first, second, None, None, change and change.share, "noise")
        scale = 1.0 if limit.kind == "share" else first
        low, high, measured = change.low * scale, change.high * scale, change.share * scale
    else:
        low, high, measured = _measured(comparison, limit, first, second)
    decided = Check(limit, *_decide(limit, low, high, measured, first, second))
    return _with_pace(decided, comparison) if limit.figure == STEP and limit.kind != "value" else decided


def _with_pace(check: Check, comparison: Comparison) -> Check:
    """A change of all operators alike beyond the limit is no pass: single runs do not show whether it is one of the program."""
    if check.code != PASS or check.a is None or check.b is None or comparison.pace is None:
        return check
    total = (check.b - check.a) / (check.a if check.limit.kind == "share" else 1.0)
    beyond = total > check.limit.amount if check.limit.largest else total < check.limit.amount
    return check._replace(code=CANNOT_TELL, reason="pace") if beyond else check


def result(checks: list[Check]) -> int:
    """The exit code: a limit that is exceeded counts more than one that cannot be checked."""
    codes = {check.code for check in checks}
    return SLOWER if SLOWER in codes else CANNOT_TELL if CANNOT_TELL in codes else PASS


def text(check: Check) -> str:
    """The result of a limit as a sentence."""
    limit, name = check.limit, check.limit.figure
    bound = f"{'at most' if limit.largest else 'at least'} {limit.text}"
    values = f"{value_text(name, check.a)} to {value_text(name, check.b)}"
    if check.reason in ("not recorded", "no steps"):
        missing = " and ".join(label for label, value in (("A", check.a), ("B", check.b)) if value is None) or "A"
        return f"{name}: {check.reason} in {missing}; the limit is {bound}"
    if check.measured is None:
        return f"{name}: {values}; one step on a side shows no noise; the limit is {bound}"
    measured = _amount_text(limit, check.measured)
    interval = ""
    if check.low is not None and check.high is not None and check.high > check.low:
        interval = f" (95 % interval {_amount_text(limit, check.low)} to {_amount_text(limit, check.high)})"
    change = "" if limit.kind == "value" else f", {measured}"
    return f"{name}: {values}{change}{interval}; the limit is {bound}"


def value_text(name: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return "not recorded"
    return units.cell(name, round(value) if name.endswith(("_ns", "_bytes")) else value)


def _amount_text(limit: Limit, amount: float) -> str:
    if limit.kind == "share":
        return f"{amount * 100:+.1f} %"
    if limit.kind == "change" and figures.is_share(limit.figure):
        return f"{amount * 100:+.1f} pp"
    sign = "+" if limit.kind == "change" and amount >= 0 else ""
    return f"{sign}{value_text(limit.figure, amount)}"


def _measured(comparison: Comparison, limit: Limit, first: float | None, second: float) -> tuple[float | None, float | None, float]:
    """The interval, where several runs show the noise, and the value of what is limited."""
    a, b = comparison.a.figure(limit.figure), comparison.b.figure(limit.figure)
    if limit.kind == "value":
        if limit.figure == STEP:
            b = comparison.b.step()
        half = None if b is None or b.error is None else figures.half_width(b)
        return (None, None, second) if half is None else (second - half, second + half, second)
    low, high = figures.interval(a, b)
    scale = 1.0 if limit.kind == "change" or first is None else abs(first)
    bounds = [None if bound is None else bound / scale for bound in (low, high)]
    return bounds[0], bounds[1], (second - (first or 0.0)) / scale


def _decide(
    limit: Limit, low: float | None, high: float | None, measured: float, first: float | None, second: float | None
) -> tuple[int, float | None, float | None, float | None, float | None, float, str | None]:
    """Certainly within or beyond the limit; else by the measured value, unless the noise is larger than the limit."""
    sign = 1.0 if limit.largest else -1.0
    beyond = sign * measured > sign * limit.amount
    code, reason = (SLOWER if beyond else PASS), None
    if low is not None and high is not None:
        ends = sorted((sign * low, sign * high))
        bound = sign * limit.amount
        # A limit on a value has no size of its own: there the measured value decides.
        noisy = limit.kind != "value" and (high - low) / 2 > abs(limit.amount)
        if ends[0] <= bound < ends[1] and noisy:
            code, reason = CANNOT_TELL, "noise"
    return code, first, second, low, high, measured, reason


def _factor(name: str, unit: str, text_: str, flag: str) -> float:
    """Nanoseconds, bytes or counts of one unit."""
    if name.endswith("_ns"):
        if unit in _TIMES:
            return _TIMES[unit]
        raise UsageError(f"{flag} {text_}: expected a time with its unit (ns, us, ms, s) or a change such as +5%")
    if name.endswith("_bytes"):
        try:
            return float(units.parse_size(f"1{unit}"))
        except ValueError:
            raise UsageError(f"{flag} {text_}: expected a size such as 500MB or 8GiB, or a change such as +5%") from None
    if figures.is_share(name):
        raise UsageError(f"{flag} {text_}: expected a share such as 30%, or a change in percentage points such as +2pp")
    prefixes = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    prefix = re.sub(r"(FLOP(/s)?)$", "", unit, flags=re.IGNORECASE)
    if prefix not in prefixes:
        raise UsageError(f"{flag} {text_}: expected a number, or a change such as +5%")
    return prefixes[prefix]
