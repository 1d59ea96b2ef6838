r"""The answer that a completion commits to last: its boxes, tags, `####` lines and sentences, in their order."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise

from . import prose
from .equality import same_value
from .json_object import json_answer
from .text import balanced, plain, visible

PLACES = ("none", "boxed", "answer_tag", "hash")
MAX_LENGTH = 100_000  # characters at the end that are read
MAX_MARKS = 50  # more is an enumeration
MAX_TASKS = 20

_IDLE_ZEROS = re.compile(r"(?<![\d.])0{30,}(?=\d)|(\d\.\d{0,30}?)0{30,}(?!\d)")  # they would hide the closing brace
_FORMULA_STOP = re.compile(r"[.,;](?=\s*(?:\\\]|\\\)|\$\$))")  # the full stop of a displayed formula ends no sentence
_STRUCK = re.compile(r"~~[^~\n]{1,80}~~|</?(?:b|i|u|em|strong|span|p|br)\b[^<>]{0,40}>", re.IGNORECASE)
_THEREFORE = re.compile(r"(?<![<>=])=>|[⇒→∴]|\\(?:Rightarrow|implies|therefore)(?![A-Za-z])")
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.IGNORECASE | re.DOTALL)
_BOX = re.compile(r"(?:\\(?:boxed|fbox)|\bboxed(?=\{))\s?(?:(?P<open>\{)|(?P<bare>[-+]?\w+(?:\.\d+)?))")
_HASH = re.compile(r"^[ \t]*####(?!#)[ \t]*(.*)$", re.MULTILINE)
_HEADING = re.compile(r"[^\w\\$]*[A-Za-z]{2,}")
_UNFINISHED = re.compile(r"<answer>|\\boxed|^[ \t]*####[ \t]*$", re.IGNORECASE | re.MULTILINE)
_PLACEHOLDER = re.compile(
    r"(?!\s*\\\{\s*\\\}\s*\Z)\W*(?:(?:the |your |my )*(?:final |correct )?answer(?: here)?)?\W*", re.IGNORECASE
)
_SENTENCE = re.compile(r"\s*[A-Z][A-Za-z ]{1,60}(?: (?:is|are|was|were|equals)|:) +([^\n]{1,60}?)\.?\s*")
_SEPARATORS = re.compile(r"(?:\band\b|\bor\b|[\s,;$.]|和|或|[a-z]\s*=|\\[()])*")


@dataclass(frozen=True)
class Candidate:
    text: str
    start: int
    end: int
    places: frozenset[str] = frozenset()
    announced: bool = False


@lru_cache(maxsize=1024)  # completions of one prompt are often alike
def final_answer(completion: str, require: str = "none") -> str | None:
    """The answer that the completion commits to last, outside its reasoning; None where there is none."""
    if require not in PLACES:
        raise ValueError(f"require: {require!r}; write one of {', '.join(PLACES)}")
    text = plain(_IDLE_ZEROS.sub(r"\1", visible(completion)[-MAX_LENGTH:]))
    is_json, entry = json_answer(text)
    if is_json:
        return entry if require == "none" else None
    text = _own_turn(_readable(text))
    if candidates := _candidates(text):
        chosen = _settled(candidates, text)
    elif _UNFINISHED.search(text) or text.count("$$") % 2 or text.count("\\[") > text.count("\\]"):
        return None
    else:
        chosen = _statement(text)
    if chosen is None or (require != "none" and require not in chosen.places):
        return None
    return chosen.text


def _readable(text: str) -> str:
    """Without program listings, struck out text, HTML emphasis and the full stops of displayed formulas."""
    text = _FORMULA_STOP.sub("", prose.without_code(text))
    return _THEREFORE.sub(" so ", _STRUCK.sub("", text))


def _own_turn(text: str) -> str:
    """Up to where it goes on, after an answer, with a question of its own or another speaker."""
    for at, is_speaker in prose.new_tasks(text)[:MAX_TASKS]:
        before = text[:at]
        if before.strip() and (is_speaker or _candidates(before) or _statement(before)):
            return before
    return text


def _candidates(text: str) -> list[Candidate]:
    """Everything that is offered as an answer, in order; a mark inside an announcement is that announcement's value."""
    marks = [mark for mark in _marks(text) if not prose.is_rejected(text[max(0, mark.start - 20) : mark.start])]
    said = []
    for announced in prose.announcements(text):
        inside = [i for i, m in enumerate(marks) if m.start < announced.end and announced.start < m.end]
        for i in inside:
            marks[i] = replace(marks[i], announced=True)
        if not inside:
            said.append(Candidate(announced.text, announced.start, announced.end, announced=True))
    return sorted([*marks, *said], key=lambda candidate: candidate.start)


def _marks(text: str) -> list[Candidate]:
    """Tags, `####` lines and boxes outside these; empty ones and placeholders are none."""
    tags = [_mark(tag[1], tag.start(), tag.end(), "answer_tag") for tag in _first(_TAG, text)]
    lines = [line for line in _first(_HASH, text) if _is_answer(line, text)]
    outer = tags + [_mark(line[1], line.start(), line.end(), "hash") for line in lines]
    boxes = [box for box in _boxes(text) if not any(mark.start <= box.start < mark.end for mark in outer)]
    return [mark for mark in outer + boxes if not _PLACEHOLDER.fullmatch(mark.text)]


def _first(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return list(islice(pattern.finditer(text), MAX_MARKS + 1))


def _mark(content: str, start: int, end: int, place: str) -> Candidate:
    """A marked answer; a box inside a tag stands in both places."""
    boxes = _boxes(content)
    if len(boxes) == 1:
        return Candidate(boxes[0].text, start, end, frozenset({place, "boxed"}))
    return Candidate(_said(content), start, end, frozenset({place}))


def _boxes(text: str) -> list[Candidate]:
    found: list[Candidate] = []
    for box in _first(_BOX, text):
        end = balanced(text, box.start("open")) + 1 if box["open"] else box.end()
        if end == 0 or (found and box.start() < found[-1].end):
            continue
        content = box["bare"] or _without_boxes(text[box.end() : end - 1])
        found.append(Candidate(_said(content), box.start(), end, frozenset({"boxed"})))
    return found


def _without_boxes(content: str) -> str:
    """A box in a box is only its content."""
    while inner := re.search(r"\\(?:boxed|fbox)\s?(?=\{)", content):
        end = balanced(content, inner.end())
        if end < 0:
            break
        content = content[: inner.start()] + content[inner.end() + 1 : end] + content[end + 1 :]
    return content


def _said(content: str) -> str:
    """`The answer is 23` or `It is 23.` inside a mark says 23."""
    if sentence := _SENTENCE.fullmatch(re.sub(r"\\text\s?\{([^{}]*)\}", r"\1", content)):
        return sentence[1]
    said = prose.announcements(re.sub(r"\\text\s?\{([^{}]*)\}", r"\1", content)) if "nswer" in content else []
    return said[-1].text if said else content.strip()


def _is_answer(line: re.Match[str], text: str) -> bool:
    """`#### 5 apples` is an answer, `#### Step 1` a heading, unless nothing but such lines follows it."""
    return bool(line[1].strip()) and (not _HEADING.match(line[1]) or not _HASH.sub("", text[line.end() :]).strip())


def _settled(candidates: list[Candidate], text: str) -> Candidate | None:
    """The last candidate, if the text lets go of the earlier ones that differ from it, and not of itself."""
    if len(candidates) > MAX_MARKS:
        return None
    current: Candidate | None = candidates[0]
    for before, candidate in pairwise(candidates):
        gap = text[before.end : candidate.start]
        if current and same_value(current.text, candidate.text, symbolic=False):
            current = replace(candidate, places=candidate.places | current.places)
        elif (prose.commits(gap) and not _says_the_same(gap, text[: before.start])) or _outranks(candidate, before):
            current = candidate
        elif current and before.places == candidate.places == {"boxed"} and _SEPARATORS.fullmatch(gap):
            current = replace(candidate, text=f"{current.text}, {candidate.text}")
        else:
            current = None
    rest = prose.taken_back(text[candidates[-1].end :])
    return current if rest is None else _statement(rest.lstrip(" ,;:"))


def _outranks(candidate: Candidate, before: Candidate) -> bool:
    """An announced value after an unannounced one, a tag or `####` after a box: the text has come to its answer."""
    if candidate.announced and not before.announced:
        return True
    return not candidate.places <= {"boxed"} and before.places <= {"boxed"} and not before.announced


def _says_the_same(gap: str, before: str) -> bool:
    """`Final answer: 12` and then `Final answer: 42`: the second is no more final than the first."""
    lead = gap.strip(" \n*#_.").lower()
    return bool(lead) and before.lower().rstrip(" \n*#_.").endswith(lead)


def _statement(text: str) -> Candidate | None:
    value = prose.last_statement(text)
    return Candidate(value, 0, len(text)) if value else None
