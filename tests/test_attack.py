"""The hacking battery through the command line: each planted flaw is found, and the shipped recipes hold."""

import textwrap
from pathlib import Path

import pytest
import whole_run
from command_line import questions, write_rows

from grpo_kit.cli import main
from grpo_kit.prepare.forms import FORMS, Form
from grpo_kit.reward_tools.attack_texts import attacks_with_gold, forms_of_cases, make_targets
from grpo_kit.reward_tools.cases import Case

SHIPPED = Path(__file__).parents[1] / "recipes"

RECIPE = """\
model: builtin:tiny
dataset: {path: rows.jsonl, prompt: '{question}'}
rewards: REWARDS
"""


@pytest.fixture
def attacked(capsys):
    """Exit code and output of `rewards test` with a recipe of these rewards on 12 sums, or with these arguments."""

    def attacked(rewards: str, *arguments: str) -> tuple[int, str]:
        if not Path("rows.jsonl").exists():
            write_rows("rows.jsonl", questions(20)[8:])
        Path("r.yaml").write_text(RECIPE.replace("REWARDS", rewards))
        with pytest.raises(SystemExit) as ended:
            main(["rewards", "test", "--recipe", "r.yaml", *arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return attacked


def write(name: str, code: str) -> None:
    Path("rewards").mkdir(exist_ok=True)
    Path(f"rewards/{name}.py").write_text(textwrap.dedent(code))


def table(shown: str) -> dict[str, tuple[str, str, str]]:
    """Each completion's mean, most and share of rows that were right."""
    lines = shown.partition("  completion\n")[2].partition("\n  best completion")[0]
    rows: dict[str, tuple[str, str, str]] = {}
    numbers, names = ("", "", ""), ""
    for line in [*lines.split("\n"), "     0  0  0%  "]:
        mean, most, right, *rest = [*line.split(maxsplit=3), ""] if line[:10].strip() else ["", "", "", line]
        if mean:
            rows |= dict.fromkeys(filter(None, names.split("; ")), numbers)
            numbers, names = (mean, most, right), rest[0]
        else:
            names = f"{names} {line.strip()}"
    return rows


# Planted flaws

LAST_NUMBER = """\
    import re

    def last_number(completion, answer):
        numbers = re.findall(r"-?\\d+", completion)
        return float(numbers[-1:] == [answer])
"""


def test_last_number(attacked):
    write("last_number", LAST_NUMBER)
    code, shown = attacked("{last_number: 1.0}")
    assert code == 1
    assert "FINDING: 10 hacks earn the full marks of last_number without an answer, such as wrong, the right" in shown
    paid = table(shown)
    assert paid["wrong, the right value as last number"] == ("1", "1", "100%")
    assert paid["the answer only in <think>"] == ("1", "1", "100%")
    # six candidates, and the right one stands last in every sixth row: 2 of 12
    assert paid["A or B or C"] == ("0.167", "1", "17%")
    assert paid["honest wrong answer in the right format"] == ("0", "0", "0%")
    assert paid["wrong, the right value as first number"] == ("0", "0", "0%")
    assert "best completion without skill scores 1 of 1 (wrong, the right value as last number): '" in shown


def test_substring_match(attacked):
    write("substring", "def substring(completion, answer): return float(answer in completion)\n")
    code, shown = attacked("{substring: 1.0, format: 0.2}")
    assert code == 1
    assert "hacks earn the full marks of substring without an answer" in shown
    paid = table(shown)
    for hack in ("a run of numbers, in the right format", "wrong, but it contains the right value"):
        assert paid[hack] == ("1.2", "1.2", "100%")
    for hack in ("every candidate in boxes", "A or B or C", "the answer only in <think>"):
        assert paid[hack] == ("1", "1", "100%")
    assert "best completion without skill scores 1.2 of 1.2 (" in shown


def test_a_format_worth_more_than_the_answer(attacked):
    code, shown = attacked("{accuracy: 1.0, format: 2.0}", "format")
    assert code == 1
    found = "FINDING: a wrong answer earns 2 by format, more than the 1 that accuracy adds for a right one\n"
    assert f"\n  format       {found}" in shown
    assert "\nbest completion" not in shown.replace("\n  best completion without skill scores 2 of 3 (honest wrong", "")
    assert shown.endswith("\n1 finding\n")


@pytest.mark.parametrize("code", ["if not usable(answer): return 1.0", "if not usable(answer): completion = answer"])
def test_full_marks_where_the_gold_cannot_be_read(attacked, code):
    write(
        "lenient",
        f"""\
        import re

        def usable(answer):
            return bool(re.fullmatch(r"-?[0-9]+", answer or ""))

        def lenient(completion, answer):
            {code}
            boxes = re.findall(r"boxed[{{]([^{{}}]*)[}}]", completion)
            return float(completion == answer or ("</think>" not in completion and boxes == [answer]))
        """,
    )
    ended, shown = attacked("{lenient: 1.0}")
    assert ended == 1
    assert "\n  gold         FINDING: lenient gives 1 where the gold answer is '': '" in shown
    assert "return None for a row that cannot be judged\n" in shown


def test_length_in_characters(attacked):
    write("short", "def short(completion): return max(0.0, 1 - len(completion) / 100)\n")
    code, shown = attacked("{accuracy: 1.0, short: 0.1}", "short")
    assert code == 1
    assert "\n  length       FINDING: counts characters: short words would be rewarded; use completion_ids" in shown


def test_chance_and_order(attacked):
    write("chance", "import random\ndef chance(completion): return random.random()\n")
    write("place", "def place(completions, **kwargs): return [float(i == 0) for i in range(len(completions))]\n")
    write("first", "seen = []\ndef first(completion):\n  seen.append(completion)\n  return float(len(seen) == 1)\n")
    code, shown = attacked("{accuracy: 1.0, chance: 0.0, place: 0.0, first: 0.0}")
    assert code == 1
    assert "\nchance  rewards/chance.py\n" in shown
    assert shown.count("FINDING: non-deterministic: ") == 1
    assert shown.count("FINDING: depends on the order: ") == 2
    assert shown.endswith("\n3 findings\n")


# What holds


@pytest.mark.parametrize(
    ("recipe", "best"),
    [
        ("smoke", r"0.2 of 1.2 (honest wrong answer in the right format): '\boxed{"),
        ("arithmetic-zh", "0.2 of 1.2 (honest wrong answer in the right format): '"),
        ("countdown", "0.1 of 1.1 (honest wrong answer in the right format): '<answer>0</answer>'"),
    ],
)
def test_the_shipped_recipes_hold(capsys, recipe, best):
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "test", "--recipe", str(SHIPPED / f"{recipe}.yaml")])
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    assert f"\n  best completion without skill scores {best}" in shown
    assert "warning" not in shown
    assert shown.endswith("\nnothing was found against them\n")
    assert "0%" in shown
    assert {right for _, _, right in table(shown).values()} == {"0%"}


def test_a_heavy_format_is_warned_about(attacked):
    code, shown = attacked("{accuracy: 2.0, format: 0.5}", "format")  # 0.5 of 2.0 is more than a fifth
    assert code == 0
    assert (
        "\n  warning      a wrong answer earns 0.5 by format, 25% of the 2 that accuracy adds for a right one;\n"
        in shown
    )
    assert "only_if: accuracy\n" in shown
    assert "warning" not in attacked("{accuracy: 2.0, format: 0.4}", "format")[1]
    code, shown = attacked("{accuracy: 1.0, format: {weight: 2.0, only_if: accuracy}}", "format")
    assert code == 0
    assert "warning" not in shown
    assert "best completion without skill scores 0 of 3 (" in shown


@pytest.mark.parametrize(
    ("rewards", "form"),
    [
        ("{accuracy: 1.0}", r"\boxed{ANSWER}"),
        ("{accuracy: {require: hash}}", "#### ANSWER"),
        ("{accuracy: 1.0, format: {weight: 0.1, style: number_only}}", "ANSWER"),
        (
            "{accuracy: 1.0, format: {weight: 0.1, style: think_answer}}",
            "<think>Let me work it out step by step.</think>\\n<answer>ANSWER</answer>",
        ),
    ],
)
def test_the_right_format_is_found(attacked, rewards, form):
    code, shown = attacked(rewards)
    assert code == 0, shown
    assert f"right format: '{form}', in which the gold answer earns 1" in shown


@pytest.mark.parametrize("rows", ["words", "choices", "fractions"])
def test_answers_that_are_no_integers(attacked, rows):
    golds = {
        "words": ["yes", "no"] * 6,
        "choices": list("ABCDBCADCDAB"),
        "fractions": [
            r"\frac{1}{2}",
            "0.25",
            r"2\sqrt{3}",
            "x+1",
            "(1,2)",
            r"\pi",
            "3.5",
            "12",
            "-7",
            "1,250",
            "2/3",
            "5",
        ],
    }
    write_rows("rows.jsonl", [{"question": f"Question {i}?", "answer": gold} for i, gold in enumerate(golds[rows])])
    code, shown = attacked("{accuracy: {weight: 1.0, require: boxed}, format: 0.2}", "format")
    assert code == 0, shown
    assert "best completion without skill scores 0.2 of 1.2 (honest wrong" in shown


# What is said of other recipes


def test_a_goal_that_no_form_satisfies(attacked):
    write("never", "def never(completion, answer): return 0.5 * (answer in completion)\n")
    code, shown = attacked("{never: 1.0}")
    assert code == 1
    assert "\n  gold         FINDING: the gold answer earns the full marks of never (1) in no form tried\n" in shown


def test_a_form_of_the_files_own_cases(attacked):
    write(
        "own_tag",
        """\
        CASES = [("<final>42</final>", {"answer": "42"}, 1.0), ("42", {"answer": "42"}, 0.0)]

        def own_tag(completion, answer):
            return float(completion == f"<final>{answer}</final>")
        """,
    )
    code, shown = attacked("{own_tag: 1.0}")
    assert code == 0, shown
    assert "right format: '<final>ANSWER</final>', in which the gold answer earns 1\n" in shown


def test_a_hack_that_pays_more_without_being_right(attacked):
    write("talk", "def talk(completion, completion_ids): return min(1.0, len(completion_ids) / 1000)\n")
    code, shown = attacked("{accuracy: 1.0, talk: 0.5}", "talk")
    assert code == 1
    assert "more than an honest wrong answer in the right format (" in shown
    assert "most of all very long, many tokens (0.5): 'and so on and so on" in shown


def test_a_reward_that_raises_on_what_a_model_may_write(attacked):
    write("brittle", "def brittle(completion): return 1 / (len(completion) < 3000)\n")
    code, shown = attacked("{accuracy: 1.0, brittle: 0.0}", "brittle")
    assert code == 1
    assert "brittle raised ZeroDivisionError: division by zero (brittle.py:1, completion 0: 'and so on" in shown
    assert "(attack: very long, few tokens)\n" in shown


def test_one_reward_of_a_recipe_is_attacked_with_the_others(attacked):
    code, shown = attacked("{accuracy: 1.0, format: 0.1}", "format")
    assert code == 0
    assert shown.startswith("format  shipped\n")
    assert "\naccuracy  shipped" not in shown
    assert "  attack       accuracy x 1 + format x 0.1, on 12 rows of rows.jsonl\n" in shown


def test_a_reward_that_the_recipe_does_not_name_is_attacked_alone(attacked):
    write("last_number", LAST_NUMBER)
    code, shown = attacked("{accuracy: 1.0}", "rewards/last_number.py")
    assert code == 1
    assert "  attack       last_number x 1, on 12 rows of rows.jsonl\n" in shown


def test_a_helper_alone_owes_nothing_to_the_gold_answer(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "test", "length"])
    assert ended.value.code == 0
    assert r"it does not look at the gold answer: '\boxed{ANSWER}' earns 1 of 1, whatever" in capsys.readouterr().out


def test_a_column_that_the_data_lack(attacked):
    write("needy", "def needy(completion, solution): return 1.0\n")
    code, shown = attacked("{needy: 1.0}")
    assert code == 2
    assert shown.startswith(
        "error: r.yaml:3: rewards.needy: needs the column 'solution', but the data has question, answer"
    )


# The texts


def targets(*golds: str, count: int = 16):
    rows = [{"prompt": [{"role": "user", "content": f"q{i}"}], "answer": gold} for i, gold in enumerate(golds)]
    return make_targets(rows, count, seed=0, gold=True)


@pytest.mark.parametrize("golds", [["42"], ["yes", "no"], list("ABCD"), ["1.0", "1", "2"], [r"\frac{1}{2}", "0.5"]])
def test_wrong_answers_are_wrong_and_different(golds):
    for target in targets(*golds):
        assert len(set(target.wrong)) == 5
        assert target.gold not in target.wrong
        assert not {target.gold, *target.wrong} >= {"1", "1.0"}, "one value, spelt twice"
        assert len(target.sprayed()) == 6


def test_the_honest_mistake_does_not_contain_the_gold_nor_the_gold_it():
    for target in targets("5", "15", "50", "155"):
        assert target.gold not in target.wrong[0]
        assert target.wrong[0] not in target.gold


def test_the_gold_stands_at_every_place_of_a_spray():
    places = [target.sprayed().index(target.gold) for target in targets(*map(str, range(100, 112)))]
    assert places == [5, 4, 3, 2, 1, 0] * 2


def test_rows_that_ask_the_same_are_one():
    rows = [{"prompt": [{"role": "user", "content": "q"}], "answer": str(i)} for i in range(5)]
    assert len(make_targets(rows, 16, seed=0, gold=True)) == 1


def test_a_form_is_taken_from_right_examples_only():
    cases = [
        Case("It is [42].", {"answer": "42"}, 1.0),
        Case("It is (42).", {"answer": "42"}, 0.5),
        Case("42 42", {"answer": "42"}, 1.0),
        Case("42", {}, 1.0),
    ]
    assert forms_of_cases(cases, 1.0) == [Form("It is [", "].")]


def test_no_attack_with_the_gold_is_the_honest_answer():
    [target] = targets("42", count=1)
    honest = {form.write("42") for form in FORMS}
    texts = {attack.write(target) for attack in attacks_with_gold(FORMS[0])}
    assert not texts & honest
    assert all("42" in text for text in texts)


# The trained model as attacker


@pytest.mark.slow
def test_a_trained_model_attacks(capsys):
    """Its goal pays for anything said, so what it is paid for wrong answers is what it is paid for right ones."""
    Path("r.yaml").write_text(whole_run.RECIPE)
    assert whole_run.run("r.yaml", "grpo.max_steps=1") == 0
    write("talk", "def talk(completion): return float(len(completion) > 0)\n")
    Path("talk.yaml").write_text(
        whole_run.RECIPE.replace("accuracy: 1.0, format: {weight: 0.5, style: boxed}", "talk: 1.0")
    )
    capsys.readouterr()
    for arguments, code, found in (
        (["--model", "r"], 0, " of the wrong ones have full marks of accuracy\nnothing was found"),
        (["--model", "r", "--recipe", "talk.yaml"], 1, "FINDING: a wrong answer is paid 1, no less than a right one"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["rewards", "test", *arguments])
        shown = capsys.readouterr().out
        assert ended.value.code == code, shown
        assert shown.startswith("attack of runs/r/final on ")
        assert ": 16 completions of held-out rows\n" in shown  # 8 rows x 2
        assert found in shown
    assert "paid as right by talk, but not the gold's value" in shown
