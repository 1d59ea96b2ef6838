r"""1.0 when the completion has the form that `style` names, whatever it says.

`boxed`: exactly one non-empty \boxed{...} outside the reasoning. `answer_tag`: exactly one non-empty
<answer>...</answer> outside the reasoning. `think`: one <think>...</think> first, then text. `think_answer`: one
<think>...</think>, then one non-empty <answer>...</answer>, and nothing else. `number_only`: nothing but one number.
"""

import re
from typing import Literal

_THINK = {"style": "think"}
_THINK_ANSWER = {"style": "think_answer"}
_TAG = {"style": "answer_tag"}
_NUMBER = {"style": "number_only"}
CASES = [
    (r"So it is \boxed{42}.", {}, 1.0),
    (r"<think>\boxed{1}</think>It is $\boxed{\frac{1}{2}}$.", {}, 1.0),
    (r"\boxed{41} or \boxed{42}", {}, 0.0),
    (r"\boxed{}", {}, 0.0),
    (r"\boxed{ }", {}, 0.0),
    (r"\boxed{42", {}, 0.0),
    (r"\boxed 42", {}, 0.0),
    (r"<think>\boxed{42}</think>", {}, 0.0),
    (r"<think>\boxed{42}", {}, 0.0),
    (r"\boxed{\boxed{42}}", {}, 0.0),
    ("", {}, 0.0),
    ("<think>\na\n</think>\n<answer>\n4\n</answer>", {}, 1.0, _THINK_ANSWER),
    ("<think>a</think> <answer>4</answer>\n\n", {}, 1.0, _THINK_ANSWER),
    ("<think>a</think><answer></answer>", {}, 0.0, _THINK_ANSWER),
    ("<think>a</think><answer>4", {}, 0.0, _THINK_ANSWER),
    ("<think>a<answer>4</answer>", {}, 0.0, _THINK_ANSWER),
    ("<think>a</think><answer>4</answer><answer>4</answer>", {}, 0.0, _THINK_ANSWER),
    ("Sure! <think>a</think><answer>4</answer>", {}, 0.0, _THINK_ANSWER),
    ("<think>a</think><answer>4</answer> Done.", {}, 0.0, _THINK_ANSWER),
    ("<think>a<think>b</think></think><answer>4</answer>", {}, 0.0, _THINK_ANSWER),
    ("<think><answer>4</answer></think>", {}, 0.0, _THINK_ANSWER),
    ("", {}, 0.0, _THINK_ANSWER),
    ("<think>\na\n</think>\nb", {}, 1.0, _THINK),
    ("<think>a</think>", {}, 0.0, _THINK),
    ("b", {}, 0.0, _THINK),
    ("<answer>4</answer>", {}, 1.0, _TAG),
    ("<think>not <answer>3</answer></think> It is <answer>4</answer>.", {}, 1.0, _TAG),
    ("<answer>3</answer><answer>4</answer>", {}, 0.0, _TAG),
    ("<answer> </answer>", {}, 0.0, _TAG),
    ("<answer>4", {}, 0.0, _TAG),
    ("", {}, 0.0, _TAG),
    ("42", {}, 1.0, _NUMBER),
    (" -1,234.5\n", {}, 1.0, _NUMBER),
    ("－３", {}, 1.0, _NUMBER),
    ("三十六", {}, 1.0, _NUMBER),
    ("42 apples", {}, 0.0, _NUMBER),
    ("1 2", {}, 0.0, _NUMBER),
    ("4²", {}, 0.0, _NUMBER),
    ("-", {}, 0.0, _NUMBER),
    ("", {}, 0.0, _NUMBER),
]

Style = Literal["boxed", "think", "think_answer", "answer_tag", "number_only"]

# Full-width forms are the ASCII characters moved up by this much.
_FULL_WIDTH = {code + 0xFEE0: code for code in range(0x21, 0x7F)}
_ONE_NUMBER = re.compile(
    r"[-+\u2212]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"|[-+\u2212负]?[零〇一二两三四五六七八九十百千万亿]+(?:点[零〇一二三四五六七八九]+)?"
)


def format(completion: str, *, style: Style = "boxed") -> float:
    """1.0 or 0.0."""
    match style:
        case "boxed":
            boxes = _boxes(_after_thinking(completion))
            return float(len(boxes) == 1 and bool(boxes[0]))
        case "answer_tag":
            return float(_has_one_answer(_after_thinking(completion)))
        case "think":
            return float(_has_one_thought(completion) and bool(_after_thinking(completion).strip()))
        case "think_answer":
            rest = _after_thinking(completion).strip()
            alone = rest.startswith("<answer>") and rest.endswith("</answer>")
            return float(_has_one_thought(completion) and alone and _has_one_answer(completion))
        case "number_only":
            return float(_ONE_NUMBER.fullmatch(completion.translate(_FULL_WIDTH).strip()) is not None)
    raise ValueError(f"style: {style!r}; write one of boxed, think, think_answer, answer_tag, number_only")


def _has_one_thought(completion: str) -> bool:
    """Whether the completion starts with <think>...</think> and holds no other such tag."""
    starts = completion.lstrip().startswith("<think>")
    return starts and completion.count("<think>") == completion.count("</think>") == 1


def _has_one_answer(text: str) -> bool:
    """Whether there is exactly one answer tag and something in it."""
    once = text.count("<answer>") == text.count("</answer>") == 1
    return once and bool(text.partition("<answer>")[2].partition("</answer>")[0].strip())


def _after_thinking(completion: str) -> str:
    """The text outside the reasoning; nothing where the reasoning never ends."""
    *reasoned, rest = completion.split("</think>")
    kept = ""
    for part in reasoned:
        outside, opened, _ = part.partition("<think>")
        # A closing tag without an opening one belongs to one in the prompt: all before it is reasoning too.
        kept = kept + outside if opened else ""
    return "" if "<think>" in rest else kept + rest


def _boxes(text: str) -> list[str]:
    r"""The content of every \boxed; empty for one that has no braces or is not closed."""
    return [_braced(part.lstrip()) for part in text.split(r"\boxed")[1:]]


def _braced(text: str) -> str:
    """What stands between the brace that the text begins with and the one that closes it."""
    depth = 0
    for at, character in enumerate(text.replace(r"\{", "((").replace(r"\}", "))")):
        depth += (character == "{") - (character == "}")
        if depth <= 0:
            return text[1:at].strip() if at else ""
    return ""
