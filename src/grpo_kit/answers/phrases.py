r"""The value that a phrase or a plain sentence states: `about 5 apples`, `So $x = 3$`, `the total is 12 + 3 = 15`."""

import re

from . import nonanswers
from .equality import same_value
from .number import CURRENCY, TOKEN, Number, read_number
from .values import Expression, Sequence, Words, read
from .words import CHINESE, ENGLISH

MAX_WORDS = 8  # of an answer in words
MAX_PHRASE = 500

_MATH = re.compile(
    r"\$\$?((?!\s)[^$]{1,300}?)(?<![\s\\])\$\$?(?!\d)|\\\((.{1,300}?)\\\)|\\\[(.{1,300}?)\\\]", re.DOTALL
)
_SCALE = r"(?:万亿|[万亿]|(?:thousand|million|billion|trillion)\b)"
_BELOW_ZERO = r"\s?(?:°\s?[CF]?|degrees)?\s*below zero"
_SIGNED = rf"(?:minus |negative |[-+]\s?)?{CURRENCY}?\s?-?{TOKEN}(?:\s?{_SCALE}|{_BELOW_ZERO})?"
_NUMBER = re.compile(rf"(?<![\w.^_{{\\])(?:{_SIGNED})(?!\d*!!)|(?<=[一-鿿])(?:{_SIGNED})")
_FORMULA_PART = r"[-+*/^=().,:\d\s{}\[\]]|\\[a-z]+|\bpi\b|(?<![A-Za-z])[A-Za-z](?![A-Za-z])"
_FORMULA = re.compile(rf"(?<![\w^{{.,'$€£¥-])(-?(?:\d|(?=\\)|[(\[]|[A-Za-z]\s?[-+*/^=(\\])(?:{_FORMULA_PART})*)$")
_CHINESE_NUMBER = re.compile(rf"负?(?:[{CHINESE}]{{2,}}|[{CHINESE.replace('一', '')}])[^,.]*$")
_COPULA = re.compile(
    r"\b(?:is|are|was|were|be|equals?|gives?|makes?|becomes?|yields?|gets?|have|has|costs?|leaves?)\s(?!that\b)"
    r"|[=:是为得即有共]|等于"
)
_SIGN_WORD = re.compile(r"\b(?:negative|minus)\s$", re.IGNORECASE)
_PRONOUN = re.compile(r"one\b(?![\s-](?:hundred|thousand|million|half|third|quarter))", re.IGNORECASE)
_CONNECTORS = re.compile(r"(?:[\s,;.]|and\b|or\b|和|或|及)*")
_FILLER = re.compile(
    r"^\W*(?:that|either|exactly|about|approximately|around|roughly|only|just|simply|equal to|the following"
    r"|one of these|indeed|therefore|thus)\b[\s:,]*",
    re.IGNORECASE,
)
_OPEN_ENDED = re.compile(
    r"\b(?:less|more|greater|fewer|larger|smaller|higher|lower) than\b|\bbetween\b|\bnot\b|n't\b|不是",
    re.IGNORECASE,
)
_CIRCUMSTANCE = re.compile(r"\s(?:for|from|at|on|among|with|out of|per|in)\s")
_REASON = re.compile(
    r",?\s(?:since|because)\s|,\s(?:where|(?:which is )?\S{1,9} (?:more|less|fewer) than)\s"
    r"|,?\s(?:and not|not|rather than|instead of)\s(?=\S*\d)"
)
_OR = re.compile(r",?\s+or\s+")
_WITHIN = re.compile(r"\b(?:(?:in|for|per|after|every|within|from)\s(?:the\s|a\s)?|of\sthe\s)$", re.IGNORECASE)
_LINK = re.compile(
    rf"{_COPULA.pattern}|\b(?:total|so|making|leaving|earns?|left|altogether|and then"
    r"|keeps?|sav(?:es|ed|ing)|paying|simplif(?:ies|ied) to|reduces to|i\.e\.)|[剩还得]"
)
_SUMMED = re.compile(r"^[^,.\d]{0,30}\b(?:in (?:total|all)|altogether)\b")
_CONCLUSION = re.compile(
    r"\W*(?:so|thus|therefore|hence|in total|altogether|finally)\b|所以|因此|故|一?共", re.IGNORECASE
)
_SO = re.compile(r"(?<=[\d)}$]),\s(?:so|thus|hence|therefore)\s(?=[^,]*$)", re.IGNORECASE)
_LEAD = re.compile(r"^\W*(?:so|thus|therefore|hence|then|finally)\b[\s,:]*(?=\S)", re.IGNORECASE)
_SOLUTIONS = re.compile(
    r"(?:\b(?:roots|solutions?|zeros|zeroes)\b|解|根)[^=.]{0,60}?(?:\b(?:are|is)\b|:|[是为])\s*(.+)$", re.IGNORECASE
)
_OPERATOR_BEFORE = re.compile(r"[\d)}]\s*(?:[-+*/^]|\\(?:times|cdot|div)|to|through)\s*$")
_OPEN_UPWARD = re.compile(r"\d(?:\s?\+|-?ish)[\s.!*]*$")  # 42+
_NO_PHRASE = re.compile(r"(?:how|what|whatever|correct|right|wrong|incorrect)\b(?!\W*$)", re.IGNORECASE)
_EXPLAINED = re.compile(r"([^:]+):\s(?=.*[=A-Za-z])")  # `14: 3 * 14 = 42`
_RATHER = re.compile(r".*\bor rather\b[\s,]*", re.IGNORECASE)
_INSTEAD = re.compile(r"\W*not\s[^.!?]{1,60}?\bbut\s+", re.IGNORECASE)
_IS = re.compile(r"(?:\b(?:is|was|are|were|be)|'s)\s+(?:the\s+|an?\s+)?", re.IGNORECASE)
_PRAISE = re.compile(
    r"\b(?:correct|right|clear|done|valid|complete|consistent|here|it|that|this|not|all)\b", re.IGNORECASE
)
_DESCRIPTION = re.compile(
    r"(?:the\s+)?(?:total\s+)?(?:number|value|sum|product|amount|count|result)\s+of\s", re.IGNORECASE
)
_PROSE = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{3,}|(?:of|is|at|to|by|on|so|as)\b)|[一-鿿]")
_TRAILING = re.compile(r"(?:\s[:;]-?[()]+|[^\w()\[\]{}%$°€£¥!|'\"\\])+$")


def announced_value(phrase: str) -> str | None:
    """What follows `the answer is`: a value, or the phrase itself where it commits to no single one."""
    if _OPEN_UPWARD.search(phrase):
        return phrase.strip(" .!*")
    phrase = unmarked(phrase if "{" in phrase else phrase.rstrip("} \n"))
    while filler := _FILLER.match(phrase):
        phrase = phrase[filler.end() :]
    if not phrase or len(phrase) > MAX_PHRASE:
        return None
    if _DESCRIPTION.match(phrase) and not _COPULA.search(phrase):
        return phrase  # `the number of ways to seat 4 people` is the task in other words
    if math := list(_MATH.finditer(phrase)):
        return _joined(math, phrase) if len(math) > 1 else _with_unit(math[0], phrase)
    if any(nonanswers.is_bound(phrase[: n.start()], phrase[n.end() :]) for n in _NUMBER.finditer(phrase)):
        return phrase
    if _NO_PHRASE.match(phrase):
        return phrase
    if rather := _RATHER.match(phrase):
        phrase = phrase[rather.end() :]
    if (before := _EXPLAINED.match(phrase)) and _is_value(before[1]):
        phrase = before[1]
    if _is_value(phrase) or _OPEN_ENDED.search(phrase):
        return _first_of_same(phrase)
    if not re.search(r"\d", phrase):
        return _worded(phrase) or (phrase if len(phrase.split()) <= MAX_WORDS else None)
    for part in (_CIRCUMSTANCE.split(phrase)[0], phrase[_last_end(_COPULA, phrase) :].strip()):
        if part != phrase and _is_value(part):
            return part
    numbers = {found[0].strip() for found in _NUMBER.finditer(phrase)}
    return numbers.pop() if len(numbers) == 1 else phrase


def stated_value(sentence: str) -> str | None:
    """The last value of a sentence that announces nothing; None where it is part of an unevaluated expression."""
    sentence = _LEAD.sub("", unmarked(_REASON.split(_INSTEAD.sub("", sentence[-MAX_PHRASE:]), maxsplit=1)[0]))
    if solutions := _SOLUTIONS.search(sentence):
        return solutions[1] if _is_value(solutions[1]) else None
    if _is_value(sentence):
        return _first_of_same(sentence)
    if clause := _SO.search(sentence):
        return stated_value(sentence[clause.end() :]) or stated_value(sentence[: clause.start()])
    math = list(_MATH.finditer(sentence))
    numbers = [n for n in _NUMBER.finditer(sentence) if not any(m.start() <= n.start() < m.end() for m in math)]
    if math and (not numbers or numbers[-1].end() < math[-1].end()):
        return _joined(math, sentence)
    tail = _FILLER.sub("", sentence[_last_end(_COPULA, sentence) :].strip(), count=1)
    if not re.search(r"\d", tail) and read_number(tail):
        return tail  # 负三度
    if isinstance(read(tail), Sequence) and _is_value(tail):
        return _first_of_same(tail)
    if isinstance(read(tail), Number) and read_number(tail) is None:
        return tail  # 3/4 (75%)
    formula = _FORMULA.search(sentence)
    if formula and not (numbers and numbers[-1].start() <= formula.start(1) < formula.end() <= numbers[-1].end()):
        before = sentence[: formula.start()]
        unsettled = _OPEN_ENDED.search(_just_before(before)) or _OPERATOR_BEFORE.search(before)
        return formula[1].strip() if _is_value(formula[1]) and not unsettled else None
    return _last_number(numbers, sentence) if numbers else _worded(sentence)


def stated_words(sentence: str) -> str | None:
    """`The day is Tuesday` says Tuesday, `Yes, it is even` says yes; not more than three words."""
    sentence = unmarked(sentence)
    if verdict := re.match(r"(?:yes|no)\b(?=,)", sentence, re.IGNORECASE):
        return verdict[0]
    words = sentence[_last_end(_IS, sentence) :]
    short = words != sentence and 0 < len(words.split()) <= 3
    return words if short and not re.search(r"\d", sentence) and not _PRAISE.search(words) else None


def concludes(sentence: str) -> bool:
    return bool(_CONCLUSION.match(sentence))


def unmarked(text: str) -> str:
    """Without Markdown emphasis, quotes and what stands after the last word."""
    text = re.sub(r"\*\*(?![\d(])|(?<![\d)])\*\*|(?<=\d)\*\*(?=\W*$)|__|`", "", text).strip()
    text = _TRAILING.sub("", text.lstrip("*\"' |")).rstrip("*\"' |")
    text = re.sub(r"(?<![\d!])!+$|(?<=\d)!$", "", text)  # 5!! is a factorial
    return re.sub(r"[*\"'|.,;:\s]+$", "", text)


def is_bare_number(sentence: str) -> bool:
    return read_number(unmarked(sentence).strip("$")) is not None


def _joined(math: list[re.Match[str]], text: str) -> str:
    """The last formula, with those before it that only commas and `and` part from it."""
    first = len(math) - 1
    while first and _CONNECTORS.fullmatch(text[math[first - 1].end() : math[first].start()]):
        first -= 1
    return ", ".join(_content(found) for found in math[first:])


def _with_unit(math: re.Match[str], phrase: str) -> str:
    unit = phrase[math.end() :].strip()
    return f"{_content(math)} {unit}" if math.start() == 0 and unit and read_number(f"0 {unit}") else _content(math)


def _content(math: re.Match[str]) -> str:
    return next(part for part in math.groups() if part).strip()


def _last_number(numbers: list[re.Match[str]], sentence: str) -> str | None:
    """The last number, where the sentence concludes to it or has no other; `in 7 days` is no other."""
    numbers = [n for n in numbers if not nonanswers.is_no_value(sentence[: n.start()])]
    numbers = [n for n in numbers if not _WITHIN.search(sentence[: n.start()])] or numbers[-1:]
    if not numbers:
        return None
    last = numbers[-1]
    value, before = last[0].strip(), sentence[: last.start()]
    if _OPERATOR_BEFORE.search(before) or (value[0] in "+-" and re.search(r"[\d)}]\s*$", before)):
        return None
    concluded = len({n[0].strip() for n in numbers}) == 1 or _LINK.search(
        sentence[numbers[-2].end() : last.start()] + _SUMMED.sub(" total ", sentence[last.end() :], count=1)
    )
    if nonanswers.is_bound(before, sentence[last.end() :]):
        return None
    if _OPEN_ENDED.search(_just_before(before)) or not (concluded or _CONCLUSION.match(sentence)):
        return None
    return value


def _just_before(before: str) -> str:
    """The words right before a value, from the last verb on: `the difference between 50 and 8 is 42`."""
    return before[max(_last_end(_COPULA, before) - 5, len(before) - 20, 0) :]


def _is_value(text: str) -> bool:
    """A number, a list or a formula, and no prose."""
    value = read(text)
    parts = value.items if isinstance(value, Sequence) else (value,)
    wordy = (isinstance(p, Words) or (isinstance(p, Expression) and _PROSE.search(p.latex)) for p in parts)
    return not any(wordy)


def _worded(phrase: str) -> str | None:
    """A number in words at the end of a phrase: `it is forty-two apples`."""
    tail = phrase[_last_end(_COPULA, phrase) :].strip()
    if read_number(tail):
        return tail
    starts = [
        _with_sign(phrase, found.start()) for found in (*ENGLISH.finditer(phrase), *_CHINESE_NUMBER.finditer(phrase))
    ]
    spelt = [_CIRCUMSTANCE.split(phrase[start:])[0] for start in starts]
    return next((number for number in spelt if read_number(number) and not _PRONOUN.match(number)), None)


def _with_sign(phrase: str, start: int) -> int:
    sign = _SIGN_WORD.search(phrase[:start])
    return sign.start() if sign else start


def _first_of_same(text: str) -> str:
    """`3/8, or 37.5%` names one value twice."""
    parts = _OR.split(text)
    return parts[0] if all(same_value(parts[0], part, symbolic=False) for part in parts[1:]) else text


def _last_end(pattern: re.Pattern[str], text: str) -> int:
    return max((found.end() for found in pattern.finditer(text)), default=0)
