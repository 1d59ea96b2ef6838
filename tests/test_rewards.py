"""The contract of a reward file: both forms, columns, options, results; what breaks it is one line before a run."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from command_line import assert_says, changed, questions, write_rows

from grpo_kit.errors import RewardError
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.rewards.checks import CANNED
from grpo_kit.rewards.rewards import Completions, Reward, load_rewards
from grpo_kit.rewards.scoring import RolloutJudge, Scorer

ROWS = [{**row, "level": i, "solution": row["answer"]} for i, row in enumerate(questions(8))]


@pytest.fixture
def columns(cli):
    """The data have the columns question, answer, level and solution."""
    write_rows("rows.jsonl", ROWS)
    return cli


def write_reward(code: str, name: str = "mine") -> None:
    """What the code imports is imported with its file, which has more time than a completion."""
    Path("rewards").mkdir(exist_ok=True)
    heads = "".join(f"import {module}\n" for module in ("numpy", "torch") if f"__import__('{module}')" in code)
    Path(f"rewards/{name}.py").write_text(heads + textwrap.dedent(code), encoding="utf-8")


def recipe_with(reward: str = "mine: 1.0") -> str:
    return changed("variety: 1.0", reward)


def loaded(reward: str = "mine: 1.0") -> Reward:
    Path("r.yaml").write_text(recipe_with(reward))
    return load_rewards(load_recipe(Path("r.yaml")))[0]


def completions(*texts: str, **columns: Any) -> Completions:
    rows = [
        {"prompt": [{"role": "user", "content": f"q{i}"}], **{name: values[i] for name, values in columns.items()}}
        for i in range(len(texts))
    ]
    return Completions(list(texts), [list(text.encode()) for text in texts], rows)


BATCH = "def mine(completions, **kwargs):\n    return "
ROW = "def mine(completion, **kwargs):\n    return "
HERE = "r.yaml:6: rewards.mine: "


# Results


@pytest.mark.parametrize(
    ("result", "got"),
    [
        ("[1.0]", "1 values ([1.0])"),
        ("[1.0] * 5", "5 values ([1.0, "),
        ("1.0", "float (1.0)"),
        ("None", "NoneType (None)"),
        ("{i: 1.0 for i in range(4)}", "dict ({0: 1.0, "),
        ("{c: 1.0 for c in completions}", "dict ({'': 1.0, "),
        ("'abcd'", "str ('abcd')"),
        ("{0, 1, 2, 3}", "set ({0, 1, 2, 3})"),
        ("(1.0 for c in completions)", "generator (<generator object "),
        ("__import__('numpy').float32(1)", "float32 (np.float32(1.0))"),
        ("__import__('torch').tensor(1.0)", "Tensor (tensor(1.))"),
        ("completions.clear() or []", "0 values ([])"),
    ],
)
def test_a_batch_that_is_no_list_of_numbers(columns, result, got):
    write_reward(BATCH + result)
    message = columns.refuses(recipe=recipe_with())
    assert_says(
        message,
        f"{HERE}{Path.cwd()}/rewards/mine.py: mine returned {got}",
        "for 4 completions; return a list of 4 numbers",
    )


BAD_NUMBERS = [
    ("'1.0'", "'1.0' (str)"),
    ("[1.0]", "[1.0] (list)"),
    ("{}", "{} (dict)"),
    ("float('nan')", "nan (float)"),
    ("float('inf')", "inf (float)"),
    ("-float('inf')", "-inf (float)"),
    ("10**400", "1000000"),
    ("1j", "1j (complex)"),
    ("__import__('torch').tensor([1.0, 2.0])", "[1.0, 2.0] (list)"),
    ("__import__('decimal').Decimal(1)", "Decimal('1') (Decimal)"),
]


@pytest.mark.parametrize(("value", "got"), BAD_NUMBERS)
@pytest.mark.parametrize("form", ["row", "batch"])
def test_a_value_that_is_no_finite_number(columns, form, value, got):
    write_reward(ROW + value if form == "row" else f"{BATCH}[{value}] * len(completions)")
    assert_says(
        columns.refuses(recipe=recipe_with()),
        f"{HERE}{Path.cwd()}/rewards/mine.py: mine returned {got}",
        "for the completion ''; return a finite number, or None for a row that cannot be judged",
    )


@pytest.mark.parametrize("value", ["1e39", "-2e9"])
def test_a_number_that_float32_cannot_square(columns, value):
    write_reward(ROW + value)
    said = columns.refuses(recipe=recipe_with())
    assert f"mine returned {float(value)!r} for the completion ''; return a number of at most 1e+09" in said


@pytest.mark.parametrize(
    ("code", "scores"),
    [
        (BATCH + "[1.0, 0, True, None]", [1.0, 0.0, 1.0, None]),
        (BATCH + "(1.0, 0, True, None)", [1.0, 0.0, 1.0, None]),
        (BATCH + "__import__('numpy').array([1, 2, 3, 4])", [1.0, 2.0, 3.0, 4.0]),
        (BATCH + "__import__('numpy').array([[1], [2], [3], [4]])", [1.0, 2.0, 3.0, 4.0]),
        (BATCH + "list(__import__('numpy').array([1, 2, 3, 4]))", [1.0, 2.0, 3.0, 4.0]),
        (BATCH + "__import__('torch').tensor([1., 2., 3., 4.])", [1.0, 2.0, 3.0, 4.0]),
        (BATCH + "__import__('torch').tensor([[1.], [2.], [3.], [4.]])", [1.0, 2.0, 3.0, 4.0]),
        (BATCH + "__import__('torch').tensor([True, False, True, False])", [1.0, 0.0, 1.0, 0.0]),
        (BATCH + "[__import__('torch').tensor([float(i)]) for i in range(4)]", [0.0, 1.0, 2.0, 3.0]),
        (ROW + "len(completion)", [1.0, 2.0, 3.0, 4.0]),
        (ROW + "completion == 'bb'", [0.0, 1.0, 0.0, 0.0]),
        (ROW + "None if completion == 'bb' else 2", [2.0, None, 2.0, 2.0]),
        (ROW + "__import__('numpy').float64(2)", [2.0] * 4),
        (ROW + "__import__('torch').tensor(2)", [2.0] * 4),
    ],
)
def test_numbers_of_every_make(code, scores):
    write_reward(code)
    found = loaded().score(completions("a", "bb", "ccc", "dddd"))
    assert found == scores
    assert all(type(value) in (float, type(None)) for value in found)


def test_an_error_in_a_run_names_function_row_and_value():
    write_reward(ROW + "float('nan') if completion == 'bb' else 1.0")
    with pytest.raises(
        RewardError, match=r"mine\.py: mine returned nan \(float\) for the completion 'bb'; return a finite"
    ):
        Scorer([loaded()]).score(completions("a", "bb"))


# Calls


@pytest.mark.parametrize(
    ("code", "scores"),
    [
        # a parameter is a column; the row form gets one value, the batch form all
        ("def mine(completion, level): return level", [5.0, 6.0]),
        ("def mine(completions, level): return level", [5.0, 6.0]),
        ("def mine(level, completions): return level", [5.0, 6.0]),
        ("def mine(completion, level=9, other=2): return level + other", [7.0, 8.0]),
        ("def mine(completions, other=None): return [other is None for c in completions]", [1.0, 1.0]),
        ("def mine(completion): return len(completion)", [1.0, 2.0]),
        # prompts are the text of the last user message, in either form
        ("def mine(completion, prompt): return prompt == 'q1'", [0.0, 1.0]),
        ("def mine(completions, prompt): return [p == 'q1' for p in prompt]", [0.0, 1.0]),
        ("def mine(completions, prompts): return [p == 'q1' for p in prompts]", [0.0, 1.0]),
        ("def mine(prompts, completions, **k): return [p == 'q1' for p in prompts]", [0.0, 1.0]),
        ("def mine(completions, prompt, **k): return [p == 'q1' for p in prompt]", [0.0, 1.0]),
        ("def mine(completions, prompts=None): return [p == 'q1' for p in prompts]", [0.0, 1.0]),
        ("def mine(completion, **k): return k['prompt'] == 'q1'", [0.0, 1.0]),
        ("def mine(completions, **k): return [p == 'q1' for p in k['prompts']]", [0.0, 1.0]),
        ("def mine(completion, completion_ids): return len(completion_ids)", [1.0, 2.0]),
        ("def mine(completions, **k): return [len(ids) for ids in k['completion_ids']]", [1.0, 2.0]),
        ("def mine(completion, **k): return len(k)", [3.0, 3.0]),  # prompt, completion_ids, level
        ("def mine(completions, **k): return [len(k)] * 2", [3.0, 3.0]),  # prompts, completion_ids, level
        ("mine = lambda completion, level: level", [5.0, 6.0]),
        # what a function does to its lists is its own affair
        ("def mine(completions, level):\n    n = len(level)\n    level.clear()\n    return [n] * n", [2.0, 2.0]),
    ],
)
def test_what_a_function_is_called_with(code, scores):
    write_reward(code)
    reward = loaded()
    batch = completions("a", "bb", level=[5, 6])
    assert reward.score(batch) == scores
    assert reward.score(batch) == scores


def test_completions_are_text_on_chat_and_on_plain_prompts(model_folder):
    """`1.0 if "4" in completion` judges the same text alike, whatever the trainer's own form of it is."""
    from transformers import AutoTokenizer

    write_reward("def mine(completion): return 1.0 if '4' in completion else 0.0")
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    rows = [{"prompt": [{"role": "user", "content": "q"}]}] * 2
    [reward] = RolloutJudge(Scorer([loaded()]), rows, tokenizer.decode).trl_rewards()
    ids = [tokenizer("It is 4.")["input_ids"], tokenizer("It is 5.")["input_ids"]]
    assert reward(completion_ids=ids, row=[0, 1], completions=["It is 4.", "It is 5."], prompts=["q", "q"]) == [
        1.0,
        0.0,
    ]
    chat = [[{"role": "assistant", "content": text}] for text in ("It is 4.", "It is 5.")]
    assert reward(completion_ids=ids, row=[0, 1], completions=chat, prompts=[rows[0]["prompt"]] * 2) == [1.0, 0.0]
    assert reward.__name__ == "mine"


@pytest.mark.parametrize(
    "code",
    [
        "def mine(completion): return float(completion[0]['content'] == '4')",
        'def mine(completion): return float(completion[0]["content"] == "4")',
        "def mine(completions, **kwargs): return [float(c[0]['content'] == '4') for c in completions]",
        "def mine(completions, **kwargs):\n    texts = [c[0]['content'] for c in completions]\n    return [1.0] * 4",
        "def mine(prompts, completions, **kwargs): return [float(len(p[-1]['content'])) for p in prompts]",
    ],
)
def test_the_form_of_public_code_for_messages(columns, code):
    write_reward(code)
    message = columns.refuses(recipe=recipe_with())
    assert_says(message, f"{HERE}{Path.cwd()}/rewards/mine.py: mine raised ")
    assert message.endswith('; completions and prompts are plain text: drop [0]["content"]')


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def mine(completion): return 1 / 0",
            "mine raised ZeroDivisionError: division by zero (mine.py:1, completion 0",
        ),
        (
            "def mine(completion):\n    raise ValueError('a\\nb')",
            "mine raised ValueError: a (mine.py:2, completion 0: '')",
        ),
        ("def mine(completion):\n    exit(3)", "mine raised SystemExit: 3 (mine.py:2"),
        (
            "import json\ndef mine(completion):\n    json.loads('{')",
            "mine raised JSONDecodeError: Expecting property na",
        ),
        ("def mine(completion):\n    raise ValueError('x' * 5000)", "mine raised ValueError: xxx"),
        ("exec('def mine(completion): return 1 / 0')", "mine raised ZeroDivisionError: division by zero (<string>:1"),
        (
            "def mine(completion):\n    assert '<think>' not in completion\n    return 1",
            "mine raised AssertionError: AssertionError (mine.py:2, completion 2: '<think>6 x 7</think>",
        ),
    ],
)
def test_a_function_that_raises(columns, code, message):
    write_reward(code)
    found = columns.refuses(recipe=recipe_with())
    assert_says(found, f"{HERE}{Path.cwd()}/rewards/mine.py: {message}")
    assert len(found) < 700


def test_the_line_named_is_the_reward_files_own():
    write_reward("import json\n\n\ndef mine(completion):\n    return json.loads('{')\n")
    with pytest.raises(RewardError, match=r"\(mine\.py:5, completion 0: 'a'\)"):
        Scorer([loaded()]).score(completions("a"))


def test_canned_completions_are_judged_before_a_run(columns):
    write_reward(
        "def mine(completions, level):\n    open('seen', 'w').write(repr((completions, level)))\n    return level"
    )
    columns.passes(recipe=recipe_with())
    assert Path("seen").read_text() == repr((list(CANNED), [0] * len(CANNED)))  # all on the first row


# Columns


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def mine(completion, target): return 1.0",
            "needs the column 'target', but the data has question, answer, level, solution; did you mean 'answer'?",
        ),
        (
            "def mine(completion, levle): return 1.0",
            "needs the column 'levle', but the data has question, answer, level, solution; did you mean 'level'?",
        ),
        (
            "def mine(completion, zzz): return 1.0",
            "needs the column 'zzz', but the data has question, answer, level, so",
        ),
        ("def mine(completions, zzz, **k): return 1.0", "needs the column 'zzz'"),
        (
            "def mine(completion, **kwargs): return float(kwargs.get('target') == '4')",
            "needs the column 'target', but the data has question, answer, level, solution; did you mean 'answer'?; "
            "a column that may be missing needs a default: .get('target', None)",
        ),
        ("def mine(completion, **kw): return float(kw['zzz'])", "needs the column 'zzz'"),
        (
            "def mine(completion, prompts): return 1.0",
            "needs the column 'prompts', but the data has question, answer, le",
        ),
        (
            "def mine(completion, trainer_state): return 1.0",
            "needs trainer_state, which only a reward in the training process is given: write IN_PROCESS = True",
        ),
        (
            "def mine(completions, log_metric): return 1.0",
            "needs log_metric, which only a reward in the training process is given",
        ),
    ],
)
def test_a_column_that_is_missing(columns, code, message):
    write_reward(code)
    assert_says(columns.refuses(recipe=recipe_with()), HERE + message)


@pytest.mark.parametrize("code", ["completion, answer: 1.0", "completion, **k: float(k.get('answer') == '4')"])
def test_the_answer_may_have_another_name_in_the_data(cli, code):
    """Zeros for ever with `kwargs.get`, or a TypeError at step 1, and the data has it as `solution`."""
    write_rows("rows.jsonl", [{"question": row["question"], "solution": row["answer"]} for row in questions(8)])
    write_reward(f"mine = lambda {code}")
    assert_says(
        cli.refuses(recipe=recipe_with()),
        f"{HERE}needs the column 'answer', but the data has question, solution; write answer: '{{solution}}' in the",
    )
    cli.passes("dataset.answer='{solution}'", recipe=None)


@pytest.mark.parametrize(
    "code",
    [
        "def mine(completion, **k): return float(k.get('hint', None) is None)",
        "def mine(completion, **k): return float(k.get('level') is not None)",
        "def mine(completion, hint=None): return float(hint is None)",
        "def mine(completions, trainer_state=None, **k): return [1.0] * len(completions)",
        "def mine(completion, **k):\n    k['own'] = 1\n    return 1.0",
    ],
)
def test_columns_that_may_be_missing(columns, code):
    write_reward(code)
    columns.passes(recipe=recipe_with())


# Options


OPTIONS = (
    "def mine(completion, *, style: str = 'a', scale: float = 1.0, n: int = 3, flag: bool = False): return scale\n"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{styl: b}", "rewards.mine.styl: unknown key in rewards.mine; did you mean style?"),
        ("{wieght: 2}", "rewards.mine.wieght: unknown key in rewards.mine; did you mean weight?"),
        (
            "{zz: 2}",
            "rewards.mine.zz: unknown key in rewards.mine (keys: style, scale, n, flag, weight, file, only_if)",
        ),
        ("{limit: 2}", "rewards.mine.limit: unknown key in rewards.mine; it belongs under dataset:"),
        ("{completion: x}", "rewards.mine.completion: unknown key in rewards.mine"),
        ("{options: {style: b}}", "rewards.mine.options: unknown key in rewards.mine"),
        ("{3: 2}", "rewards.mine.3: unknown key in rewards.mine"),
        ("{scale: x}", "rewards.mine.scale: found 'x'; write a valid number"),
        ("{scale: true}", "rewards.mine.scale: found True; write a number"),
        ("{scale: .nan}", "rewards.mine.scale: found nan; write a finite number"),
        ("{n: 2.5}", "rewards.mine.n: found 2.5; write a valid integer"),
        ("{n: on}", "rewards.mine.n: found True; write a number"),
        ("{flag: maybe}", "rewards.mine.flag: found 'maybe'; write a valid boolean"),
        ("{style: 3}", "rewards.mine.style: found 3; write text"),
        ("{style:}", "rewards.mine.style: is empty; write text"),
        ("{style: {a: b}}", "rewards.mine.style: found {'a': 'b'}; write text; braces and colons need quotes"),
    ],
)
def test_a_wrong_option(columns, options, message):
    write_reward(OPTIONS)
    assert_says(columns.refuses(recipe=recipe_with(f"mine: {options}")), f"r.yaml:6: {message}")


@pytest.mark.parametrize(
    ("options", "score"),
    [("1.0", 1.0), ("{scale: '2'}", 2.0), ("{scale: 1e-3, weight: 2}", 0.001), ("{n: 2.0, flag: 1}", 1.0)],
)
def test_options_with_a_plain_meaning(options, score):
    write_reward(OPTIONS)
    assert loaded(f"mine: {options}").score(completions("a")) == [score]


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        ("def mine(completion, *, must): return 1.0", "{}", "needs the option must; write rewards.mine: {must: ...}"),
        (
            "def mine(completion, *, a: 'Nope' = 1): return 1.0",
            "1.0",
            "an option's annotation cannot be read: name 'Nop",
        ),
        (
            "from typing import Literal\ndef mine(completion, *, a: Literal['x', 'y'] = 'x'): return 1.0",
            "{a: z}",
            "found 'z'; write 'x' or 'y'",
        ),
        ("def mine(completion, *, a: list[str] = ()): return 1.0", "{a: z}", "found 'z'; write a valid list"),
    ],
)
def test_options_and_their_annotations(columns, code, options, message):
    write_reward(code)
    assert_says(columns.refuses(recipe=recipe_with(f"mine: {options}")), "r.yaml:6: rewards.mine", message)


def test_names_of_options_are_free():
    """Also those that mean something to the library which checks them."""
    write_reward(
        "def mine(completion, *, schema=1, copy=2, model_dump=3, _own=4): return schema + copy + model_dump + _own"
    )
    assert loaded("mine: {schema: 10, model_dump: 30, _own: 40}").score(completions("a")) == [82.0]


def test_annotations_that_only_a_type_checker_can_read():
    write_reward("from __future__ import annotations\ndef mine(completion: Text, *, a: int = 1) -> Score: return a")
    assert loaded("mine: {a: '5'}").score(completions("a")) == [5.0]


# Files


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "{} has no function 'mine' (it defines none)"),
        ("def other(completion): return 1.0", "{} has no function 'mine' (it defines other)"),
        (
            "class mine:\n    def __call__(self, completion): return 1.0",
            "{}: mine is a type; write def mine(completion, ..",
        ),
        ("import functools\nmine = functools.partial(print)", "{}: mine is a partial; write def mine(completion, ...)"),
        ("mine = 1.0", "{}: mine is a float; write def mine(completion, ...)"),
        ("async def mine(completion): return 1.0", "{}: mine is asynchronous or a generator; write a plain function"),
        ("def mine(completion): yield 1.0", "{}: mine is asynchronous or a generator; write a plain function"),
        ("def mine(): return 1.0", "{}: the first parameter of mine must be completion (or completions)"),
        ("def mine(**kwargs): return 1.0", "{}: the first parameter of mine must be completion (or completions)"),
        ("def mine(*args): return 1.0", "{}: the first parameter of mine must be completion (or completions)"),
        ("def mine(text): return 1.0", "{}: the first parameter of mine must be completion (or completions)"),
        (
            "def mine(answer, completion): return 1.0",
            "{}: the first parameter of mine must be completion (or completio",
        ),
        (
            "def mine(completion, completions): return 1.0",
            "{}: the first parameter of mine must be completion (or comp",
        ),
        ("def mine(*, completion): return 1.0", "{}: the first parameter of mine must be completion (or completions)"),
        (
            "def mine(completion, answer, /): return 1.0",
            "{}: mine gets columns by name; remove the / from its parameter",
        ),
        ("def mine(completions, /): return [1.0]", "{}: mine gets columns by name; remove the / from its parameters"),
        (
            "FULL_MARKS = 'all'\ndef mine(completion): return 1.0",
            "{}: FULL_MARKS is 'all'; write the number that a right",
        ),
        ("FULL_MARKS = None\ndef mine(completion): return 1.0", "{}: FULL_MARKS is None; write the number"),
        ("FULL_MARKS = float('nan')\ndef mine(completion): return 1.0", "{}: FULL_MARKS is nan; write the number"),
        ("def mine(completion:\n", "{}:1: cannot be imported (SyntaxError: '(' was never closed (mine.py, line 1))"),
        (
            "x = 1\nimport no_such_package\n",
            "{}:2: cannot be imported (ModuleNotFoundError: No module named 'no_such_p",
        ),
        ("raise RuntimeError('boom\\nbang')", "{}:1: cannot be imported (RuntimeError: boom)"),
        ("import json\njson.loads('{')", "{}:2: cannot be imported (JSONDecodeError: "),
        ("import sys\nsys.exit(3)", "{}:2: cannot be imported (SystemExit: 3)"),
        ("def f():\n    f()\nf()", "{}:2: cannot be imported (RecursionError: "),
    ],
)
def test_a_file_that_is_no_reward(columns, code, message):
    write_reward(code)
    assert_says(columns.refuses(recipe=recipe_with()), HERE + message.format(f"{Path.cwd()}/rewards/mine.py"))


@pytest.mark.parametrize("content", [b"\0\0", b"x = '\xe9'\n"])
def test_a_file_that_is_no_text(columns, content):
    Path("rewards/mine.py").write_bytes(content)
    assert_says(columns.refuses(recipe=recipe_with()), HERE, "rewards/mine.py:1: cannot be imported (SyntaxError: ")


def test_a_decorated_function_keeps_its_parameters():
    write_reward("""
        import functools
        def twice(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return 2 * function(*args, **kwargs)
            return wrapper
        @twice
        def mine(completion, level, *, plus: int = 0):
            return level + plus
    """)
    assert loaded("mine: {plus: '1'}").score(completions("a", level=[5])) == [12.0]


def test_full_marks_are_the_files():
    write_reward("FULL_MARKS = 3\ndef mine(completion): return 3.0")
    reward = loaded()
    assert (reward.is_right(3.0), reward.is_right(2.9), reward.is_right(None)) == (True, False, False)
    write_reward("def mine(completion): return 3.0")
    assert loaded().is_right(1.0)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("varity: 1.0", "rewards.varity: no file varity.py in rewards/ (there are "),
        ("mine: {file: no.py}", "rewards.mine: no file no.py in rewards/ (there are "),
        ("mine: {file: notes.txt}", "rewards.mine.file: found 'notes.txt'; a reward is a .py file"),
        ("mine: {file: rewards}", "rewards.mine.file: found 'rewards'; a reward is a .py file"),
        ("mine: {file: " + "n" * 500 + ".py}", "rewards.mine: no file nnn"),
        ("n" * 64 + ": 1.0", "rewards.nnn"),
        (
            "mine: {file: my-reward.py}",
            "rewards.mine: {}/rewards/my-reward.py has no function 'my-reward' (it defines my_reward); give the file a",
        ),
    ],
)
def test_a_file_that_is_not_found(cli, reward, message):
    Path("rewards/notes.txt").touch()
    Path("rewards/my-reward.py").write_text("def my_reward(completion): return 1.0")
    assert_says(cli.refuses(recipe=recipe_with(reward)), f"r.yaml:6: {message.format(Path.cwd())}")


def test_a_reward_that_is_a_link_has_the_name_of_the_link(cli):
    Path("store").mkdir()
    Path("store/mine_v2.py").write_text("def mine(completion): return len(completion) / 10")
    Path("rewards/mine.py").symlink_to(Path("store/mine_v2.py").resolve())
    cli.passes(recipe=recipe_with("mine: 1.0"))


def test_the_nearest_name_is_shown(cli):
    message = cli.refuses(recipe=recipe_with("varity: 1.0"))
    assert "accuracy" in message  # the shipped ones are there too
    assert message.endswith("; did you mean variety?")


def test_where_a_reward_is_looked_for():
    """Beside the recipe, one folder up, shipped; `file:` also as a path from the recipe or the current folder."""
    for number, folder in enumerate(("project/recipes/rewards", "project/rewards", "here")):
        Path(folder).mkdir(parents=True)
        Path(folder, f"only_{number}.py").write_text(f"def only_{number}(completion): return {number}")
        Path(folder, "both.py").write_text(f"def both(completion): return {number}")

    def found(reward: str) -> tuple[Path, list[float | None]]:
        Path("project/recipes/r.yaml").write_text(recipe_with(reward))
        reward_ = load_rewards(load_recipe(Path("project/recipes/r.yaml")))[0]
        return reward_.path.relative_to(Path.cwd()), reward_.score(completions("a"))

    assert found("only_0: 1") == (Path("project/recipes/rewards/only_0.py"), [0.0])
    assert found("only_1: 1") == (Path("project/rewards/only_1.py"), [1.0])
    assert found("both: 1") == (Path("project/recipes/rewards/both.py"), [0.0])
    assert found("mine: {file: ../rewards/both.py}") == (Path("project/rewards/both.py"), [1.0])
    assert found("mine: {file: here/only_2.py}") == (Path("here/only_2.py"), [2.0])
    assert found(f"mine: {{file: {Path.cwd()}/here/both.py}}") == (Path("here/both.py"), [2.0])


def test_two_rewards_of_one_file_are_two():
    write_reward("def mine(completion, *, plus=0.0): return len(completion) + plus")
    Path("r.yaml").write_text(recipe_with("one: {file: mine.py}\n  other: {file: mine.py, plus: 10, weight: 0.5}"))
    one, other = load_rewards(load_recipe(Path("r.yaml")))
    assert (one.label, one.weight, one.score(completions("a"))) == ("one", 1.0, [1.0])
    assert (other.label, other.weight, other.score(completions("a"))) == ("other", 0.5, [11.0])


def test_a_name_in_any_script(cli):
    Path("rewards/奖励.py").write_text("def 奖励(completion): return 1.0", encoding="utf-8")
    assert f"奖励 x 1  {Path.cwd()}/rewards/奖励.py" in cli.passes(recipe=recipe_with("奖励: 1.0"))


def test_a_file_may_have_the_name_of_a_module(cli):
    Path("rewards/json.py").write_text("import math\ndef json(completion): return math.pi")
    cli.passes(recipe=recipe_with("json: 1.0"))
    import json

    assert json.loads("1") == 1


def test_a_column_that_the_code_looks_for_first_may_be_missing(columns):
    write_reward("def mine(completion, **k):\n    return float(k['id']) if 'id' in k else 0.5")
    columns.passes(recipe=recipe_with())


def test_an_option_of_a_type_of_the_file_is_that_type(columns):
    """An enumeration's member, not its value; and a class that a worker must import before it can have one."""
    write_reward(
        """
        from dataclasses import dataclass
        from enum import Enum

        class Style(Enum):
            strict = "strict"
            loose = "loose"

        @dataclass
        class Limits:
            most: int = 3

        def mine(completion, *, style: Style = Style.loose, limits: Limits = Limits()):
            return limits.most if style is Style.strict else 0.5
        """
    )
    assert loaded("mine: {style: strict, limits: {most: 7}}").score(completions("a")) == [7.0]
    assert loaded("mine: {style: loose}").score(completions("a")) == [0.5]
    assert "write 'strict' or 'loose'" in columns.refuses(recipe=recipe_with("mine: {style: strct}"))


@pytest.mark.parametrize("body", ["raise Own('x')", "raise KeyboardInterrupt", "raise GeneratorExit"])
def test_whatever_is_raised_is_the_rewards(columns, body):
    write_reward(f"class Own(BaseException): pass\ndef mine(completion, **k): {body}")
    assert "mine raised " in columns.refuses(recipe=recipe_with())


def test_a_number_whose_class_compares_as_it_likes_is_still_a_number(columns):
    write_reward(
        "class Odd(float):\n    def __float__(self): return float('nan')\n    def __le__(self, other): return True\n"
        "    def __abs__(self): return self\ndef mine(completion): return Odd(1)"
    )
    assert "return a finite number" in columns.refuses(recipe=recipe_with())


@pytest.mark.parametrize("limit", ["10**10", "1e308", "0", "-1", "'2'", "True"])
def test_a_time_limit_that_is_none(columns, limit):
    write_reward(f"TIME_LIMIT_S = {limit}\ndef mine(completion): return 1.0")
    assert "TIME_LIMIT_S is" in columns.refuses(recipe=recipe_with())


def test_what_the_trainer_gives_is_there_before_a_run_too(columns):
    """In the trial on canned completions and in the gold scan, which scores all rewards."""
    write_reward(
        "IN_PROCESS = True\ndef mine(completion, trainer_state, log_metric, **k):\n"
        "    log_metric('x', 1.0)\n    return float(trainer_state.global_step)"
    )
    columns.passes(recipe=recipe_with("accuracy: 1.0\n  mine: 0.1"))


def test_the_batch_form_in_the_training_process_is_given_the_trainers_state(columns):
    write_reward(
        "IN_PROCESS = True\ndef mine(completions, level, trainer_state, log_metric, **kwargs):\n"
        "    log_metric('seen', 1.0)\n    return [float(trainer_state.global_step + one) for one in level]"
    )
    columns.passes(recipe=recipe_with())
    reward = loaded()
    assert reward.score(completions("a", "b", level=[1, 2])) == [1.0, 2.0]
