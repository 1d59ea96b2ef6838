r"""Equality with the gold answer by value, not by spelling; exact. Numbers never reach a computer algebra system."""

import re
from fractions import Fraction
from itertools import product

from .number import Number, same_number
from .symbolic import equivalent
from .values import (
    Expression,
    Sequence,
    Value,
    Words,
    assignment,
    is_relation,
    readings,
    stripped,
    top_parts,
    with_base,
)

MAX_LENGTH = 1000

_MISSING = ("nan", "none", "null")
_BASE = re.compile(r"(\d[0-9A-Fa-f]*)\s*_\s*(?:\{\s*(\w+)\s*\}|(\w+))")
_CHOICE = re.compile(r"(?:(?:option|choice|answer)\s+)?(?:\(\s*([A-J])\s*\)|([A-J])(?=\s*$|[).:]))", re.IGNORECASE)
_CLOCKS = ({"clock"}, {"clock", "clocka"}, {"clock", "clockp"})


_NAME = re.compile(
    r"\\[A-Za-z]+|sqrt|infty|infinity|pi|theta|a?(?:sin|cos|tan)|ln|log|exp|[pbvB]?matrix", re.IGNORECASE
)


def usable_gold(gold: str) -> bool:
    """Whether anything can ever equal it: not empty, not a missing cell turned to text, not a whole solution."""
    text = stripped(gold[: MAX_LENGTH + 1])
    return len(gold) <= MAX_LENGTH and any(c.isalnum() for c in text) and text.casefold() not in _MISSING


def same_answer(gold: str, answer: str) -> bool | None:
    """Whether the answer has the gold's value; None where the gold cannot be read."""
    return same_value(gold, answer) if usable_gold(gold) else None


def same_value(gold: str, answer: str, symbolic: bool = True) -> bool:
    """Equality of two answers. Without `symbolic`, expressions are equal only if they are spelt alike."""
    if max(len(gold), len(answer)) > MAX_LENGTH:
        return False
    one, other = with_base(stripped(gold)), with_base(stripped(answer))
    if not one or not other:
        return False
    if _squeezed(one) == _squeezed(other):
        return True
    left, right = _by_variable(one), _by_variable(other)
    if left and right:
        return left.keys() == right.keys() and all(same_value(left[name], right[name], symbolic) for name in left)
    if (based := _same_base(one, other)) is not None:
        return based
    if is_relation(one) or is_relation(other):
        return symbolic and _same_relation(one, other)
    return any(_equal(g, a, symbolic) for g, a in product(readings(one), readings(other)))


def _by_variable(text: str) -> dict[str, str] | None:
    """The values of `x = 3, y = 4` by variable; None unless each part gives another variable its value."""
    found = [assignment(part) for part in top_parts(text)]
    values = {part[0]: part[1] for part in found if part and part[0]}
    return values if len(values) == len(found) else None


def _same_base(one: str, other: str) -> bool | None:
    """1011_2 may be answered without its base, for the question named it; None where neither has one."""
    left, right = _BASE.fullmatch(one), _BASE.fullmatch(other)
    if left and right:
        return False  # equal ones are spelt alike
    based = left or right
    return based[1].casefold() == (other if left else one).casefold() if based else None


def _same_relation(one: str, other: str) -> bool:
    """Two relations with the same solutions, or a relation and the set that solves it; a number is neither."""
    if any(isinstance(readings(text)[0], Number) for text in (one, other)):
        return False
    return _letters(one) == _letters(other) and equivalent(one, other)


def _equal(gold: Value, answer: Value, symbolic: bool) -> bool:
    match gold, answer:
        case Number(), Number():
            return same_number(gold, answer)
        case (Sequence(kind="clock", items=(Number() as one, Number() as other)), Number() as ratio) | (
            Number() as ratio,
            Sequence(kind="clock", items=(Number() as one, Number() as other)),
        ):
            return ratio.value.denominator > 1 and ratio.value * other.value == one.value  # 3:2 as 3/2
        case Sequence(), Sequence():
            return _same_sequence(gold, answer, symbolic)
        case Sequence(items=(only,), kind="set" | "()"), _:
            return _equal(only, answer, symbolic)
        case _, Sequence(items=(only,), kind="set" | "()"):
            return _equal(gold, only, symbolic)
        case Words(), Words():
            return _same_words(gold.text, answer.text)
        case Words(), Expression() if _CHOICE.fullmatch(gold.text):
            return _same_words(gold.text, answer.latex)
        case Expression(), Expression() if _squeezed(gold.latex) == _squeezed(answer.latex):
            return True
        case (Number() | Expression()) as one, (Number() | Expression()) as other:
            if not symbolic or _is_task(gold, answer):
                return False
            left, right = _latex(one), _latex(other)
            return _letters(left) == _letters(right) and equivalent(left, right)
    return False


def _letters(latex: str) -> set[str]:
    """The variables of an expression; two with different ones are not compared: computer algebra takes its time."""
    return set(re.findall(r"[A-Za-z]", _NAME.sub("", latex))) - set("ei")


def _same_sequence(gold: Sequence, answer: Sequence, symbolic: bool) -> bool:
    """In any order for sets, bare lists and unions; in order for everything else and for a bare list beside it."""
    if len(gold.items) != len(answer.items):
        return False
    kinds = {gold.kind, answer.kind}
    if kinds in ({"set"}, {"union"}):
        left = list(answer.items)
        for item in gold.items:
            match_at = next((at for at, other in enumerate(left) if _equal(item, other, symbolic)), None)
            if match_at is None:
                return False
            del left[match_at]
        return True
    if kinds == {"clock", "clockp"}:
        return _minutes(gold) == _minutes(answer) or _same_items(gold, answer, symbolic)
    pairs = list(zip(gold.items, answer.items, strict=True))
    if any(isinstance(g, Number) and isinstance(a, Number) and not same_number(g, a) for g, a in pairs):
        return False  # before any algebra
    alike = len(kinds) == 1 or gold.bare or answer.bare or kinds in _CLOCKS
    return alike and _same_items(gold, answer, symbolic)


def _same_items(gold: Sequence, answer: Sequence, symbolic: bool) -> bool:
    return all(_equal(g, a, symbolic) for g, a in zip(gold.items, answer.items, strict=True))


def _minutes(time: Sequence) -> list[object]:
    """A time of day with its hour on the 24-hour clock."""
    items: list[object] = [item.value if isinstance(item, Number) else item for item in time.items]
    if time.kind == "clockp" and isinstance(items[0], Fraction) and items[0] < 12:
        items[0] += 12
    return items


def _same_words(gold: str, answer: str) -> bool:
    """Regardless of case, articles and punctuation; a gold letter is a choice, which `(C) 12` picks too."""
    if choice := _CHOICE.fullmatch(gold.strip()):
        picked = _CHOICE.match(answer.strip())
        return bool(picked and (picked[1] or picked[2]).upper() == (choice[1] or choice[2]).upper())
    return _bare_words(gold) == _bare_words(answer) != ""


def _bare_words(text: str) -> str:
    return " ".join(word for word in re.findall(r"\w+", text.casefold()) if word not in ("a", "an", "the"))


def _is_task(gold: Value, answer: Value) -> bool:
    """17 * 23 repeats the task and is not the answer 391."""
    if not (isinstance(gold, Number) and isinstance(answer, Expression)):
        return False
    operations = re.sub(r"\\(?:frac|sqrt)(?![A-Za-z])", "", answer.latex)
    numbers_only = not re.search(r"[A-Za-z!]", re.sub(r"\\(?:times|cdot|div)(?![A-Za-z])", "", operations))
    return numbers_only and ("sqrt" not in answer.latex or bool(re.search(r"[-+*/^]|\\", operations[1:])))


def _latex(value: Number | Expression) -> str:
    if isinstance(value, Number):
        return f"\\frac{{{value.value.numerator}}}{{{value.value.denominator}}}"
    # Without a unit after it.
    return re.sub(r"(?<=\S)\s+(?:(?!pi\b|infty\b)[A-Za-z]{2,}\s*)+(?:\^\{?\d\}?)?$|°$", "", value.latex)


def _squeezed(text: str) -> str:
    """One spelling of blanks, products, single-character braces and, for words, case."""
    text = re.sub(r"\\(?:cdot|times)(?![A-Za-z])", "*", text)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text))
    return text.casefold() if re.search(r"[^\W\d_]{3}|_", text) and "\\" not in text else text
