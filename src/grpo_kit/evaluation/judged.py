"""Rows asked and judged: what an accuracy, a preflight and a comparison are counted from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from grpo_kit.data.chat import Chat
from grpo_kit.data.data import Data
from grpo_kit.device import Device
from grpo_kit.model.generate import Sampled, batch_seed, prompt_batches, sample_batch, sampling_config
from grpo_kit.prepare.inputs import Inputs
from grpo_kit.processes import count, gather, rank, together
from grpo_kit.rewards.rewards import Completions, Reward, outside_training
from grpo_kit.rewards.scoring import LostScore, Scorer
from grpo_kit.stats import is_flat

if TYPE_CHECKING:
    from transformers import GenerationConfig


LENIENT = "the goal, read leniently"
"""No label of a recipe, which have no spaces."""


@dataclass(frozen=True)
class Task:
    """What a model is measured on: rows, how they are asked, and which reward's full marks mean *right*."""

    data: Data
    goal: Reward
    chat: Chat
    device: Device
    config: "GenerationConfig"
    samples: int
    prompts_at_once: int
    seed: int
    step: int = 0
    fast: bool = True


def reward_means(rows: "Sequence[JudgedRow]") -> tuple[dict[str, float | None], dict[str, float]]:
    """By reward: the mean of its scores, None where it gave none, and the share of completions it did not judge."""
    means: dict[str, float | None] = {}
    unscored: dict[str, float] = {}
    for label in [label for label in rows[0].scores if label != LENIENT]:
        scores = [score for row in rows for score in row.scores[label]]
        given = [score for score in scores if score is not None]
        means[label] = fmean(given) if given else None
        unscored[label] = 1 - len(given) / len(scores)
    return means, unscored


def goal_varies(rows: "Sequence[JudgedRow]", goal: Reward) -> bool:
    """Does the goal's reward tell any two completions apart, full marks or not?"""
    return not is_flat([score for row in rows for score in row.scores[goal.label]])


@dataclass(frozen=True)
class JudgedRow:
    """The completions of one row, scored: `scores[label]` has one number per completion, None where not judged."""

    row: int
    texts: list[str]
    tokens: list[int]
    truncated: list[bool]
    scores: dict[str, list[float | None]]

    def right(self, goal: Reward) -> list[bool]:
        """Of each completion that the goal's reward judged, whether it is right."""
        return [goal.is_right(score) for score in self.scores[goal.label] if score is not None]

    def right_leniently(self, goal: Reward) -> list[bool]:
        """Of each completion that the goal's reward judged, whether it is right whatever its form."""
        scores = zip(self.scores[goal.label], self.scores.get(LENIENT, self.scores[goal.label]), strict=True)
        return [goal.is_right(strict) or goal.is_right(free) for strict, free in scores if strict is not None]

    def pass_rate(self, goal: Reward) -> float | None:
        """The share of right completions among those that were judged; None where none was."""
        right = self.right(goal)
        return fmean(right) if right else None


def task_of(inputs: Inputs, data: Data, *, samples: int, max_tokens: int, seed: int, step: int = 0) -> Task:
    """Rows asked with the prompt and the sampler of training, as many completions at once as fit there."""
    length = inputs.args.max_completion_length or 0  # never None: checked with the settings
    fits = (inputs.args.generation_batch_size or 1) // count() * length // max_tokens
    return Task(
        data=data,
        goal=inputs.goal,
        chat=inputs.chat,
        device=inputs.device,
        config=sampling_config(inputs.args, inputs.chat, max_tokens),
        samples=samples,
        prompts_at_once=max(fits // samples, 1),
        seed=seed,
        step=step,
        fast=inputs.recipe.fast,
    )


def held_out_task(inputs: Inputs, data: Data, step: int) -> Task:
    """Held-out rows as the recipe measures them; the same random numbers for whoever measures at this step."""
    seed = inputs.recipe.seed + 1_000_003 * (step + 1)
    samples = inputs.recipe.evaluation.samples
    return task_of(inputs, data, samples=samples, max_tokens=held_out_tokens(inputs), seed=seed, step=step)


def held_out_tokens(inputs: Inputs) -> int:
    """The longest that a held-out completion may become."""
    return inputs.recipe.evaluation.max_completion_length or inputs.args.max_completion_length or 0


def judge_rows(
    task: Task, model: Any, scorer: Scorer, go_on: Callable[[], bool] = lambda: True
) -> Iterator[tuple[list[JudgedRow], list[LostScore]]]:
    """Yield the rows of a task, a batch at a time, with the scores that were lost, until `go_on()` turns false.

    Several processes take turns with batches of prompts and all have all of the results, the same as one would have.
    """
    batches = prompt_batches(task.chat, task.data.rows, task.prompts_at_once)
    for turn in range(0, len(batches), count()):
        if not go_on():
            return
        number = turn + rank()
        sampled: list[Sampled] = []
        if number < len(batches):  # in the last turn there may be none left for this process
            sampled = sample_batch(
                model, task.chat, task.device, task.data.rows, batches[number], task.config,
                samples=task.samples, seed=batch_seed(task.seed, number), fast=task.fast,
            )  # fmt: skip
        with together():
            own = _judge(task, scorer, sampled)
        yield from gather(own)


def _judge(task: Task, scorer: Scorer, sampled: list[Sampled]) -> tuple[list[JudgedRow], list[LostScore]]:
    """A batch of rows, and the scores that were lost; both empty where there is nothing to judge."""
    if not sampled:
        return [], []
    ids = [completion for row in sampled for completion in row.completion_ids]
    texts = [task.chat.decode(completion) for completion in ids]
    rows = [task.data.rows[row.row] for row in sampled for _ in row.completion_ids]
    scores = scorer.score(Completions(texts, ids, rows), **outside_training(task.step))
    judged = []
    end = 0
    for row in sampled:
        start, end = end, end + len(row.completion_ids)
        own = {label: column[start:end] for label, column in scores.values.items()}
        judged.append(JudgedRow(row.row, texts[start:end], [len(c) for c in row.completion_ids], row.truncated, own))
    return judged, scores.lost


def lenient(goal: Reward) -> list[Reward]:
    """The goal's reward without its demands on form, as a reward of its own; none where it has no such demands."""
    form_demanded = goal.parameter("require") not in (None, "none")
    if not form_demanded and goal.only_if is None:
        return []
    options = {**goal.options, **({"require": "none"} if form_demanded else {})}
    return [replace(goal, label=LENIENT, options=options, weight=0.0, only_if=None)]
