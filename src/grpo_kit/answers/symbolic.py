r"""Equality of LaTeX expressions by math-verify, behind bounds: a short text (`9^{9^{9}}`) could take forever."""

import logging
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import comb
from types import FrameType

from .text import nesting

MAX_LENGTH = 300
MAX_DEPTH = 12
MAX_RESULT_DIGITS = 10_000  # digits of the longest number times all exponents
MAX_BRACKET_POWER = 12  # a power of a bracket gets expanded
MAX_TERMS = 500  # of that expansion
MAX_SLASHES = 10  # products of many quotients are simplified slowly, as are absolute values
MAX_BARS = 6
MAX_FACTORIAL = 200
TIME_LIMIT_S = 1.0  # of this process at work, so that a busy machine changes no verdict

# Commands that cannot start unbounded work; sums, products, integrals and limits are not answers but tasks.
_KNOWN_COMMAND = re.compile(
    r"""frac|sqrt|cdot|times|div|pm|mp|infty|cup|cap|emptyset|in|le|ge|ne|mid|to|approx|setminus
        |log|ln|exp|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|binom|[lr]floor|[lr]ceil
        |pi|alpha|beta|gamma|delta|epsilon|varepsilon|theta|lambda|mu|nu|omega|phi|varphi|psi|rho|sigma|tau|xi|zeta|eta
        |kappa|begin|end|[pbv]?matrix|overline|vec|hat|bar|mathbb|[{}|\\,;]""",
    re.VERBOSE,
)
_COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])")
_SMALL_POWER = re.compile(r"[a-z]\^(?:[23]|\{[23]\})")  # e^{-x^2} is no tower
_TIGHT: list[tuple[re.Pattern[str], str]] = [
    (re.compile(p), r)
    for p, r in [
        (r"(?<![A-Za-z\\])(sqrt|pi|infty|theta|sin|cos|tan|ln|log|exp)(?![A-Za-z])", r"\\\1"),
        (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\\frac\s*(\d)\s*(\d)(?!\d)", r"\\frac{\1}{\2}"),
        (r"\^\s*\(([^()]*)\)", r"^{\1}"),
        (r"\^\s*(-?\d+)", r"^{\1}"),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"!=", r"\\ne "),
        (r"\*", r"\\cdot "),
    ]
]
# Infinity as an end or on its own; as an operand (`9^{\infty}`) it has made sympy find any number equal to it.
_INFINITY = re.compile(
    r"(?:^|[(\[,<>=]|\\(?:le|ge)(?![A-Za-z]))\s*[-+]?\s*\\infty\s*(?=$|[)\],<>=]|\\(?:le|ge|cup)(?![A-Za-z]))"
)
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")


class _OutOfTime(BaseException):
    """Not an Exception: sympy and math-verify catch those and would go on."""


def equivalent(gold: str, answer: str) -> bool:
    """Whether two expressions in tidy LaTeX have one value; False where either is out of bounds."""
    gold, answer = _latex(gold), _latex(answer)
    if not (_in_bounds(gold) and _in_bounds(answer)):
        return False
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limit is off
    # No unit stripping: it would read 3t as 3. No boxes: two would become a set.
    reading = LatexExtractionConfig(
        boxed_match_priority=-1,
        normalization_config=NormalizationConfig(basic_latex=True, malformed_operators=True, nits=True, boxed="none"),
    )
    try:
        with _time_limit():
            sides = [
                parse(f"${side}$", [reading], fallback_mode="no_fallback", parsing_timeout=None)
                for side in (gold, answer)
            ]
            if not all(sides) or _differ_at_a_point(sides[0][0], sides[1][0]):
                return False
            return verify(gold=sides[0], target=sides[1], timeout_seconds=None, allow_set_relation_comp=True)
    except _OutOfTime:
        return False


def _differ_at_a_point(gold: object, answer: object) -> bool:
    """Whether two terms have different values for some numbers, which is seen sooner than a difference simplifies."""
    from sympy import Expr, Rational

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return False
    names = sorted((gold.free_symbols | answer.free_symbols), key=str)
    point = {name: Rational(7 + 4 * at, 5) for at, name in enumerate(names)}
    one, other = gold.evalf(20, subs=point), answer.evalf(20, subs=point)
    known = one.is_Number and other.is_Number and one.is_finite and other.is_finite
    return bool(known and abs(one - other) > Rational(1, 10**9) * max(1, abs(one)))


def _latex(text: str) -> str:
    """Plain mathematics as LaTeX: `2*x^10` is `2\\cdot x^{10}`; decimals are exact, for floats get rounded."""
    for pattern, replacement in _TIGHT:
        text = pattern.sub(replacement, text)
    return _DECIMAL.sub(lambda m: _exact(m[1], m[2]), text).strip()


def _exact(whole: str, decimals: str) -> str:
    return rf"\frac{{{int(whole + decimals)}}}{{1{'0' * len(decimals)}}}"


def _in_bounds(text: str) -> bool:
    if not text or len(text) > MAX_LENGTH or re.search(r"[$'\"`;]|__|\d[eE][-+]?\d", text):
        return False
    if not all(_KNOWN_COMMAND.fullmatch(command) for command in _COMMAND.findall(text)):
        return False
    if text.count("/") > MAX_SLASHES or text.count("|") > MAX_BARS or not _closes(text):
        return False
    if "\\infty" in _INFINITY.sub("", text):
        return False
    return nesting(text) <= MAX_DEPTH and _powers_in_bounds(text) and _factorials_in_bounds(text)


def _closes(text: str) -> bool:
    """Whether every bracket closes: half an expression is parsed slowly and in vain."""
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _powers_in_bounds(text: str) -> bool:
    """No tower of powers, and no exponent that would fill the memory or expand without end."""
    text = re.sub(r"\s", "", text)
    digits = max(map(len, re.findall(r"\d+", text)), default=1)
    for at in (found.end() for found in re.finditer(r"\^", text)):
        exponent = _group(text, at)
        if re.search(r"\^|!|exp|binom", _SMALL_POWER.sub("", exponent)):
            return False
        numbers = [int(number) if len(number) < 6 else MAX_RESULT_DIGITS for number in re.findall(r"\d+", exponent)]
        raises_bracket = at > 1 and text[at - 2] in ")}]"
        if raises_bracket and re.search(r"[a-z!]", text):
            power, terms = max(numbers, default=0), 1 + len(re.findall("[-+]", _group_before(text, at - 1)))
            if power > MAX_BRACKET_POWER or comb(terms + power - 1, power) > MAX_TERMS:
                return False
        for number in numbers:
            digits *= max(number, 1)
    return digits <= MAX_RESULT_DIGITS and text.count("exp") <= 2


def _group(text: str, at: int) -> str:
    """The bracket that opens at a place, or the number or single character there."""
    if at < len(text) and text[at] in "{(":
        depth = 0
        for end in range(at, len(text)):
            depth += (text[end] in "{(") - (text[end] in ")}")
            if depth == 0:
                return text[at : end + 1]
        return text[at:]
    found = re.compile(r"-?\d+|.?").match(text, at)
    return found[0] if found else ""


def _group_before(text: str, end: int) -> str:
    """The bracket that closes just before a place."""
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += (text[at] in ")}]") - (text[at] in "([{")
        if depth == 0:
            return text[at:end]
    return text[:end]


def _factorials_in_bounds(text: str) -> bool:
    """Factorials and binomials of small numbers or of letters only, not nested, not raised to a power."""
    if "!" not in text and "binom" not in text:
        return True
    numbers = [int(number[:6]) for number in re.findall(r"\d+", text)]
    arguments = [text[found.start() - 1] if found.start() else "" for found in re.finditer("!", text)]
    return max(numbers, default=0) <= MAX_FACTORIAL and "^" not in text and all(map(str.isalnum, arguments))


@contextmanager
def _time_limit() -> Iterator[None]:
    """A last resort, set only where no one else uses the process's timer: in the main thread, with none running."""
    free = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not free or signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0:
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, TIME_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
