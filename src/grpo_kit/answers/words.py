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
_ENDINGS = {"ve": "f", "t": "", "e": "", "y": "ie"}  # five: fifth, eight: eighth, nine: ninth, twenty: twentieth
_PARTS = {
    **{"half": 2, "halve": 2, "third": 3, "quarter": 4, "hundredth": 100, "thousandth": 1000},
    **{re.sub("(?:ve|t|e|y)$", lambda m: _ENDINGS[m[0]], word) + "th": n for word, n in SMALL.items() if n > 3},
}

_PART = rf"(?:{'|'.join(_PARTS)})s?\b"
_WORD = rf"(?:{'|'.join([*SMALL, 'hundred', *SCALES])})(?![a-z])"
_COMMA = rf"(?:{'|'.join(f'(?<={scale})' for scale in SCALES)}),\s+"  # one thousand, two hundred
_JOINT = rf"(?:[\s-]+|\s+and\s+(?!{_WORD}[\s-]+{_PART})|{_COMMA})"
ENGLISH = re.compile(rf"(?<![A-Za-z]){_WORD}(?:{_JOINT}{_WORD})*", re.IGNORECASE)
_POINT = re.compile(rf"\s+point((?:[\s-]+(?:{'|'.join(_ONES[:10])})(?![a-z]))+)", re.IGNORECASE)
_OVER = re.compile(rf"[\s-]+({_PART})", re.IGNORECASE)
_AND_OVER = re.compile(rf"\s+and\s+(?:an?|({_WORD}))[\s-]+({_PART})", re.IGNORECASE)
_ONE_OVER = re.compile(rf"an?\s+({_PART})|(half)\b", re.IGNORECASE)
_COUNTED_OVER = re.compile(rf"\s+(?!hal|quarter)({_PART})(?<=s)", re.IGNORECASE)  # but 3 quarters may be coins

_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
CHINESE_SCALES = {"万": 10**4, "亿": 10**8}
CHINESE = "零〇一二两三四五六七八九十百千万亿"
# 五千米 and 五千克 are five kilometres and kilograms; 八点三十分 is a time.
_SPELT = rf"[{CHINESE[:13]}](?:[{CHINESE.replace('千', '')}]|千(?![米克瓦]))*(?:点[{CHINESE[:12]}]+(?![十百千]))?"
_CHINESE_PERCENT = re.compile(rf"百分之(?:({_SPELT}|\d+(?:\.\d+)?)|百)")
_CHINESE_NUMBER = re.compile(rf"({_SPELT})")
_CHINESE_PART = rf"({_SPELT}|\d+)"
_CHINESE_FRACTION = re.compile(rf"(?:{_CHINESE_PART}又)?{_CHINESE_PART}分之{_CHINESE_PART}")  # 三又二分之一 is 3 1/2
_CHINESE_HALF = re.compile("一?半(?=$|[个小天年元米斤公])")
_AND_HALF = re.compile(r"\s+and\s+(?:a|one)[\s-]half\b|\s*([个年天米元块斤])半", re.IGNORECASE)


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
    if point := _POINT.match(rest):
        digits = "".join(str(SMALL[digit]) for digit in re.findall(r"[a-z]+", point[1].lower()))
        return Fraction(f"{value}.{digits}"), rest[point.end() :]
    if over := _AND_OVER.match(rest):
        return value + Fraction(SMALL.get((over[1] or "one").lower(), 1), _part(over[2])), rest[over.end() :]
    return Fraction(value), rest


def counted(value: Fraction, rest: str) -> tuple[Fraction, str]:
    """A whole number with what follows it taken in: `3 tenths`, `3 and a half hours`, `3个半小时`."""
    if value.denominator != 1:
        return value, rest
    if over := _COUNTED_OVER.match(rest):
        return value / _part(over[1]), rest[over.end() :]
    if half := _AND_HALF.match(rest):
        return value + Fraction(1, 2), (half[1] or "") + rest[half.end() :]
    return value, rest


def _part(word: str) -> int:
    return _PARTS[word.lower().removesuffix("s")]


def _english_value(words: list[str]) -> int | None:
    """None for words that make no number together, such as `one two` or `two thousand three thousand`."""
    total = group = 0
    room = 1000  # what may be added to the group: less than ten after `twenty`, nothing after `seven`
    last_scale = 10**15
    for word in words:
        if word in SMALL:
            if SMALL[word] >= room:
                return None
            group, room = group + SMALL[word], 10 if SMALL[word] >= 20 else 0
        elif word == "hundred":
            if group >= 100:
                return None
            group, room = (group or 1) * 100, 100
        elif word in SCALES:
            if SCALES[word] >= last_scale or (total and not group):
                return None
            total, group, room, last_scale = total + (group or 1) * SCALES[word], 0, 1000, SCALES[word]
    return total + group


def chinese(text: str) -> tuple[Fraction, bool, str] | None:
    """The number that the text begins with, whether it is a percentage, and what follows it."""
    if half := _CHINESE_HALF.match(text):
        return Fraction(1, 2), False, text[half.end() :]
    if found := _CHINESE_FRACTION.match(text):
        whole, under, over = (_chinese_value(part or "零") for part in found.groups())
        if whole is None or over is None or not under:
            return None
        return whole + over / under, False, text[found.end() :]
    percent = _CHINESE_PERCENT.match(text)
    if found := percent or _CHINESE_NUMBER.match(text):
        value = _chinese_value(found[1] or "一百")
        return None if value is None else (value, percent is not None, text[found.end() :])
    return None


def _chinese_value(text: str) -> Fraction | None:
    if text[0].isdigit():
        return Fraction(text)
    whole, _, decimals = text.partition("点")
    value = _chinese_integer(whole)
    return None if value is None else Fraction(f"{value}.{_digit_by_digit(decimals)}")


def _digit_by_digit(text: str) -> int | str:
    return "".join(str(_DIGITS[c]) for c in text) or 0


def _chinese_integer(text: str) -> int | None:
    """None where the places do not fall, as in 三百百."""
    if all(c in _DIGITS for c in text):  # read digit by digit: 二〇二四
        return int(_digit_by_digit(text))
    for name, scale in reversed(CHINESE_SCALES.items()):
        high, found, low = text.rpartition(name)
        if found:
            above, below = _chinese_integer(high), _chinese_integer(low)
            if not above or below is None or below >= scale:
                return None
            return above * scale + (below * scale // 10 if low in _DIGITS else below)  # 两万五 is 25000
    value, room, digit = 0, 10_000, 0
    for c in text:
        if c in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[c]
        elif _PLACES[c] >= room:
            return None
        else:
            value, room, digit = value + (digit or 1) * _PLACES[c], _PLACES[c], 0
    return value + digit * (room // 10 if text[-2:-1] in ("百", "千") else 1)  # 一千二 is 1200
