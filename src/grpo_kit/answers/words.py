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
    "halve": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "eighth": 8,
    "tenth": 10,
}

_PART = rf"(?:{'|'.join(_PARTS)})s?\b"
_WORD = rf"(?:{'|'.join([*SMALL, 'hundred', *SCALES])})(?![a-z])"
ENGLISH = re.compile(rf"(?<![A-Za-z]){_WORD}(?:(?:[\s-]+|\s+and\s+(?!{_WORD}[\s-]+{_PART})){_WORD})*", re.IGNORECASE)
_OVER = re.compile(rf"[\s-]+({_PART})", re.IGNORECASE)
_AND_OVER = re.compile(rf"\s+and\s+(?:an?|({_WORD}))[\s-]+({_PART})", re.IGNORECASE)
_ONE_OVER = re.compile(rf"an?\s+({_PART})|(half)\b", re.IGNORECASE)

_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
CHINESE_SCALES = {"万": 10**4, "亿": 10**8}
CHINESE = "零〇一二两三四五六七八九十百千万亿"
_CHINESE_PART = rf"([{CHINESE[:13]}][{CHINESE}]*(?:点[{CHINESE[:12]}]+)?)"
_CHINESE_NUMBER = re.compile(rf"(百分之)?{_CHINESE_PART}")
_CHINESE_FRACTION = re.compile(rf"(?:{_CHINESE_PART}又)?{_CHINESE_PART}分之{_CHINESE_PART}")  # 三又二分之一 is 3 1/2


def english(text: str) -> tuple[Fraction, str] | None:
    """The number that the text begins with, and what follows it."""
    if part := _ONE_OVER.match(text):
        return Fraction(1, _part(part[1] or part[2])), text[part.end() :]
    found = ENGLISH.match(text)
    value = _english_value(re.findall(r"[a-z]+", found[0].lower())) if found else None
    if value is None or not found:
        return None
    rest = text[found.end() :]
    if over := _OVER.match(rest):
        return Fraction(value, _part(over[1])), rest[over.end() :]
    if over := _AND_OVER.match(rest):
        return value + Fraction(SMALL.get((over[1] or "one").lower(), 1), _part(over[2])), rest[over.end() :]
    return Fraction(value), rest


def _part(word: str) -> int:
    return _PARTS[word.lower().removesuffix("s")]


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
    if found := _CHINESE_FRACTION.match(text):
        whole, under, over = (_chinese_value(part or "零") for part in found.groups())
        return (whole + over / under, False, text[found.end() :]) if under else None
    if found := _CHINESE_NUMBER.match(text):
        return _chinese_value(found[2]), found[1] is not None, text[found.end() :]
    return None


def _chinese_value(text: str) -> Fraction:
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
