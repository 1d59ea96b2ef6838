"""The trainer, observed: scored generation batches are handed on. It and `fast_trainer` alone touch TRL's privates."""

import math
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from transformers import TrainerCallback, TrainerState
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_utils import rotate_checkpoints

from grpo_kit.errors import NotFiniteError, RunError, first_line
from grpo_kit.files.durable import aside_of, install, remove, write_sums
from grpo_kit.model.not_finite import Cause, cause_of, lost_weights
from grpo_kit.processes import gather, is_main, on_main, together
from grpo_kit.rewards.scoring import RolloutJudge
from grpo_kit.trainer.fast_trainer import FastTrainer
from grpo_kit.trainer.random_streams import RandomStreams
from grpo_kit.trainer.rollout import Rollout, joined
from grpo_kit.trainer.trackers import Tolerated


class BetweenRollouts(TrainerCallback):
    """Puts off a checkpoint, or an early end, to the next step after which no rollout is half used.

    A rollout may serve several steps, and what is left of it is in no checkpoint: a run that went on from there would
    sample anew, and be another run.
    """

    def __init__(self, trainer: "ObservedTrainer"):
        self._trainer = trainer
        self._save = self._stop = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.compute_steps(args, state.max_steps)  # how often to save and log: else a resumed run has it as before

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._save |= control.should_save
        self._stop |= control.should_training_stop
        ready = not self._trainer.rollout_half_used()
        control.should_save = self._save and ready
        control.should_log |= control.should_save  # what has not been logged is in no checkpoint either
        control.should_training_stop = self._stop and (ready or state.global_step >= state.max_steps)
        self._save &= not ready

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_step_end(args, state, control)


NO_SAVE = (OSError, RuntimeError, SafetensorError, RunError)
"""What a full or failing disk makes of a checkpoint: torch and safetensors have types of their own for it."""

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
        self,
        *,
        judge: RolloutJudge,
        on_rollout: Callable[[Rollout], None],
        epochs_done: int = 0,
        checkpoint_bytes: int = 0,
        before_checkpoint: Callable[[], None] = lambda: None,
        warn: Callable[[str], None] = print,
        **kwargs: Any,
    ):
        super().__init__(reward_funcs=[*judge.trl_rewards()], **kwargs)
        self._judge, self._on_rollout, self._epochs_done = judge, on_rollout, epochs_done
        self._checkpoint_bytes, self._before_checkpoint, self._warn = checkpoint_bytes, before_checkpoint, warn
        self._round = 0
        self._losses: list[Tensor] = []
        self._random_after_step = RandomStreams()
        trackers = tuple(get_reporting_integration_callbacks(self.args.report_to))
        handler = self.callback_handler
        handler.callbacks = [Tolerated(one, warn) if isinstance(one, trackers) else one for one in handler.callbacks]
        self.add_callback(self._random_after_step)
        self.add_callback(BetweenRollouts(self))

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
        """A checkpoint of the last finished step, from within the next one.

        None where there cannot be one: no step is finished, a rollout was half used then, or the disk is full. The
        random streams are saved as they were, so that going on repeats what was interrupted.
        """
        if not self.state.global_step or self.rollout_half_used(before=len(self._losses)):
            return None
        checkpoint = self._checkpoint
        if not gather(checkpoint.is_dir())[0]:  # before one of them makes it
            self._random_after_step.restore()
            self._save_checkpoint(self.model, trial=None)
        return checkpoint if gather(checkpoint.is_dir())[0] else None

    def rollout_half_used(self, before: int = 0) -> bool:
        """Whether the newest rollout has more micro-batches to serve; or had, so many micro-batches ago."""
        args: Any = self.args
        return bool((self._step - before) % (args.steps_per_generation * self.num_iterations))

    @property
    def _checkpoint(self) -> Path:
        """Where one of the last finished step is."""
        return Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"

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
        """transformers', but whole or not at all; where it cannot be written the run goes on, and says so.

        Raises NotFiniteError, and nothing is written, where a weight is not finite.
        """
        self.check_weights()
        checkpoint, folder = self._checkpoint, str(self.args.output_dir)
        aside = aside_of(checkpoint.parent / "checkpoint")
        try:
            on_main(lambda: self._make_room(aside))
            self.args.output_dir = str(aside)
            with together():
                super()._save_checkpoint(model, trial)
            on_main(lambda: self._install(aside / checkpoint.name, checkpoint))
        except NO_SAVE as error:
            said = f"{checkpoint} is not written, and training goes on: {first_line(error)}"
            on_main(lambda: self._warn(said))
        finally:
            self.args.output_dir = folder
            if is_main():
                remove(aside)

    def _make_room(self, aside: Path) -> None:
        """Raises OSError where the disk has less than a checkpoint takes."""
        remove(aside)
        aside.mkdir(parents=True)
        free = shutil.disk_usage(aside).free
        if free < self._checkpoint_bytes:
            raise OSError(f"{free / 1e6:.0f} MB of disk are free, and it takes {self._checkpoint_bytes / 1e6:.0f} MB")

    def _install(self, aside: Path, checkpoint: Path) -> None:
        """Give a complete checkpoint its name; then the oldest may go."""
        self._before_checkpoint()
        write_sums(aside)
        install(aside, checkpoint)
        rotate_checkpoints(str(checkpoint.parent), self.args.save_total_limit)

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
