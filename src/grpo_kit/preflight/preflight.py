"""Before training: sample the untrained model, time a few steps, and say whether the run can learn."""

import copy
import math
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import TrainerCallback

from grpo_kit.console import Console
from grpo_kit.data.data import Data
from grpo_kit.errors import is_out_of_memory
from grpo_kit.evaluation.difficulty import Difficulty, difficulty_of, flat_groups
from grpo_kit.evaluation.judged import JudgedRow, held_out_tokens, task_of
from grpo_kit.measure.sampler import Sampler
from grpo_kit.preflight.advice import CUT, EASIEST, HARDEST, Circumstances, Decision, decide
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.rewards.scoring import Scorer
from grpo_kit.run.own_recipe import resolved_recipe, write_recipe
from grpo_kit.run.prediction import FOLDER
from grpo_kit.run.run_dir import RunDir, new_folder
from grpo_kit.run.summary import peak_memory_gb
from grpo_kit.train import build_trainer
from grpo_kit.trainer.out_of_memory import out_of_memory
from grpo_kit.trainer.rollout import Rollout

ROWS = 100

SAMPLES = 8

LONGER, LOOKS = 4, (25, 6, 3)
"""Where completions are cut, so many prompts are sampled again with so many times the tokens, and so on."""

ENOUGH_S = 20.0
"""Steps are timed for so long, or until there are MOST_STEPS of them."""

MOST_STEPS = 6


@dataclass(frozen=True)
class Cost:
    """What a run of the recipe would take; a step and the evaluations of the run, in seconds; tokens of a step."""

    step_s: float
    step_tokens: float
    evaluations_s: float
    hours: float
    peak_memory_gb: float


@dataclass(frozen=True)
class Preflight:
    """The result; `interrupted` where only a part of the prompts was sampled and no step was timed."""

    data: str
    difficulty: Difficulty
    held_out: Difficulty | None
    cost: Cost | None
    decision: Decision
    folder: Path
    speed: str
    interrupted: bool

    def record(self) -> dict[str, Any]:
        """What `preflight.json` keeps: all of it, for the run that follows to be compared with."""
        return {**asdict(self), "folder": str(self.folder)}


def preflight(
    prepared: Prepared, console: Console, *, rows: int = ROWS, samples: int | None = None, held_out: bool = False
) -> Preflight:
    """Sample the untrained model on training prompts (and on held-out ones), and time steps with learning rate 0.

    Writes `./preflight/NAME/`. `samples` is at least the size of a group. Ctrl-C keeps what was sampled so far.
    Raises RunError where the card's memory is too small.
    """
    group, length = prepared.plan.num_generations, prepared.plan.max_completion_length
    samples, seed = max(samples or SAMPLES, group), prepared.recipe.seed
    run = RunDir(new_folder(FOLDER, prepared.recipe.run_name))
    write_recipe(run, prepared)
    timer = StepTimer(prepared)
    with tempfile.TemporaryDirectory() as nowhere:
        trainer = build_trainer(
            _idle(prepared), Scorer(prepared.rewards), RunDir(Path(nowhere)), timer.on_rollout, [timer]
        )
        model = trainer.accelerator.unwrap_model(trainer.model)
        sampler = Sampler(model, prepared, console)
        try:
            task = task_of(
                prepared, _drawn(prepared, prepared.data, rows), samples=samples, max_tokens=length, seed=seed
            )
            found = sampler.judge(task, "sampling", run)
            completion_s = sampler.seconds / sampler.completions
            longer, limit = _longer_looks(prepared, sampler, found)
            measured = []
            if held_out and prepared.eval_data is not None:
                unseen, tokens = _drawn(prepared, prepared.eval_data, rows), held_out_tokens(prepared)
                task = task_of(prepared, unseen, samples=samples, max_tokens=tokens, seed=seed)
                measured = sampler.judge(task, "held-out")
            if not sampler.interrupted:
                console.say("timing steps with learning rate 0")
                with timer.ended_by_ctrl_c():
                    trainer.train()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise out_of_memory(prepared, error, None, lambda: None) from None
            raise
    goal, rewards, interrupted = prepared.goal, prepared.rewards, sampler.interrupted or timer.interrupted
    difficulty = difficulty_of(found, rewards, goal, group)
    about = _circumstances(prepared, found, str(run.path / "rows.jsonl"))
    if longer:
        about = replace(about, longer=difficulty_of(longer, rewards, goal, group), longer_limit=limit)
    result = Preflight(
        data=prepared.data.label,
        difficulty=difficulty,
        held_out=difficulty_of(measured, rewards, goal, group) if measured else None,
        cost=None if interrupted else _cost(prepared, timer, completion_s),
        decision=decide(difficulty, about),
        folder=run.path,
        speed=sampler.speed(),
        interrupted=interrupted,
    )
    run.write("preflight.json", {**result.record(), "recipe": resolved_recipe(prepared)})
    return result


def _circumstances(prepared: Prepared, found: Sequence[JudgedRow], rate_file: str) -> Circumstances:
    group, goal = prepared.plan.num_generations, prepared.goal
    middling = [row for row in found if HARDEST <= (row.pass_rate(goal) or 0) <= EASIEST]
    return Circumstances(
        max_completion_length=prepared.plan.max_completion_length,
        prompts_per_rollout=prepared.plan.completions_per_rollout // group,
        temperature=prepared.args.temperature,
        rows=len(prepared.data.rows),
        rates=[rate for row in found if (rate := row.pass_rate(goal)) is not None],
        rate_file=rate_file,
        kept_flat=flat_groups(middling, prepared.rewards, goal, group).share if middling else None,
        masked=prepared.args.mask_truncated_completions,
    )


def _drawn(prepared: Prepared, data: Data, rows: int) -> Data:
    """So many rows of a data set, drawn with the recipe's seed."""
    places = random.Random(prepared.recipe.seed).sample(range(len(data.rows)), min(rows, len(data.rows)))
    return replace(data, rows=data.rows.select(places))


def _longer_looks(prepared: Prepared, sampler: Sampler, found: Sequence[JudgedRow]) -> tuple[list[JudgedRow], int]:
    """Some prompts with ever more tokens, while too many completions are cut: the last look at them, and its limit.

    Each look has fewer prompts, so that it is about as dear as the first.
    """
    samples = len(found[0].texts)
    positions = prepared.size.max_positions or 2**62
    length, room = prepared.plan.max_completion_length, positions - prepared.plan.prompt_tokens_max
    longer: list[JudgedRow] = []
    for prompts in LOOKS:
        if length >= room or fmean(cut for row in longer or found for cut in row.truncated) <= CUT:
            break
        length = min(LONGER * length, room)
        some = _drawn(prepared, prepared.data, prompts)
        task = task_of(prepared, some, samples=samples, max_tokens=length, seed=prepared.recipe.seed)
        longer = sampler.judge(task, f"up to {length} tokens") or longer
    return longer, length


def _idle(prepared: Prepared) -> Prepared:
    """The same run, but it changes no weight and keeps nothing."""
    args = copy.copy(prepared.args)
    args.learning_rate, args.save_strategy = 0.0, "no"
    args.max_steps = max(prepared.plan.steps, 4 * MOST_STEPS, 2 * _steps_of_a_rollout(prepared))  # it is ended sooner
    return replace(prepared, args=args)


def _steps_of_a_rollout(prepared: Prepared) -> int:
    args = prepared.args
    return max(math.ceil(args.num_iterations * (args.steps_per_generation or 1) / args.gradient_accumulation_steps), 1)


class StepTimer(TrainerCallback):
    """Seconds of each step, and the tokens of each rollout; ends training when that is known well enough."""

    def __init__(self, prepared: Prepared):
        self.cycle = _steps_of_a_rollout(prepared)
        self.seconds: list[float] = []
        self.tokens: list[int] = []
        self.interrupted = False
        self._started = 0.0

    def on_rollout(self, rollout: Rollout) -> None:
        self.tokens.append(sum(len(ids) for ids in rollout.completion_ids))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A rollout may be shared by several steps, so only whole cycles of them say what one takes."""
        self.seconds.append(time.perf_counter() - self._started)
        steps, whole = len(self.seconds), len(self.seconds) % self.cycle == 0
        enough = sum(self.seconds) > ENOUGH_S or steps >= max(MOST_STEPS, 2 * self.cycle)
        control.should_training_stop = self.interrupted or (whole and enough)

    @contextmanager
    def ended_by_ctrl_c(self) -> Iterator[None]:
        """Ctrl-C ends the timing with the step, a second one at once."""

        def note(number: int, frame: Any) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        previous = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    def step_s(self) -> float:
        """Of a step, those of the first rollout left out where there are others: they warm up."""
        return fmean(self.seconds[self.cycle :] or self.seconds)

    def step_tokens(self) -> float:
        return fmean(self.tokens) / self.cycle


def _cost(prepared: Prepared, timer: StepTimer, completion_s: float) -> Cost:
    """Held-out completions are taken to be as long as those of training prompts, or to the same part of their limit."""
    plan, every, evaluation = prepared.plan, prepared.recipe.eval_every, prepared.recipe.evaluation
    times = 2 + ((plan.steps - 1) // every if every else 0)
    rows = len(prepared.eval_data.rows) if prepared.eval_data is not None else 0
    longer = held_out_tokens(prepared) / plan.max_completion_length
    evaluations_s = times * rows * evaluation.samples * completion_s * longer
    seconds = plan.steps * timer.step_s() + evaluations_s
    return Cost(timer.step_s(), timer.step_tokens(), evaluations_s, seconds / 3600, peak_memory_gb())
