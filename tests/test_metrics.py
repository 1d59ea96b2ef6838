"""A batch in numbers, by hand."""

import math

import pytest
import torch

from grpo_kit.run.metrics import groups_of, largest_of_b, small_spread_share, token_metrics

A, B = [1, 2, 3], [4, 5]


def test_tokens_of_a_batch():
    # lengths 3, 3 and 3, 2 and 2, 10: the rectangle of 6 x 10 holds 23 tokens
    found = token_metrics([A, A, A, B, B, [9] * 10], groups_of(6, 2))
    assert found["kit/identical_group_share"] == pytest.approx(1 / 3)  # the first pair alone
    assert found["kit/padding_share"] == pytest.approx(1 - 23 / 60)
    assert (found["kit/tokens_p50"], found["kit/tokens_p95"]) == (3, 10)
    assert token_metrics([[], []], groups_of(2, 2))["kit/padding_share"] == 1  # nothing but padding


def test_groups_that_differ_by_next_to_nothing():
    # spreads 0 (rounding), 0.005, 0.5, none judged; below 0.01 of full marks and above 0 is the second alone
    values = [1.0, 1.0 + 1e-8, 0.5, 0.505, 0.0, 0.5, None, None]
    assert small_spread_share(values, groups_of(8, 2), 1.0) == 0.25
    assert small_spread_share(values, groups_of(8, 2), 100.0) == 0.5  # 0.5 is little of 100
    assert small_spread_share(values, groups_of(8, 2), -1.0) == 0.25


def test_the_largest_entry_of_an_adapters_b():
    layer = torch.nn.Module()
    layer.lora_A, layer.lora_B = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.zeros_(layer.lora_B.weight)
    assert largest_of_b(layer) == 0
    layer.lora_B.weight.data[0, 1] = -0.5
    assert largest_of_b(layer) == 0.5
    assert math.isnan(largest_of_b(torch.nn.Linear(2, 2)))
