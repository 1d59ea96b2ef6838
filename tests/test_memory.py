"""Predicted memory: terms counted by hand, what moves them, what a recipe that is too large is told, and a real run."""

import functools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import assert_says
from peft import LoraConfig
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Qwen2Config
from trl import GRPOConfig

from grpo_kit.device import Device, a_card
from grpo_kit.memory import trace as memory_trace
from grpo_kit.memory.live_bytes import LiveBytes, Peak
from grpo_kit.memory.memory import Memory, Run, largest_fitting, micro_batch, micro_batches, near_limit, predict
from grpo_kit.memory.trace import Precision, Shapes, peaks_of
from grpo_kit.model.model import ModelSize

ROOT = Path(__file__).parents[1]
CPU = Device("cpu", "CPU", 16.0, "float32", None, "")
SHAPES = Shapes(
    rows=8, prompts=2, generation_rows=8, generation_prompts=2, prompt_tokens=60, completion_tokens=40,
    fast=True, shared=True, accumulates=True, checkpointed=False,
)  # fmt: skip
FLOAT32 = Precision("float32", None, cuda=False)
AUTOCAST = Precision("float32", "bfloat16", cuda=True)

# embedding 100 x 32 = 3,200, the head tied to it; a layer: q 32 x 32 + 32 = 1,056, k and v 32 x 16 + 16 = 528 each,
# o 1,024, MLP 3 x 32 x 64 = 6,144, two norms of 32: 9,344; two layers 18,688; last norm 32: 21,920 together
PARAMETERS = 21_920


def config(layers: int = 2) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip


def arguments(**values) -> GRPOConfig:
    return GRPOConfig(
        **{"use_cpu": True, "bf16": False, "output_dir": "unused", "gradient_checkpointing": False} | values
    )


def size_of(found: Qwen2Config, lora: LoraConfig | None = None) -> ModelSize:
    model = memory_trace.skeleton(found, found.num_hidden_layers, lora, {}, "float32")
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in model.parameters())
    return ModelSize(whole if lora is None else whole - trainable, trainable, None, 0, 100)


@functools.cache
def peaks(shapes=SHAPES, precision=FLOAT32, layers=2, adapted=False, **values) -> list[Peak]:
    found, lora = config(layers), adapter() if adapted else None
    return peaks_of(found, lora, {}, arguments(**values), shapes, precision, size_of(found, lora))


def highest(phase: str, found: list[Peak]) -> Peak:
    return max((peak for peak in found if peak.phase == phase), key=lambda peak: peak.total)


def adapter() -> LoraConfig:
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")


# Counted by hand


def test_every_storage_counts_while_it_lives():
    live = LiveBytes()
    with FakeTensorMode(), live:
        weight = torch.empty(8, 8, requires_grad=True)  # 8 x 8 x 4 = 256 bytes
        live.label = "activations"
        given = torch.empty(4, 8)  # 128
        product = given @ weight  # 128; its gradient needs `given`
        result = product.exp()  # 128; its gradient needs the result and not `product`
        assert live.peaks[-1].terms == {"weights": 256, "activations": 3 * 128}
        del product
        live.start("later")
        assert live.peaks[-1].terms == {"weights": 256, "activations": 2 * 128}
        view = result.view(-1)[:4]  # no storage of its own
        assert live.peaks[-1].total == 512
        del result, view
        live.start("last")  # `exp` keeps its result as long as something could be differentiated: nothing could
        assert live.peaks[-1].terms == {"weights": 256, "activations": 128}


def test_weights_gradients_and_moments_are_those_of_all_parameters():
    terms = highest("update", peaks()).terms
    # two buffers of rotary frequencies of 4 values each
    assert terms["weights"] == 4 * PARAMETERS + 2 * 4 * 4
    assert terms["gradients"] == 4 * PARAMETERS  # of the micro-batches before
    # Adam's two moments, and a counter of 4 bytes for each of 2 x 12 + 2 tensors
    assert terms["optimizer"] == 8 * PARAMETERS + 4 * 26


def test_the_cache_is_that_of_all_completions_at_their_full_length():
    # 8 rows x 2 heads x 8 values x 4 bytes = 512 bytes a token, for keys and for values of each of two layers. Most are
    # held when the last of these four grows from 99 to 100 tokens by a copy: 4 x 100 + 99
    assert highest("rollout", peaks()).terms["kv_cache"] == 512 * (4 * 100 + 99)


def test_a_reference_model_is_held_for_kl_under_full_fine_tuning_only():
    assert highest("update", peaks(beta=0.1)).terms["reference"] == 4 * PARAMETERS
    assert highest("update", peaks(adapted=True, beta=0.1)).terms.get("reference", 0) == 0


def test_an_adapter_has_all_the_gradients_and_the_base_none():
    terms = highest("update", peaks(adapted=True)).terms
    # r x (in + out): q, o 4 x 64, k, v 4 x 48, gate, up, down 4 x 96 = 2 x 256 + 2 x 192 + 3 x 384 = 2,048 a layer
    assert size_of(config(), adapter()).trainable == 2 * 2_048
    assert terms["gradients"] == 4 * 4_096


def test_under_autocast_a_copy_of_the_weights_is_held_too():
    extra = highest("update", peaks(precision=AUTOCAST)).terms["weights"] - (4 * PARAMETERS + 32)
    # in bfloat16 the matrices of both layers, 1,024 + 512 + 512 + 1,024 + 6,144 each, and of the head the tile at work
    assert extra == 2 * (2 * 9_216 + 3_200)


# What moves the prediction


def test_more_rows_and_longer_completions_need_more():
    base = highest("update", peaks()).total
    for larger in ({"rows": 16}, {"completion_tokens": 80}, {"prompt_tokens": 120}):
        assert highest("update", peaks(replace(SHAPES, **larger))).total > base, larger
    more = peaks(replace(SHAPES, generation_rows=16))
    assert highest("rollout", more).total > highest("rollout", peaks()).total


def test_shared_prompts_and_checkpoints_need_less():
    shared = highest("update", peaks()).terms["activations"]
    own = highest("update", peaks(replace(SHAPES, shared=False))).terms["activations"]
    deep = replace(SHAPES, shared=False, checkpointed=True)
    again = highest("update", peaks(deep, gradient_checkpointing=True)).terms["activations"]
    assert shared < own
    assert again < own


@pytest.mark.parametrize(("adapted", "precision"), [(False, FLOAT32), (True, AUTOCAST)], ids=["full", "lora"])
def test_two_and_three_layers_tell_the_peaks_of_five(monkeypatch, adapted, precision):
    told = peaks(precision=precision, layers=5, adapted=adapted)
    peaks.cache_clear()
    monkeypatch.setattr(memory_trace, "go_on_as_a_line", lambda *_: False)
    traced = peaks(precision=precision, layers=5, adapted=adapted)
    for phase in ("load", "update", "rollout"):
        line, whole = highest(phase, told).terms, highest(phase, traced).terms
        assert {k: v for k, v in line.items() if v} == {k: v for k, v in whole.items() if v}, phase


# The largest micro-batch


def test_the_largest_that_fits_is_found_by_bisection():
    asked = []

    def at(rows):
        asked.append(rows)
        return replace(predict(run_of(Path("."), CPU), 1), weights=float(rows), process=0.0, activations=0.0)

    found = largest_fitting(at, micro_batches(24), 7.0)  # 1 2 3 4 6 8 12 24
    assert found is not None
    assert found[0] == 6
    assert len(asked) <= 4
    assert largest_fitting(at, [8, 12], 7.0) is None


def run_of(folder: Path, device: Device, **values) -> Run:
    given = arguments(per_device_train_batch_size=8, gradient_accumulation_steps=4, **values)
    return Run(str(folder), None, {}, given, device, size_of(config()), True, 60)


def test_what_to_write_keeps_steps_and_rollouts_as_they_are(tmp_path):
    assert micro_batch(run_of(tmp_path, CPU), 2) == (
        "grpo.per_device_train_batch_size=2 grpo.gradient_accumulation_steps=16"
    )
    assert micro_batch(run_of(tmp_path, CPU, steps_per_generation=8), 2).endswith(" grpo.steps_per_generation=32")


def test_a_model_that_cannot_be_traced_has_what_arithmetic_knows(tmp_path):
    memory = predict(run_of(tmp_path, a_card(24.0)), 8)  # no config.json there
    assert memory.activations is None
    assert memory.weights == pytest.approx(4e-9 * PARAMETERS)
    assert memory.optimizer == pytest.approx(8e-9 * PARAMETERS)
    assert memory.describe().endswith("GB, and activations on top")


# Through the command line

TOO_MUCH = (
    "grpo.num_generations=512", "grpo.per_device_train_batch_size=512", "grpo.gradient_accumulation_steps=1",
    "grpo.max_completion_length=900",
)  # fmt: skip


def test_a_run_that_does_not_fit_is_told_what_does(cli):
    message = cli.refuses("--gpu-memory", "2", *TOO_MUCH)
    assert_says(
        message,
        "override of r.yaml: grpo.per_device_train_batch_size: found 512, which needs ",
        " at its peak, in the update, but a card has 2 GB; write grpo.per_device_train_batch_size=",
    )
    smaller = message.split("; write ")[1].split(", which")[0].split()
    cli.passes("--gpu-memory", "2", *TOO_MUCH, *smaller)
    rows, steps = (int(setting.split("=")[1]) for setting in smaller)
    assert rows * steps == 512


def test_a_card_is_asked_about_by_its_size(cli):
    out = cli.passes("--gpu-memory", "24")
    assert ", of 24 GB of a bfloat16 card; disk" in out
    assert "\nfits       up to grpo.per_device_train_batch_size=8 grpo.gradient_accumulation_steps=1: " in out
    assert "fits" not in cli.passes()


def test_where_the_error_decides_there_is_a_note():
    memory = Memory(phase="update", checkpoint=0.0, weights=22.0)
    assert "a prediction may be 15% off" in str(near_limit(memory, a_card(24.0)))  # 22 x 1.15 = 25.3
    assert near_limit(memory, a_card(25.4)) is None


@pytest.mark.parametrize("size", ["0", "-24", "many", "inf"])
def test_a_size_that_no_card_has_is_refused(cli, size):
    code, out, err = cli.check("--gpu-memory", size)
    assert (code, out) == (2, "")
    assert "--gpu-memory" in err


# A real run


@pytest.mark.slow
def test_a_run_needs_what_was_predicted(tmp_path):
    """A micro-batch so large that activations are most of it."""
    shape = ("grpo.per_device_train_batch_size=1024", "grpo.max_completion_length=48")
    command = [sys.executable, str(ROOT / "benchmarks/memory.py"), str(ROOT / "recipes/smoke.yaml")]
    subprocess.run([*command, "--json", str(tmp_path / "found.json"), *shape], check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["activations"] > found["process"]
    grown = found["measured"] - found["process"]
    assert found["predicted"] - found["process"] == pytest.approx(grown, rel=0.15)
