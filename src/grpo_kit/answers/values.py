r"""What a short text says: a number, a list, an interval, a matrix, words, or an expression that is left as it is."""

import re
from dataclasses import dataclass

from .intervals import as_interval
from .number import Number, read_number, same_number
from .text import balanced, nesting, split_top, tidy

MAX_ITEMS = 40
MAX_NESTING = 30
MAX_TWICE = 100  # characters of `3/4 (75%)`

_WRAPPERS = [
    re.compile(p, re.DOTALL)
    for p in (
        r"\$+([^$]*)\$+",
        r"\\\((.*)\\\)",
        r"\\\[(.*)\\\]",
        r"\*\*(.*)\*\*",
        r"__(.*)__",
        r"[`\"'](.*)[`\"']",
        r"\[(\\begin.*)\]",
    )
]
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_VARIABLE = (
    r"(?:(?:[A-Za-z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\s*\(\s*\w\s*\))?"
    r"|m?\s*\\angle\s*[A-Z]{1,3}|[A-Z]{2,3}|[A-Za-z]{4,}(?:\s[A-Za-z]+){0,3})"
)
_ARITHMETIC = r"(?:[^A-Za-z=<>\\]|\\(?:times|cdot|div|frac|sqrt)(?![A-Za-z]))+"
_ASSIGNED = re.compile(rf"\s*(?:({_VARIABLE})|{_ARITHMETIC})\s*(?:=|\\approx|\\in)(?![A-Za-z])(.*)", re.DOTALL)
_ASSIGNED_TO = re.compile(r"([^=A-Za-z\\]*\d[^=A-Za-z\\]*)=\s*([a-z])\s*")  # 5 = x
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\{([pbvB]?matrix|array)\}(?:\s*\{[clr|\s]*\})?(.*)\\end\{\1\}\s*[)\]]?", re.DOTALL
)
_POINT = re.compile(r"[A-Z]\s*(\(.*,.*\))", re.DOTALL)
_NO_SOLUTION = re.compile(r"(?:there (?:is|are) )?no (?:real )?solutions?", re.IGNORECASE)
_TWICE = re.compile(r"(.+?)(?:,?\s+(?:or|i\.e\.,?)\s+|\s*\((?:or\s+)?(?=.*\)$))(.+?)\)?", re.DOTALL)
_BASES = {"two": "2", "three": "3", "five": "5", "eight": "8", "ten": "10", "sixteen": "16"}
_BASE_IN_WORDS = re.compile(
    r"\(?(\w+)\)?(?:_\{?\s*(two|three|five|eight|ten|sixteen|\d+)\s*\}?|,?\s+\(?(?:in\s+)?base\s+(\d+)\)?)"
)
_JOINT = re.compile(r",?\s+(?:and|or)\s+|\s*(?:和|或|及)\s*|[,;]")
_COMMA = re.compile(r"[,;]")
_CUP = re.compile(r"\\cup(?![A-Za-z])|\bU\b")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")
_CLOCK = re.compile(r"(\d+(?:\.\d+)?(?:\s*(?::|\bto\b)\s*\d+(?:\.\d+)?)+)\s*(?:([ap])\.?\s*m\.?)?", re.IGNORECASE)
_MATH_NAME = re.compile(r"\b(?:pi|sqrt|infty|infinity|sin|cos|tan|log|ln|exp)\b")
_FORMULA = re.compile(r"[\\^=<>_*+{}]|\d[a-z(]")


@dataclass(frozen=True)
class Sequence:
    """Values in brackets. kind: `set`, a pair of brackets, `union`, `rows`, `det`, `row`, `clock`, `clocka` (a.m.)."""

    kind: str
    items: tuple["Value", ...]
    bare: bool = False  # a list without brackets, which is a set unless the other side is in order


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Expression:
    latex: str


Value = Number | Sequence | Words | Expression


def read(text: str) -> Value:
    return readings(stripped(text))[0]


def readings(text: str) -> list[Value]:
    """The value of a stripped text; two for `125,216`, which is a number and a list."""
    if nesting(text) > MAX_NESTING:
        return [Words(text)]
    value = _value(text)
    if isinstance(value, Number) and _GROUPED.fullmatch(text):
        return [value, _list(text.split(","))]
    return [value]


def stripped(text: str) -> str:
    """The text in one spelling, without wrappers, boxes and final punctuation."""
    text = tidy(text).strip()
    for _ in range(4):
        before = text
        for wrapper in _WRAPPERS:
            if found := wrapper.fullmatch(text):
                text = found[1].strip()
        if box := _BOX.match(text):
            end = balanced(text, box.end())
            text = text[box.end() + 1 : end].strip() if end == len(text) - 1 else text
        text = text.rstrip(".,;:~\\ \n").lstrip("=:~ \n").removeprefix("\\approx").lstrip()
        if text == before:
            break
    return text


def with_base(text: str) -> str:
    """`1011 (base 2)` and `(1011)_{two}` as `1011_2`."""
    found = _BASE_IN_WORDS.fullmatch(text.replace(",", ""))
    if not found or not re.search(r"\d", found[1]):
        return text
    return f"{found[1]}_{_BASES.get(found[2] or found[3], found[2] or found[3])}"


def assignment(text: str) -> tuple[str, str] | None:
    """The variable (empty for a number) and the value of `x = 5`, `9 * 3 = 27`; None for an equation."""
    if reverse := _ASSIGNED_TO.fullmatch(text):
        text = f"{reverse[2]}={reverse[1]}"
    found = _ASSIGNED.fullmatch(text)
    if not found or _INEQUALITY.search(text) or not found[2].strip():
        return None
    last = found[2].rpartition("=")[2]
    if found[1]:
        return found[1].replace(" ", ""), last
    first = text.partition("=")[0]
    one, other = read_number(first), read_number(last)
    if one and other and not same_number(one, other):
        return None  # 5 = 6
    return "", first if one and not other else last  # 27 = 3 * 9


def is_relation(text: str) -> bool:
    """An equation or inequality, and not the value given to one variable."""
    related = "=" in text or _INEQUALITY.search(text)
    if not related or assignment(text) is not None or as_interval(text) is not None:
        return False
    return len(top_parts(text)) == 1 and not _is_one_pair(text)


def _value(text: str) -> Value:
    if number := read_number(text):
        return number
    if clock := _CLOCK.fullmatch(text):
        parts = tuple(read_number(part) or Words(part) for part in re.split(r":|to", clock[1]))
        return Sequence(f"clock{(clock[2] or '').lower()}", parts)
    if interval := as_interval(text):
        return _value(interval)
    if len(text) <= MAX_TWICE and (twice := _TWICE.fullmatch(text)) and (once := _same_twice(*twice.groups())):
        return once
    if structure := _matrix(text) or _union(text) or _bracketed(text) or _listed(text):
        return structure
    if assigned := assignment(text):
        return _value(stripped(assigned[1]))
    if len(both := _both_signs(text)) == 2:
        return _list(both)
    if point := _POINT.fullmatch(text):
        return _value(point[1])
    if text == "\\mathbb{R}":
        return _value("(-\\infty,\\infty)")
    if text == "\\emptyset" or _NO_SOLUTION.fullmatch(text):
        return Words("empty set")
    if re.search(r"[^\W\d_]{2}", _MATH_NAME.sub("", text)) and not _FORMULA.search(text):
        return Words(text)
    return Words(text) if re.fullmatch(r"[(]?[A-Za-z][).]?", text) else Expression(text)


def _same_twice(one: str, other: str) -> Number | None:
    """`3/4 (75%)` and `0.5 or 1/2` say one number twice."""
    first, second = read_number(one), read_number(other)
    return first if first and second and same_number(first, second) else None


def _both_signs(text: str) -> list[str]:
    """The two texts that one with a plus-minus sign stands for; the text itself where it has none."""
    parts = re.split(r"\\[pm][mp](?![A-Za-z])", text)
    if len(parts) != 2:
        return [text]
    before, after = parts
    return [f"{before}+{after}" if before.strip() else after, f"{before}-{after}"]


def _values(parts: list[str]) -> tuple[Value, ...]:
    return tuple(_value(stripped(part)) for part in parts[:MAX_ITEMS])


def _list(parts: list[str]) -> Sequence:
    return Sequence("set", _values(parts), bare=True)


def _listed(text: str) -> Sequence | None:
    parts = top_parts(text)
    if not 1 < len(parts) <= MAX_ITEMS:
        return None
    return _list([signed for part in parts for signed in _both_signs(part)])


def top_parts(text: str) -> list[str]:
    return [part for part in split_top(text, _JOINT) if part.strip()]


def _bracketed(text: str) -> Value | None:
    r"""`(3,-4)`, `[2,4)`, `\{1,2\}`: one pair of brackets around everything."""
    text = text.replace("\\{", "{").replace("\\}", "}")
    if not _is_one_pair(text):
        return None
    inner, brackets = text[1:-1], text[0] + text[-1]
    parts = split_top(inner, _COMMA)
    if brackets == "{}":
        return Sequence("set", _values(parts))
    if len(parts) == 1:
        return _value(stripped(inner)) if brackets in ("()", "[]") and re.search(r"\d", inner) else None
    return Sequence(brackets, _values(parts))


def _is_one_pair(text: str) -> bool:
    """Whether the first bracket closes only at the end: true for (1,(2,3)), not for (x+1)(x-1)."""
    text = text.replace("\\{", "{").replace("\\}", "}")
    if len(text) < 3 or text[0] not in "([{" or text[-1] not in ")]}":
        return False
    depth = 0
    for character in text[:-1]:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return False
    return True


def _union(text: str) -> Sequence | None:
    parts = split_top(text, _CUP)
    return Sequence("union", _values(parts)) if len(parts) > 1 else None


def _matrix(text: str) -> Sequence | None:
    found = _MATRIX.fullmatch(text)
    if not found:
        return None
    rows = [row.split("&") for row in found[2].split("\\\\") if row.strip()]
    return Sequence("det" if found[1] == "vmatrix" else "rows", tuple(Sequence("row", _values(row)) for row in rows))
