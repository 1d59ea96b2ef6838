"""The `grpo:` section: keys, types and values that TRL would notice late or never; and the facts they rest on."""

import dataclasses

import pytest
from command_line import RECIPE, assert_says, with_key
from trl import GRPOConfig

from grpo_kit.prepare.trl_args import DEFAULTS, schema, written_fields
from grpo_kit.prepare.trl_rules import (
    ABOVE_ZERO,
    AT_LEAST,
    AT_MOST_ONE,
    LEGAL,
    PACKAGES,
    REASONS,
    REFUSED,
    REFUSED_PREFIXES,
    RENAMED,
)

FIELDS = {field.name: field for field in dataclasses.fields(GRPOConfig)}
SIZES = ("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps")


def with_setting(line: str) -> str:
    """The recipe with one more line in its `grpo:` section, the 13th; it replaces a line with the same key."""
    key = line.split(":")[0]
    kept = [old for old in RECIPE.splitlines() if old.split(":")[0] != f"  {key}"]
    return "\n".join([*kept, f"  {line}"]) + "\n"


def with_sizes(batch: int, group: int, accumulation: int, *more: str) -> list[str]:
    values = dict(zip(SIZES, (group, batch, accumulation), strict=True))
    return [*(f"grpo.{key}={value}" for key, value in values.items()), *more]


# What the documents say of TRL's defaults: an upgrade that changes one is a diff to review.


def test_the_defaults_of_trl_that_the_documents_rely_on():
    args = GRPOConfig(use_cpu=True, bf16=False)
    shown = {
        "num_generations": 8, "max_completion_length": 512, "loss_type": "dapo", "beta": 0.0, "temperature": 1.0,
        "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "scale_rewards": "group",
        "num_iterations": 1, "epsilon": 0.2, "epsilon_high": None, "report_to": [], "shuffle_dataset": True,
        "mask_truncated_completions": False, "importance_sampling_level": "token", "remove_unused_columns": False,
    }  # fmt: skip
    assert {key: getattr(args, key) for key in shown} == shown


def test_the_tables_speak_of_real_fields():
    ours = {*DEFAULTS, *LEGAL, *AT_LEAST, *ABOVE_ZERO, *AT_MOST_ONE, *PACKAGES, *REASONS, *REFUSED}
    assert ours <= FIELDS.keys()
    assert not RENAMED.keys() & FIELDS.keys()
    assert all(any(name.startswith(prefix) for name in FIELDS) for prefix in REFUSED_PREFIXES)
    assert not {*DEFAULTS, *LEGAL, *AT_LEAST, *ABOVE_ZERO, *AT_MOST_ONE} - schema().keys()


def test_the_fields_are_read_from_the_source_without_importing_it():
    assert written_fields() == FIELDS.keys()


def test_an_opinion_is_one():
    """A default of the kit's that is TRL's too would be a field typed twice."""
    for key, opinion in DEFAULTS.items():
        assert opinion.reason
        if key != "per_device_train_batch_size":  # 8 of TRL's 8, but 16 with an adapter
            assert FIELDS[key].default not in (opinion.full, opinion.lora), key


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, model_folder):
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOTrainer

    args = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trainer")), use_cpu=True, bf16=False, num_generations=2,
        per_device_train_batch_size=2, max_completion_length=4, epsilon_high=0.3,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=str(model_folder), reward_funcs=[lambda completions, **_: [float(len(c)) for c in completions]],
        args=args, train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=AutoTokenizer.from_pretrained(model_folder),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    return trainer


@pytest.mark.parametrize("name", ["loss_type", "importance_sampling_level"])
def test_legal_words_of_the_loss_are_trls(trainer, monkeypatch, name):
    import torch

    batch = {
        "prompt_ids": torch.tensor([[65, 66], [65, 67]]), "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[68, 69], [70, 71]]), "completion_mask": torch.ones(2, 2, dtype=torch.long),
        "advantages": torch.tensor([1.0, -1.0]), "num_items_in_batch": torch.tensor(4),
    }  # fmt: skip
    for word in LEGAL[name]:
        monkeypatch.setattr(trainer, name, word)
        assert torch.isfinite(trainer.compute_loss(trainer.model, dict(batch)))
    monkeypatch.setattr(trainer, name, "another")
    with pytest.raises(ValueError, match="another"):
        trainer.compute_loss(trainer.model, dict(batch))


@pytest.mark.parametrize("name", ["scale_rewards", "multi_objective_aggregation"])
def test_legal_words_of_the_advantages_are_trls(trainer, monkeypatch, name):
    rows = [{"prompt": "a"}, {"prompt": "a"}]
    for word in LEGAL[name]:
        monkeypatch.setattr(trainer, name, word)
        assert trainer._generate_and_score_completions([dict(row) for row in rows])["advantages"].isfinite().all()
    monkeypatch.setattr(trainer, name, "another")
    with pytest.raises(ValueError, match="another"):
        trainer._generate_and_score_completions([dict(row) for row in rows])


@pytest.mark.parametrize("name", ["save_strategy", "log_level"])
def test_legal_words_of_the_trainer_are_transformers(name):
    for word in LEGAL[name]:
        GRPOConfig(**{name: word}, use_cpu=True, bf16=False).get_process_log_level()


# Keys


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("warmup_ratio: 0.1", "write warmup_steps; a value below 1 is a share of all steps"),
        ("max_prompt_length: 512", "TRL no longer cuts prompts; the kit drops rows that are too long"),
        ("evaluation_strategy: steps", "write eval_every at the top level"),
        ("torch_dtype: bfloat16", "the kit chooses the precision by device"),
        ("use_liger_loss: true", "removed from TRL; leave it out"),
        ("vllm_max_model_len: 2048", "write vllm_max_model_length"),
        ("overwrite_output_dir: true", "a run directory is never overwritten"),
        ("logging_dir: logs", "logs go to the run directory"),
        ("save_safetensors: true", "checkpoints are always safetensors"),
        ("no_cuda: true", "the device is found by itself"),
        ("group_by_length: true", "it does not apply to GRPO"),
        ("wandb_log_unique_prompts: true", "write log_unique_prompts"),
        ("vllm_guided_decoding_regex: a", "write vllm_structured_outputs_regex"),
        ("lr: 1e-6", "write grpo.learning_rate"),
        ("batch_size: 8", "write grpo.per_device_train_batch_size"),
        ("group_size: 8", "write grpo.num_generations"),
        ("kl_coef: 0.1", "write grpo.beta"),
        ("max_new_tokens: 8", "write grpo.max_completion_length"),
        ("output_dir: out", "write name: at the top level"),
        ("run_name: x", "write name: at the top level"),
        ("seed: 1", "write seed: at the top level"),
        ("data_seed: 1", "write seed: at the top level"),
        ("reward_weights: [1]", "write the weight at each reward"),
        ("bf16: true", "the kit chooses the precision by device"),
        ("fp16: true", "the kit chooses the precision by device"),
        ("use_cpu: true", "the device is found by itself"),
        ("chat_template_kwargs: {enable_thinking: false}", "write thinking: on or off at the top level"),
        ("push_to_hub: true", "upload the run's final/ folder yourself"),
        ("hub_token: x", "upload the run's final/ folder yourself"),
        ("eval_strategy: steps", "write eval_dataset:, eval_every: and evaluation: at the top level"),
        ("eval_steps: 3", "write eval_dataset:, eval_every: and evaluation: at the top level"),
        ("per_device_eval_batch_size: 3", "evaluation uses the same number of completions at once as training"),
        ("num_generations_eval: 3", "write evaluation: {samples: N} at the top level"),
        ("do_train: true", "`run` trains and evaluates"),
        ("load_best_model_at_end: true", "checkpoints are judged by held-out accuracy, never by loss"),
        ("trust_remote_code: true", "code from a hub is never executed"),
        ("resume_from_checkpoint: x", "use `grpo-kit run RECIPE --resume`"),
        ("dataloader_persistent_workers: true", "a resumed run would draw other random numbers"),
        ("sync_ref_model: true", "the reference would be in no checkpoint"),
        ("remove_unused_columns: true", "rewards need the columns"),
        ("auto_find_batch_size: true", "set per_device_train_batch_size"),
        ("logging_strategy: epoch", "write logging_steps"),
        ("deepspeed: zero3.json", "tell it to the launcher: accelerate launch --config_file FILE"),
        ("fsdp_config: {}", "tell it to the launcher: accelerate launch --config_file FILE"),
        ("ddp_backend: gloo", "tell it to the launcher: accelerate launch --config_file FILE"),
    ],
)
def test_a_key_that_is_set_elsewhere_or_was_renamed(cli, line, message):
    key = line.split(":")[0]
    assert_says(cli.refuses(recipe=with_setting(line)), f"r.yaml:13: grpo.{key}: not set here: ", message)


# Types


@pytest.mark.parametrize(
    "line",
    [
        "learning_rate: 1e-6",
        "learning_rate: '1e-6'",
        "beta: 1e-3",
        "beta: '1e-3'",
        "num_generations: 4.0",
        "num_generations: '4'",
        "max_steps: '2'",
        "max_completion_length: 8.0",
        "scale_rewards: none",
        "temperature: 0.05",
        "warmup_steps: 0.1",
        "save_steps: 0.5",
        "save_total_limit:",
        "save_strategy: 'no'",
        "lr_scheduler_type: cosine",
        "report_to: none",
        "max_grad_norm: 0",
        "model_init_kwargs: {attn_implementation: eager}",
        "generation_kwargs: {no_repeat_ngram_size: 3}",
    ],
)
def test_a_value_with_a_plain_meaning(cli, line):
    cli.passes(recipe=with_setting(line))


def test_text_that_means_a_number_is_one(cli):
    shown = cli.passes("--settings", recipe=with_setting("learning_rate: 1e-6") + "  beta: '1e-3'\n")
    assert "learning_rate = 1e-06   (recipe)" in shown
    assert "beta = 0.001   (recipe)" in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num_generations: 4.5", "found 4.5; write a valid integer, got a number with a fractional part"),
        ("num_generations: four", "found 'four'; write a valid integer"),
        ("num_generations: [4]", "found [4]; write a valid integer"),
        ("num_generations: true", "found True; write a number"),
        ("num_generations: 1e400", "found inf; write a finite number"),
        ("learning_rate: .nan", "found nan; write a finite number"),
        ("learning_rate: .inf", "found inf; write a finite number"),
        ("learning_rate: fast", "found 'fast'; write a valid number"),
        ("learning_rate: on", "found True; write a number"),
        ("temperature: true", "found True; write a number"),
        ("max_steps: true", "found True; write a number"),
        ("max_steps: 1.5", "found 1.5; write a valid integer"),
        ("max_steps:", "is empty; write a valid integer"),
        ("beta:", "is empty; write a valid number"),
        ("use_vllm: maybe", "found 'maybe'; write a valid boolean"),
        ("lr_scheduler_type: cosin", "found 'cosin'; write 'linear', 'cosine', "),
        ("optim: adamw", "found 'adamw'; write one of '"),  # 47 are too many to list; what resembles it
        ("generation_kwargs: 3", "found 3; write a mapping (key: value)"),
    ],
)
def test_a_value_of_the_wrong_type(cli, line, message):
    assert_says(cli.refuses(recipe=with_setting(line)), f"r.yaml:{line_of(line)}: grpo.{line.split(':')[0]}: {message}")


def line_of(line: str) -> int:
    """Where `with_setting` puts it: the last line, which is the 12th if the key was there before."""
    return 12 if f"\n  {line.split(':')[0]}:" in RECIPE else 13


# Values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("loss_type: drgrpo", "found 'drgrpo'; write one of grpo, bnpo, dr_grpo, dapo, luspo, cispo, sapo, vespo"),
        ("loss_type: DAPO", "found 'DAPO'; write one of grpo, "),
        ("loss_type:", "found None; write one of grpo, "),
        ("loss_type: cispo", "cispo also needs epsilon_high"),
        ("scale_rewards: groups", "found 'groups'; write one of group, batch, none"),
        ("scale_rewards: off", "found False; write one of group, batch, none; in quotes, where YAML would read on or"),
        ("importance_sampling_level: seq", "found 'seq'; write one of token, sequence"),
        ("multi_objective_aggregation: sum", "found 'sum'; write one of sum_then_normalize, normalize_then_sum"),
        ("save_strategy: no", "found False; write one of steps, epoch, no; in quotes"),
        ("save_strategy: best", "found 'best'; write one of steps, epoch, no"),
        ("log_level: loud", "found 'loud'; write one of passive, debug, "),
        ("temperature: 1e-8", "found 1e-08; write at least 0.05: below it all completions of a group are the same"),
        ("temperature: 0", "found 0.0; write at least 0.05"),
        ("temperature: -1", "found -1.0; write at least 0.05"),
        ("num_generations: 1", "found 1; write at least 2, so that there is something to compare"),
        ("num_generations: -4", "found -4; write at least 2"),
        ("num_generations:", "found None; write a value, or remove the key"),
        ("max_completion_length:", "found None; write a value, or remove the key"),
        ("max_completion_length: 0", "found 0; write at least 1"),
        ("per_device_train_batch_size: 0", "found 0; write at least 1"),
        ("gradient_accumulation_steps: 0", "found 0; write at least 1"),
        ("steps_per_generation: 0", "found 0; write at least 1"),
        ("generation_batch_size: 0", "found 0; write at least 1"),
        ("num_iterations: 0", "found 0; write at least 1"),
        ("save_total_limit: 0", "found 0; write at least 1"),
        ("save_steps: 0", "found 0.0; write a number above 0"),
        ("logging_steps: 0", "found 0.0; write a number above 0"),
        ("num_train_epochs: 0", "found 0.0; write a number above 0"),
        ("max_steps: 0", "found 0; write at least 1, or -1 to count by num_train_epochs"),
        ("max_steps: -5", "found -5; write at least 1, or -1"),
        ("learning_rate: -1e-6", "found -1e-06; write at least 0"),
        ("beta: -0.1", "found -0.1; write at least 0"),
        ("epsilon: -1", "found -1.0; write at least 0"),
        ("epsilon_high: -1", "found -1.0; write at least 0"),
        ("delta: 0", "found 0.0; write a number above 0"),
        ("weight_decay: -1", "found -1.0; write at least 0"),
        ("warmup_steps: -1", "found -1.0; write at least 0"),
        ("top_p: 0", "found 0.0; write a number above 0"),
        ("top_p: 1.5", "found 1.5; write at most 1"),
        ("top_k: -1", "found -1; write at least 0"),
        ("min_p: 2", "found 2.0; write at most 1"),
        ("repetition_penalty: 0", "found 0.0; write a number above 0"),
        ("top_entropy_quantile: 2", "found 2.0; write at most 1"),
        ("dataloader_num_workers: -1", "found -1; write at least 0"),
        ("generation_kwargs: {temperature: 0.5}", "found {'temperature': 0.5}; write grpo.temperature, so that loss"),
        ("generation_kwargs: {max_new_tokens: 5}", "found {'max_new_tokens': 5}; max_new_tokens: write grpo.max_comp"),
        ("generation_kwargs: {num_beams: 5}", "found {'num_beams': 5}; leave num_beams out"),
        ("generation_kwargs: {stop_strings: ['}']}", "found {'stop_strings': ['}']}; leave stop_strings out"),
        ("generation_kwargs: {disable_compile: true}", "found {'disable_compile': True}; leave disable_compile out"),
        ("generation_kwargs: {prompt_lookup_num_tokens: 2}", "asks for assisted_generation, but GRPO needs plain"),
        ("generation_kwargs: {dola_layers: low}", "asks for dola_generation, but GRPO needs plain"),
        ("generation_kwargs: {top_z: 5}", "transformers.GenerationConfig has no top_z"),
        ("model_init_kwargs: {trust_remote_code: true}", "found {'trust_remote_code': True}; write attn_implementati"),
        ("model_init_kwargs: {dtype: bfloat16}", "found {'dtype': 'bfloat16'}; write attn_implementation"),
        ("model_init_kwargs: {attn_implementation: a/kernel}", "found {'attn_implementation': 'a/kernel'}; write att"),
        ("model_init_kwargs: {attn_implementation: fast}", 'Specified `attn_implementation="fast"` is not supported'),
        ("report_to: smoke_signals", "smoke_signals is not supported, only "),
        ("optim: galore_adamw", "You need to "),
        ("lr_scheduler_type: cosine_with_min_lr", "One of min_lr or min_lr_rate should be set"),
        ("cache_implementation: fast", "Invalid `cache_implementation` (fast)"),
        ("torch_empty_cache_steps: 0", "`torch_empty_cache_steps` must be an integer bigger than 0, got 0."),
        ("debug: yesterday", "yesterday is not a valid DebugOption"),
    ],
)
def test_a_value_that_would_fail_late_or_silently(cli, line, message):
    assert_says(cli.refuses(recipe=with_setting(line)), f"r.yaml:{line_of(line)}: grpo.{line.split(':')[0]}: {message}")


@pytest.mark.parametrize("key", PACKAGES)
def test_a_setting_whose_package_is_missing(cli, monkeypatch, key):
    monkeypatch.setitem(PACKAGES, key, "no_such_package")
    message = cli.refuses(recipe=with_setting(f"{key}: true"))
    assert message == f"r.yaml:13: grpo.{key}: found True; needs the package no_such_package, which is not installed"


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("top_p: 0.9", "grpo.top_p=0.9: completions are then sampled from another distribution than the loss uses"),
        ("top_k: 50", "grpo.top_k=50: completions are then sampled from another distribution"),
        ("min_p: 0.1", "grpo.min_p=0.1: completions are then sampled from another distribution"),
        ("repetition_penalty: 1.1", "grpo.repetition_penalty=1.1: completions are then sampled from another distrib"),
        ("loss_type: luspo", "grpo.loss_type=luspo is meant to go with grpo.importance_sampling_level=sequence"),
    ],
)
def test_a_value_that_is_allowed_with_a_warning(cli, line, note):
    assert f"note       {note}" in cli.passes(recipe=with_setting(line))


@pytest.mark.parametrize("line", ["top_p: 1.0", "top_k: 0", "min_p:", "repetition_penalty: 1", "temperature: 0.7"])
def test_a_neutral_value_warns_of_nothing(cli, line):
    assert "another distribution" not in cli.passes(recipe=with_setting(line))


# Batches


def test_a_batch_of_no_whole_groups_names_both_keys_and_a_legal_pair(cli):
    # 3 x 1 completions in groups of 2; the nearest multiple of 2 is 4
    message = cli.refuses(*with_sizes(batch=3, group=2, accumulation=1))
    assert message == (
        "override of r.yaml: grpo.per_device_train_batch_size: found per_device_train_batch_size 3 x "
        "gradient_accumulation_steps 1 = 3 completions, which are no whole groups of grpo.num_generations 2; "
        "write per_device_train_batch_size: 4, for example"
    )
    cli.passes(*with_sizes(batch=4, group=2, accumulation=1))


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        # the recipe names only the group; the batch is the kit's 8 x 16 = 128
        (["grpo={num_generations: 7}"], ["batch_size 8 x gradient_accumulation_steps 16 = 128 completions", "s 7; "]),
        # an adapter's batch is the kit's 16
        (["grpo={num_generations: 7, gradient_accumulation_steps: 1}", "lora={}"], ["size 8 x", "= 8 completions"]),
        (with_sizes(4, 4, 2, "grpo.steps_per_generation=1", "grpo.num_generations=3"), ["steps_per_generation 1 = 4"]),
        (
            with_sizes(4, 4, 2, "grpo.generation_batch_size=6"),
            ["generation_batch_size: found 6 completions", "of both"],
        ),
    ],
)
def test_other_batches_of_no_whole_groups(cli, sizes, parts):
    message = cli.refuses(*sizes)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            with_sizes(8, 4, 1, "grpo.generation_batch_size=12"),
            "override of r.yaml: grpo.generation_batch_size: generation_batch_size (12) must be divisible by",
        ),
        (
            with_sizes(4, 4, 2, "grpo.generation_batch_size=8", "grpo.steps_per_generation=2"),
            "override of r.yaml: grpo.generation_batch_size: 'generation_batch_size' and 'steps_per_generation' can",
        ),
    ],
)
def test_batches_that_trl_refuses_itself(cli, sizes, message):
    assert_says(cli.refuses(*sizes), message)


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        # 1 x 8 completions are one whole group of 8
        (with_sizes(1, 8, 8), "2 steps (0.25 epochs) of 1 prompts x 8 = 8 completions"),
        # one rollout of 4 x 3 = 12 completions, 3 prompts: 8 // 3 = 2 rollouts of 3 micro-batches, 2 a step: 3 steps
        (with_sizes(4, 4, 2, "grpo.steps_per_generation=3"), "2 steps (0.67 epochs) of 2 prompts x 4 = 8 completions"),
        (with_sizes(4, 4, 2, "grpo.generation_batch_size=16"), "of 2 prompts x 4 = 8 completions"),
    ],
)
def test_batches_of_whole_groups(cli, sizes, shown):
    assert shown in cli.passes(*sizes)


def test_the_origin_of_every_setting(cli):
    shown = cli.passes("--settings", recipe=with_key("lora: {}"))
    assert "num_generations = 4   (recipe)" in shown
    assert "learning_rate = 2e-05   (kit: an adapter needs about ten times more than full fine-tuning)" in shown
    assert "epsilon = 0.2   (TRL)" in shown
