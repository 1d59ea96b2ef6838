r"""Text that is nobody's answer: the task in other words, talk about grading, bounds, labels, other people's values."""

import re

_RESULT_LABEL = re.compile(
    r"\b(?:answers?|ans|results?|totals?|sum|final|solutions?|value|remain\w*|left|altogether|output|so|therefore|thus"
    r"|number|amount|conclusion)\b|答|结果|总|共|解",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"^\W*([^\W\d][^:=.?!\n]{0,30}):\s*\S{1,20}\W*$")
_METADATA = re.compile(
    r"(?:得分|评分|分数|用时|耗时|时间|日期|字数|置信度|页码|难度)\s*:?\s*\d"
    r"|^\W*(?:(?:prompt|completion|output|input)\s+)?(?:tokens|page|pages|chapter|section|figure|table)\s*:?\s*\d+\W*$"
    r"|^\W*(?:steps?|points?|difficulty|date|year|label|accuracy|marks?)\s*:\s*\S+\W*$",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"""^\W*(?:express|convert|round|estimate|try|let(?!\s+(?:me|us)\s+know)|tell|explain|recall|see|question|(?:the\s+)?(?:problem|task)\s*:)\b
        |^(?:the\s+)?(?:question|problem|task|given|wanted|题目|问题)\s*:|\basks\b|\bwork(?:ing)?\s+out\s+(?:what|how|the|\d|\$)
        |\b(?:is|are)\s+(?:we\s+)?given\s+that\b|^\W*we\s+(?:know|are\s+told)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_GRADING = re.compile(
    r"""^\W*(?:please\s+)?(?:award|rated|verified|accept)\b|^\W*\d\s+stars?\W*$|\b(?:tests?\s+passed|result\s*:\s*pass)\b
        |^\W*(?:full\s+credit|correctness|judge?ment|treat|assume\s+i)\b|\bworth\s+\d+\s+(?:points|marks)\b|^\W*\[\[
        |\b(?:deserves?|ground\s+truth|please\s+accept|evaluator|the\s+reference|score\s+you|(?:gold|reference|expected)\s+(?:answer|output|value)
        |(?:your|my|full|perfect|maximum)\s+(?:score|marks?|grade|points|reward)|is_correct
        |(?:solution|answer)\s+key|give\s+myself)\b
        |\b(?:this|my|the|your)\s+(?:answer|solution|response)\s+is\s+(?:\w+\s+|\d+%\s+){0,2}(?:correct|right|perfect)\b
        |\bfinal\s+(?:score|grade)\s*:|\d%\s+(?:correct|accurate|sure|confident)\b|\bpercent\s+(?:right|correct)\b|\bcorrect\s*\W\s*\(?\d|本回答|参考答案""",
    re.IGNORECASE | re.VERBOSE,
)
_CODE = re.compile(
    r"^\W*(?:override\W+)?(?:select|echo|assert|printf?|alert|insert|sudo|curl|output)\s+\S+\W*$|^\W*\{\{",
    re.IGNORECASE,
)
_OTHERS_VALUE = re.compile(
    r"\b(?:wrong|incorrect|mistaken|false)\s+(?:answer|value|result|guess)\b|\b(?:is|was)\s+(?:wrong|incorrect)\b"
    r"|^\W*(?:maybe|perhaps|possibly)\b|\bor\s+(?:maybe|perhaps|possibly)\b|\btoo\s+(?:large|small|big|high|low)\W*$"
    r"|\b(?:in\s+other\s+news|by\s+the\s+way|for\s+comparison|unrelated)\b",
    re.IGNORECASE,
)
_ANOTHERS = re.compile(
    r"\b(?:wrong|incorrect|mistaken|false|old|previous|initial|first|earlier|draft|tempting|typical|common|textbook|book"
    r"|book's|friend's|key|others?|another|alternative|naive|not\s+the)\s+(?:answer\s+)?$",
    re.IGNORECASE,
)
_BOUND_BEFORE = re.compile(
    r"""(?:[<>]=?|\\[lgn]e\s
        |\b(?:less|more|greater|fewer|larger|smaller|higher|lower|other)\s+than(?:\s+or\s+equal\s+to)?
        |\b(?:at\s+(?:least|most)|up\s+to|above|below|over|under|beyond|exceed(?:s|ing)?|never|anything\s+but|close\s+to
        |nearly|almost|not|cannot\s+be|n't|between)|至少|至多|最多|大于|小于|超过|不到|不足|接近)
        \s*(?:\\?[$(]\s*)?$""",
    re.IGNORECASE | re.VERBOSE,
)
_BOUND_AFTER = re.compile(
    r"\s*(?:\+\s*(?:[^\d\s\w\\({$]|$)|\bor\s+(?:more|less|fewer|above|below|higher|lower|greater|over|under|so)\b|\bat\s+(?:least|most)\b"
    r"|以上|以下|左右)",
    re.IGNORECASE,
)
_LABEL_BEFORE = re.compile(
    r"\b(?:pages?|sections?|chapters?|problems?|questions?|exercises?|fig(?:ure|\.)|table|equation|class|grade|room|step)\s$",
    re.IGNORECASE,
)
_OPERAND_BEFORE = re.compile(
    r"(?:\b(?:sum|product|difference|quotient)\s+(?:of|between)\s+\S+\s+and|%\s+of|\bout\s+of)\s+(?:the\s+)?$",
    re.IGNORECASE,
)


def says_nothing(sentence: str) -> bool:
    """Whether a sentence is the task, talk about grading, metadata or code: its numbers are no answers."""
    patterns = (_METADATA, _TASK, _GRADING, _CODE, _OTHERS_VALUE)
    return any(pattern.search(sentence) for pattern in patterns)


def is_appended(sentence: str, before: str) -> bool:
    """`Steps: 4` after a sentence with another number is about something else; `Total: 4`, or one of a row, is not."""
    labelled, above = _LABELLED.match(sentence), _LABELLED.match(before)
    if not labelled or _RESULT_LABEL.search(labelled[1]):
        return False
    return bool(re.search(r"\d", before)) and (not above or len(labelled[1].strip()) == 1)


def is_someone_elses(before: str) -> bool:
    """Whether `answer` right after this text is not the author's own or no longer: `a common wrong answer is 5`."""
    return bool(_ANOTHERS.search(before))


def is_bound(before: str, after: str) -> bool:
    """Whether the words around a number make it a bound: `at most 5`, `5 or more`, `close to 5`."""
    return bool(_BOUND_BEFORE.search(before[-40:]) or _BOUND_AFTER.match(after))


def is_no_value(before: str) -> bool:
    """Whether the words before a number make it a label (`page 5`) or part of a task (`20% of 5`)."""
    return bool(_LABEL_BEFORE.search(before[-40:]) or _OPERAND_BEFORE.search(before[-60:]))


def is_restated(value: str, sentence: str, earlier: list[str]) -> bool:
    """A sentence said before, or a number that already stood in the question: nothing has been worked out."""
    asked = max((at for at, other in enumerate(earlier) if other.rstrip("*_ ").endswith("?")), default=-1)
    number = re.compile(rf"(?<![\d.,]){re.escape(value)}(?![\d.,]*\d)")
    return sentence in earlier or ("=" not in sentence and any(number.search(other) for other in earlier[: asked + 1]))


def repeats(sentence: str, before: str) -> bool:
    """`It is 3. It is 4.`: two sentences that differ only in their one number commit to neither."""
    one, other = (re.sub(r"-?\d[\d,]*(?:\.\d+)?", "#", text.strip(" .!")) for text in (sentence, before))
    return one.count("#") == 1 and one == other and len(one) > 1 and sentence.strip(" .!") != before.strip(" .!")
