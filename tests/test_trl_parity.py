"""The reference loss against GRPOTrainer's own: value and every parameter's gradient, on data that leaves nothing out.

An on-policy first step proves nothing: every ratio is 1, nothing is clipped and the value is the same for any formula
with the right sign. So the old log-probs are shifted here, rows are clipped on both sides, prompts and completions are
ragged and the update spans several micro-batches. Each mutant, a mistake that people make, must fail the comparison.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from datasets import Dataset
from random_model import save_random_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from grpo_kit.reference_loss import (
    ImportanceSamplingLevel,
    LossType,
    ScaleRewards,
    group_advantages,
    grpo_loss,
    importance_ratios,
    leave_one_out_advantages,
    loss_denominators,
)

# Measured in float32 on a CPU, over all cases: 2.4e-7 for the loss, 4.5e-7 for the gradients (luspo's, the largest
# of which is about 1), 0 for the advantages. The mildest mutant's gradient is off by 1.7e-3.
TOLERANCE = 5e-6
FAR = 200 * TOLERANCE
TEMPERATURE = 0.9  # not 1, so that log-probs which forget it differ
PAD_TOKEN_ID = 256
LOSS_TYPES: tuple[LossType, ...] = get_args(LossType)
LEVELS: tuple[ImportanceSamplingLevel, ...] = get_args(ImportanceSamplingLevel)
NUM_GENERATIONS = 4
PROMPT_LENGTHS = [3] * 4 + [9] * 4  # two prompts, their completions adjacent
COMPLETION_LENGTHS = [12, 5, 1, 8, 7, 12, 3, 10]
REWARDS = torch.tensor([1.0, 0.0, 0.2, 0.7, 0.9, 0.1, 0.0, 1.0])  # signs of the advantages: + - - + and + - - +
# exp of the mean log ratio of each row. 1.24 is cut where epsilon is the upper bound too; 1.4 is cut (A > 0) and 1.5
# kept (A < 0); of the two 0.7 the first is cut (A < 0) and the last kept (A > 0).
ROW_RATIOS = torch.tensor([1.24, 0.7, 1.5, 0.9, 1.4, 1.1, 0.75, 0.7])


@dataclass(frozen=True)
class Case:
    """All that the reference loss is told; a mutant is a `replace` of one thing."""

    completion_mask: Tensor  # (B, T)
    advantages: Tensor  # (B,)
    old_per_token_logps: Tensor | None  # (B, T)
    ref_per_token_logps: Tensor  # (B, T)
    num_items_in_batch: int
    loss_type: LossType = "grpo"
    importance_sampling_level: ImportanceSamplingLevel = "token"
    beta: float = 0.0
    use_bias_correction_kl: bool = False
    # What no test varies is not GRPOConfig's default either: a setting that is ignored shows.
    epsilon: float = 0.18
    epsilon_high: float = 0.28
    max_completion_length: int = 16
    gradient_accumulation_steps: int = 2
    steps_per_generation: int = 4

    def loss(self, per_token_logps: Tensor) -> Tensor:
        denominators = loss_denominators(
            self.completion_mask,
            loss_type=self.loss_type,
            max_completion_length=self.max_completion_length,
            num_items_in_batch=self.num_items_in_batch,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            steps_per_generation=self.steps_per_generation,
        )
        return grpo_loss(
            per_token_logps,
            self.completion_mask,
            self.advantages,
            denominators,
            importance_sampling_level=self.importance_sampling_level,
            epsilon=self.epsilon,
            epsilon_high=self.epsilon_high,
            beta=self.beta,
            use_bias_correction_kl=self.use_bias_correction_kl,
            old_per_token_logps=self.old_per_token_logps,
            ref_per_token_logps=self.ref_per_token_logps,
        ).loss


@dataclass(frozen=True)
class Setup:
    trainer: GRPOTrainer
    args: GRPOConfig  # the trainer's
    policy: PreTrainedModel  # the trainer's, with TRL's fused head
    model: PreTrainedModel  # the same weights in a plain model
    batch: dict[str, Tensor]  # prompt and completion ids and masks
    per_token_logps: Tensor  # (B, T), of the plain model, with its graph
    case: Case


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = save_random_model(tmp_path_factory.mktemp("model"))
    args = grpo_config(tmp_path_factory.mktemp("run"))
    trainer = GRPOTrainer(
        model=str(folder),
        reward_funcs=[first_reward, second_reward],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    assert isinstance(trainer.model, PreTrainedModel)
    model = AutoModelForCausalLM.from_pretrained(folder).train()
    batch = ragged_batch(torch.Generator().manual_seed(0))
    per_token_logps = plain_logps(model, batch)  # (B, T)

    generator = torch.Generator().manual_seed(1)
    mask, shape = batch["completion_mask"], per_token_logps.shape
    noise = 0.15 * torch.randn(shape, generator=generator)  # (B, T)
    noise = noise - (noise * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)  # keeps the row's ratio
    case = Case(
        completion_mask=mask,
        advantages=group_advantages(REWARDS, NUM_GENERATIONS, scale_rewards="group"),
        old_per_token_logps=per_token_logps.detach() - ROW_RATIOS.log().unsqueeze(1) - noise,
        ref_per_token_logps=per_token_logps.detach() + 0.5 * torch.randn(shape, generator=generator),
        num_items_in_batch=3 * int(mask.sum()) + 7,  # of the whole generation batch, which is larger than this one
    )
    return Setup(trainer, args, trainer.model, model, batch, per_token_logps, case)


def grpo_config(output_dir: Path) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(output_dir),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(REWARDS),
        gradient_accumulation_steps=Case.gradient_accumulation_steps,
        steps_per_generation=Case.steps_per_generation,
        num_generations=NUM_GENERATIONS,
        max_completion_length=Case.max_completion_length,
        temperature=TEMPERATURE,
        report_to=[],
    )


def first_reward(first: list[float | None], **_: object) -> list[float | None]:
    return first


def second_reward(second: list[float | None], **_: object) -> list[float | None]:
    return second


def ragged_batch(generator: torch.Generator) -> dict[str, Tensor]:
    """Random bytes; prompts padded on the left and completions on the right, as GRPOTrainer pads them."""
    prompt_lengths = torch.tensor(PROMPT_LENGTHS).unsqueeze(1)  # (B, 1)
    completion_lengths = torch.tensor(COMPLETION_LENGTHS).unsqueeze(1)  # (B, 1)
    longest_prompt, longest_completion = max(PROMPT_LENGTHS), max(COMPLETION_LENGTHS)  # S, T
    prompt_mask = (torch.arange(longest_prompt) >= longest_prompt - prompt_lengths).long()  # (B, S)
    completion_mask = (torch.arange(longest_completion) < completion_lengths).long()  # (B, T)
    prompts = torch.randint(0, PAD_TOKEN_ID, (2, longest_prompt), generator=generator)  # (P, S)
    completions = torch.randint(0, PAD_TOKEN_ID, completion_mask.shape, generator=generator)  # (B, T)
    return {
        "prompt_ids": prompts.repeat_interleave(NUM_GENERATIONS, dim=0).masked_fill(prompt_mask == 0, PAD_TOKEN_ID),
        "prompt_mask": prompt_mask,
        "completion_ids": completions.masked_fill(completion_mask == 0, PAD_TOKEN_ID),
        "completion_mask": completion_mask,
    }


def plain_logps(model: PreTrainedModel, batch: dict[str, Tensor]) -> Tensor:
    """Log-softmax over the whole vocabulary, then pick: (B, T). Padding gets a value too, which the mask must drop."""
    completion_ids = batch["completion_ids"]  # (B, T)
    input_ids = torch.cat([batch["prompt_ids"], completion_ids], dim=1)  # (B, S + T)
    attention_mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)  # (B, S + T)
    logits: Tensor = model(input_ids=input_ids, attention_mask=attention_mask).logits  # (B, S + T, V)
    logits = logits[:, -completion_ids.shape[1] - 1 : -1] / TEMPERATURE  # (B, T, V), each predicts the next token
    return logits.log_softmax(dim=-1).gather(2, completion_ids.unsqueeze(2)).squeeze(2)  # (B, T)


def trl_loss(setup: Setup, case: Case) -> tuple[Tensor, list[Tensor]]:
    """The loss and gradients of GRPOTrainer, set to the case."""
    trainer = setup.trainer
    setup.policy.train()
    trainer.loss_type = case.loss_type
    trainer.importance_sampling_level = case.importance_sampling_level
    trainer.beta = case.beta  # set after construction, so that no reference model is loaded
    setup.args.use_bias_correction_kl = case.use_bias_correction_kl
    trainer.epsilon_low, trainer.epsilon_high = case.epsilon, case.epsilon_high
    trainer.current_gradient_accumulation_steps = case.gradient_accumulation_steps
    inputs = {
        **setup.batch,
        "advantages": case.advantages,
        "old_per_token_logps": case.old_per_token_logps,
        "ref_per_token_logps": case.ref_per_token_logps,
        "num_items_in_batch": torch.tensor(case.num_items_in_batch),
    }
    loss = trainer.compute_loss(setup.policy, inputs)
    return loss.detach(), list(torch.autograd.grad(loss, list(setup.policy.parameters())))


def reference_loss(setup: Setup, case: Case) -> tuple[Tensor, list[Tensor]]:
    """The loss and gradients of the formulas, through the plain model."""
    loss = case.loss(setup.per_token_logps)
    return loss.detach(), list(torch.autograd.grad(loss, list(setup.model.parameters()), retain_graph=True))


def deviations(one: tuple[Tensor, list[Tensor]], other: tuple[Tensor, list[Tensor]]) -> tuple[float, float]:
    """The largest absolute differences, of the loss and of the gradients."""
    gradients = [(a - b).abs().max().item() for a, b in zip(one[1], other[1], strict=True)]
    return (one[0] - other[0]).abs().item(), max(gradients)


def test_the_two_models_are_the_same(setup: Setup) -> None:
    ours, theirs = dict(setup.model.named_parameters()), dict(setup.policy.named_parameters())
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("level", LEVELS)
def test_the_case_is_not_vacuous(setup: Setup, level: ImportanceSamplingLevel) -> None:
    """Rows are cut from above, between epsilon and epsilon_high, from below, and kept although outside the range."""
    case = setup.case
    assert case.old_per_token_logps is not None
    ratios = importance_ratios(
        setup.per_token_logps, case.old_per_token_logps, case.completion_mask, importance_sampling_level=level
    )
    gains = case.advantages.unsqueeze(1) > 0
    above, below = ratios > 1 + case.epsilon_high, ratios < 1 - case.epsilon
    between = (ratios > 1 + case.epsilon) & ~above
    for tokens in (above & gains, between & gains, below & ~gains, above & ~gains, below & gains):
        assert (tokens & case.completion_mask.bool()).any()


@pytest.mark.parametrize(("beta", "use_bias_correction_kl"), [(0.0, False), (0.1, False), (0.1, True)])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_loss_and_gradients_agree(
    setup: Setup, loss_type: LossType, level: ImportanceSamplingLevel, beta: float, use_bias_correction_kl: bool
) -> None:
    case = replace(
        setup.case,
        loss_type=loss_type,
        importance_sampling_level=level,
        beta=beta,
        use_bias_correction_kl=use_bias_correction_kl,
    )
    loss, gradient = deviations(trl_loss(setup, case), reference_loss(setup, case))
    assert loss < TOLERANCE
    assert gradient < TOLERANCE


def other_level(case: Case) -> Case:
    return replace(
        case, importance_sampling_level="token" if case.importance_sampling_level == "sequence" else "sequence"
    )


def with_denominator_of(loss_type: LossType) -> Callable[[Case], Case]:
    return lambda case: replace(case, loss_type=loss_type)


MUTANTS: dict[str, Callable[[Case], Case]] = {
    "no mask": lambda case: replace(case, completion_mask=torch.ones_like(case.completion_mask)),
    "flipped sign": lambda case: replace(case, advantages=-case.advantages),
    "symmetric clip": lambda case: replace(case, epsilon_high=case.epsilon),
    "no clip": lambda case: replace(case, epsilon=10.0, epsilon_high=10.0),
    "no KL": lambda case: replace(case, beta=0.0),
    "no ratio on the KL": lambda case: replace(case, use_bias_correction_kl=False),
    "no old log-probs": lambda case: replace(case, old_per_token_logps=None),
    "other importance sampling level": other_level,
    "population std": lambda case: replace(
        case, advantages=group_advantages(REWARDS, NUM_GENERATIONS, scale_rewards="group", correction=0)
    ),
    "one group over the batch": lambda case: replace(
        case, advantages=group_advantages(REWARDS, len(REWARDS), scale_rewards="group")
    ),
    "no gradient accumulation": lambda case: replace(case, gradient_accumulation_steps=1),
    "longest completion as limit": lambda case: replace(case, max_completion_length=max(COMPLETION_LENGTHS)),
    "tokens of the micro-batch": lambda case: replace(case, num_items_in_batch=sum(COMPLETION_LENGTHS)),
    **{f"denominator of {loss_type}": with_denominator_of(loss_type) for loss_type in LOSS_TYPES},
}


def changes(mutant: str, loss_type: LossType) -> bool:
    """Whether the mutant differs from the formula at all for this loss type."""
    needed = {"longest completion as limit": "dr_grpo", "tokens of the micro-batch": "dapo"}
    return mutant != f"denominator of {loss_type}" and needed.get(mutant, loss_type) == loss_type


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("loss_type", "mutant"), [(own, mutant) for own in LOSS_TYPES for mutant in MUTANTS if changes(mutant, own)]
)
def test_mutants_fail(setup: Setup, loss_type: LossType, level: ImportanceSamplingLevel, mutant: str) -> None:
    case = replace(
        setup.case, loss_type=loss_type, importance_sampling_level=level, beta=0.1, use_bias_correction_kl=True
    )
    mutated = MUTANTS[mutant](case)
    _, gradient = deviations(trl_loss(setup, case), reference_loss(setup, mutated))
    assert gradient > FAR  # the gradient is what training sees; a value may agree by accident


# Per row the two rewards, and their sum without the missing ones; a row without any is NaN. The last group is flat.
FIRST = [1.0, 0.0, None, 0.5, 0.2, 0.9, 0.9, 0.0, 1.0, 1.0, 1.0, 1.0]
SECOND = [0.0, 0.3, None, None, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
SUMS = torch.tensor([1.0, 0.3, float("nan"), 0.5, 0.3, 0.9, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("scale_rewards", get_args(ScaleRewards))
def test_advantages_agree(setup: Setup, scale_rewards: ScaleRewards) -> None:
    trainer = setup.trainer
    setup.policy.train()
    trainer.beta = 0.0  # no reference model was loaded
    trainer.scale_rewards = scale_rewards
    prompts = [prompt for prompt in ("a", "bc", "def") for _ in range(NUM_GENERATIONS)]
    rows: list[dict[str, Any]] = [
        {"prompt": prompt, "first": first, "second": second}
        for prompt, first, second in zip(prompts, FIRST, SECOND, strict=True)
    ]
    theirs = trainer._generate_and_score_completions(rows)["advantages"]  # (B,)

    def deviation(advantages: Tensor) -> float:
        return (advantages - theirs).abs().max().item()

    assert theirs.abs().max() > 0.5
    assert deviation(group_advantages(SUMS, NUM_GENERATIONS, scale_rewards=scale_rewards)) < TOLERANCE
    mutants = {
        "population std": group_advantages(SUMS, NUM_GENERATIONS, scale_rewards=scale_rewards, correction=0),
        "one group over the batch": group_advantages(SUMS, len(SUMS), scale_rewards=scale_rewards),
        "a missing reward is 0": group_advantages(
            SUMS.nan_to_num(nan=0.0), NUM_GENERATIONS, scale_rewards=scale_rewards
        ),
        "leave-one-out": leave_one_out_advantages(SUMS, NUM_GENERATIONS),
    }
    if scale_rewards == "none":
        del mutants["population std"]  # nothing is divided by
    for name, advantages in mutants.items():
        assert deviation(advantages) > FAR, name
