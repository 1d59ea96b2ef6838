"""A run's completions, scored again with the rewards as they are now: what a changed reward would have done to them.

Nothing is generated and no model is loaded. What a policy trained on the new rewards would have written instead, no
replay can tell.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from grpo_kit.console import Console
from grpo_kit.data.data import load_data
from grpo_kit.data.sources import Row, is_local
from grpo_kit.errors import RecipeError, shorten
from grpo_kit.hub import use_cache_if_unreachable
from grpo_kit.recipe.file import is_file
from grpo_kit.recipe.recipe import Recipe, load_recipe
from grpo_kit.reward_tools.sample_rows import RowFinder, Sample, read_samples
from grpo_kit.rewards.checks import check_rewards
from grpo_kit.rewards.files import find_reward
from grpo_kit.rewards.rewards import Completions, Reward, load_rewards, outside_training
from grpo_kit.rewards.scoring import LostScore, Scorer
from grpo_kit.run.run_dir import RunDir
from grpo_kit.stats import ROUNDING, is_flat

T = TypeVar("T")


@dataclass(frozen=True)
class Judged:
    """What one set of rewards says of a completion; None: not judged."""

    rewards: dict[str, float | None]
    total: float | None
    right: bool | None
    answer_read: str | None


@dataclass(frozen=True)
class Rescored:
    """A completion of the run, as its rewards judged it then and as the others judge it now."""

    sample: Sample
    before: Judged
    after: Judged

    def differs(self) -> bool:
        """Is its total another, or the score of a reward that there was then and is now?"""
        both = self.before.rewards.keys() & self.after.rewards.keys()
        own = ((self.before.rewards[label], self.after.rewards[label]) for label in both)
        return any(differ(*pair) for pair in ((self.before.total, self.after.total), *own))

    def shift(self) -> float:
        """How far its total moved; one that was not judged counts as 0."""
        return abs((self.after.total or 0.0) - (self.before.total or 0.0))


@dataclass(frozen=True)
class Replay:
    """All completions of a run by group, judged twice; and what is to be said of the comparison itself."""

    origin: str  # where the rewards of now are from
    rewards: list[Reward]
    weights: tuple[dict[str, float], dict[str, float]]  # before, after: label -> weight
    goals: tuple[str, str]
    groups: list[list[Rescored]]
    notes: list[str]

    @property
    def completions(self) -> list[Rescored]:
        return [one for group in self.groups for one in group]

    def scores(self, label: str) -> list[tuple[float | None, float | None]]:
        """Before and after; None where it did not judge, or was not there."""
        return [(one.before.rewards.get(label), one.after.rewards.get(label)) for one in self.completions]

    def totals(self) -> list[tuple[float | None, float | None]]:
        return [(one.before.total, one.after.total) for one in self.completions]

    def accuracy(self) -> tuple[float | None, float | None]:
        """The share of completions that are right, of those that the goal's reward judged, before and after."""
        before, after = zip(*((one.before.right, one.after.right) for one in self.completions), strict=True)
        return mean(before), mean(after)

    def flat(self) -> list[tuple[bool, bool]]:
        """For each group, whether its total rewards were flat and whether they are now."""
        return [(is_flat([o.before.total for o in g]), is_flat([o.after.total for o in g])) for g in self.groups]

    def signs(self) -> list[tuple[int, int]]:
        """For each completion the sign of its advantage, before and after."""
        pairs: list[tuple[int, int]] = []
        for group in self.groups:
            then = advantage_signs([one.before.total for one in group])
            pairs += zip(then, advantage_signs([one.after.total for one in group]), strict=True)
        return pairs

    def changes_nothing(self) -> bool:
        same = self.weights[0] == self.weights[1] and self.accuracy()[0] == self.accuracy()[1]
        return same and not any(one.differs() for one in self.completions)


def rescore(run: RunDir, recipe_path: Path | None = None) -> Replay:
    """Score a run's completions with a recipe's rewards.

    Without a recipe: with the rewards of the one that the run was started from, else with the run's own copies.
    Raises RecipeError where run or recipe cannot be used, RewardError where a reward breaks its contract.
    """
    samples = read_samples(run)
    own = load_recipe(run.path)
    recipe, origin = _recipe_now(run, own, recipe_path)
    rewards = load_rewards(recipe)
    if not is_local(own, own.dataset):
        use_cache_if_unreachable()
    data = load_data(own, own.dataset, "dataset")
    check_rewards(recipe, rewards, data.columns, None)
    recorded = (run.read("data_fingerprint.json") or {}).get("train") or {}
    found = RowFinder(data, recorded)
    notes = [f"{data.label} is not what it was when the run was started"] if found.changed and recorded else []

    judge_then, judge_now = _judge_then(own), _judge_now(recipe, rewards)
    group_size, batch_size = _sizes(run, own)
    lost: list[LostScore] = []
    scorer = Scorer(rewards, skip_errors=recipe.on_reward_error == "skip")
    groups: list[list[Rescored]] = []
    for whole in _with_progress(_blocks(samples, lambda sample: sample["step"], batch_size)):
        pairs = [(sample, row) for sample in whole if (row := found(sample)) is not None]
        batch = [sample for sample, _ in pairs]
        scored = _score(scorer, batch, [row for _, row in pairs], lost) if batch else []
        both = zip(batch, scored, strict=True)
        judged = [Rescored(sample, judge_then(sample), judge_now(sample, scores)) for sample, scores in both]
        groups += _blocks(judged, lambda one: one.sample["row"], group_size)
    if not groups:
        raise RecipeError(f"{run.path}: none of its prompts is in {data.label} any more; put the run's data back")
    missing = len(samples) - sum(map(len, groups))
    if missing:
        notes.append(f"{missing} of {len(samples)} completions left out, their row cannot be told in {data.label}")
    weights, goals = (_weights(own), _weights(recipe)), (own.goal_label, recipe.goal_label)
    return Replay(origin, rewards, weights, goals, groups, [*notes, *_lost_notes(lost)])


def _with_progress(batches: list[list[Sample]]) -> Iterator[list[Sample]]:
    console = Console()
    console.start_progress("rescoring", sum(map(len, batches)))
    try:
        for batch in batches:
            yield batch
            console.progress(len(batch))
    finally:
        console.stop_progress()


def _recipe_now(run: RunDir, own: Recipe, given: Path | None) -> tuple[Recipe, str]:
    """The recipe whose rewards are used, and how to say so."""
    if given is not None:
        return load_recipe(given), f"of {given}"
    origin = run.read("provenance.json") or {}
    started_from = origin.get("recipe")
    if not started_from or not is_file(Path(started_from)):
        why = f"{started_from} is gone" if started_from else "it does not say which recipe it was started from"
        return own, f"the run's own copies ({why})"
    overrides = [word for word in origin.get("argv", []) if _is_about_rewards(word)]
    with_them = f", with {' '.join(overrides)} of its command line" if overrides else ""
    return load_recipe(Path(started_from), overrides), f"of {started_from}, which the run was started from{with_them}"


def _is_about_rewards(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and key.strip().split(".")[0] in ("rewards", "goal")


def _judge_then(own: Recipe) -> Callable[[Sample], Judged]:
    """How the run itself judged a completion: the recorded scores with its weights, its goal and its full marks."""
    weights = _weights(own)
    full_marks = _full_marks(find_reward(own, own.goal_label, own.rewards[own.goal_label]))

    def judged(sample: Sample) -> Judged:
        scores = {label: sample["rewards"].get(label) for label in own.rewards}
        score = scores[own.goal_label]
        right = None if score is None or full_marks is None else score >= full_marks - ROUNDING
        return Judged(scores, _total(scores, weights), right, sample.get("answer_read"))

    return judged


def _full_marks(file: Path) -> float | None:
    """FULL_MARKS as it is written; None for what is no plain number.

    The run's copy of a file is not imported for it: that may need other files, which lay beside the original.
    """
    try:
        tree = ast.parse(file.read_bytes())
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == "FULL_MARKS" for target in targets):
                return float(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    except (OSError, SyntaxError, ValueError, TypeError):
        return None
    return 1.0


def _judge_now(recipe: Recipe, rewards: list[Reward]) -> Callable[[Sample, dict[str, float | None]], Judged]:
    weights = _weights(recipe)
    goal = next(reward for reward in rewards if reward.label == recipe.goal_label)

    def judged(sample: Sample, scores: dict[str, float | None]) -> Judged:
        score = scores[goal.label]
        right = None if score is None else goal.is_right(score)
        return Judged(scores, _total(scores, weights), right, goal.read_answer(sample["completion"]))

    return judged


def _score(
    scorer: Scorer, batch: list[Sample], rows: list[Row], lost: list[LostScore]
) -> list[dict[str, float | None]]:
    """For each completion of a generation batch its scores; `lost` gets those that were lost.

    Of a completion's tokens only the number is known.
    """
    completions = Completions(
        [sample["completion"] for sample in batch], [[0] * sample["tokens"] for sample in batch], rows
    )
    in_process = any(reward.asks_the_trainer() for reward in scorer.rewards)
    given = outside_training(batch[0]["step"] - 1) if in_process else {}  # the steps done when it was scored
    scores = scorer.score(completions, **given)
    lost += scores.lost
    return [{label: column[at] for label, column in scores.values.items()} for at in range(len(batch))]


def _sizes(run: RunDir, own: Recipe) -> tuple[int, int]:
    """Completions of a group, and of a generation batch, as the run had them."""
    args = {**own.grpo, **(run.read("grpo_config.json") or {})}
    group = args.get("num_generations")
    if not isinstance(group, int) or group < 1:
        raise RecipeError(
            f"{run.path}: grpo_config.json and recipe.yaml do not say num_generations; replay another run"
        )
    return group, args.get("generation_batch_size") or group


def _blocks(items: Iterable[T], key: Callable[[T], int], most: int) -> list[list[T]]:
    """Consecutive items of one key, in blocks of at most so many."""
    runs = [list(same) for _, same in groupby(items, key)]
    return [run[start : start + most] for run in runs for start in range(0, len(run), most)]


def _weights(recipe: Recipe) -> dict[str, float]:
    return {label: section.weight for label, section in recipe.rewards.items()}


def _total(scores: dict[str, float | None], weights: dict[str, float]) -> float | None:
    """As `scoring.total_reward`, for rewards that are known by label and weight only."""
    scored = [score * weights[label] for label, score in scores.items() if score is not None]
    return sum(scored) if scored else None


def advantage_signs(totals: Sequence[float | None]) -> list[int]:
    """Of a group's advantages the signs: (total - mean) / (std + 1e-4) has that of total - mean.

    0 in a flat group, at the mean, and for what was not judged.
    """
    scored = [total for total in totals if total is not None]
    if is_flat(scored):
        return [0] * len(totals)
    middle, rounding = fmean(scored), ROUNDING * max(1.0, *map(abs, scored))
    away = [0.0 if total is None else total - middle for total in totals]
    return [0 if abs(distance) <= rounding else 1 if distance > 0 else -1 for distance in away]


def differ(one: float | None, other: float | None) -> bool:
    """Are two scores different, by more than rounding?"""
    if one is None or other is None:
        return one is not other
    return not is_flat([one, other])


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that there are."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def _lost_notes(lost: list[LostScore]) -> list[str]:
    if not lost:
        return []
    what = f"{lost[0].label} on {shorten(lost[0].completion)}: {lost[0].fault.what}"
    return [f"{len(lost)} scores were lost and count as not judged, such as {what}"]
