"""Sampling with each prompt computed once gives the very tokens that sampling without it gives."""

from types import SimpleNamespace

import pytest
import torch
from random_model import save_random_model
from transformers import AutoModelForCausalLM, GenerationConfig

from grpo_kit.decode import less_work
from grpo_kit.logps import distinct_prompts, why_not_shared

LENGTHS = (3, 13, 7)
PAD = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return AutoModelForCausalLM.from_pretrained(save_random_model(tmp_path_factory.mktemp("prefill") / "model"))


@pytest.fixture
def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Three ragged prompts, padded on the left."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.full((len(LENGTHS), max(LENGTHS)), PAD)
    for row, length in enumerate(LENGTHS):
        ids[row, -length:] = torch.randint(0, 250, (length,), generator=generator)
    return ids, (ids != PAD).long()


def sampled(model, ids, mask, shared, **more):
    config = GenerationConfig(max_new_tokens=20, do_sample=True, top_k=0, pad_token_id=PAD, eos_token_id=[258])
    torch.manual_seed(3)
    if not shared:
        return model.generate(input_ids=ids, attention_mask=mask, generation_config=config, **more)
    with less_work(model):
        return model.generate(input_ids=ids, attention_mask=mask, generation_config=config, **more)


def test_the_same_tokens_with_several_sequences_of_each(model, prompts):
    one, other = (sampled(model, *prompts, shared, num_return_sequences=4) for shared in (False, True))
    assert torch.equal(one, other)


def test_the_same_tokens_with_repeated_rows_in_any_order(model, prompts):
    order = torch.tensor([2, 0, 1, 0, 2, 2, 1, 0])
    ids, mask = (tensor[order] for tensor in prompts)
    assert torch.equal(sampled(model, ids, mask, False), sampled(model, ids, mask, True))


def test_each_prompt_goes_through_the_model_once(model, prompts, monkeypatch):
    seen = []
    forward = model.base_model.forward

    def counted(*args, **given):
        seen.append(tuple(given["input_ids"].shape))
        return forward(*args, **given)

    monkeypatch.setattr(model.base_model, "forward", counted)
    sampled(model, *prompts, True, num_return_sequences=4)
    assert seen[:2] == [(3, max(LENGTHS)), (12, 1)]


def test_the_model_is_as_before_afterwards(model, prompts):
    with pytest.raises(RuntimeError, match="no"), less_work(model):
        raise RuntimeError("no")
    assert "generate" not in vars(model)


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
