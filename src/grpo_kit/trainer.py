"""The trainer, observed: scored generation batches are handed on. It and `fast_trainer` alone touch TRL's privates."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerState

from grpo_kit.fast_trainer import FastTrainer
from grpo_kit.processes import gather
from grpo_kit.scoring import RolloutJudge, Scores


@dataclass(frozen=True)
class Rollout:
    """One scored generation batch of all processes, in groups of `num_generations` consecutive completions.

    `scores` and `advantages` have one entry per completion; `rows` are indices of data rows; times are seconds, those
    of the main process.
    """

    step: int
    rows: list[int]
    completion_ids: list[list[int]]
    scores: Scores
    advantages: list[float]
    generation_s: float
    rewards_s: float
    round: int = 0
    "0 for the step's own prompts; above it for prompts that dynamic sampling put in the place of flat groups."


def joined(parts: Sequence[Rollout]) -> Rollout:
    """What each of the processes sampled and scored as one rollout, in their order; a group may span two of them."""
    scores = [part.scores for part in parts]
    starts = [sum(len(part.rows) for part in parts[:at]) for at in range(len(parts))]
    return replace(
        parts[0],
        rows=[row for part in parts for row in part.rows],
        completion_ids=[ids for part in parts for ids in part.completion_ids],
        advantages=[advantage for part in parts for advantage in part.advantages],
        scores=replace(
            scores[0],
            values={label: [value for one in scores for value in one.values[label]] for label in scores[0].values},
            lost=[
                replace(lost, index=start + lost.index)
                for start, one in zip(starts, scores, strict=True)
                for lost in one.lost
            ],
        ),
    )


class RandomStreams(TrainerCallback):
    """The states of all global random streams as they were after the last step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_step_end(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
        self._states = random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda

    def restore(self) -> None:
        python, numpy, torch_cpu, cuda = self._states
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


class ObservedTrainer(FastTrainer):
    """The overrides time, keep and pass on what goes through, but for two.

    PEFT's `generate` goes past the forward that accelerate has wrapped, so adapters would be sampled from without the
    autocast that they are scored with. And a run resumed after `epochs_done` epochs would meet the rows in the order
    of the first epoch, because the sampler's generator starts anew.
    """

    def __init__(
        self, *, judge: RolloutJudge, on_rollout: Callable[[Rollout], None], epochs_done: int = 0, **kwargs: Any
    ):
        super().__init__(reward_funcs=[*judge.trl_rewards()], **kwargs)
        self._judge, self._on_rollout, self._epochs_done = judge, on_rollout, epochs_done
        self._round = 0
        self._random_after_step = RandomStreams()
        self.add_callback(self._random_after_step)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler: Any = super()._get_train_sampler(dataset)
        for _ in range(self._epochs_done if self.shuffle_dataset else 0):
            torch.randperm(sampler.num_samples, generator=sampler.generator)  # one order an epoch, as it draws them
        return sampler

    def load_checkpoint(self, checkpoint: Path) -> None:
        """Weights and state of a checkpoint without a further step, which resuming a finished training would take."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))

    def save_last_state(self) -> Path | None:
        """A checkpoint of the last finished step, from within the next one; None where no step is finished.

        The random streams are saved as they were then, so that going on repeats what was interrupted.
        """
        if not self.state.global_step:
            return None
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        if not gather(checkpoint.is_dir())[0]:  # before one of them makes it
            self._random_after_step.restore()
            self._save_checkpoint(self.model, trial=None)
        return checkpoint

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        with nullcontext() if self.use_vllm else self.accelerator.autocast():  # vLLM has a precision of its own
            output = super()._generate(prompts)
        self._generation_s = time.perf_counter() - started
        return output

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        started = time.perf_counter()
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards_s = time.perf_counter() - started
        self._completion_ids = [list(ids) for ids in completion_ids_list]
        return rewards_per_func

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        own = Rollout(
            step=self.state.global_step + 1,
            rows=[int(row["row"]) for row in inputs],
            completion_ids=self._completion_ids,
            scores=self._judge.newest(),
            advantages=output["advantages"].tolist(),
            generation_s=self._generation_s,
            rewards_s=self._rewards_s,
            round=self._round,
        )
        self._on_rollout(joined(gather(own)))
        return output
