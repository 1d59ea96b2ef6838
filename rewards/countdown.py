"""1.0 when the one `<answer>` is arithmetic that uses every number exactly once and equals the target.

The expression may hold integers, + - * /, parentheses and a leading minus; it may end in `= TARGET`. It is parsed and
computed with exact fractions, never evaluated as code. Only an answer outside `<think>...</think>` counts.
"""

import ast
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

_GAME = {"numbers": [3, 5, 3], "target": 24}
CASES = [
    ("<answer>(3 + 5) * 3</answer>", _GAME, 1.0),
    ("<think>3 * 5 = 15, no. 8 * 3 = 24.</think>\n<answer>(3 + 5) * 3 = 24</answer>", _GAME, 1.0),
    ("3 and 5 make 8.\n</think>\n<answer>（３＋５）\u00d73</answer>", _GAME, 1.0),
    ("<answer>8 / (3 - 8 / 3)</answer>", {"numbers": [3, 3, 8, 8], "target": 24}, 1.0),  # 8 / (1/3)
    ("<answer>3 + 5 * 3</answer>", _GAME, 0.0),  # 18
    ("<answer>(3 + 5) * 3 = 25</answer>", _GAME, 0.0),
    ("<answer>3 + 5 * 3 = 24</answer>", _GAME, 0.0),
    ("<answer>3 * 3 + 5 * 3</answer>", _GAME, 0.0),  # 24, but with three 3s
    ("<answer>(3 + 5) * 3</answer>", {"numbers": [3, 5, 3, 1], "target": 24}, 0.0),  # no 1
    ("<answer>24</answer>", _GAME, 0.0),
    ("<answer></answer>", _GAME, 0.0),
    ("", _GAME, 0.0),
    ("(3 + 5) * 3", _GAME, 0.0),  # no answer tag
    ("<answer>(3 + 5) * 3", _GAME, 0.0),  # never closed
    ("<answer>__import__('os').getpid() * 0 + (3 + 5) * 3</answer>", _GAME, 0.0),
    ("<answer>(3 + 5) * 3</answer> or <answer>3 * (5 + 3)</answer>", _GAME, 0.0),
    ("<think><answer>(3 + 5) * 3</answer></think> I am done.", _GAME, 0.0),
    ("<think><answer>(3 + 5) * 3</answer>", _GAME, 0.0),
    ("<answer>(3 + 5) * 3 / (1 - 1)</answer>", {"numbers": [1, 1, 3, 3, 5], "target": 24}, 0.0),
]

# A fair answer to a handful of numbers is far shorter; the bound keeps the parser's work and depth small.
MAX_CHARS = 200
SIGNS = str.maketrans({"\N{MULTIPLICATION SIGN}": "*", "\N{DIVISION SIGN}": "/", "\N{MINUS SIGN}": "-"})
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def countdown(completion: str, numbers: list[int], target: int) -> float:
    """1.0 or 0.0 for one completion; `numbers` and `target` are the puzzle's columns."""
    answer = _committed_answer(completion)
    if answer is None:
        return 0.0
    expression, equals, claimed = answer.partition("=")
    if equals and claimed.strip() != str(target):
        return 0.0
    used: list[int] = []
    try:
        value = _value(_parse(expression), used)
    except (SyntaxError, ZeroDivisionError):  # no arithmetic, or none with a value: a wrong answer, not a bug
        return 0.0
    return float(value == target and Counter(used) == Counter(numbers))


def _committed_answer(completion: str) -> str | None:
    """The text of the only answer tag outside the reasoning, in plain signs; None where there is not exactly one."""
    *reasoned, rest = completion.split("</think>")
    text = ""
    for part in reasoned:
        outside, opened, _ = part.partition("<think>")
        # A closing tag without an opening one belongs to one in the prompt: all before it is reasoning too.
        text = f"{text}{outside} " if opened else ""
    text += rest
    if "<think>" in text or text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    answer = text.partition("<answer>")[2].partition("</answer>")[0]
    return _plain_signs(answer) if len(answer) <= MAX_CHARS else None


def _plain_signs(text: str) -> str:
    # Only full-width characters: NFKC on the whole text would also read 2² as 22.
    wide = (unicodedata.normalize("NFKC", c) if unicodedata.east_asian_width(c) == "F" else c for c in text)
    return " ".join("".join(wide).translate(SIGNS).split())


def _parse(expression: str) -> ast.expr:
    # The parser also knows names, strings and calls; most of them stop here.
    if not re.fullmatch(r"[0-9+\-*/() ]+", expression):
        raise SyntaxError("not arithmetic")
    return ast.parse(expression.strip(), mode="eval").body


def _value(node: ast.expr, used: list[int]) -> Fraction:
    """The exact value; the integers met on the way are appended to `used`."""
    match node:
        case ast.Constant(value=int(number)):
            used.append(number)
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, used)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, used), _value(right, used))
    raise SyntaxError("only + - * /, a minus sign and integers")
