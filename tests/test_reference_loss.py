"""The formulas against arithmetic done by hand."""

import math
from typing import get_args

import pytest
import torch

from grpo_kit.reference_loss import (
    ImportanceSamplingLevel,
    Loss,
    LossType,
    clipped_surrogate_loss,
    group_advantages,
    grpo_loss,
    importance_ratios,
    k3_kl,
    leave_one_out_advantages,
    loss_denominators,
    sequence_loss,
)

LOSS_TYPES: tuple[LossType, ...] = get_args(LossType)
LEVELS: tuple[ImportanceSamplingLevel, ...] = get_args(ImportanceSamplingLevel)


def assert_close(actual: torch.Tensor, expected: object, atol: float = 5e-5) -> None:
    """Equal as far as four printed decimals can tell."""
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), atol=atol, rtol=0)


# --- advantages ---


def test_advantages_divide_by_the_sample_std() -> None:
    # Mean 0.5, squared deviations 4 * 0.25 = 1. Sample std sqrt(1/3) = 0.57735: 0.5 / 0.57745 = 0.8659.
    # Population std sqrt(1/4) = 0.5: 0.5 / 0.5001 = 0.9998.
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert_close(group_advantages(rewards, 4, scale_rewards="group"), [0.8659, 0.8659, -0.8659, -0.8659])
    population = group_advantages(rewards, 4, scale_rewards="group", correction=0)
    assert_close(population, [0.9998, 0.9998, -0.9998, -0.9998])


def test_advantages_of_two_groups_by_scale() -> None:
    # Groups [2, 0] and [5, 5]: means 1 and 5, deviations [1, -1] and [0, 0].
    # Their sample stds: sqrt(2 / 1) = 1.41421 and 0. All four: mean 3, squares 1 + 9 + 4 + 4 = 18, std sqrt(18 / 3)
    # = 2.44949. So 1 / 1.41431 = 0.7071 by group and 1 / 2.44959 = 0.4082 by batch.
    rewards = torch.tensor([2.0, 0.0, 5.0, 5.0])
    assert_close(group_advantages(rewards, 2, scale_rewards="group"), [0.7071, -0.7071, 0.0, 0.0])
    assert_close(group_advantages(rewards, 2, scale_rewards="batch"), [0.4082, -0.4082, 0.0, 0.0])
    assert_close(group_advantages(rewards, 2, scale_rewards="none"), [1.0, -1.0, 0.0, 0.0])


def test_a_row_without_a_judgement_counts_nowhere_and_gets_no_advantage() -> None:
    # [1, NaN, 0, 0]: of three rows the mean is 1/3, the squares 4/9 + 1/9 + 1/9 = 2/3, the std sqrt(2/3 / 2) = 0.57735.
    # 0.66667 / 0.57745 = 1.1545, -0.33333 / 0.57745 = -0.5773. Leave-one-out: 1 - 0, 0 - 1/2, 0 - 1/2.
    rewards = torch.tensor([1.0, math.nan, 0.0, 0.0])
    assert_close(group_advantages(rewards, 4, scale_rewards="group"), [1.1545, 0.0, -0.5773, -0.5773])
    assert_close(leave_one_out_advantages(rewards, 4), [1.0, 0.0, -0.5, -0.5])
    # One judged row has nothing to be compared with.
    alone = torch.tensor([1.0, math.nan])
    assert group_advantages(alone, 2, scale_rewards="group").tolist() == [0.0, 0.0]
    assert leave_one_out_advantages(alone, 2).tolist() == [0.0, 0.0]


def test_leave_one_out_is_the_group_mean_form_times_k_over_k_minus_1() -> None:
    # [4, 1, 1, 0]: against the others' means 2/3, 5/3, 5/3, 2 that is 10/3, -2/3, -2/3, -2.
    # Against the mean 1.5 it is 2.5, -0.5, -0.5, -1.5, and 4/3 of those are the same numbers.
    rewards = torch.tensor([4.0, 1.0, 1.0, 0.0])
    expected = [10 / 3, -2 / 3, -2 / 3, -2.0]
    assert_close(leave_one_out_advantages(rewards, 4), expected, atol=1e-6)
    assert_close(4 / 3 * group_advantages(rewards, 4, scale_rewards="none"), expected, atol=1e-6)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_equal_rewards_give_exactly_no_loss_and_no_gradient(reward: float) -> None:
    advantages = group_advantages(torch.full((4,), reward), 4, scale_rewards="group")
    logps = torch.tensor([-7.9243, -20.1546, -16.6130, -23.3677], requires_grad=True)
    loss = sequence_loss(logps, advantages)
    loss.backward()
    assert logps.grad is not None
    assert advantages.tolist() == [0.0] * 4
    assert loss.item() == 0.0
    assert logps.grad.tolist() == [0.0] * 4


# --- the pieces ---


def test_importance_ratios_by_level() -> None:
    # Log ratios [0.3, 0.1, -0.1] and [0.2], then padding that must not count.
    # Sequence level: exp(0.3 / 3) = 1.1052 and exp(0.2 / 1) = 1.2214.
    logps = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, 7.0, 8.0]])
    old_logps = torch.tensor([[-1.3, -2.1, -2.9], [-1.2, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    token = importance_ratios(logps, old_logps, mask, importance_sampling_level="token")
    sequence = importance_ratios(logps, old_logps, mask, importance_sampling_level="sequence")
    assert_close(token[0], [1.3499, 1.1052, 0.9048])
    assert_close(token[1, 0], 1.2214)
    assert_close(sequence, [[1.1052] * 3, [1.2214] * 3])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.5, 1.0, -1.28, 0.0),  # min(1.5, 1.28): the gain is cut
        (1.5, -1.0, 1.5, 1.0),  # min(-1.5, -1.28): it got worse, the gradient stays
        (0.5, 1.0, -0.5, -1.0),  # min(0.5, 0.8): it got worse, the gradient stays
        (0.5, -1.0, 0.8, 0.0),  # min(-0.5, -0.8): the gain is cut
        (1.25, 2.0, -2.5, -2.0),  # inside: min(2.5, 2.5); a symmetric 0.2 would give -2.4
    ],
)
def test_clipping_cuts_gains_only(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    ratios = torch.tensor([[ratio]], requires_grad=True)
    actual = clipped_surrogate_loss(ratios, torch.tensor([advantage]), epsilon=0.2, epsilon_high=0.28)
    actual.sum().backward()
    assert_close(actual, [[loss]], atol=1e-6)
    assert ratios.grad is not None
    assert_close(ratios.grad, [[gradient]], atol=1e-6)


def test_k3_kl() -> None:
    # d = ref - logp = -0.2, 0, 0.2: exp(d) - d - 1 = 0.81873 + 0.2 - 1, 0, 1.22140 - 0.2 - 1.
    logps = torch.tensor([[-0.8, -1.0, -1.2]])
    assert_close(k3_kl(logps, torch.full_like(logps, -1.0)), [[0.01873, 0.0, 0.02140]], atol=5e-6)


# Two rows of 3 and 1 tokens: the losses sum to 1 + 2 + 3 = 6 and 4, in all 10 over 4 tokens. The 9s are padding.
TOKEN_LOSSES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 9.0, 9.0]])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0]])


@pytest.mark.parametrize(
    ("loss_type", "denominators", "loss"),
    [
        ("grpo", [6, 2], 3.0),  # 2 rows of 3 and 1 tokens: (6/3 + 4/1) / 2
        ("bnpo", [4, 4], 2.5),  # 10 / 4 tokens
        ("dr_grpo", [10, 10], 1.0),  # 10 / (2 rows * 5)
        ("dapo", [7, 7], 10 / 7),  # 10 / 7 tokens, of which 3 are in another micro-batch
        ("luspo", [2, 2], 5.0),  # 10 / 2 rows
    ],
)
def test_denominators(loss_type: LossType, denominators: list[int], loss: float) -> None:
    actual = loss_denominators(MASK, loss_type=loss_type, max_completion_length=5, num_items_in_batch=7)
    assert actual.tolist() == denominators
    assert_close(((TOKEN_LOSSES * MASK).sum(dim=1) / actual).sum(), loss, atol=1e-6)


@pytest.mark.parametrize(
    ("loss_type", "one_update", "two_updates"),
    [
        # An update sums 2 micro-batches, so each loss is halved ...
        ("grpo", [12, 4], [12, 4]),
        ("bnpo", [8, 8], [8, 8]),
        ("dr_grpo", [20, 20], [20, 20]),
        ("luspo", [4, 4], [4, 4]),
        # ... but dapo's 7 tokens are the update's already. Where the generation batch serves two updates, an update
        # has half of its 4 micro-batches, and half of the tokens: 7 * 2 / 4.
        ("dapo", [7, 7], [3.5, 3.5]),
    ],
)
def test_denominators_with_accumulation(loss_type: LossType, one_update: list[float], two_updates: list[float]) -> None:
    for steps_per_generation, denominators in [(None, one_update), (2, one_update), (4, two_updates)]:
        actual = loss_denominators(
            MASK,
            loss_type=loss_type,
            max_completion_length=5,
            num_items_in_batch=7,
            gradient_accumulation_steps=2,
            steps_per_generation=steps_per_generation,
        )
        assert actual.tolist() == denominators


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_a_micro_batch_without_a_token_has_loss_0(loss_type: LossType) -> None:
    mask = torch.zeros(2, 3, dtype=torch.long)
    loss = on_policy_loss(torch.randn(2, 3), mask, torch.tensor([1.0, -1.0]), loss_type, num_items_in_batch=0)
    assert loss.loss.item() == 0.0


# --- the whole ---


def test_sequence_loss() -> None:
    # -(0.8659 * (-7.9243 - 20.1546) - 0.8659 * (-16.6130 - 23.3677)) / 4 = -0.8659 * 11.9018 / 4 = -2.5764
    advantages = group_advantages(torch.tensor([1.0, 1.0, 0.0, 0.0]), 4, scale_rewards="group")
    logps = torch.tensor([-7.9243, -20.1546, -16.6130, -23.3677])
    assert_close(sequence_loss(logps, advantages), -2.5764)


def test_worked_example() -> None:
    # Advantages 0.5 / 0.5001 = 0.9998 (population std). Ratios exp(0.2, -0.1, 0.1, -0.2) = 1.2214, 0.9048, 1.1052,
    # 0.8187; the first is cut to 1.2, the last, at A < 0, is above 0.8.
    # Policy -0.9998 * (1.2 + 0.9048 - 1.1052 - 0.8187) / 4 = -0.9998 * 0.18090 / 4 = -0.0452
    # k3 of d = -0.2, 0.1, -0.1, 0.2: 0.01873 + 0.00517 + 0.00484 + 0.02140 = 0.05014; 0.04 * 0.05014 / 4 = 0.0005
    advantages = group_advantages(torch.tensor([1.0, 1.0, 0.0, 0.0]), 4, scale_rewards="group", correction=0)
    logps = torch.tensor([[-0.8], [-1.1], [-0.9], [-1.2]])
    mask = torch.ones(4, 1)
    loss = grpo_loss(
        logps,
        mask,
        advantages,
        loss_denominators(mask, loss_type="grpo"),
        importance_sampling_level="token",
        epsilon=0.2,
        epsilon_high=0.2,
        beta=0.04,
        use_bias_correction_kl=False,
        old_per_token_logps=torch.full((4, 1), -1.0),
        ref_per_token_logps=torch.full((4, 1), -1.0),
    )
    assert_close(loss.policy_loss, -0.0452)
    assert_close(loss.kl_loss, 0.0005)
    assert_close(loss.loss, -0.0447)


def test_bias_correction_weighs_the_kl_by_the_ratio_and_its_gradient() -> None:
    # logp = ref + 0.2, ratio w = e^0.2: kl = e^-0.2 + 0.2 - 1 = 0.01873, corrected 1.2214 * 0.01873 = 0.02288.
    # d/dlogp kl = 1 - e^-0.2 = 0.18127; d/dlogp (w kl) = w (kl + 0.18127) = 1.2214 * 0.2 = 0.24428.
    for corrected, value, gradient in [(False, 0.01873, 0.18127), (True, 0.02288, 0.24428)]:
        logps = torch.tensor([[-0.8]], requires_grad=True)
        mask = torch.ones(1, 1)
        loss = grpo_loss(
            logps,
            mask,
            torch.zeros(1),
            loss_denominators(mask, loss_type="luspo"),
            importance_sampling_level="token",
            epsilon=0.2,
            epsilon_high=0.2,
            beta=1.0,
            use_bias_correction_kl=corrected,
            old_per_token_logps=torch.full((1, 1), -1.0),
            ref_per_token_logps=torch.full((1, 1), -1.0),
        )
        loss.loss.backward()
        assert_close(loss.kl_loss, value, atol=1e-5)
        assert logps.grad is not None
        assert_close(logps.grad, [[gradient]], atol=1e-5)


def on_policy_loss(
    logps: torch.Tensor,
    mask: torch.Tensor,
    advantages: torch.Tensor,
    loss_type: LossType,
    level: ImportanceSamplingLevel = "token",
    num_items_in_batch: int = 20,
) -> Loss:
    denominators = loss_denominators(
        mask, loss_type=loss_type, max_completion_length=5, num_items_in_batch=num_items_in_batch
    )
    return grpo_loss(
        logps,
        mask,
        advantages,
        denominators,
        importance_sampling_level=level,
        epsilon=0.2,
        epsilon_high=0.28,
        beta=0.0,
        use_bias_correction_kl=False,
    )


RAGGED = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])  # 9 tokens in 4 rows
RAGGED_ADVANTAGES = torch.tensor([1.5, -0.5, -0.25, 0.5])


def gradients_on_policy(loss_type: LossType, level: ImportanceSamplingLevel) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients with respect to the log-probs: of the loss type, and of the sequence form."""
    logps = torch.linspace(-3.0, -1.0, 12).reshape(4, 3).requires_grad_()
    loss = on_policy_loss(logps, RAGGED, RAGGED_ADVANTAGES, loss_type, level)
    sequence_form = sequence_loss((logps * RAGGED).sum(dim=1), RAGGED_ADVANTAGES)
    return torch.autograd.grad(loss.loss, logps)[0], torch.autograd.grad(sequence_form, logps)[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("loss_type", "scale"),
    [
        ("luspo", 1.0),  # the same sums over the same 4 rows
        ("dr_grpo", 1 / 5),  # divided by max_completion_length too
        ("dapo", 4 / 20),  # by 20 tokens in place of 4 rows
        ("bnpo", 4 / 9),  # by 9 tokens in place of 4 rows
    ],
)
def test_on_policy_the_sequence_form_is_a_loss_type_up_to_scale(
    loss_type: LossType, scale: float, level: ImportanceSamplingLevel
) -> None:
    gradient, sequence_form = gradients_on_policy(loss_type, level)
    # -A_i / 4 on every unmasked token of row i: -0.375, 0.125, 0.0625, -0.125.
    by_hand = torch.tensor([[-0.375], [0.125], [0.0625], [-0.125]]) * RAGGED
    assert_close(sequence_form, by_hand, atol=1e-7)
    assert_close(gradient, scale * sequence_form, atol=1e-7)


def test_on_policy_grpo_is_not_the_sequence_form_at_any_scale() -> None:
    # It divides each row by its own length: 3, 1, 2, 3.
    gradient, sequence_form = gradients_on_policy("grpo", "token")
    assert_close(gradient, sequence_form / torch.tensor([[3.0], [1.0], [2.0], [3.0]]), atol=1e-7)


def test_on_policy_the_value_of_luspo_is_not_that_of_the_sequence_form() -> None:
    # Every ratio is 1: -(1.5 * 3 - 0.5 * 1 - 0.25 * 2 + 0.5 * 3) / 4 = -1.25, whatever the log-probs are.
    for logp in (-1.0, -2.0):
        loss = on_policy_loss(torch.full((4, 3), logp), RAGGED, RAGGED_ADVANTAGES, "luspo")
        assert_close(loss.loss, -1.25, atol=1e-6)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_of_the_logps_is_kept(loss_type: LossType, dtype: torch.dtype) -> None:
    logps = torch.linspace(-3.0, -1.0, 12, dtype=dtype).reshape(4, 3)
    assert on_policy_loss(logps, RAGGED, RAGGED_ADVANTAGES.to(dtype), loss_type).loss.dtype == dtype


# --- errors name what was found ---


def test_wrong_rewards_are_refused() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match=r"rewards must have shape \(B\), got \(2, 2\)"):
        group_advantages(rewards.reshape(2, 2), 2, scale_rewards="group")
    with pytest.raises(ValueError, match=r"rewards must be floating point, got torch\.int64"):
        leave_one_out_advantages(rewards.long(), 2)
    with pytest.raises(ValueError, match=r"rewards must be finite or NaN, got \[1.0, inf\]"):
        group_advantages(torch.tensor([1.0, math.inf]), 2, scale_rewards="none")
    for num_generations in (1, 3):
        with pytest.raises(ValueError, match=f"divide the 4 rewards, got {num_generations}"):
            group_advantages(rewards, num_generations, scale_rewards="group")
    with pytest.raises(ValueError, match="scale_rewards must be one of group, batch, none, got 'std'"):
        group_advantages(rewards, 2, scale_rewards="std")  # type: ignore[arg-type]


def test_wrong_shapes_are_refused() -> None:
    logps, mask = torch.zeros(2, 3), torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"completion_mask must have T = 3 like the others, got \(2, 2\)"):
        importance_ratios(logps, logps, mask[:, :2], importance_sampling_level="token")
    with pytest.raises(ValueError, match=r"ref_per_token_logps must have shape \(B, T\), got \(2,\)"):
        k3_kl(logps, torch.zeros(2))
    with pytest.raises(ValueError, match=r"advantages must have B = 2 like the others, got \(4,\)"):
        clipped_surrogate_loss(logps, torch.zeros(4), epsilon=0.2, epsilon_high=0.2)
    with pytest.raises(ValueError, match=r"advantages must have shape \(B\), got \(2, 1\)"):
        sequence_loss(torch.zeros(2), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"denominators must have B = 4 like the others, got \(1,\)"):
        grpo_loss(
            torch.zeros(4, 3),
            RAGGED,
            RAGGED_ADVANTAGES,
            torch.ones(1),
            importance_sampling_level="token",
            epsilon=0.2,
            epsilon_high=0.2,
            beta=0.0,
            use_bias_correction_kl=False,
        )


def test_wrong_settings_are_refused() -> None:
    logps, mask = torch.zeros(2, 3), torch.ones(2, 3)
    with pytest.raises(ValueError, match="loss_type must be one of grpo, bnpo, dr_grpo, dapo, luspo, got 'dr-grpo'"):
        loss_denominators(mask, loss_type="dr-grpo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss_type dr_grpo needs max_completion_length, got None"):
        loss_denominators(mask, loss_type="dr_grpo")
    with pytest.raises(ValueError, match="loss_type dapo needs num_items_in_batch, got None"):
        loss_denominators(mask, loss_type="dapo")
    with pytest.raises(ValueError, match="importance_sampling_level must be one of token, sequence, got 'row'"):
        importance_ratios(logps, logps, mask, importance_sampling_level="row")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"beta 0\.1 needs ref_per_token_logps, got None"):
        grpo_loss(
            logps,
            mask,
            torch.zeros(2),
            loss_denominators(mask, loss_type="grpo"),
            importance_sampling_level="token",
            epsilon=0.2,
            epsilon_high=0.2,
            beta=0.1,
            use_bias_correction_kl=True,
        )
