"""What a gold answer is, in a plain word: a data set's golds are counted by it."""

import re

from .equality import usable_gold
from .intervals import as_interval
from .number import Number
from .values import Expression, Sequence, is_relation, readings, stripped

_CHOICE = re.compile(r"\(?[A-J]\)?[.):]?")
_DEFINES = re.compile(
    r"[A-Za-z](?:\s*\([a-z]\))?\s*=[^,;]*(?<![\\A-Za-z])[a-z](?![A-Za-z])[^,;]*$"
)  # y = 2x + 1, but not x = 5
_INTERVAL = ("()", "(]", "[)", "[]", "union")


def kind_of(gold: str) -> str:
    """One of integer, decimal, fraction, percent, number in words, choice, words, list, tuple, interval, matrix,
    equation, expression, unusable. Nothing is computed."""
    if not usable_gold(gold):
        return "unusable"
    text = stripped(gold)
    if _CHOICE.fullmatch(text):
        return "choice"
    if is_relation(text) or _DEFINES.match(text):
        return "equation"
    match readings(text)[0]:
        case Number() as number:
            return _kind_of_number(number, text)
        case Sequence(kind="rows" | "det" | "row"):
            return "matrix"
        case Sequence(kind="()") if as_interval(text) is None and "infty" not in text:
            return "tuple"
        case Sequence(kind=kind):
            return "interval" if kind in _INTERVAL else "list"
        case Expression():
            return "expression"
    return "words"


def _kind_of_number(number: Number, text: str) -> str:
    if number.percent:
        return "percent"
    if not re.search(r"\d", text):
        return "number in words"
    if "/" in text or "frac" in text:
        return "fraction"
    return "integer" if number.value.denominator == 1 and not re.search(r"\.\d", text) else "decimal"
