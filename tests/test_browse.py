import pytest

from grpo_kit.errors import RecipeError
from grpo_kit.run.browse import matching_samples, sample_lines
from grpo_kit.run.run_dir import RunDir


def sample(step, accuracy, tokens=5, **more):
    return {
        "step": step, "row": 0, "prompt": "1+1?", "completion": "2", "gold": "2", "answer_read": "2",
        "rewards": {"accuracy": accuracy, "format": None}, "advantage": 0.5, "tokens": tokens,
        "truncated": False, **more,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path)
    for record in (sample(1, 0.0, 9), sample(1, 1.0), sample(2, 0.5), sample(3, 1.0, truncated=True)):
        run.append("samples.jsonl", record)
    return run


@pytest.mark.parametrize(
    ("conditions", "steps"),
    [
        ([], [1, 1, 2, 3]),
        (["accuracy=1"], [1, 3]),
        (["accuracy<1"], [1, 2]),
        (["accuracy>0", "step>1"], [2, 3]),
        (["tokens=9"], [1]),
        (["truncated=true"], [3]),
        (["format=0"], []),  # not judged is not 0
    ],
)
def test_conditions(run, conditions, steps):
    assert [record["step"] for record in matching_samples(run, conditions)] == steps


@pytest.mark.parametrize("condition", ["accuracy", "acuracy=1", "accuracy=high", "accuracy==1", "=1", ""])
def test_a_condition_that_cannot_be_read_names_what_can_be_written(run, condition):
    with pytest.raises(RecipeError, match=r"accuracy|no number"):
        matching_samples(run, [condition])


def test_a_run_without_completions(tmp_path):
    with pytest.raises(RecipeError, match="no completions"):
        matching_samples(RunDir(tmp_path), [])


def test_model_output_cannot_act_on_the_terminal():
    shown = "\n".join(sample_lines(sample(1, 1.0, completion="a\x1b[2Jb\rc\u202ed")))
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "\\x1b[2J" in shown
    assert "\u202e" not in shown  # reverses the text that follows
