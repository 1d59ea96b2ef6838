r"""Equality with the gold answer by value, not by spelling; exact. Numbers never reach a computer algebra system."""

import re
from itertools import product

from .number import Number, same_number
from .symbolic import equivalent
from .values import Expression, Sequence, Value, Words, assignment, is_relation, readings, stripped, with_base

MAX_LENGTH = 1000

_MISSING = ("nan", "none", "null")
_BASE = re.compile(r"(\d[0-9A-Fa-f]*)\s*_\s*(?:\{\s*(\w+)\s*\}|(\w+))")
_CHOICE = re.compile(r"(?:(?:option|choice|answer)\s+)?(?:\(\s*([A-J])\s*\)|([A-J])(?=\s*$|[).:]))", re.IGNORECASE)
_CLOCKS = ({"clock"}, {"clock", "clocka"}, {"clock", "clockp"})


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
    if _different_variables(one, other):
        return False
    if (based := _same_base(one, other)) is not None:
        return based
    if is_relation(one) or is_relation(other):
        return symbolic and _same_relation(one, other)
    return any(_equal(g, a, symbolic) for g, a in product(readings(one), readings(other)))


def _different_variables(one: str, other: str) -> bool:
    """x = 5 is not y = 5."""
    left, right = assignment(one), assignment(other)
    return bool(left and right and left[0] and right[0] and left[0] != right[0])


def _same_base(one: str, other: str) -> bool | None:
    """1011_2 may be answered without its base, for the question named it; None where neither has one."""
    left, right = _BASE.fullmatch(one), _BASE.fullmatch(other)
    if left and right:
        return False  # equal ones are spelt alike
    based = left or right
    return based[1].casefold() == (other if left else one).casefold() if based else None


def _same_relation(one: str, other: str) -> bool:
    """Two relations with the same solutions, or a relation and the set that solves it; a number is neither."""
    return not any(isinstance(readings(text)[0], Number) for text in (one, other)) and equivalent(one, other)


def _equal(gold: Value, answer: Value, symbolic: bool) -> bool:
    match gold, answer:
        case Number(), Number():
            return same_number(gold, answer)
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
            return symbolic and not _is_task(gold, answer) and equivalent(_latex(one), _latex(other))
    return False


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
    alike = len(kinds) == 1 or gold.bare or answer.bare or kinds in _CLOCKS
    return alike and all(_equal(g, a, symbolic) for g, a in zip(gold.items, answer.items, strict=True))


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
    return text.casefold() if len(text) > 1 and "\\" not in text else text
