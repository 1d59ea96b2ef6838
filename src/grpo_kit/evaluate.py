"""Held-out accuracy: sample the rows, let the rewards judge, and say how sure the number is."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from grpo_kit.generate import Sampled, batch_seed, prompt_batches, sample_batch, sampling_config
from grpo_kit.prepare import Prepared
from grpo_kit.processes import count, gather, is_main, rank, together
from grpo_kit.rewards import Completions, outside_training
from grpo_kit.scoring import LostScore, Scorer
from grpo_kit.stats import accuracy_interval, paired_gain, rows_that_would_tell

if TYPE_CHECKING:
    from grpo_kit.data import Data


@dataclass(frozen=True)
class Evaluation:
    """One measurement on held-out rows.

    `pass_rates` is the share of right completions among those that the goal's reward judged, per prompt in row order;
    None for a prompt of which it judged none. `accuracy`, `ci95` and `n` are of the prompts that were judged;
    `unscored` is the share of completions that each reward did not judge.
    """

    step: int
    data: str
    goal: str
    accuracy: float | None
    ci95: tuple[float, float] | None
    n: int
    samples: int
    mean_tokens: float
    truncated_share: float
    rewards: dict[str, float | None]
    unscored: dict[str, float]
    pass_rates: list[float | None]
    example: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """What `summary.json` keeps of it."""
        keys = ("accuracy", "ci95", "n", "samples", "mean_tokens", "truncated_share", "rewards", "unscored")
        return {key: getattr(self, key) for key in keys}

    def record(self) -> dict[str, Any]:
        """What `eval.jsonl` keeps of it: everything."""
        return asdict(self)


def evaluate(
    prepared: Prepared,
    model: Any,
    step: int,
    *,
    scorer: Scorer,
    go_on: Callable[[], bool] = lambda: True,
    progress: Callable[[int], object] = lambda rows: None,
    on_lost: Callable[[list[LostScore]], None] = lambda lost: None,
) -> Evaluation | None:
    """Measure a model on the held-out rows at the training sampling parameters.

    None where the recipe has no `eval_dataset`, or where `go_on()` turned false before the end. Several processes take
    turns with batches of prompts and all have the result, the same as one would have. `on_lost` is told, in the main
    process, of completions that were lost.
    """
    data = prepared.eval_data
    if data is None:
        return None
    plan, samples = prepared.plan, prepared.recipe.evaluation.samples
    max_tokens = prepared.recipe.evaluation.max_completion_length or plan.max_completion_length
    fits = plan.completions_per_rollout // count() * plan.max_completion_length // max_tokens  # as it does in training
    batches = prompt_batches(prepared.chat, data.rows, max(fits // samples, 1))
    config = sampling_config(prepared.args, prepared.chat, max_tokens)
    judged: list[_Judged] = []
    for turn in range(0, len(batches), count()):
        if not go_on():
            return None
        sampled: list[Sampled] = []
        number = turn + rank()
        if number < len(batches):  # in the last turn there may be none left for this process
            sampled = sample_batch(
                model, prepared.chat, prepared.device, data.rows, batches[number], config, samples=samples,
                seed=batch_seed(prepared.recipe.seed + 1_000_003 * (step + 1), number), fast=prepared.recipe.fast,
            )  # fmt: skip
        with together():
            own = _judge(prepared, scorer, data, step, sampled)
        for rows, lost in gather(own):
            judged += rows
            progress(len(rows))
            if lost and is_main():
                on_lost(lost)
    return _summarise(prepared, data, step, samples, judged)


@dataclass(frozen=True)
class _Judged:
    """The completions of one row, scored: `scores[label]` has one number per completion."""

    row: int
    texts: list[str]
    tokens: list[int]
    truncated: list[bool]
    scores: dict[str, list[float | None]]


def _judge(
    prepared: Prepared, scorer: Scorer, data: "Data", step: int, sampled: list[Sampled]
) -> tuple[list[_Judged], list[LostScore]]:
    """A batch of rows, and the scores that were lost; both empty where there is nothing to judge."""
    if not sampled:
        return [], []
    ids = [completion for row in sampled for completion in row.completion_ids]
    texts = [prepared.chat.decode(completion) for completion in ids]
    rows = [data.rows[row.row] for row in sampled for _ in row.completion_ids]
    scores = scorer.score(Completions(texts, ids, rows), **outside_training(step))
    judged = []
    end = 0
    for row in sampled:
        start, end = end, end + len(row.completion_ids)
        own = {label: column[start:end] for label, column in scores.values.items()}
        judged.append(_Judged(row.row, texts[start:end], [len(c) for c in row.completion_ids], row.truncated, own))
    return judged, scores.lost


def _summarise(prepared: Prepared, data: "Data", step: int, samples: int, judged: list[_Judged]) -> Evaluation:
    goal = prepared.goal
    judged = sorted(judged, key=lambda row: row.row)
    pass_rates: list[float | None] = []
    for row in judged:
        scored = [goal.is_right(score) for score in row.scores[goal.label] if score is not None]
        pass_rates.append(fmean(scored) if scored else None)
    rates = [rate for rate in pass_rates if rate is not None]
    means: dict[str, float | None] = {}
    unscored: dict[str, float] = {}
    for reward in prepared.rewards:
        scores = [score for row in judged for score in row.scores[reward.label]]
        given = [score for score in scores if score is not None]
        means[reward.label] = fmean(given) if given else None
        unscored[reward.label] = 1 - len(given) / len(scores)
    first = judged[0]
    return Evaluation(
        step=step,
        data=data.label,
        goal=goal.label,
        accuracy=fmean(rates) if rates else None,
        ci95=accuracy_interval(rates, samples) if rates else None,
        n=len(rates),
        samples=samples,
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
            "rewards": {label: scores[0] for label, scores in first.scores.items()},
        },
    )


@dataclass(frozen=True)
class Verdict:
    """Did the model learn? From the paired interval of the held-out gain: above 0, containing 0, below 0."""

    word: str  # "learned", "unclear", "not learned", "not measured"
    gain: float | None = None
    ci95: tuple[float, float] | None = None
    rows_needed: int | None = None


ENOUGH = 20
"""Fewer paired prompts than this cannot say how many would be enough."""


def judge_gain(before: Evaluation | None, after: Evaluation | None) -> Verdict:
    """The verdict on a run from its evaluations before and after, over the prompts that were judged both times.

    Where those are less than half of the prompts the rest could tip it, so it stays unclear.
    """
    if before is None or after is None:
        return Verdict("not measured")
    both = zip(before.pass_rates, after.pass_rates, strict=True)
    pairs = [(b, a) for b, a in both if b is not None and a is not None]
    if not pairs:
        return Verdict("not measured")
    gain, interval = paired_gain([b for b, _ in pairs], [a for _, a in pairs])
    if 2 * len(pairs) < len(before.pass_rates):
        return Verdict("unclear", gain, interval)
    if interval[0] > 0:
        return Verdict("learned", gain, interval)
    if interval[1] < 0:
        return Verdict("not learned", gain, interval)
    needed = rows_that_would_tell(gain, interval, len(pairs)) if len(pairs) >= ENOUGH else None
    return Verdict("unclear", gain, interval, needed)
