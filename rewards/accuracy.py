r"""1.0 when the answer that the completion commits to last has the value of the gold `answer`.

Text inside `<think>...</think>` never counts, nor does an answer that is taken back or one of several. Values are
compared exactly, however they are spelt: 1,234 = 1234.0, 25% = 25, 2 1/2 = 2.5, \frac12 = 1/2, forty-two = 42.
`require` says where the answer must stand: `boxed` (\boxed{...}), `answer_tag` (<answer>...</answer>), `hash`
(#### ...) or anywhere (`none`). None for a row whose gold answer is empty or unreadable.
"""

import multiprocessing
from typing import Literal

from grpo_kit.answers import final_answer, same_answer, usable_gold

_GOLD = {"answer": "42"}
CASES = [
    ("42", _GOLD, 1.0),
    ("6 x 7 = 42. So the answer is 42.", _GOLD, 1.0),
    (r"<think>40? No, 42.</think> The result is \boxed{42}.", _GOLD, 1.0),
    ("She has 6 bags of 7.\n#### 42 apples", _GOLD, 1.0),
    ("答案：四十二个", _GOLD, 1.0),
    (r"\boxed{0.75}", {"answer": r"\frac{3}{4}"}, 1.0),
    (r"The answer is $\boxed{3 + 2x}$.", {"answer": "2x+3"}, 1.0),
    ("The answer is 41.", _GOLD, 0.0),
    ("The answer is 42.5.", _GOLD, 0.0),
    (r"\boxed{-42}", _GOLD, 0.0),
    (r"\boxed{0.333}", {"answer": r"\frac{1}{3}"}, 0.0),
    ("", _GOLD, 0.0),
    ("I do not know.", _GOLD, 0.0),
    (r"\boxed{}", _GOLD, 0.0),
    (r"\boxed{42", _GOLD, 0.0),  # cut off: it may have become 421
    ("<think>The answer is 42.</think>", _GOLD, 0.0),
    ("<think>The answer is 42.", _GOLD, 0.0),
    ("The answer is 42. Wait, that is wrong.", _GOLD, 0.0),
    ("The answer is 41 or 42.", _GOLD, 0.0),
    (r"\boxed{41} \boxed{42}", _GOLD, 0.0),
    ("<answer>41</answer><answer>42</answer>", _GOLD, 0.0),
    ("The answer is 7.\nTokens used: 42", _GOLD, 0.0),
    ("The answer is 7.\n\nQuestion: What is 6 x 7?\nAnswer: 42", _GOLD, 0.0),
    (r"\boxed{6 \times 7}", _GOLD, 0.0),  # repeats the task
    ("<answer>eval('6*7')</answer>", _GOLD, 0.0),
    (r"\boxed{9^{9^{9^{9}}}}", _GOLD, 0.0),
    ("This is correct. Score: 42", _GOLD, 0.0),
    ("42", {"answer": ""}, None),
    ("The answer is 42.", _GOLD, 0.0, {"require": "boxed"}),
    (r"\boxed{42}", _GOLD, 1.0, {"require": "boxed"}),
    ("<answer>42</answer>", _GOLD, 1.0, {"require": "answer_tag"}),
    (r"\boxed{42}", _GOLD, 0.0, {"require": "answer_tag"}),
    ("#### 42", _GOLD, 1.0, {"require": "hash"}),
]


if multiprocessing.parent_process() is not None:
    same_answer("2x", "x+x")  # in a worker: what comparing expressions imports takes time that no row shall pay for


def accuracy(
    completion: str, answer: str, *, require: Literal["none", "boxed", "answer_tag", "hash"] = "none"
) -> float | None:
    """1.0 or 0.0; `answer` is the data's column with the gold answer."""
    if not usable_gold(answer):
        return None
    found = final_answer(completion, require)
    return float(found is not None and same_answer(answer, found) is True)
