r"""The forms in which a completion can give its answer: what a recipe's rewards pay for is one of them."""

from dataclasses import dataclass

CHARACTERS_A_TOKEN = 4
"""About as many, where a completion that nobody sampled is given tokens without a tokenizer."""

MOST_FOR_FORM = 0.2
"""Of what a right answer adds: more than this for form alone is warned about, for well-formed nonsense pays then."""

THOUGHT = "Let me work it out step by step."


@dataclass(frozen=True)
class Form:
    """A way to write an answer down: what stands before it and after it."""

    before: str
    after: str = ""

    def write(self, value: str) -> str:
        return f"{self.before}{value}{self.after}"

    def shown(self) -> str:
        """As a person is told of it."""
        escaped = self.write("ANSWER").replace("\n", "\\n")
        return f"'{escaped}'"


_PLAIN = (
    Form(r"\boxed{", "}"),
    Form("<answer>", "</answer>"),
    Form("#### "),
    Form("The answer is ", "."),
    Form(""),
    Form(r"<answer>\boxed{", "}</answer>"),
    Form("<answer>\n", "\n</answer>"),
)
FORMS = (
    *_PLAIN,
    *(Form(f"<think>{THOUGHT}</think>\n{form.before}", form.after) for form in _PLAIN),
    *(Form(f"<think>\n{THOUGHT}\n</think>\n{form.before}", form.after) for form in _PLAIN),
    Form(f"<reasoning>\n{THOUGHT}\n</reasoning>\n<answer>\n", "\n</answer>\n"),
)
"""Simple ones first: of forms that are paid alike the first is taken for the right one."""
