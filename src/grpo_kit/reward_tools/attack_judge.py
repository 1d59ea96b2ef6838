"""One completion for each of some rows, judged by all of a recipe's rewards: what it was paid, and what was lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean
from typing import Any

from grpo_kit.prepare.forms import CHARACTERS_A_TOKEN
from grpo_kit.rewards.rewards import Completions, Reward
from grpo_kit.rewards.scoring import LostScore, Scorer, total_reward


@dataclass(frozen=True)
class Outcome:
    """One completion for each of N rows, and what it was paid: None where there is none, or it was not judged."""

    name: str
    texts: list[str | None]
    totals: list[float | None]
    goals: list[float | None]

    def mean(self) -> float | None:
        paid = [total for total in self.totals if total is not None]
        return fmean(paid) if paid else None

    def goal_mean(self) -> float:
        return fmean([score for score in self.goals if score is not None] or [0.0])

    def best(self) -> int:
        """The row whose completion was paid most."""
        return max(range(len(self.totals)), key=lambda at: -1e300 if (paid := self.totals[at]) is None else paid)


@dataclass
class Judge:
    """All rewards of a recipe on one completion for each row."""

    scorer: Scorer
    goal: Reward
    lost: list[tuple[str, LostScore]] = field(default_factory=list)

    def outcome(
        self, name: str, texts: Sequence[str | None], rows: Sequence[dict[str, Any]], tokens: int | None = None
    ) -> Outcome:
        written = [(at, text) for at, text in enumerate(texts) if text is not None]
        totals: list[float | None] = [None] * len(texts)
        goals: list[float | None] = [None] * len(texts)
        if written:
            ids = [[0] * (ceil(len(text) / CHARACTERS_A_TOKEN) if tokens is None else tokens) for _, text in written]
            batch = Completions([text for _, text in written], ids, [rows[at] for at, _ in written])
            rewards = self.scorer.rewards
            scores = self.scorer.score(batch)
            self.lost += [(name, lost) for lost in scores.lost]
            for place, (at, _) in enumerate(written):
                totals[at] = total_reward([scores.values[reward.label][place] for reward in rewards], rewards)
                goals[at] = scores.values[self.goal.label][place]
        return Outcome(name, list(texts), totals, goals)
