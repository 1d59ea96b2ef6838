r"""Inequalities for one variable as the interval they say: `2 < x \le 5` is `(2,5]`. Text only, no algebra."""

import re

_SIGN = r"(<=|>=|<|>|\\[lg]e(?![A-Za-z]))"
_END = r"((?:[^<>=A-Za-z\\]|\\(?:frac|sqrt|pi|infty)(?![A-Za-z]))*\S)"
_VARIABLE = r"\s*[a-z]\s*"
_BETWEEN = re.compile(rf"{_END}\s*{_SIGN}{_VARIABLE}{_SIGN}\s*{_END}")
_BOUNDED = re.compile(rf"{_VARIABLE}{_SIGN}\s*{_END}")
_BOUNDING = re.compile(rf"{_END}\s*{_SIGN}{_VARIABLE}")
_UNEQUAL = re.compile(rf"{_VARIABLE}\\ne(?![A-Za-z])\s*{_END}")
_SUCH_THAT = re.compile(r"\\?\{\s*[a-z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid|\||:)(.*)\\?\}", re.DOTALL)
_OUTWARD = re.compile(r"([\[\]])([^\[\](){},;]+[,;][^\[\](){},;]+)([\[\]])")
_OR = re.compile(r",?\s*(?:\bor\b|或)\s*")


def as_interval(text: str) -> str | None:
    r"""`(-\infty,3)` for `x < 3`, a union where `or` joins several, `(2,5)` for `]2,5[`; None for any other text."""
    if (found := _OUTWARD.fullmatch(text)) and (found[1], found[3]) != ("[", "]"):
        opening, ends, closing = found.groups()
        return ("[" if opening == "[" else "(") + ends + ("]" if closing == "]" else ")")
    if not re.search(r"[<>]|\\[lgn]e(?![A-Za-z])", text):
        return None
    if such_that := _SUCH_THAT.fullmatch(text):
        text = such_that[1].removesuffix("\\").strip()
    parts = [_interval(part) for part in _OR.split(text)]
    return " \\cup ".join(part for part in parts if part) if all(parts) else None


def _interval(text: str) -> str | None:
    if found := _BETWEEN.fullmatch(text):
        left, sign, other, right = found.groups()
        if _is_less(sign) != _is_less(other):
            return None
        return _between(left, sign, other, right) if _is_less(sign) else _between(right, other, sign, left)
    if found := _BOUNDED.fullmatch(text):
        sign, end = found.groups()
        return _between("", "<", sign, end) if _is_less(sign) else _between(end, sign, "<", "")
    if found := _BOUNDING.fullmatch(text):
        end, sign = found.groups()
        return _between(end, sign, "<", "") if _is_less(sign) else _between("", "<", sign, end)
    if found := _UNEQUAL.fullmatch(text):
        return f"(-\\infty,{found[1]}) \\cup ({found[1]},\\infty)"
    return None


def _is_less(sign: str) -> bool:
    return sign[0] == "<" or sign == "\\le"


def _between(low: str, low_sign: str, high_sign: str, high: str) -> str:
    """An end belongs to the interval where its sign allows equality; a missing end is infinite."""
    opening, closing = ("(" if len(low_sign) == 1 else "["), (")" if len(high_sign) == 1 else "]")
    return opening + (low or "-\\infty") + "," + (high or "\\infty") + closing
