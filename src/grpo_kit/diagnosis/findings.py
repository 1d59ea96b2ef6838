"""What a diagnosis must know besides a run's history, and what it finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_kit.diagnosis.history import number

Metrics = Mapping[str, Any]

ALIKE = 0.4
"""How alike completions of a group are: the correlation of their scores, 0.3 to 0.5 for prompts of all difficulties."""

FLAT = ("kit/sampling/flat_left_share", "kit/flat_group_share", "frac_reward_zero_std")
"""The share of flat groups among those learned from: what dynamic sampling left of them, the kit's, or TRL's."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: since which step, how that shows, why it happens and what would mend it.

    `override` is a dotted override as the command line takes it, None where the remedy is no key of the recipe;
    `reward` is the label of the reward that it is about.
    """

    name: str
    since: int
    evidence: str
    cause: str
    change: str
    override: str | None = None
    reward: str | None = None

    @property
    def reference(self) -> str:
        """Where the documentation says more."""
        return f"docs/doctor.md#{self.name}"

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells it from other findings of a run."""
        return self.name, self.reward

    def record(self) -> dict[str, Any]:
        """As `events.jsonl` and `summary.json` keep it."""
        return {**vars(self), "reference": self.reference}

    def describe(self) -> str:
        """In one line."""
        pasted = f" ({self.override})" if self.override else ""
        return f"{self.name} since step {self.since}: {self.evidence}; {self.cause}; {self.change}{pasted}"


@dataclass(frozen=True)
class Facts:
    """What a history does not say itself: full marks and weight of each reward, and the trainer's settings.

    `goal` is the label of the reward that means success; `updates` is how many optimizer steps use each rollout, and
    `iterations` how often each completion is used; `completions` are those of a rollout, `group` those of a prompt.
    `gates` says of a reward which other one must give full marks, else it pays nothing (`only_if`). Whatever is None,
    or empty, is not known.
    """

    max_completion_length: int
    full_marks: Mapping[str, float]
    goal: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    loss_type: str | None = None
    beta: float | None = None
    temperature: float | None = None
    updates: float | None = None
    iterations: float | None = None
    completions: int | None = None
    group: int | None = None
    gates: Mapping[str, str] = field(default_factory=dict)
    scale_rewards: str | None = None
    lora: bool = False
    fp16: bool = False
    held_out: bool | None = None
    ended: str | None = None
    "Why the run failed, where it did."

    def others(self) -> list[str]:
        """The rewards that count besides the goal's, and whether or not it is reached."""
        gated = {label for label, gate in self.gates.items() if gate == self.goal}
        return [label for label in self.weights if label != self.goal and label not in gated]

    @property
    def groups(self) -> int | None:
        """Groups in a rollout."""
        return max(self.completions // self.group, 1) if self.completions and self.group else None

    @property
    def trials(self) -> float | None:
        """Completions of a rollout that count as independent: those of a group are ALIKE (Kish's design effect)."""
        return self.completions / (1 + (self.group - 1) * ALIKE) if self.completions and self.group else None


def facts_of_settings(settings: Mapping[str, Any], full_marks: Mapping[str, float], **more: Any) -> Facts:
    """Facts with what a GRPOConfig, as a mapping, says; values of a foreign type count as unknown."""

    def setting(key: str) -> float | None:
        return number(settings.get(key))

    def text(key: str) -> str | None:
        return value if isinstance(value := settings.get(key), str) else None

    used, accumulated = setting("steps_per_generation"), setting("gradient_accumulation_steps")
    repeated = setting("num_iterations")
    return Facts(
        max_completion_length=int(setting("max_completion_length") or 0),
        full_marks=full_marks,
        loss_type=text("loss_type"),
        beta=setting("beta"),
        temperature=setting("temperature"),
        iterations=repeated,
        completions=int(setting("generation_batch_size") or 0) or None,
        group=int(setting("num_generations") or 0) or None,
        updates=max(used * repeated / accumulated, 1.0) if used and accumulated and repeated else None,
        scale_rewards=text("scale_rewards"),
        fp16=settings.get("fp16") is True,
        **more,
    )


def flat_in_update(metrics: Metrics) -> float | None:
    """The share of flat groups among those that a step learned from; None for a step without a rollout of its own."""
    return next((own for key in FLAT if (own := number(metrics.get(key))) is not None), None)
