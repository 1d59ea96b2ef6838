r"""One number read out of a short text, exactly: `1,234`, `-3/4`, `2\frac{1}{3}`, `3.2 \times 10^5`, `$5`, `12%`."""

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from . import words

MAX_UNIT_WORDS = 8
MAX_DIGITS = 1000  # beyond it a number is unreadable: exact arithmetic on it would stall
CURRENCY = r"(?:US\$|HK\$|A\$|C\$|[$€£¥₹₩₽]|(?:USD|EUR|GBP|RMB|CNY|Rs\.?)\s)"

_INTEGER = r"(?:\d{1,3}(?:(?:,\d{3})+|(?:[ ]\d{3})+|(?:'\d{3})+|(?:,\d\d)+,\d{3}|\.\d{3}(?:\.\d{3})+)(?!\d)|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?|\.\d+)"
_ARGUMENT = rf"(?:\{{\s*-?\s*{_DECIMAL}\s*\}}|\d)"
_EXPONENT = r"(?:\{\s*[-+]?\d+\s*\}|\(\s*[-+]?\d+\s*\)|[-+]?\d+)"
# The same forms without names, for finding numbers in prose.
TOKEN = (
    rf"(?:(?:{_INTEGER}[ ]?)?\\frac\s*{_ARGUMENT}\s*{_ARGUMENT}"
    rf"|\d+(?:[ ](?:and[ ])?|又)\d+/\d+|{_DECIMAL}[ ]?/[ ]?{_DECIMAL}"
    rf"|{_DECIMAL}[eE][-+]?\d+|(?:{_DECIMAL}\s*(?:\\times|\\cdot|\*|x)\s*)?10\s*\^\s*{_EXPONENT}"
    rf"|{_DECIMAL}\s*\^\s*{_EXPONENT}|{_DECIMAL})(?:\s*%)?"
)
_BODY = re.compile(
    rf"""(?:(?P<lwhole>{_INTEGER})\s*(?:and\s+)?)?\\frac\s*(?P<lnum>{_ARGUMENT})\s*(?P<lden>{_ARGUMENT})
    | (?P<whole>\d+)(?:[ ](?:and[ ])?|又)(?P<wnum>\d+)/(?P<wden>\d+)
    | (?P<num>{_DECIMAL})\s*/\s*(?P<den>{_DECIMAL})
    | (?P<mantissa>{_DECIMAL})[eE](?P<exponent>[-+]?\d+)
    | (?:(?P<factor>{_DECIMAL})\s*(?:\\times|\\cdot|\*|x)\s*)?10\s*\^\s*(?P<tens>{_EXPONENT})
    | (?P<base>{_DECIMAL}|\(-?{_DECIMAL}\))\s*\^\s*(?P<power>{_EXPONENT})
    | (?P<fixed>\d*\.\d*)\\(?:overline|bar|dot)\s*\{{(?P<repeat>\d+)\}}
    | (?P<plain>{_DECIMAL})""",
    re.VERBOSE,
)
_SIGN = re.compile(r"\s*([-+负]|零下|minus\s|negative\s)\s*", re.IGNORECASE)
_CURRENCY = re.compile(rf"\s*({CURRENCY})\s*")
_SCALE = re.compile(r"\s*(hundred|thousand|million|billion|trillion)\b|\s*(万亿|亿|万)")
_PERCENT = re.compile(r"\s*(?:%|percent(?:age points?)?\b|per cent\b|pct\b)")

_ATTACHED_UNIT = re.compile(
    r"[mcdkn]m|k?g|mg|[mk]?[lL]|sec|min|hrs?|k?mph|kmh|ft|in|lbs?|oz|yd|[ap]m|th|st|nd|rd|k?Hz|k[WJ]|[msh]|[^\W\d_]{4,}"
)
_SPACED_LETTER = re.compile("[mgshlLVWANJCFK]")
# Words that go on with the value instead of naming what is counted.
_NO_UNIT = re.compile(
    "is|are|was|were|has|have|can|or|and|to|plus|minus|times|divided|through|over|versus|vs|by|with|for|from|the|pi|sqrt|sin|cos|tan|log|ln|mod|"
    + "|".join(words.SMALL),
    re.IGNORECASE,
)
_NO_FIRST_UNIT = ("squared", "cubed", "factorial")  # but 5 meters squared
_UNIT_WORD = re.compile(r"[^\W\d_]+\.?(?:\^\{?-?\d\}?)?|[A-Za-z]+-?\d")
_COMPOUND = re.compile(rf"[时分元块角米里克斤吨年天周月点度][{words.CHINESE}半]|分之")  # 三元五角 is not 3
_BELOW_ZERO = re.compile(r"\s*(?:°\s?[CF]?|degrees(?: Celsius| Fahrenheit)?)?\s*below zero", re.IGNORECASE)
_SAME_UNIT = {
    name: (kind, Fraction(factor))
    for kind, units in {
        "length": {"1/1000": "mm millimeter", "1/100": "cm centimeter", "1": "m meter", "1000": "km kilometer"},
        "mass": {"1/1000": "mg milligram", "1": "g gram", "1000": "kg kilogram"},
        "time": {"1": "s sec second", "60": "min minute", "3600": "h hr hour", "86400": "day"},
        "money": {"1": "$ dollar", "1/100": "cent"},
    }.items()
    for factor, names in units.items()
    for name in names.split()
}


@dataclass(frozen=True)
class Number:
    value: Fraction
    percent: bool = False
    unit: str = ""
    product: bool = False  # 3m may be three times m: as a gold it is not 3


def read_number(text: str) -> Number | None:
    """The number that the text is, with its sign, currency, scale, percent sign and unit; None for anything else."""
    text = text.strip()
    if not text or len(text) > MAX_DIGITS:
        return None
    if text[0] == "(" and text[-1] == ")" and "(" not in text[1:]:
        return read_number(text[1:-1])
    negative, unit = False, ""
    for _ in range(2):  # -$40 and $-40
        if sign := _SIGN.match(text):
            if negative:
                return None
            negative, text = sign[1].strip() not in "+", text[sign.end() :]
        if not unit and (money := _CURRENCY.match(text)):
            unit, text = money[1].strip(), text[money.end() :]
    if negative and re.match(r"\((?!\s*-).*\)$", text) and (inner := read_number(text)):
        return replace(inner, value=-inner.value)
    body = _words(text) or _digits(text)
    if body is None:
        return None
    value, percent, rest = body
    value, rest = words.counted(value, rest)
    if scale := _SCALE.match(rest):
        value, rest = value * _scale(scale[1] or scale[2]), rest[scale.end() :]
    if sign := _PERCENT.match(rest):
        percent, rest = True, rest[sign.end() :]
    if below := _BELOW_ZERO.match(rest):
        negative, rest = not negative, rest[below.end() :]
    if not _is_unit(rest):
        return None
    product = len(rest) == 1 and rest.isascii() and rest.isalpha()
    return Number(-value if negative else value, percent, unit or rest.strip().strip("."), product)


def same_number(gold: Number, answer: Number) -> bool:
    """Exact equality; a percent sign may be missing on one side, a unit too, but two known units must agree."""
    if gold.product and gold.unit != answer.unit:
        return False
    if gold.unit and answer.unit and gold.unit != answer.unit:
        one, other = _known_unit(gold.unit), _known_unit(answer.unit)
        if one and other:
            return one[0] == other[0] and gold.value * one[1] == answer.value * other[1]
    if gold.percent == answer.percent or gold.value == answer.value:
        return gold.value == answer.value
    return gold.value / (100 if gold.percent else 1) == answer.value / (100 if answer.percent else 1)


def _digits(text: str) -> tuple[Fraction, bool, str] | None:
    found = _BODY.match(text)
    value = _body_value(found.groupdict()) if found else None
    return None if value is None or not found else (value, False, text[found.end() :])


def _body_value(part: dict[str, str | None]) -> Fraction | None:
    """The value of a matched _BODY; None where it has none or is too large to hold."""
    match {name: text for name, text in part.items() if text is not None}:
        case {"lnum": num, "lden": den, **whole}:
            return _mixed(whole.get("lwhole", "0"), num, den)
        case {"whole": mixed, "wnum": num, "wden": den}:
            return _mixed(mixed, num, den)
        case {"num": num, "den": den}:
            return _mixed("0", num, den)
        case {"mantissa": mantissa, "exponent": exponent}:
            return _power_of(Fraction(10), _plain(exponent), _plain(mantissa))
        case {"tens": exponent, **rest}:
            return _power_of(Fraction(10), _plain(exponent), _plain(rest.get("factor", "1")))
        case {"base": base, "power": power}:
            return _power_of(_plain(base), _plain(power))
        case {"fixed": fixed, "repeat": repeat}:
            places = len(fixed.partition(".")[2])
            return _plain(f"0{fixed}0") + Fraction(int(repeat), 10**places * (10 ** len(repeat) - 1))
        case {"plain": plain}:
            return _plain(plain)
    return None


def _plain(text: str) -> Fraction:
    text = re.sub(r"[\s,'{}()+]", "", text)
    return Fraction(text.replace(".", "") if text.count(".") > 1 else text)


def _mixed(whole: str, num: str, den: str) -> Fraction | None:
    return _plain(whole) + _plain(num) / _plain(den) if _plain(den) else None


def _power_of(base: Fraction, exponent: Fraction, factor: Fraction = Fraction(1)) -> Fraction | None:
    digits = max(len(str(base.numerator)), len(str(base.denominator)))
    if abs(exponent) * digits > MAX_DIGITS or (base == 0 and exponent <= 0):
        return None
    return factor * base ** int(exponent)


def _words(text: str) -> tuple[Fraction, bool, str] | None:
    if english := words.english(text):
        return english[0], False, english[1]
    return words.chinese(text)


def _scale(word: str) -> int:
    if word == "hundred":
        return 100
    return words.SCALES[word] if word in words.SCALES else 10**12 if word == "万亿" else words.CHINESE_SCALES[word]


def _is_unit(rest: str) -> bool:
    """Whether what stands after a number only names what it counts: `cm^3`, ` square meters`, `平方米`, `°C`."""
    name = rest.strip()
    if re.fullmatch(r"(?:°\s?[CFK]?|[$€£¥'\"])?\.?", name):
        return True
    name = re.sub(r"\\(?:mu|Omega)(?![A-Za-z])\s*", "ohm", name)
    tokens = [token for token in re.split(r"\s+|(?<=\w)[/·-](?=\w)|\\cdot", name) if token not in ("", "/")]
    if not 0 < len(tokens) <= MAX_UNIT_WORDS or not all(_UNIT_WORD.fullmatch(token) for token in tokens):
        return False
    letters = [re.sub(r"[\W\d_]", "", token) for token in tokens]
    if any(_NO_UNIT.fullmatch(word) for word in letters) or letters[0] in _NO_FIRST_UNIT or _COMPOUND.search(name):
        return False
    if rest[0].isspace() or not letters[0].isascii():
        return all(len(w) > 1 or not w.isascii() or _SPACED_LETTER.fullmatch(w) for w in letters)
    return bool(_ATTACHED_UNIT.fullmatch(letters[0]))  # 5x is a product, 5cm is not


def _known_unit(unit: str) -> tuple[str, Fraction] | None:
    return _SAME_UNIT.get(unit if unit in _SAME_UNIT else unit.lower().removesuffix("s"))
