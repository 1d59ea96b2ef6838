"""`grpo-kit rewards test` on one reward: its cases, and whether a completion always gets the same score."""

import textwrap
from pathlib import Path

import pytest

from grpo_kit.cli import main


@pytest.fixture
def tried(capsys):
    """Exit code and output of `rewards test mine`, for a reward of this code."""

    def tried(code: str, name: str = "mine") -> tuple[int, str]:
        Path("rewards").mkdir(exist_ok=True)
        Path(f"rewards/{name}.py").write_text(textwrap.dedent(code))
        with pytest.raises(SystemExit) as ended:
            main(["rewards", "test", name])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return tried


# Cases


def test_cases_that_hold(tried):
    code, shown = tried(
        """\
        CASES = [
            ("ab", {}, 2.0),
            ("ab", {"completion_ids": [1, 2, 3]}, 3),  # given, instead of one for each character
            ("ab", {"prompt": "abc"}, 5),
            ("ab", {}, 4.0, {"times": 2}),
            ("", {}, None),
        ]

        def mine(completion, completion_ids, prompt, *, times: int = 1):
            return times * len(completion_ids) + (len(prompt) if prompt == "abc" else 0) if completion else None
        """
    )
    assert "\n  cases        5 as expected\n" in shown
    assert code == 0, shown


def test_each_failing_case_is_shown(tried):
    code, shown = tried(
        """\
        CASES = [("a", {}, 1.0), ("bb", {}, 1.0), ("", {}, None), ("c", {"x": 1}, 0.5)]

        def mine(completion, x=None):
            return 1 / (x - 1) if x else float(len(completion))
        """
    )
    assert code == 1
    for line in (
        "cases        FINDING: CASES[1]: 'bb': expected 1, got 2",
        "cases        FINDING: CASES[2]: '': expected None, got 0",
        "cases        FINDING: CASES[3]: 'c': expected 0.5, got none, because mine raised ZeroDivisionError: "
        "division by zero (mine.py:4)",
        "cases        3 of 4 failed",
    ):
        assert f"\n  {line}\n" in shown


@pytest.mark.parametrize(
    ("cases", "found"),
    [
        ("[('a', {}, 1.0), ('a', 1.0)]", "CASES[1] is ('a', 1.0)"),
        ("[('a', {}, '1')]", "CASES[0] is ('a', {}, '1')"),
        ("[(b'a', {}, 1.0)]", "CASES[0] is (b'a', {}, 1.0)"),
        ("[('a', [], 1.0)]", "CASES[0] is ('a', [], 1.0)"),
        ("[('a', {}, 1.0, 2)]", "CASES[0] is ('a', {}, 1.0, 2)"),
        ("[('a', {'completion_ids': 3}, 1.0)]", "CASES[0] is ('a', {'completion_ids': 3}, 1.0)"),
        ("7", "CASES is 7; write a list"),
    ],
)
def test_malformed_cases_are_one_line(tried, cases, found):
    code, shown = tried(f"CASES = {cases}\ndef mine(completion): return 1.0\n")
    assert code == 2
    assert shown.startswith(f"error: {Path.cwd()}/rewards/mine.py: {found}")
    assert "(completion, columns, expected, options)" in shown
    assert shown.count("\n") == 1


def test_no_cases_is_said_and_no_finding(tried):
    code, shown = tried("def mine(completion): return float('please' in completion)\n")
    assert code == 0
    assert "\n  cases        the file has no CASES" in shown


def test_cases_are_enough_where_the_rows_lack_a_column(tried):
    code, shown = tried(
        """\
        CASES = [("a", {"target": 1}, 0.0), ("b", {"target": 2}, 0.0)]

        def mine(completion, target):
            return 0.0
        """
    )
    assert code == 0
    assert "\n  repeated     the same scores in two processes, 2 completions\n" in shown
    assert "\n  attack       not tried: mine needs the columns target; name a recipe" in shown


def test_without_cases_and_columns_nothing_can_be_tried(tried):
    code, shown = tried("def mine(completion, target): return 0.0\n")
    assert code == 0
    assert "\n  trials       none: needs the columns target; give CASES, or a recipe" in shown


# The same score, always


@pytest.mark.parametrize(
    "code",
    [
        "import random\ndef mine(completion): return random.random()",
        "def mine(completion): return hash(completion) % 1000 / 1000",
        "import time\ndef mine(completion): return time.time() % 1",
        "import os\ndef mine(completion): return os.getpid() % 1000",
        "def mine(completion): return hash(list(set(completion.split()) or [''])[0]) % 97",
        "import random\ndef mine(completions, **kwargs): return [random.random() for _ in completions]",
    ],
)
def test_chance_and_clock(tried, code):
    ended, shown = tried(code)
    assert ended == 1
    assert "\n  repeated     FINDING: non-deterministic: '" in shown
    assert " in one process and " in shown


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (
            "def mine(completions, **kwargs): return [float(i == 0) for i in range(len(completions))]",
            "at another place",
        ),
        (
            "def mine(completions, **kwargs): return [i / len(completions) for i in range(len(completions))]",
            "at another",
        ),
        (
            "seen = set()\ndef mine(completion):\n  new = completion not in seen\n  seen.add(completion)\n  return new",
            "after",
        ),
        ("calls = []\ndef mine(completion):\n  calls.append(1)\n  return len(calls) % 2", "after other completions"),
        ("import random\nrandom.seed(0)\ndef mine(completion): return random.random()", "after other completions"),
        (
            "last = ['']\ndef mine(completion):\n  last.append(completion)\n  return len(last[-2])",
            "after other completions",
        ),
    ],
)
def test_order(tried, code, where):
    ended, shown = tried(code)
    assert ended == 1
    assert "\n  order        FINDING: depends on the order: '" in shown
    assert where in shown


def test_a_reward_relative_to_its_group_is_no_finding(tried):
    code, shown = tried(
        """\
        def mine(completions, completion_ids, **kwargs):
            lengths = [len(ids) for ids in completion_ids]
            mean = sum(lengths) / len(lengths)
            return [round(length / mean, 9) if mean else 0.0 for length in lengths]
        """
    )
    assert "\n  order        the same scores in three orders of the batch\n" in shown
    assert code == 0, shown


def test_in_the_training_process(tried):
    code, shown = tried(
        "IN_PROCESS = True\ncalls = []\ndef mine(completion):\n  calls.append(1)\n  return len(calls)\n"
    )
    assert code == 1
    assert "FINDING: non-deterministic" in shown


# Time and errors


def test_the_time_is_shown(tried):
    code, shown = tried("TIME_LIMIT_S = 0.7\ndef mine(completion): return 0.0\n")
    assert code == 0
    assert "ms a completion, way to the worker included; the limit is 0.7 s\n" in shown


@pytest.mark.parametrize("when", ["True", "'42' in completion"])
def test_a_reward_that_hangs_is_found_soon_and_not_asked_on(tried, when):
    code, shown = tried(
        f"import time\nTIME_LIMIT_S = 0.1\ndef mine(completion):\n  while {when}: time.sleep(1)\n  return 0.0\n"
    )
    assert code == 1
    assert f"\n  time         FINDING: {Path.cwd()}/rewards/mine.py: mine gave no result within 0.1 s (" in shown
    assert "\n  attack       not tried, because mine reaches its time limit\n" in shown


def test_a_case_that_hangs(tried):
    code, shown = tried(
        "TIME_LIMIT_S = 0.1\nCASES = [('a', {}, 0.0), ('b', {}, 0.0), ('a', {}, 1.0)]\n"
        "def mine(completion):\n  while completion == 'b': pass\n  return 0.0\n"
    )
    assert code == 1
    assert "FINDING: CASES[1]: 'b': expected 0, got none, because mine gave no result within 0.1 s\n" in shown
    assert "\n  cases        1 of 3 failed, the rest was left out\n" in shown


def test_a_reward_that_raises(tried):
    code, shown = tried("def mine(completion): return 1 / len(completion)\n")
    assert code == 1
    assert "rewards/mine.py: mine raised ZeroDivisionError: division by zero (mine.py:1, completion " in shown


# Length in characters

COUNTS = "FINDING: counts characters: short words would be rewarded; use completion_ids, which are tokens\n"


@pytest.mark.parametrize(
    "code",
    [
        "def mine(completion): return max(0.0, 1 - len(completion) / 5000)",
        "def mine(completion): return 1.0 if len(completion) < 500 else 0.0",
        "def mine(completion): return len(completion.encode()) / 1000",
        "def mine(completions, **kwargs): return [-abs(len(c) - 200) / 200 for c in completions]",
        "def mine(completion, answer): return float(answer == completion) + len(completion) / 1000",
    ],
)
def test_characters_are_no_measure_of_length(tried, code):
    ended, shown = tried(code)
    assert ended == 1
    assert COUNTS in shown


@pytest.mark.parametrize(
    "code",
    [
        "def mine(completion, completion_ids): return len(completion_ids) / 1000",
        "def mine(completion): return len(completion.split()) / 1000",
        "def mine(completion): return len(set(completion)) / 100",
        "def mine(completion): return 0.0",
    ],
)
def test_what_does_not_count_characters(tried, code):
    assert COUNTS not in tried(code)[1]


# What is tested


def test_all_rewards_and_one_cannot_be_imported(capsys):
    Path("rewards").mkdir()
    Path("rewards/broken.py").write_text("import nothing_there\n")
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "test"])
    shown = capsys.readouterr().out
    assert ended.value.code == 1
    assert shown.startswith(
        f"broken  rewards/broken.py\n  FINDING: {Path.cwd()}/rewards/broken.py:1: cannot be imported"
    )
    for name, cases in (("accuracy", 33), ("countdown", 19), ("format", 40), ("length", 8)):
        assert f"\n{name}  shipped\n  cases        {cases} as expected\n" in shown
    assert shown.endswith("\n1 finding\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lenght"], "lenght: no such reward (there are accuracy, countdown, format, length); did you mean length?"),
        (["no.py"], "no.py: no such file; write the name of a reward, or the path of its .py file"),
        (["--recipe", "no.yaml"], "no.yaml: no such file"),
        (["--model", "no"], "no: no such run (runs here: none)"),
        (["length", "--model", "no"], "--model no: attacks all rewards of its recipe at once; leave out length"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "test", *arguments])
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1
