r"""Text as a grader reads it: without the reasoning, in plain characters, with LaTeX spelt one way."""

import re
import unicodedata

MAX_BRACES = 2_000  # characters between braces; no answer is longer

_THINK = re.compile(
    r"<\s?(/?)\s?(?:think|thinking|thought|reasoning|reflection|scratchpad)\b[^<>/]{0,20}>|\[(/?)THINK\]", re.IGNORECASE
)
_END_OF_TURN = re.compile(r"<\|(?:im_end|im_start|endoftext|eot_id|end_of_text)\|>|</s>")

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−‐‑‒–", "-"),
        **dict.fromkeys("’‘", "'"),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", None),
        **dict.fromkeys("·⋅∙", r"\cdot "),
        "。": ". ",
        "、": ", ",
        "∶": ":",
        "⁄": "/",
        "×": r"\times ",
        "÷": r"\div ",
        "√": r"\sqrt ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "±": r"\pm ",
        "∅": r"\emptyset ",
        "ℝ": r"\mathbb{R}",
        "º": "°",
        "¢": " cents",
        "θ": r"\theta ",
    }
)

# Commands that only set type or space. `\,` and `\!` vanish, so that `45\,300` and `10,\!080` are digits again.
_TIDYING: list[tuple[re.Pattern[str], str]] = [
    (re.compile(p), r)
    for p, r in [
        (r"\\(?:left|right|bigg?|Bigg?|displaystyle|textstyle|limits|large|Large|small)(?![A-Za-z])", ""),
        (r"(?<!\\)\\(?:[!,;:>]|thinspace(?![A-Za-z]))|\\color\s*\{\w+\}", ""),
        (r"\{\s*,\s*\}", ","),
        (r"\\colon(?![A-Za-z])", ":"),
        (r"\\dots[cb]?(?![A-Za-z])", r"\\ldots "),
        (r"(?<!\\)\\(?:q?quad(?![A-Za-z])|\s)|~", " "),
        (r"\\(?:[dtc]frac|nicefrac|sfrac)(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\pounds(?![A-Za-z])", "£"),
        (r"\\(?:text)?euro(?![A-Za-z])", "€"),
        (r"\\(?:math|text)dollar(?![A-Za-z])", "$"),
        (r"\{\s*([^{}\\]{1,99}?)\s*\\over\s*([^{}\\]{1,99}?)\s*\}", r"\\frac{\1}{\2}"),
        (r"\{([^{}\\]{1,99})\}\s*\\over\s*\{([^{}\\]{1,99})\}", r"\\frac{\1}{\2}"),
        (r"\{\s*\(\s*([\w.]+)\s*\)\s*\}", r"{\1}"),
        (r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\(?:text)?degrees?(?![A-Za-z])", "°"),
        (r"\s+\^", "^"),
        (r"\\l(?:eq|eqslant)(?![A-Za-z])", r"\\le "),
        (r"\\g(?:eq|eqslant)(?![A-Za-z])", r"\\ge "),
        (r"\\neq(?![A-Za-z])", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:varnothing|empty)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\langle(?![A-Za-z])", "("),
        (r"\\rangle(?![A-Za-z])", ")"),
        (r"(?<!\\)\\([%$#_])", r"\1"),
        (r"(?<=[\w)}\]])\*\*(?=[\w({\\-])", "^"),
        (r"(?<![A-Za-z\\])sqrt(?=\s*[({])", r"\\sqrt"),
        (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\\sqrt\s*(\d+|[A-Za-z])", r"\\sqrt{\1}"),
    ]
]
_INFINITY = re.compile(r"(?<=[-+,(\[])(?:inf|infinity|oo)(?=[,)\]])|^infinity$", re.IGNORECASE)
_QUOTIENT_OF_UNITS = re.compile(
    r"\\[dt]?frac\s*\{\s*\\(?:text|mathrm)\{([^{}]+)\}\s*\}\s*\{\s*\\(?:text|mathrm)\{([^{}]+)\}\s*\}"
)
_FONT = re.compile(
    r"\\(?:textcolor\s*\{\w+\}\s*|ensuremath|text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|hbox|operatorname|emph"
    r"|underline)\s*\{([^{}]*)\}"
)


def visible(completion: str) -> str:
    """The assistant's turn without its reasoning: text after an unclosed or before a lone think tag is reasoning."""
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _THINK.finditer(completion):
        if not thinking:
            kept.append(completion[start : tag.start()])
            if tag[1] or tag[2]:
                kept.clear()
        thinking = not (tag[1] or tag[2])
        start = tag.end()
    if not thinking:
        kept.append(completion[start:])
    return _END_OF_TURN.split("\n".join(kept), maxsplit=1)[0]


def plain(text: str) -> str:
    """One character for one meaning: full-width forms, Chinese punctuation, mathematical signs, vulgar fractions."""
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀-₉]+", lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    text = re.sub("(?<=[0-9])(?=[¼½¾⅐-⅞])", " ", text)  # 2½ is not 21/2
    return unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)


def tidy(text: str) -> str:
    """Plain text with LaTeX spelt one way; no value changes."""
    text = plain(text)
    text = _INFINITY.sub(r"\\infty ", text.replace("+/-", r"\pm "))
    if "\\" not in text and "*" not in text and "sqrt" not in text and "{" not in text:
        return text
    text = _QUOTIENT_OF_UNITS.sub(r" \1/\2", text)
    for _ in range(3):  # fonts nest
        text, changed = _FONT.subn(r" \1 ", text)
        if not changed:
            break
    for pattern, replacement in _TIDYING:
        text = pattern.sub(replacement, text)
    return text


def balanced(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes, counting braces only; -1 where it does not."""
    depth = 0
    for at in range(opening, min(len(text), opening + MAX_BRACES)):
        if text[at] in "{}" and (at == 0 or text[at - 1] != "\\"):
            depth += 1 if text[at] == "{" else -1
            if depth == 0:
                return at
    return -1


def nesting(text: str) -> int:
    """How deep its brackets nest."""
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def split_top(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split at separators that stand outside every bracket."""
    depth_at, depth = [], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        depth_at.append(depth)
    parts, start = [], 0
    for found in separator.finditer(text):
        if depth_at[found.start()] == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]
