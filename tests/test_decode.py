"""A prompt is computed once and rows that have ended leave the batch; every token is the one that `generate` draws."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from accelerate.utils import convert_outputs_to_fp32
from random_model import save_random_model
from transformers import AutoModelForCausalLM, GenerationConfig

from grpo_kit.model.decode import can_decode, decode_unfinished, drawn, less_work

PAD = 256
ENDS = list(range(200, 256))
"""So many tokens end a completion that most rows of an untrained model have ended after a few."""

SETTINGS = {
    "plain": {},
    "greedy": {"do_sample": False},
    "top_k": {"top_k": 20},
    "top_p": {"top_p": 0.8, "temperature": 0.7},
    "repetition": {"repetition_penalty": 1.3},
    "at_least": {"min_new_tokens": 6},
    "ngrams": {"no_repeat_ngram_size": 2},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return AutoModelForCausalLM.from_pretrained(save_random_model(tmp_path_factory.mktemp("decode") / "model"))


@pytest.fixture
def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """16 rows of prompts of 3, 13 and 7 tokens, shuffled, padded on the left."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.full((16, 13), PAD)
    texts = [torch.randint(0, 200, (length,), generator=generator) for length in (3, 13, 7)]
    for row in range(16):
        text = texts[row * 7 % 3]
        ids[row, -len(text) :] = text
    return ids, (ids != PAD).long()


def config(**given):
    values = {"max_new_tokens": 30, "do_sample": True, "top_k": 0, "pad_token_id": PAD, "eos_token_id": ENDS}
    return GenerationConfig(**{**values, **given})


def sampled(model, prompts, settings, fast, **more):
    torch.manual_seed(3)
    given = {"input_ids": prompts[0], "attention_mask": prompts[1], "generation_config": settings, **more}
    if not fast:
        return model.generate(**given)
    with less_work(model):
        return model.generate(**given)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_tokens_and_the_same_random_state_after_them(model, prompts, name):
    one = sampled(model, prompts, config(**SETTINGS[name]), fast=False)
    state = torch.get_rng_state()
    other = sampled(model, prompts, config(**SETTINGS[name]), fast=True)
    assert torch.equal(one, other)
    assert torch.equal(state, torch.get_rng_state())


def test_the_same_tokens_where_no_prompt_is_padded(model):
    ids = torch.arange(24).reshape(8, 3)
    prompts = (ids, torch.ones_like(ids))
    assert torch.equal(*(sampled(model, prompts, config(), fast) for fast in (False, True)))


def test_the_same_tokens_with_several_sequences_of_each(model, prompts):
    one, other = (sampled(model, prompts, config(), fast, num_return_sequences=4) for fast in (False, True))
    assert torch.equal(one, other)


def test_each_step_computes_the_rows_that_go_on(model, prompts, monkeypatch):
    seen = []
    forward = model.base_model.forward

    def counted(*args, **given):
        seen.append(tuple(given["input_ids"].shape))
        return forward(*args, **given)

    monkeypatch.setattr(model.base_model, "forward", counted)
    tokens = sampled(model, prompts, config(), fast=True)[:, 13:]
    ended = torch.isin(tokens, torch.tensor(ENDS)).cumsum(1) > 0  # (16, C): this token or one before it ends the row
    going = [16 - ended[:, column].sum().item() for column in range(tokens.size(1) - 1)]
    assert seen == [(3, 13), *((rows, 1) for rows in going)]  # three prompts first
    assert min(going) < 8 < max(going) <= 16


def test_a_row_that_ends_is_padded(model, prompts):
    tokens = sampled(model, prompts, config(), fast=True)[:, 13:].tolist()
    for row in tokens:
        end = next((i for i, token in enumerate(row) if token in ENDS), len(row))
        assert set(row[end + 1 :]) <= {PAD}


def test_the_model_is_as_before_afterwards(model):
    with pytest.raises(RuntimeError, match="no"), less_work(model):
        raise RuntimeError("no")
    assert "generate" not in vars(model)


def test_noise_is_that_of_all_rows():
    """The probabilities of rows 1 and 3 of 4: their tokens are those that `multinomial` draws for these rows."""
    probs = torch.rand(4, 50, generator=torch.Generator().manual_seed(1)).softmax(-1)
    live = torch.tensor([1, 3])
    torch.manual_seed(5)
    every = torch.multinomial(probs, 1).squeeze(1)
    torch.manual_seed(5)
    assert torch.equal(drawn(probs[live], live, 4), every[live])


def test_weights_that_are_not_finite_are_said(model, prompts):
    with torch.no_grad():
        weight = model.get_output_embeddings().weight
        kept, weight[7] = weight[7].clone(), torch.nan
        try:
            with pytest.raises(RuntimeError, match="nan"):
                sampled(model, prompts, config(), fast=True)
        finally:
            weight[7] = kept


@pytest.mark.parametrize(
    "given", [{"num_beams": 2}, {"return_dict_in_generate": True}, {"cache_implementation": "static"}]
)
def test_what_it_cannot_do_is_left_to_generate(given):
    assert can_decode(config())
    assert not can_decode(config(**given))
    assert not can_decode(None)


def test_weights_are_cast_once_for_all_tokens(model, prompts):
    """Under one autocast around generation; under accelerate's alone, one a forward, each token casts them again."""

    def casts(around: AbstractContextManager) -> int:
        forward = convert_outputs_to_fp32(torch.autocast("cpu", dtype=torch.bfloat16)(type(model).forward))
        model.forward = forward.__get__(model)  # as accelerate wraps it
        try:
            with torch.profiler.profile() as profile, around:
                sampled(model, prompts, config(max_new_tokens=8, min_new_tokens=8), fast=True)
        finally:
            del model.forward
        return sum(event.count for event in profile.key_averages() if event.key == "aten::_to_copy")

    weights = 2 * 7 + 1  # of two layers, and the head; cast for the first token, and not for the 7 after it
    assert casts(nullcontext()) - casts(torch.autocast("cpu", dtype=torch.bfloat16)) >= weights * 7


def test_the_loop_is_what_generate_calls(model, prompts):
    torch.manual_seed(3)
    own = model.generate(
        input_ids=prompts[0], attention_mask=prompts[1], generation_config=config(), custom_generate=decode_unfinished
    )
    assert torch.equal(own, sampled(model, prompts, config(), fast=False))
