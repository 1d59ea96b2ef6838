"""GRPOTrainer, observed: every scored generation batch is handed on. The only module that touches its privates."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState
from trl import GRPOTrainer


@dataclass(frozen=True)
class Rollout:
    """One scored generation batch, in groups of `num_generations` consecutive completions.

    `rewards` is (B, R): one column per reward in the recipe's order, NaN where a reward judged nothing;
    `advantages` is (B,); `rows` are indices of data rows; times are seconds.
    """

    step: int
    rows: list[int]
    completion_ids: list[list[int]]
    rewards: list[list[float]]
    advantages: list[float]
    generation_s: float
    rewards_s: float


class ObservedTrainer(GRPOTrainer):
    """The overrides time, keep and pass on what goes through, but for two.

    PEFT's `generate` goes past the forward that accelerate has wrapped, so adapters would be sampled from without the
    autocast that they are scored with. And a run resumed after `epochs_done` epochs would meet the rows in the order
    of the first epoch, because the sampler's generator starts anew.
    """

    def __init__(self, *args: Any, on_rollout: Callable[[Rollout], None], epochs_done: int = 0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._on_rollout, self._epochs_done = on_rollout, epochs_done

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler: Any = super()._get_train_sampler(dataset)
        for _ in range(self._epochs_done if self.shuffle_dataset else 0):
            torch.randperm(sampler.num_samples, generator=sampler.generator)  # one order an epoch, as it draws them
        return sampler

    def load_checkpoint(self, checkpoint: Path) -> None:
        """Weights and state of a checkpoint without a further step, which resuming a finished training would take."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        with self.accelerator.autocast():
            output = super()._generate(prompts)
        self._generation_s = time.perf_counter() - started
        return output

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        started = time.perf_counter()
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards_s = time.perf_counter() - started
        self._completion_ids = [list(ids) for ids in completion_ids_list]
        self._rewards_per_func = rewards_per_func  # (B, R)
        return rewards_per_func

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self._on_rollout(
            Rollout(
                step=self.state.global_step + 1,
                rows=[int(row["row"]) for row in inputs],
                completion_ids=self._completion_ids,
                rewards=self._rewards_per_func.tolist(),
                advantages=output["advantages"].tolist(),
                generation_s=self._generation_s,
                rewards_s=self._rewards_s,
            )
        )
        return output
