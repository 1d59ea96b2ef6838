"""What is said of vLLM before weights load. No vLLM and no card here: what depends on them is handed in."""

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import RECIPE, assert_says
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

from grpo_kit.device import Device
from grpo_kit.errors import RecipeError
from grpo_kit.memory.memory import Memory
from grpo_kit.prepare import vllm_rules
from grpo_kit.prepare.trl_rules import LEGAL
from grpo_kit.prepare.vllm_rules import OF_MODE, check_lengths, check_vllm, supported, with_vllm
from grpo_kit.recipe.recipe import Recipe, load_recipe

CARD = Device("cuda", "a card", 24.0, "float32", "bfloat16", "")
OLD_CARD = Device("cuda", "a card", 24.0, "float32", "float16", "")


def recipe_with(*lines: str, top: str = "") -> Recipe:
    text = RECIPE + "".join(f"  {line}\n" for line in ("use_vllm: true", *lines)) + top
    Path("r.yaml").write_text(text)
    return load_recipe(Path("r.yaml"))


def args_of(recipe: Recipe) -> GRPOConfig:
    return GRPOConfig(**recipe.grpo, output_dir="out", use_cpu=True, bf16=False)


def refused(*lines: str, top: str = "", device: Device = CARD) -> str:
    recipe = recipe_with(*lines, top=top)
    with pytest.raises(RecipeError) as error:
        check_vllm(recipe, args_of(recipe), device)
    return str(error.value)


# The package and the card


def test_vllm_is_not_installed(cli, monkeypatch):
    monkeypatch.setattr(vllm_rules, "installed", lambda: None)
    message = cli.refuses(recipe=RECIPE + "  use_vllm: true\n")
    assert message == (
        "r.yaml:13: grpo.use_vllm: found True; needs a CUDA card and vLLM, which is not installed: "
        'pip install "grpo-kit[vllm]", or write use_vllm: false'
    )


def test_the_range_of_versions_is_trls():
    text = str(supported())
    assert sorted(text.split(",")) == ["<=0.31.0", ">=0.22.0"]  # what the documents say


@pytest.mark.parametrize("version", ["0.21.0", "0.31.1", "0.32.0", "0.21.2+cu130"])
def test_a_version_of_vllm_that_trl_does_not_support(cli, monkeypatch, version):
    monkeypatch.setattr(vllm_rules, "installed", lambda: version)
    message = cli.refuses(recipe=RECIPE + "  use_vllm: true\n")
    assert_says(message, f"r.yaml:13: grpo.use_vllm: found True; vLLM {version} is installed, but trl 1.16", "0.22.0")


@pytest.mark.parametrize("version", ["0.22.0", "0.31.0", "0.30.0+cu130"])
def test_there_is_no_card(cli, monkeypatch, version):
    monkeypatch.setattr(vllm_rules, "installed", lambda: version)
    monkeypatch.setattr("grpo_kit.prepare.inputs.find_device", lambda: Device("cpu", "CPU", 24.0, "float32", None, ""))
    message = cli.refuses(recipe=RECIPE + "  use_vllm: true\n")
    assert_says(message, "r.yaml:13: grpo.use_vllm: found True; needs a CUDA card, and none is found; write use_vllm: ")


# Settings


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["generation_kwargs: {seed: 1}"], "grpo.generation_kwargs: found {'seed': 1}; vLLM would get them"),
        (["cache_implementation: static"], "grpo.cache_implementation: found 'static'; vLLM has its own cache"),
        (["loss_type: vespo"], "grpo.vllm_importance_sampling_mode: found 'sequence_mask'; write token_truncate or"),
        (["vllm_tensor_parallel_size: 2"], "grpo.vllm_tensor_parallel_size: found 2, which does not divide the run's"),
        (["vllm_mode: server"], "grpo.vllm_mode: found 'server'; also write vllm_server_base_url, such as http://loc"),
        (["vllm_mode: server", "vllm_server_base_url: localhost:8000"], "grpo.vllm_server_base_url: found 'localhost"),
    ],
)
def test_settings_that_vllm_ignores_or_refuses(lines, message):
    assert message in refused(*lines)


def test_an_adapter_on_a_bfloat16_base():
    assert "grpo.use_vllm: found True with lora: " in refused(top="lora: {r: 4}\n")
    recipe = recipe_with(top="lora: {r: 4}\n")
    check_vllm(recipe, args_of(recipe), OLD_CARD)  # there the base is float32


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["loss_type: vespo", "vllm_importance_sampling_mode: token_mask"],
        ["loss_type: vespo", "vllm_importance_sampling_correction: false"],
        ["vllm_mode: server", "vllm_server_base_url: http://localhost:8000"],
        ["vllm_mode: server", "vllm_server_host: 10.0.0.2", "vllm_server_port: 9000"],
    ],
)
def test_settings_that_are_right(lines):
    recipe = recipe_with(*lines)
    check_vllm(recipe, args_of(recipe), CARD)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vllm_mode: both", "found 'both'; write one of colocate, server"),
        ("vllm_model_impl: fast", "found 'fast'; write one of vllm, transformers"),
        ("vllm_importance_sampling_mode: token", "found 'token'; write one of token_truncate, token_mask, sequence_tr"),
        ("vllm_importance_sampling_cap: 2", "not set here: write vllm_importance_sampling_clip_max"),
        ("vllm_gpu_memory_utilization: 0", "found 0.0; write a number above 0"),
        ("vllm_gpu_memory_utilization: 20", "found 20.0; write at most 1"),
        ("vllm_tensor_parallel_size: 0", "found 0; write at least 1"),
        ("vllm_max_model_length: 0", "found 0; write at least 1"),
        ("vllm_importance_sampling_clip_min: 4", "vllm_importance_sampling_clip_min (4.0) must be less than"),
    ],
)
def test_a_value_that_is_never_right(cli, line, message):
    assert_says(cli.refuses(recipe=f"{RECIPE}  {line}\n"), f"r.yaml:13: grpo.{line.split(':')[0]}: {message}")


def test_keys_without_effect_are_named(cli):
    shown = cli.passes(recipe=RECIPE + "  vllm_gpu_memory_utilization: 0.2\n  vllm_server_port: 9000\n")
    assert "grpo.vllm_gpu_memory_utilization, grpo.vllm_server_port: not used without use_vllm: true" in shown
    given = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.2, "vllm_server_port": 9000}
    assert vllm_rules.notes(given) == ["grpo.vllm_server_port: not used with vllm_mode: colocate"]
    assert vllm_rules.notes({**given, "vllm_mode": "server"}) == [
        "grpo.vllm_gpu_memory_utilization: not used with vllm_mode: server"
    ]
    assert "held-out" in vllm_rules.notes({"use_vllm": True, "vllm_structured_outputs_regex": "a+"})[0]


def test_the_words_and_keys_are_trls():
    source = inspect.getsource(GRPOTrainer) + inspect.getsource(VLLMGeneration)
    assert all(f'"{word}"' in source for name in LEGAL if name.startswith("vllm_") for word in LEGAL[name])
    read = {f"args.{key}" for keys in OF_MODE.values() for key in keys}
    assert all(name in source for name in read)


# Lengths and memory


class Counting:
    """A template that takes 5 tokens and one for each character."""

    def encode(self, messages):
        return [0] * (5 + sum(len(message["content"]) for message in messages))


def lengths(positions: int | None, *lines: str) -> None:
    recipe = recipe_with(*lines)
    rows = [{"prompt": [{"role": "user", "content": "x" * count}]} for count in (3, 20, 7)]
    check_lengths(recipe, args_of(recipe), Counting(), rows, positions)


def test_vllms_sequences_hold_the_longest_prompt_and_completion():
    # 5 + 20 tokens of the longest prompt and 8 of a completion are 33
    lengths(64, "vllm_max_model_length: 33")
    with pytest.raises(RecipeError, match=r"found 32, but the longest prompt has 25 tokens .* write at least 33"):
        lengths(64, "vllm_max_model_length: 32")
    with pytest.raises(RecipeError, match="found 65, but the model has 64 positions"):
        lengths(64, "vllm_max_model_length: 65")
    lengths(64)
    lengths(None, "vllm_max_model_length: 65")
    lengths(64, "vllm_max_model_length: 8", "vllm_mode: server")


@pytest.mark.parametrize(
    ("settings", "kv_cache"),
    [
        # a quarter of 24 GB is 6 GB; held-out sampling with 2 GB of keys and values goes on beside it, or in its place
        ({}, 8.0),
        ({"vllm_enable_sleep_mode": True}, 6.0),
        ({"vllm_mode": "server"}, 2.0),
        ({"use_vllm": False}, 2.0),
    ],
)
def test_the_part_of_the_card_that_vllm_holds(settings, kv_cache):
    args = {"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": False, **settings}
    memory = Memory("rollout", 6.0, weights=2.0, gradients=2.0, optimizer=4.0, kv_cache=2.0)
    found = with_vllm(memory, SimpleNamespace(vllm_gpu_memory_utilization=0.25, **args), CARD)
    assert (found.kv_cache, found.total) == (kv_cache, 8.0 + kv_cache)


def test_the_shipped_recipe_is_right_on_a_24_gb_card():
    recipe = load_recipe(Path(__file__).parents[1] / "recipes" / "math-vllm.yaml")
    args = args_of(recipe)
    check_vllm(recipe, args, CARD)
    weights = 494e6 * 2  # bytes, bfloat16
    token = 2 * 24 * 2 * 64 * 2  # keys and values of 24 layers, 2 heads of 64
    assert token == 12_288
    assert weights + 128 * args.vllm_max_model_length * token < args.vllm_gpu_memory_utilization * 24e9
    assert not vllm_rules.notes(recipe.grpo)
