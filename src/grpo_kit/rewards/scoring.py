"""All rewards of a recipe on one batch of completions: gates, faults, and what each of them cost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_kit.errors import RewardError, shorten
from grpo_kit.processes import together
from grpo_kit.rewards.call import Fault
from grpo_kit.rewards.files import reads_messages
from grpo_kit.rewards.rewards import TRAINER_GIVES, Completions, Reward


@dataclass(frozen=True)
class LostScore:
    """A completion that a reward did not judge, for a reason that is not the completion's."""

    label: str
    index: int  # of the completion in its batch
    row: dict[str, Any]
    completion: str
    fault: Fault


@dataclass(frozen=True)
class Scores:
    """A batch of B completions, judged: per reward's label B numbers, None where it did not judge."""

    values: dict[str, list[float | None]]
    seconds: dict[str, float]
    lost: list[LostScore]

    def lost_share(self, label: str, kind: str) -> float:
        found = sum(lost.label == label and lost.fault.kind == kind for lost in self.lost)
        return found / max(len(self.values[label]), 1)


@dataclass
class Scorer:
    """Scores batches with all of a recipe's rewards.

    A reward that breaks its contract raises RewardError, or with `skip_errors` loses the row. A row that is lost to
    the time limit, to a dead worker or to memory is only that.
    """

    rewards: list[Reward]
    skip_errors: bool = False

    def score(self, batch: Completions, **given: Any) -> Scores:
        """Judge a batch; `given` is what the trainer gives to rewards that run in its process."""
        values: dict[str, list[float | None]] = {}
        seconds: dict[str, float] = {}
        lost: list[LostScore] = []
        for reward in self.rewards:
            started = time.perf_counter()
            scores = reward.score(batch, **given)
            seconds[reward.label] = time.perf_counter() - started
            for at, score in enumerate(scores):
                if isinstance(score, Fault):
                    if score.kind == "error" and not self.skip_errors:
                        raise RewardError(explain(reward, score, at, batch.texts[at]), score.details)
                    lost.append(LostScore(reward.label, at, batch.rows[at], batch.texts[at], score))
            values[reward.label] = [None if isinstance(score, Fault) else score for score in scores]
        return Scores(self._gated(values), seconds, lost)

    def _gated(self, values: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
        """`only_if`: 0 where the other reward gave less than full marks, None where it did not judge."""
        by_label = {reward.label: reward for reward in self.rewards}

        def gated(reward: Reward) -> list[float | None]:
            if reward.only_if is None:
                return values[reward.label]
            gate = by_label[reward.only_if]
            pairs = zip(values[reward.label], values[gate.label], strict=True)
            return [None if other is None else own if gate.is_right(other) else 0.0 for own, other in pairs]

        return {reward.label: gated(reward) for reward in self.rewards}


def total_reward(scores: Sequence[float | None], rewards: Sequence[Reward]) -> float | None:
    """The weighted sum as TRL forms it: unscored rewards are left out; None where nothing was scored."""
    scored = [score * reward.weight for score, reward in zip(scores, rewards, strict=True) if score is not None]
    return sum(scored) if scored else None


def explain(reward: Reward, fault: Fault, index: int, text: str) -> str:
    """A fault in one line: the file, what happened, where, on which completion."""
    place = f"{fault.where}, " if fault.where else ""
    old_form = fault.error_type in ("TypeError", "IndexError", "KeyError") and reads_messages(reward.function)
    hint = '; completions and prompts are plain text: drop [0]["content"]' if old_form else ""
    names_it = fault.kind == "error" and not fault.where  # a bad result quotes the completion, or is about all
    at = "" if names_it else f" ({place}completion {index}: {shorten(text)})"
    return f"{reward.path}: {fault.what}{at}{hint}"


class TrlReward:
    """One of a scorer's rewards in the form that GRPOTrainer calls: with TRL's tokens and the indices of data rows.

    Text is decoded from the tokens, so that it is the same on chat and on plain prompts and keeps tags that are
    special tokens; what the chat template opened (`<think>`) is put back in front. All rewards of a batch are scored
    at the first call for it, because `only_if` joins them.
    """

    def __init__(self, label: str, judge: "RolloutJudge"):
        self.__name__ = label  # TRL's name of the metric
        self._judge = judge

    def __call__(self, completion_ids: list[list[int]], row: list[int], **given: Any) -> list[float | None]:
        return self._judge.scores(completion_ids, row, given).values[self.__name__]


class RolloutJudge:
    """Scores the trainer's rollouts, each once; of several processes all score theirs, or none does."""

    def __init__(self, scorer: Scorer, rows: Sequence[dict[str, Any]], decode: Callable[[list[int]], str]):
        self.scorer, self.rows, self.decode = scorer, rows, decode
        self._judged: tuple[list[list[int]], Scores] | None = None

    def trl_rewards(self) -> list[TrlReward]:
        return [TrlReward(reward.label, self) for reward in self.scorer.rewards]

    def scores(self, completion_ids: list[list[int]], rows: list[int], given: dict[str, Any]) -> Scores:
        if self._judged is None or self._judged[0] is not completion_ids:
            texts = [self.decode(ids) for ids in completion_ids]
            batch = Completions(texts, completion_ids, [self.rows[index] for index in rows])
            given = {name: given[name] for name in TRAINER_GIVES if name in given}
            with together():
                self._judged = completion_ids, self.scorer.score(batch, **given)
        return self._judged[1]

    def newest(self) -> Scores:
        """The scores of the rollout that was scored last."""
        assert self._judged is not None
        return self._judged[1]
