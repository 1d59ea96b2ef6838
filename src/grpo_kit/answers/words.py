"""Numbers written in English or Chinese words, exactly: `forty-two`, `two and a half`, `三十六`, `百分之二十`."""

import re
from fractions import Fraction

_ONES = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
SMALL = {word: n for n, word in enumerate(_ONES)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    "half": 2,
    "halves": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "eighth": 8,
    "tenth": 10,
}

_WORD = rf"(?:{'|'.join([*SMALL, 'hundred', *SCALES])})(?![a-z])"
_ENGLISH = re.compile(rf"{_WORD}(?:(?:[\s-]+|\s+and\s+){_WORD})*", re.IGNORECASE)
_PART = rf"({'|'.join(_PARTS)})s?\b"
_OVER = re.compile(rf"[\s-]+{_PART}", re.IGNORECASE)
_AND_A = re.compile(rf"\s+and\s+an?\s+{_PART}", re.IGNORECASE)
_A = re.compile(rf"(?:an?\s+{_PART}|(half)\b)", re.IGNORECASE)

_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
CHINESE_SCALES = {"万": 10**4, "亿": 10**8}
CHINESE = "零〇一二两三四五六七八九十百千万亿"
_CHINESE_NUMBER = re.compile(rf"[{CHINESE[:13]}][{CHINESE}]*(?:点[{CHINESE[:12]}]+)?")


def english(text: str) -> tuple[Fraction, str] | None:
    """The number that the text begins with, and what follows it."""
    found = _ENGLISH.match(text)
    if not found:
        part = _A.match(text)
        return (Fraction(1, _PARTS[(part[1] or part[2]).lower()]), text[part.end() :]) if part else None
    value = _english_value(re.findall(r"[a-z]+", found[0].lower()))
    if value is None:
        return None
    rest = text[found.end() :]
    if over := _OVER.match(rest):
        return Fraction(value, _PARTS[over[1].lower()]), rest[over.end() :]
    if extra := _AND_A.match(rest):
        return value + Fraction(1, _PARTS[extra[1].lower()]), rest[extra.end() :]
    return Fraction(value), rest


def _english_value(words: list[str]) -> int | None:
    """None for words that make no number together, such as `one two`."""
    total = group = 0
    room = 1000  # what may be added to the group: less than ten after `twenty`, nothing after `seven`
    for word in words:
        if word in SMALL:
            if SMALL[word] >= room:
                return None
            group, room = group + SMALL[word], 10 if SMALL[word] >= 20 else 0
        elif word == "hundred":
            group, room = (group or 1) * 100, 100
        elif word in SCALES:
            total, group, room = total + (group or 1) * SCALES[word], 0, 1000
    return total + group


def chinese(text: str) -> tuple[Fraction, bool, str] | None:
    """The number that the text begins with, whether it is a percentage, and what follows it."""
    if percent := text.startswith("百分之"):
        text = text.removeprefix("百分之")
    first = _CHINESE_NUMBER.match(text)
    if not first:
        return None
    value, rest = _chinese_value(first[0]), text[first.end() :]
    for joint in ("又", "分之"):  # 三又二分之一 is 3 1/2
        second = _CHINESE_NUMBER.match(rest.removeprefix(joint)) if rest.startswith(joint) else None
        if second and joint == "又":
            tail = chinese(rest.removeprefix("又"))
            return (value + tail[0], False, tail[2]) if tail and value is not None else None
        if second and joint == "分之":
            over = _chinese_value(second[0])
            rest = rest[len(joint) + second.end() :]
            return (over / value, False, rest) if value and over is not None else None
    return None if value is None else (value, percent, rest)


def _chinese_value(text: str) -> Fraction | None:
    whole, _, decimals = text.partition("点")
    if all(c in _DIGITS for c in whole):  # read digit by digit: 二〇二四
        value = Fraction(int("".join(str(_DIGITS[c]) for c in whole)))
    else:
        total, section, digit = 0, 0, 0
        for c in whole:
            if c in _DIGITS:
                digit = _DIGITS[c]
            elif c in _PLACES:
                section, digit = section + (digit or 1) * _PLACES[c], 0
            else:
                total, section, digit = (total + section + digit) * CHINESE_SCALES[c], 0, 0
        value = Fraction(total + section + digit)
    if decimals:
        value += Fraction(int("".join(str(_DIGITS[c]) for c in decimals)), 10 ** len(decimals))
    return value
