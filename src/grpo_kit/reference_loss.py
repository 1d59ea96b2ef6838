"""The formulas of GRPO, readable next to the equations: arrays in, arrays out, torch only.

The measure for the tests, not the training path: TRL's GRPOTrainer computes the loss of a run, these functions say
what it should be. They repeat none of GRPOConfig's defaults, so a caller names every setting. Not here: cispo, sapo
and vespo, two-sided clipping (`delta`), entropy terms, corrections for a sampler that is not the policy.

Letters: P prompts, G = num_generations completions of each, B = P * G rows, the G rows of a prompt adjacent; T tokens
of the longest completion; o_i the completion of row i, |o_i| the number of its unmasked tokens. Float tensors keep
their dtype (float32 or wider is meant); a mask holds 0 and 1 as bool, int or float. Gradients flow through
`per_token_logps` (or `sequence_logps`) only: all else is a constant.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

ScaleRewards = Literal["group", "batch", "none"]
LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo"]
ImportanceSamplingLevel = Literal["token", "sequence"]


class Loss(NamedTuple):
    """The number to differentiate and its two parts: loss = policy_loss + kl_loss, each of shape ()."""

    loss: Tensor
    policy_loss: Tensor
    kl_loss: Tensor  # beta included


def group_advantages(
    rewards: Tensor, num_generations: int, *, scale_rewards: ScaleRewards, correction: int = 1, eps: float = 1e-4
) -> Tensor:
    """Advantages relative to the other completions of the same prompt: (B,) float -> (B,).

    A_i = (r_i - mean(group)) / (std + eps)          DeepSeekMath, https://arxiv.org/abs/2402.03300

    The mean is always the group's; `scale_rewards` chooses the std: of the "group", of the "batch"
    (https://arxiv.org/abs/2508.08221), or "none" (Dr. GRPO, https://arxiv.org/abs/2503.20783).

    Args:
        rewards: (B,) float. NaN: a row that could not be judged; it enters no mean or std, and its advantage is 0.
        correction: 1 divides the variance by n - 1, as TRL does; 0 by n.
        eps: keeps a group of equal rewards from dividing by zero. TRL's 1e-4 is not a setting there.

    Raises:
        ValueError: rewards not (B,), not float or infinite; G < 2 or no divisor of B; unknown `scale_rewards`.
    """
    _check_choice("scale_rewards", scale_rewards, ScaleRewards)
    groups = _groups(rewards, num_generations)  # (P, G)
    advantages = groups - groups.nanmean(dim=1, keepdim=True)  # (P, G)
    if scale_rewards == "group":
        advantages = advantages / (_nanstd(groups, correction) + eps)  # (P, G) / (P, 1)
    elif scale_rewards == "batch":
        advantages = advantages / (_nanstd(groups.reshape(1, -1), correction) + eps)  # (P, G) / (1, 1)
    return advantages.nan_to_num(nan=0.0).reshape(-1)  # (B,)


def leave_one_out_advantages(rewards: Tensor, num_generations: int) -> Tensor:
    """Advantages against the mean of the other completions of the prompt (RLOO), not scaled: (B,) float -> (B,).

    A_i = r_i - 1/(G-1) sum_{j != i} r_j = G/(G-1) (r_i - mean(group))          https://arxiv.org/abs/2402.14740

    The baseline does not contain r_i, so it is unbiased; against the group's mean it is only a factor. NaN and
    ValueError as in `group_advantages`.
    """
    groups = _groups(rewards, num_generations)  # (P, G)
    others = groups.nansum(dim=1, keepdim=True) - groups  # (P, G), the sum of the others
    num_others = (~groups.isnan()).sum(dim=1, keepdim=True) - 1  # (P, 1); 0 / 0 is NaN: nothing to compare with
    return (groups - others / num_others).nan_to_num(nan=0.0).reshape(-1)  # (B,)


def importance_ratios(
    per_token_logps: Tensor,
    old_per_token_logps: Tensor,
    completion_mask: Tensor,
    *,
    importance_sampling_level: ImportanceSamplingLevel,
) -> Tensor:
    """How much likelier the policy makes a token, or a completion, than the policy that sampled it: (B, T) -> (B, T).

    token:     w_it = exp(logp_it - old_logp_it)                        https://arxiv.org/abs/2402.03300
    sequence:  w_it = exp(1/|o_i| sum_t (logp_it - old_logp_it))        GSPO, https://arxiv.org/abs/2507.18071

    At sequence level each row holds one value. Raises ValueError for shapes that differ or an unknown level.
    """
    _check_choice("importance_sampling_level", importance_sampling_level, ImportanceSamplingLevel)
    _check_shapes(
        per_token_logps=(per_token_logps, "B T"),
        old_per_token_logps=(old_per_token_logps, "B T"),
        completion_mask=(completion_mask, "B T"),
    )
    log_ratios = per_token_logps - old_per_token_logps.detach()  # (B, T)
    if importance_sampling_level == "sequence":
        lengths = completion_mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, 1); 1 gives an empty row the ratio 1
        means = (log_ratios * completion_mask).sum(dim=1, keepdim=True) / lengths  # (B, 1)
        log_ratios = means.expand_as(log_ratios)  # (B, T)
    return log_ratios.exp()


def clipped_surrogate_loss(ratios: Tensor, advantages: Tensor, *, epsilon: float, epsilon_high: float) -> Tensor:
    """PPO's clipped objective, negated: (B, T), (B,) -> (B, T), a loss for each token.

    l_it = -min(w_it A_i, clip(w_it, 1 - epsilon, 1 + epsilon_high) A_i)

    https://arxiv.org/abs/1707.06347; an upper bound of its own is DAPO's, https://arxiv.org/abs/2503.14476 (GRPOConfig
    reads None as epsilon). The min cuts gains only: A > 0 above the range, A < 0 below it. Where the objective got
    worse, the gradient stays. Raises ValueError for a wrong rank or differing B.
    """
    _check_shapes(ratios=(ratios, "B T"), advantages=(advantages, "B"))
    advantages = advantages.detach().unsqueeze(1)  # (B, 1)
    return -torch.min(ratios * advantages, ratios.clamp(1 - epsilon, 1 + epsilon_high) * advantages)  # (B, T)


def k3_kl(per_token_logps: Tensor, ref_per_token_logps: Tensor) -> Tensor:
    """Estimate of KL(policy || reference) from each sampled token: (B, T) -> (B, T), never negative, 0 where equal.

    kl_it = exp(d) - d - 1,  d = ref_logp_it - logp_it          DeepSeekMath, https://arxiv.org/abs/2402.03300

    Called k3 in http://joschu.net/blog/kl-approx.html. Raises ValueError for shapes that differ.
    """
    _check_shapes(per_token_logps=(per_token_logps, "B T"), ref_per_token_logps=(ref_per_token_logps, "B T"))
    d = ref_per_token_logps.detach() - per_token_logps  # (B, T)
    return d.exp() - d - 1  # (B, T)


def loss_denominators(
    completion_mask: Tensor,
    *,
    loss_type: LossType,
    max_completion_length: int | None = None,
    num_items_in_batch: int | None = None,
    gradient_accumulation_steps: int = 1,
    steps_per_generation: int | None = None,
) -> Tensor:
    """What divides each row's summed token losses, the only difference between the loss types: (B, T) -> (B,).

    loss = sum_i (sum_t l_it mask_it) / D_i          for a micro-batch of B rows

    grpo      D_i = GA B |o_i|                          mean of row means; https://arxiv.org/abs/2402.03300
    bnpo      D_i = GA sum_j |o_j|                      mean over this micro-batch's tokens
    dr_grpo   D_i = GA B max_completion_length          a constant: no length bias; https://arxiv.org/abs/2503.20783
    dapo      D_i = N GA / steps_per_generation         the update's share of N; https://arxiv.org/abs/2503.14476
    luspo     D_i = GA B                                mean of row sums; https://arxiv.org/abs/2602.05261

    Args:
        completion_mask: (B, T).
        max_completion_length: for dr_grpo: the run's limit, not T.
        num_items_in_batch: N, for dapo: the unmasked tokens of the whole generation batch, not of this micro-batch.
        gradient_accumulation_steps: GA, the micro-batches whose gradients are summed into one update.
        steps_per_generation: the micro-batches a generation batch is cut into; None: GA.

    Raises:
        ValueError: mask not (B, T), unknown loss type, the number that it needs missing.
    """
    _check_choice("loss_type", loss_type, LossType)
    _check_shapes(completion_mask=(completion_mask, "B T"))
    lengths = completion_mask.sum(dim=1)  # (B,)
    num_rows, accumulation = len(lengths), gradient_accumulation_steps
    if loss_type == "grpo":
        return accumulation * num_rows * lengths.clamp(min=1)  # (B,); an empty row adds 0 but counts as a row
    if loss_type == "bnpo":
        return accumulation * lengths.sum().clamp(min=1).expand(num_rows)  # (B,)
    if loss_type == "luspo":
        return torch.full_like(lengths, accumulation * num_rows)  # (B,)
    if loss_type == "dr_grpo":
        if max_completion_length is None:
            raise ValueError("loss_type dr_grpo needs max_completion_length, got None")
        return torch.full_like(lengths, accumulation * num_rows * max_completion_length)  # (B,)
    if num_items_in_batch is None:
        raise ValueError("loss_type dapo needs num_items_in_batch, got None")
    # N counts the tokens of all micro-batches of a generation batch, and an update has GA of them.
    num_tokens = max(num_items_in_batch, 1) * accumulation / (steps_per_generation or accumulation)
    return torch.full_like(lengths, num_tokens, dtype=torch.float64)  # (B,)


def grpo_loss(
    per_token_logps: Tensor,
    completion_mask: Tensor,
    advantages: Tensor,
    denominators: Tensor,
    *,
    importance_sampling_level: ImportanceSamplingLevel,
    epsilon: float,
    epsilon_high: float,
    beta: float,
    use_bias_correction_kl: bool,
    old_per_token_logps: Tensor | None = None,
    ref_per_token_logps: Tensor | None = None,
) -> Loss:
    """GRPO's loss: the clipped objective plus beta times the KL to the reference, over each row's denominator.

    loss = sum_i 1/D_i sum_t mask_it (l_it + beta kl_it)          DeepSeekMath, https://arxiv.org/abs/2402.03300

    Args:
        per_token_logps: (B, T) float, log-probs of the sampled tokens; the only argument with a gradient.
        completion_mask: (B, T).
        advantages: (B,) float.
        denominators: (B,) int or float, from `loss_denominators`.
        beta: 0 leaves the KL out and needs no reference.
        use_bias_correction_kl: multiply kl_it by w_it, gradient included, so that it is unbiased for old samples too
            (DeepSeek-V3.2, https://arxiv.org/abs/2512.02556).
        old_per_token_logps: (B, T) of the policy that sampled; None: it is this policy, and every ratio is 1.
        ref_per_token_logps: (B, T).

    Raises:
        ValueError: shapes that do not fit, unknown level, beta without a reference.
    """
    _check_shapes(
        per_token_logps=(per_token_logps, "B T"), advantages=(advantages, "B"), denominators=(denominators, "B")
    )
    old_per_token_logps = per_token_logps if old_per_token_logps is None else old_per_token_logps  # (B, T)
    ratios = importance_ratios(
        per_token_logps, old_per_token_logps, completion_mask, importance_sampling_level=importance_sampling_level
    )  # (B, T)
    token_losses = clipped_surrogate_loss(ratios, advantages, epsilon=epsilon, epsilon_high=epsilon_high)  # (B, T)
    token_kl = torch.zeros_like(ratios)  # (B, T)
    if beta != 0.0:
        if ref_per_token_logps is None:
            raise ValueError(f"beta {beta} needs ref_per_token_logps, got None")
        token_kl = k3_kl(per_token_logps, ref_per_token_logps)  # (B, T)
        if use_bias_correction_kl:
            token_kl = token_kl * ratios  # (B, T)
    weights = (completion_mask.double() / denominators.unsqueeze(1)).to(ratios.dtype)  # (B, T)
    policy_loss, kl_loss = (token_losses * weights).sum(), beta * (token_kl * weights).sum()  # (), ()
    return Loss(policy_loss + kl_loss, policy_loss, kl_loss)


def sequence_loss(sequence_logps: Tensor, advantages: Tensor) -> Tensor:
    """The plainest form, REINFORCE on whole completions; no ratio, clip or KL: (B,), (B,) -> ().

    loss = -1/B sum_i A_i log pi(o_i),  log pi(o_i) = sum_t mask_it logp_it          https://arxiv.org/abs/2402.14740

    On-policy its gradient is that of loss_type luspo with beta 0, at either importance sampling level: every ratio is
    1, so the gradient of a ratio is that of its log-prob. The values differ. Raises ValueError for a wrong rank or
    differing B.
    """
    _check_shapes(sequence_logps=(sequence_logps, "B"), advantages=(advantages, "B"))
    return -(advantages.detach() * sequence_logps).mean()  # ()


def _groups(rewards: Tensor, num_generations: int) -> Tensor:
    """The rewards with one row for each prompt: (B,) -> (P, G)."""
    _check_shapes(rewards=(rewards, "B"))
    if not rewards.is_floating_point():
        raise ValueError(f"rewards must be floating point, got {rewards.dtype}")
    if rewards.isinf().any():  # infinity minus infinity: the whole group would silently get no advantage
        raise ValueError(f"rewards must be finite or NaN, got {rewards.tolist()}")
    if num_generations < 2 or len(rewards) % num_generations != 0:
        raise ValueError(
            f"num_generations must be at least 2 and divide the {len(rewards)} rewards, got {num_generations}"
        )
    return rewards.reshape(-1, num_generations)  # (P, G)


def _nanstd(values: Tensor, correction: int) -> Tensor:
    """Standard deviation of each row without its NaNs; NaN where too few values are left: (R, C) -> (R, 1)."""
    squares = (values - values.nanmean(dim=1, keepdim=True)) ** 2  # (R, C)
    count = (~values.isnan()).sum(dim=1, keepdim=True)  # (R, 1)
    return (squares.nansum(dim=1, keepdim=True) / (count - correction)).sqrt()  # (R, 1)


def _check_choice(name: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")


def _check_shapes(**tensors: tuple[Tensor, str]) -> None:
    """Each tensor has the named axes ("B T"), and a name stands for one size throughout."""
    sizes: dict[str, int] = {}
    for name, (tensor, axes) in tensors.items():
        shape, letters = tuple(tensor.shape), axes.split()
        if len(shape) != len(letters):
            raise ValueError(f"{name} must have shape ({', '.join(letters)}), got {shape}")
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"{name} must have {letter} = {sizes[letter]} like the others, got {shape}")
