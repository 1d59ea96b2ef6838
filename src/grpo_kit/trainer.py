"""The trainer, observed: scored generation batches are handed on. It and `fast_trainer` alone touch TRL's privates."""

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from transformers import TrainerCallback, TrainerState

from grpo_kit.errors import NotFiniteError
from grpo_kit.fast_trainer import FastTrainer
from grpo_kit.not_finite import Cause, cause_of, lost_weights
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


WHOLE_GRADIENTS = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Ways of training in which each process has every gradient in full."""


class ObservedTrainer(FastTrainer):
    """The overrides time, keep and pass on what goes through, but for three.

    PEFT's `generate` goes past the forward that accelerate has wrapped, so adapters would be sampled from without the
    autocast that they are scored with. A run resumed after `epochs_done` epochs would meet the rows in the order
    of the first epoch, because the sampler's generator starts anew. And a gradient that is not finite would reach the
    weights: the norm, which is logged anyway, is looked at before the optimizer's step.
    """

    def __init__(
        self, *, judge: RolloutJudge, on_rollout: Callable[[Rollout], None], epochs_done: int = 0, **kwargs: Any
    ):
        super().__init__(reward_funcs=[*judge.trl_rewards()], **kwargs)
        self._judge, self._on_rollout, self._epochs_done = judge, on_rollout, epochs_done
        self._round = 0
        self._losses: list[Tensor] = []
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

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss: Tensor = super().training_step(*args, **kwargs)
        self._losses.append(loss)
        return loss

    def _clip_grad_norm(self, model: Any) -> Tensor:
        """transformers', but in two halves: a norm of nan would make every gradient nan, and hide where it is from."""
        if not self._reads_norm_first:
            return super()._clip_grad_norm(model)
        norm: Tensor = self._get_grad_norm(model)
        clip_grads_with_norm_(model.parameters(), self.args.max_grad_norm, norm)
        return norm

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """transformers', before the optimizer's step. Raises NotFiniteError, and the weights are unharmed.

        With float16 an overflow is normal: the loss scale grows until a step overflows, and that step is left out.
        """
        if grad_norm is None and self._reads_norm_first:
            grad_norm = get_total_norm([w.grad for w in model.parameters() if w.grad is not None])
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and not self.args.fp16 and not math.isfinite(float(norm)):
            whole = self.accelerator.unwrap_model(model)
            causes = gather(cause_of(whole, self._buffered_inputs or [], self._losses))
            raise self._not_finite(min(causes, key=lambda cause: cause.order))
        self._losses.clear()
        return norm

    @property
    def _reads_norm_first(self) -> bool:
        return self.accelerator.distributed_type in WHOLE_GRADIENTS and not self.args.fp16

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """transformers'. Raises NotFiniteError, and nothing is written, where a weight is not finite."""
        self.check_weights()
        super()._save_checkpoint(model, trial)

    def check_weights(self) -> None:
        """Raises NotFiniteError where a weight is not finite: a pass over all of them."""
        lost = lost_weights(self.accelerator.unwrap_model(self.model))
        if lost is not None:
            raise self._not_finite(lost)

    def _not_finite(self, cause: Cause) -> NotFiniteError:
        """Weights are those after the last step; all else is of the step that is being made."""
        step = self.state.global_step
        when = f"after step {step}" if cause.weights_lost else f"step {step + 1}"
        return NotFiniteError(f"{when}: {cause.describe()}", cause.weights_lost)

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
