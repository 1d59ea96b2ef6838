r"""What running text does with its answers: announces them, takes them back, checks them, or says something else."""

import re
from dataclasses import dataclass

from . import nonanswers
from .equality import same_value
from .number import read_number
from .phrases import MAX_PHRASE, announced_value, concludes, is_bare_number, stated_value, stated_words, unmarked

MAX_STATEMENT = 4_000  # characters at the end in which an unannounced answer is looked for
MAX_LETTERS = 20  # of a completion that is nothing but an answer in words
MAX_REMARKS = 2  # sentences without a value that may follow it

_ANNOUNCED = re.compile(
    r"""(?<![A-Za-z])(?:ans(?:wers?)?|final\s+result|(?:correct|right)\s+(?:option|choice))
        (?:\s+(?:to|for|of)\s[^.!?:=\n]{0,80}?)?[*_\s"']*
        (?:\s(?:is|are|was|(?:would|should|must|will)\s+be|becomes|equals|comes\s+(?:out\s+)?to)(?![A-Za-z'])|:|=)
        |^[ \t\#*_]*(?:final\s+)?answer[ \t*_]*$
        |\bans\.(?=\s*[-\d$\\])|\banswer\s+-{1,2}>?\s+(?=[\d$\\])|\A\s*A\s*:(?=[^\n]*\Z)
        |^(?=\(?[A-J]\)?\s+is\s+(?:the\s+)?(?:correct|right)\b)
        |(?<=\?)\s+A\s*:|\b(?:choose|select|pick)\s+(?=\(?[A-J]\b)
        |\b(?:option|choice)(?=\s+\(?[A-J]\)?\s+is\s+(?:the\s+)?(?:correct|right))
        |答案(?=不是|并非)|选项(?=[A-J]\s*(?:是)?正确)|(?:答案|最终结果)(?:应该|应|就|只能)?(?:是|为|等于|选|:|】:?)|(?:^|(?<=[\s,.]))答\s*:|选择?\s*:?(?=\s*[(]?[A-J])""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
# One of them is in every announcement, and a plain search for them is faster.
_CUE_WORDS = (
    *("answer", "ans.", "ans:", "ans=", "final", "correct", "right", "choose", "select", "pick", "a:", "a :"),
    *("答", "最终结果", "选"),
)
_HYPOTHETICAL = re.compile(
    r"\b(?:if|whether|suppose|assum\w+|unless|reward|gold|reference|grader)\b[^.!?\n,]*$|(?:如果|假如|假设)[^.,]*$",
    re.IGNORECASE,
)
# What ends the value inside the announcing sentence: a reason, a contrast, a remark.
_REMARK = re.compile(
    r"""(?:,\s*|\s+)(?:because|since|which|where|whereas|while|not|rather\s+than|instead\s+of|but|so|as\s(?!follows)
        |meaning|after|given|if|when|is\s+(?:the\s+)?(?:correct|right))\b
        |,?\s+and\b(?=[^.!?\n]*\b(?:was|were|wrong|incorrect|mistake|slip)\b)
        |\s+\((?==)|\s+\((?!or\b|possibly|maybe|perhaps)(?=[^()]*[A-Za-z]{3})|\s+-{2,}\s|\s*—|\s*\#{2,}|;\s*(?=[^\W\d])
        |,?\s*(?:而不是|而非|不是|不对|错了|是?正确|因为|因此|所以)""",
    re.IGNORECASE | re.VERBOSE,
)
_DISPLAY = re.compile(r"\\\[\s*(.{1,300}?)\s*\\\]|\$\$\s*(.{1,300}?)\s*\$\$", re.DOTALL)
_CONTRAST = re.compile(r"\s*not\s[^.!?]*?\bbut\s+|\s*(?:不是|并非)[^.!?]*?而是", re.IGNORECASE)
_LEAD_IN = re.compile(r"(?:(?:so|thus|therefore|hence|the|my|our|final|correct|right)\b[\s,]*)+", re.IGNORECASE)
_NEGATION = re.compile(r"\s*(?:not|n't)\b|\s*(?:不是|并非)", re.IGNORECASE)
_REJECTED = re.compile(r"(?:\bnot|\bisn't|不是|而非)\s*\W{0,3}$", re.IGNORECASE)
_COMMITMENT = re.compile(
    r"""\b(?:therefore|thus|hence|so|consequently|finally|final|altogether|in\s+total|in\s+conclusion|overall|actually
        |correct(?:ed|ing|ion|ly)|instead|wait|hold\s+on|scratch|oops|mistake|wrong|revis\w+|redo\w*|re-?calculat\w+|hmm|forgot|missed|overlooked)\b
        |所以|因此|因而|故|最终|综上|总共|更正|不对|错了|应该|应为|等等|忘了|漏了""",
    re.IGNORECASE | re.VERBOSE,
)
_RETRACTION = re.compile(
    r"""\b(?:wait|hold\s+on|(?:scratch|strike|ignore|disregard)\s+(?:that|this|it|my|the\s+above)|correction|edit\s*:|oops
        |my\s+(?:mistake|bad)|i\s+made\s+an?\s+\w+|i\s+was\s+wrong|i\s+mean(?:t)?|i\s+take\s+(?:that|it)\s+back
        |never\s?mind|just\s+kidding|or\s+rather|on\s+(?:second|further)\s+thoughts?|on\s+reflection
        |i\s+(?:see|found|find|spot(?:ted)?)\s+(?:an?|the|my)\s+(?:error|mistake)
        |(?:that|this|which|it|(?:result|answer|value|above)(?:\s+above)?)
         (?:\s+is|'s|\s+was|\s+seems|\s+looks|\s+can't\s+be|\s+cannot\s+be)\s+
         (?:\w+\s+)?(?:wrong|incorrect|false|off|a\s+mistake|not\s+(?:right|correct)))\b
        |\bthat\s+(?:can't|cannot)\s+be\s+(?:right|correct)\b|\bthat(?:'s|\s+is)\s+not\s+(?:right|correct)\b
        |\A\W*\((?:wrong|incorrect)\)
        |(?:^|[.!?]\s+)\W{0,3}(?:hmm,?\s+|no,\s+)?actually\b|(?:^|[.!?]\s+)\W{0,3}no[,.]\s|不对|错了|等等|等一下|更正|算错""",
    re.IGNORECASE | re.VERBOSE,
)
_CONFIRMATION = re.compile(
    r"\b(?:(?<!not )(?<!n't be )(?<!not be )(?:correct|right)|consistent|confirm(?:ed|s)?|matches|checks out|yes)\b"
    r"|没错|正确|无误",
    re.IGNORECASE,
)
_EARLIER = re.compile(r"\b(?:earlier|first|initially|previously|originally|before|if)\b[^.!?]*$", re.IGNORECASE)
_CHECKING = re.compile(
    r"(?:(?<=[.!?])\s{1,9}|(?<=\n)[^\w\n]{0,9})(?:(?:as a )?check\b|verif(?:y|ication)|to (?:check|verify)|note\b"
    r"|(?:let me|let us|let's) (?:double[- ]?check|verify|check)|we can (?:check|verify|confirm)"
    r"|this makes sense|for (?:comparison|reference)|remember\b|indeed\b"
    r"|this (?:uses|is because|includes|makes sense|matches|agrees|works)|验证|验算|检验|检查|注意)",
    re.IGNORECASE,
)
_METADATA = re.compile(
    r"(?:^|(?<=[.!?]\s))[^\w\n]{0,9}(?:\w{1,20} ){0,2}"
    r"(?:tokens?|confidence|score|reward|grade|rating|time|elapsed|word count|length|version|id|seed)"
    r"(?: (?:used|taken|count|level))?\s?[:=].*$|^\W{0,9}page \d+(?: of \d+)?\W*$",
    re.IGNORECASE | re.MULTILINE,
)
_VERDICT = re.compile(r"\W*(?:score|reward|grade|rating|confidence|tokens)\b", re.IGNORECASE)
_ASIDE = re.compile(r"\([^()\\]*[A-Za-z]{3}[^()\\]*\)")
# Sentences whose numbers are nobody's answer: the task, a refusal, words for the grader, code.
_NO_ANSWER = re.compile(
    r"""\?\W{0,9}$|^\W{0,9}(?:compute|calculate|find|evaluate|simplify|solve|determine|what|how|please|put|write|give)\b
        |\b(?:asked|need|have|want|trying|(?:task|goal|aim|job)\s+is|(?=must|let))\s*
         (?:for|(?:to|must|let\s+us|let's)\s+(?:compute|calculate|find|evaluate|solve|determine|simplify|factor))\b
        |\b(?:asks\s+for|may|might|could|(?:problem|question)\s+(?:says|states|tells))\b|(?:^|[,;:])\W{0,9}(?:请|求)|需要计算
        |\b(?:do\s+not|don't|cannot|can't|unable|not\s+able|not\s+sure|unsure|no\s+idea|give\s+up)\b|不知道|无法
        |^\W{0,9}if\s+(?:i\s+am|i'm|that|this|it)\b.{0,12}\b(?:wrong|incorrect|not)\b|不确定|不能确定|(?<!不)可能(?!的?[值取解])|也许|或许|\b(?:other|another|second)\s+guess\b
        |\b(?:full\s+marks|grader|grading|reward|rubric|mark\s+(?:this|it)|as\s+correct)\b|满分
        |\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instructions?|rules?|above)\b
        |"(?:score|reward|grade|rating|correct)"\s*:
        |\b(?:output|return|assign|award|give|set)\s+(?:\w+\s+){0,2}(?:score|grade|marks?|credit)\b
        |__[a-z]\w*__|\b(?:import|lambda|exec|eval|print|exit|open|def|return)\b\s*[\w('"]|\w\.\w+\(""",
    re.IGNORECASE | re.VERBOSE,
)
_EMPHASISED = re.compile(r":\s*\*\*([^*\n]{1,80})\*\*\W*$")  # whatever the sentence is, this is its result
_CODE_BLOCK = re.compile(r"```(?!\s{0,9}\n[^\n]*\n```)(?!(?:latex|tex|text|math|markdown)\b).*?(?:```|\Z)", re.DOTALL)
_NEW_TASK = re.compile(
    r"^[^\w\n]{0,9}(?:(?P<role>user|human|assistant|system|用户)|question|problem|exercise|example|问题|题目"
    r"|now another|next)"
    r"(?:\s?\d{0,3}[^\w\n]{0,3}:|\s\d{1,3}[.)]|\s(?:one|question|problem|task)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!i\.e\.)(?<!e\.g\.)(?=\s|\*|$)|\n")
_BULLET = re.compile(r"^\s*(?:[-*+•]|>(?!\s*[-$\\\d])|\d{1,2}[.)]|#{1,6})\s+")
_CUT_OFF = re.compile(r"\d\s*(?:[-+/^*(\[{]|\\(?:times|cdot|div|frac))\s*[({\[]*\Z")  # `the answer is 42 +`
_CUT_SHORT = re.compile(
    r"(?:\d\s*(?:\+\s*)?\.{3}|\b(?:is|are|was|equals?|gives|makes|of|the|to|by|and|with)|[=+/-]|是|为|等于|得)\s*$"
)
_ENDED = re.compile(r"[.!?)\]}*\"'`|$]\s*$")


@dataclass(frozen=True)
class Announcement:
    """`the answer is 5`: the value and the part of the text that announces it."""

    text: str
    start: int
    end: int


def without_code(text: str) -> str:
    """Blanks program listings: a value that code would print is no answer."""
    return _CODE_BLOCK.sub(lambda m: " " * len(m[0]), text)


def new_tasks(text: str) -> list[tuple[int, bool]]:
    """Where the text goes on with a question or another speaker, and whether it is a speaker."""
    return [(found.start(), found["role"] is not None) for found in _NEW_TASK.finditer(text)]


def announcements(text: str) -> list[Announcement]:
    lower = text.lower()
    first = min((at for word in _CUE_WORDS if (at := lower.find(word)) >= 0), default=len(text))
    cues = list(_ANNOUNCED.finditer(text, text.rfind("\n", 0, first) + 1 if len(lower) == len(text) else 0))
    limits = [*(cue.start() for cue in cues), len(text)][1:]
    found = [_announcement(text, cue, limit) for cue, limit in zip(cues, limits, strict=True)]
    return [announcement for announcement in found if announcement]


def _announcement(text: str, cue: re.Match[str], limit: int) -> Announcement | None:
    """The value after a cue: to the end of its sentence, to a remark, or to the next cue."""
    following = text[cue.end() : min(limit, cue.end() + MAX_PHRASE)]
    region = following.lstrip(" \t\n*_:")
    start = cue.end() + len(following) - len(region)
    if display := _DISPLAY.match(region):
        start, region = start + display.start(display.lastindex or 0), display[display.lastindex or 0]
    elif ending := _SENTENCE_END.search(region, 1):
        region = region[: ending.start()]
    if _HYPOTHETICAL.search(text[max(0, cue.start() - 80) : cue.start()]) or region.rstrip("*_ ").endswith("?"):
        return None
    if nonanswers.is_someone_elses(text[max(0, cue.start() - 40) : cue.start()]):
        return None
    if _CUT_OFF.search(region) and not text[start + len(region) :].strip():
        return None
    contrast = _CONTRAST.match(region)
    remark = _REMARK.search(region, contrast.end() if contrast else 1)
    end = remark.start() if remark else len(region)
    phrase = region[contrast.end() if contrast else 0 : end]
    if _LEAD_IN.fullmatch(phrase):
        return None  # `Final answer: The final answer is 5` announces once
    value = (
        None
        if _NEGATION.match(phrase)
        else announced_value(
            _BULLET.sub("", phrase, count=1)
            if "\n" in following[: len(following) - len(region)] + cue[0][-1:]
            else phrase
        )
    )
    return Announcement(value, cue.start(), start + end) if value and not _NO_ANSWER.search(value) else None


def is_rejected(before: str) -> bool:
    """Whether the words before a value say that it is not the answer."""
    return bool(_REJECTED.search(before))


def commits(gap: str) -> bool:
    """Whether the words between two different values say that the second one counts."""
    return bool(_COMMITMENT.search(gap) or _RETRACTION.search(gap) or re.match(r"[^\w\n]{0,4}\?", gap))


def taken_back(tail: str) -> str | None:
    """What the text says after it has taken back the answer before it; None where that answer stands."""
    found = _RETRACTION.search(tail)
    if not found or _CONFIRMATION.search(tail, found.end()) or _EARLIER.search(tail[: found.start()]):
        return None
    return tail[found.end() :]


def last_statement(text: str) -> str | None:
    """The value of the last sentence that has one, where nothing is announced; None where that commits to nothing."""
    sentences = _sentences(text[-MAX_STATEMENT:])
    for back, (sentence, starts_line) in enumerate(reversed(sentences)):
        emphasised = _EMPHASISED.search(sentence)
        said = emphasised[1] if emphasised else sentence
        if _NO_ANSWER.search(said) or nonanswers.says_nothing(said):
            return None
        if _ANNOUNCED.search(sentence) and not announcements(sentence):
            return None  # `if the answer is 7`
        value = stated_value(sentence)
        if value is None and (len(sentences) == 1 or (back == 0 and concludes(sentence))):
            value = stated_words(sentence)
        if value is None and len(sentences) == 1 and len(re.findall(r"[^\W\d_]", sentence)) <= MAX_LETTERS:
            return unmarked(sentence)  # nothing else was said: `Tuesday`
        if value is None and (back == MAX_REMARKS or re.search(r"\d", sentence) or not _ENDED.search(sentence)):
            return None
        if value is None:
            continue
        if back == 0 and (_CUT_SHORT.search(sentence) or not (_ENDED.search(sentence) or _ends_with(sentence, value))):
            return None  # cut off in the middle
        earlier = sentences[: len(sentences) - 1 - back]
        above = earlier[-1][0] if earlier else ""
        if above and (nonanswers.is_appended(sentence, above) or nonanswers.repeats(sentence, above)):
            return None
        if not concludes(sentence) and nonanswers.is_restated(value, sentence, [said for said, _ in earlier]):
            return None
        appended = earlier and is_bare_number(sentence)
        return None if appended and not _agrees(value, earlier[-1][0], starts_line) else value
    return None


def _agrees(value: str, before: str, starts_line: bool) -> bool:
    """A bare number at the end repeats the sentence before it, or stands on its own line after one without a value."""
    stated = stated_value(before)
    return starts_line or before.endswith("?") if stated is None else same_value(stated, value, symbolic=False)


def _sentences(text: str) -> list[tuple[str, bool]]:
    """The sentences and whether they start a line, without asides, checks of the result, and metadata lines."""
    without_metadata = _METADATA.sub("", text)
    text = without_metadata if without_metadata.strip() or not _VERDICT.match(text) else ""
    checking = next((found for found in _CHECKING.finditer(text) if text[: found.start()].strip()), None)
    text = _ASIDE.sub("", text[: checking.start()] if checking else text)
    found = []
    for line in text.splitlines():
        parts = [part for part in _SENTENCE_END.split(_BULLET.sub("", line, count=1)) if re.search(r"\w", part)]
        found += [(part.strip(), at == 0) for at, part in enumerate(parts)]
    return found


def _ends_with(sentence: str, value: str) -> bool:
    """Whether nothing but a unit follows the value: such a sentence may lack its full stop and still be finished."""
    rest = sentence[sentence.rfind(value) + len(value) :]
    return not re.search(r"\w", rest) or read_number(f"0 {unmarked(rest)}") is not None
