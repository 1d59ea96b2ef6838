"""`grpo-kit rewards list`: every reward that a recipe could name, and a bad file is a line and not the end."""

import textwrap
from pathlib import Path

import pytest

from grpo_kit.cli import main


@pytest.fixture
def listed(capsys):
    """What `rewards list` prints."""

    def listed(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["rewards", "list", *arguments])
        captured = capsys.readouterr()
        assert (ended.value.code or 0, captured.err) == (0, "")
        assert max(map(len, captured.out.splitlines())) <= 100
        return captured.out

    return listed


def write(path: str, code: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(textwrap.dedent(code))


def test_the_shipped_rewards(listed):
    assert listed().splitlines()[-8:] == [
        "format     1.0 when the completion has the form that `style` names, whatever it says.",
        "           columns  none",
        "           options  style=boxed (or think, think_answer, answer_tag, number_only)",
        "           file     shipped",
        "length     1.0 up to `target_tokens` tokens, then falling in a straight line to 0.0 at `max_tokens`.",
        "           columns  none",
        "           options  target_tokens=256, max_tokens=512",
        "           file     shipped",
    ]


def test_what_a_signature_says(listed):
    write(
        "rewards/mine.py",
        '''\
        """One line.

        And more.
        """

        def mine(completion, answer, completion_ids, level=3, *, scale, top: float = 2.0, **columns):
            return columns["solution"]
        ''',
    )
    assert listed().splitlines()[:4] == [
        "mine       One line.",
        "           columns  answer, solution, level (may be missing)",
        "           options  scale (must be given), top=2.0",
        "           file     rewards/mine.py",
    ]


def test_an_own_file_hides_the_shipped_one(listed):
    write("rewards/length.py", '"""Mine."""\ndef length(completion): return 1.0\n')
    lines = listed().splitlines()
    assert lines[0] == "length     Mine."
    assert sum(line.startswith("length ") for line in lines) == 1


def test_the_folder_beside_a_recipe(listed):
    write("there/rewards/mine.py", "def mine(completion): return 1.0\n")
    write("there/r.yaml", "model: m\ndataset: {path: rows.jsonl}\nrewards: {accuracy: 1.0}\n")
    assert "\nmine " not in f"\n{listed()}"
    assert listed("--recipe", "there/r.yaml").startswith("mine       (no docstring)\n")


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        (
            "mine",
            "import nothing_there",
            ":1: cannot be imported (ModuleNotFoundError: No module named 'nothing_there')",
        ),
        ("mine", "def other(): pass", " has no function 'mine' (it defines other)"),
        ("my-own", "x = 1", ": found the name 'my-own'; give the file a name that a function can have"),
    ],
)
def test_a_file_that_cannot_be_used(listed, name, code, reason):
    write(f"rewards/{name}.py", code)
    shown = listed()
    said = " ".join(shown.partition("\naccuracy ")[0].split())
    assert said.startswith(f"{name} cannot be used: ")
    assert said.replace(" ", "").endswith(f"/rewards/{name}.py{reason}".replace(" ", ""))  # wherever lines are broken
    assert "\nformat " in shown
    assert "Traceback" not in shown


def test_a_recipe_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "list", "--recipe", "no.yaml"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: no.yaml: no such file")
