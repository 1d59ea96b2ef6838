"""Held-out accuracy: sample the rows, let the rewards judge, and say how sure the number is."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from grpo_kit.evaluation.judged import LENIENT, JudgedRow, Task, goal_varies, held_out_task, judge_rows, reward_means
from grpo_kit.prepare.inputs import Inputs
from grpo_kit.processes import is_main
from grpo_kit.rewards.scoring import LostScore, Scorer
from grpo_kit.stats import Difference, accuracy_interval, paired_difference, rows_that_would_tell

Share = Annotated[float, Field(ge=0, le=1)]
"""Checked where a measurement is read back from a file (`run/shapes.py`)."""


@dataclass(frozen=True)
class Evaluation:
    """One measurement on held-out rows.

    `pass_rates` is the share of right completions among those that the goal's reward judged, per prompt in row order;
    None for a prompt of which it judged none. `accuracy`, `ci95` and `n` are of the prompts that were judged;
    `unscored` is the share of completions that each reward did not judge; `goal_varies` whether the goal's reward tells
    any two completions apart.
    """

    step: Annotated[int, Field(strict=True, ge=0)]
    data: str
    goal: str
    accuracy: Share | None
    ci95: tuple[float, float] | None
    n: int
    samples: int
    mean_tokens: float
    truncated_share: float
    rewards: dict[str, float | None]
    unscored: dict[str, float]
    pass_rates: list[Share | None]
    example: dict[str, Any]
    goal_varies: bool = True

    def summary(self) -> dict[str, Any]:
        """What `summary.json` keeps of it."""
        keys = ("accuracy", "ci95", "n", "samples", "mean_tokens", "truncated_share", "rewards", "unscored")
        return {key: getattr(self, key) for key in keys}

    def record(self) -> dict[str, Any]:
        """What `eval.jsonl` keeps of it: everything."""
        return asdict(self)


def evaluate(
    inputs: Inputs,
    model: Any,
    step: int,
    *,
    scorer: Scorer,
    go_on: Callable[[], bool] = lambda: True,
    progress: Callable[[int], object] = lambda rows: None,
    on_lost: Callable[[list[LostScore]], None] = lambda lost: None,
    keep: Callable[[Task, list[JudgedRow]], None] = lambda task, rows: None,
) -> Evaluation | None:
    """Measure a model on the held-out rows at the training sampling parameters.

    None where the recipe has no `eval_dataset`, or where `go_on()` turned false before the end. Of several processes
    all have the result. `on_lost` is told, in the main process, of completions that were lost; `keep` is given, in all
    of them, the rows of a measurement that came to its end.
    """
    data = inputs.eval_data
    if data is None:
        return None
    task = held_out_task(inputs, data, step)
    judged: list[JudgedRow] = []
    for rows, lost in judge_rows(task, model, scorer, go_on):
        judged += rows
        progress(len(rows))
        if lost and is_main():
            on_lost(lost)
    if len(judged) < len(data.rows):
        return None
    keep(task, judged)
    return summarise_rows(task, judged)


def summarise_rows(task: Task, judged: Sequence[JudgedRow]) -> Evaluation:
    """What the judged rows of a task come to."""
    goal, data = task.goal, task.data
    judged = sorted(judged, key=lambda row: row.row)
    pass_rates = [row.pass_rate(goal) for row in judged]
    rates = [rate for rate in pass_rates if rate is not None]
    means, unscored = reward_means(judged)
    first = judged[0]
    return Evaluation(
        step=task.step,
        data=data.label,
        goal=goal.label,
        accuracy=fmean(rates) if rates else None,
        ci95=accuracy_interval(rates, task.samples) if rates else None,
        n=len(rates),
        samples=task.samples,
        mean_tokens=fmean(tokens for row in judged for tokens in row.tokens),
        truncated_share=fmean(cut for row in judged for cut in row.truncated),
        rewards=means,
        unscored=unscored,
        pass_rates=pass_rates,
        example={
            "prompt": data.rows[first.row]["prompt"][-1]["content"],
            "completion": first.texts[0],
            "answer_read": goal.read_answer(first.texts[0]),
            "gold": data.rows[first.row].get("answer"),
            "rewards": {label: scores[0] for label, scores in first.scores.items() if label != LENIENT},
        },
        goal_varies=goal_varies(judged, goal),
    )


ENOUGH = 20
"""Fewer prompts, or completions, than this are too few to foretell anything from."""


def nothing_right(evaluation: Evaluation) -> bool:
    """Was no completion right, and none nearer to it than another as far as the goal's reward tells?

    A handful of completions is too few to say so.
    """
    return evaluation.n * evaluation.samples >= ENOUGH and evaluation.accuracy == 0 and not evaluation.goal_varies


@dataclass(frozen=True)
class Verdict:
    """Did the model learn? From the paired interval of the held-out gain: above 0, containing 0, below 0."""

    word: str  # "learned", "unclear", "not learned", "not measured"
    gain: float | None = None
    ci95: tuple[float, float] | None = None
    rows_needed: int | None = None


def judge_gain(before: Evaluation | None, after: Evaluation | None) -> Verdict:
    """The verdict on a run from its evaluations before and after, over the prompts that were judged both times.

    Where those are less than half of the prompts the rest could tip it, so it stays unclear.
    """
    difference = difference_of(before, after) if before and after else None
    if before is None or after is None or difference is None:
        return Verdict("not measured")
    gain, interval = difference.value, difference.ci95
    pairs = len(_judged_both_times(before, after))
    if 2 * pairs < len(before.pass_rates):
        return Verdict("unclear", gain, interval)
    if interval[0] > 0:
        return Verdict("learned", gain, interval)
    if interval[1] < 0:
        return Verdict("not learned", gain, interval)
    return Verdict("unclear", gain, interval, rows_that_would_tell(gain, interval, pairs) if pairs >= ENOUGH else None)


def difference_of(before: Evaluation, after: Evaluation) -> Difference | None:
    """Of two measurements of the same rows, over the prompts that were judged both times; None where there is none."""
    pairs = _judged_both_times(before, after)
    return paired_difference([b for b, _ in pairs], [a for _, a in pairs]) if pairs else None


def _judged_both_times(before: Evaluation, after: Evaluation) -> list[tuple[float, float]]:
    both = zip(before.pass_rates, after.pass_rates, strict=True)
    return [(b, a) for b, a in both if b is not None and a is not None]
