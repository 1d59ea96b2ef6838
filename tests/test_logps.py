"""Which prompts are one, and where their keys and values may stand for those of each row."""

from types import SimpleNamespace

import pytest
import torch

from grpo_kit.model.logps import distinct_prompts, why_not_shared

PAD = 256


def test_distinct_prompts_are_told_by_their_tokens_and_not_by_padding():
    ids = torch.tensor([[PAD, 1, 2], [0, 1, 2], [7, 1, 2], [PAD, PAD, 2]])
    mask = torch.tensor([[0, 1, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]])
    first, prompt_of = distinct_prompts(ids, mask)
    assert prompt_of[0] == prompt_of[1]
    assert len({int(number) for number in prompt_of}) == 3
    assert [int(prompt_of[row]) for row in first.tolist()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("more", "shared"),
    [
        ({"rope_parameters": {"rope_type": "default"}}, True),
        ({"rope_parameters": {"rope_type": "yarn"}, "layer_types": ["full_attention"] * 2}, True),
        ({"rope_parameters": {"rope_type": "dynamic"}}, False),  # frequencies depend on the length
        ({"rope_parameters": {"rope_type": "default"}, "layer_types": ["full_attention", "sliding_attention"]}, False),
        ({"rope_parameters": {"rope_type": "default"}, "layer_types": ["linear_attention"]}, False),
        ({}, False),  # absolute positions, or none
    ],
)
def test_where_prompts_are_not_shared(more, shared):
    assert (why_not_shared(SimpleNamespace(model_type="m", **more)) is None) is shared


def test_models_that_norm_queries_after_their_rotation_share_no_prompts():
    from transformers import HunYuanDenseV1Config

    assert why_not_shared(HunYuanDenseV1Config()) is not None
