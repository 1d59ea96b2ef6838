"""What may stand in a recipe's `grpo:` section: legal values, and where to set what is not set there. No TRL here."""

import importlib.util
from collections.abc import Collection
from typing import Any

LEGAL: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_mode": ("colocate", "server"),
    "vllm_model_impl": ("vllm", "transformers"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "save_strategy": ("steps", "epoch", "no"),
    "log_level": ("passive", "debug", "info", "warning", "error", "critical"),
}
"""Words that are compared only after the weights are loaded or the first rollout is paid for."""

AT_LEAST: dict[str, float] = {
    "num_generations": 2,
    "temperature": 0.05,
    **dict.fromkeys(("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"), 1),
    **dict.fromkeys(("generation_batch_size", "max_completion_length", "num_iterations", "save_total_limit"), 1),
    **dict.fromkeys(("learning_rate", "warmup_steps", "weight_decay", "max_grad_norm", "beta", "epsilon"), 0),
    **dict.fromkeys(("epsilon_high", "top_k", "min_p", "dataloader_num_workers"), 0),
    **dict.fromkeys(("vllm_max_model_length", "vllm_tensor_parallel_size", "vllm_server_port"), 1),
}
ABOVE_ZERO = ("num_train_epochs", "save_steps", "logging_steps", "top_p", "delta",
              "repetition_penalty", "top_entropy_quantile", "vllm_gpu_memory_utilization")  # fmt: skip
AT_MOST_ONE = ("top_p", "min_p", "top_entropy_quantile", "vllm_gpu_memory_utilization")
"""Bounds that TRL does not check, or only deep in a run."""

REASONS: dict[str, str] = {
    "num_generations": ", so that there is something to compare",
    "temperature": ": below it all completions of a group are the same and nothing is learned",
}

PACKAGES: dict[str, str] = {"use_liger_kernel": "liger_kernel"}
"""Settings that need a package which grpo-kit does not bring. vLLM has its own rules (`vllm_rules.py`)."""

SAMPLING = ("do_sample", "num_return_sequences", "num_beams", "eos_token_id", "pad_token_id", "bos_token_id",
            "stop_strings", "disable_compile", "return_dict_in_generate", "max_length", "max_time")  # fmt: skip
"""generation_kwargs that would break what GRPO needs of the sampler."""

RENAMED: dict[str, str] = {
    "warmup_ratio": "write warmup_steps; a value below 1 is a share of all steps",
    "max_prompt_length": "TRL no longer cuts prompts; the kit drops rows that are too long and says how many",
    "evaluation_strategy": "write eval_every at the top level of the recipe",
    "torch_dtype": "the kit chooses the precision by device (`grpo-kit env`)",
    "use_liger_loss": "removed from TRL; leave it out",
    "vllm_max_model_len": "write vllm_max_model_length",
    "overwrite_output_dir": "leave it out: a run directory is never overwritten",
    "logging_dir": "leave it out: logs go to the run directory",
    "save_safetensors": "leave it out: checkpoints are always safetensors",
    "no_cuda": "leave it out: the device is found by itself; CUDA_VISIBLE_DEVICES= hides a card",
    "group_by_length": "leave it out: it does not apply to GRPO",
    "wandb_log_unique_prompts": "write log_unique_prompts",
    "vllm_guided_decoding_regex": "write vllm_structured_outputs_regex",
    "lr": "write grpo.learning_rate",
    "batch_size": "write grpo.per_device_train_batch_size",
    "group_size": "write grpo.num_generations",
    "kl_coef": "write grpo.beta",
    "max_new_tokens": "write grpo.max_completion_length",
}
"""Keys of older TRL or transformers releases, and of other trainers: what to write today."""

LAUNCHER = "tell it to the launcher: accelerate launch --config_file FILE -m grpo_kit run RECIPE"

REFUSED: dict[str, str] = {
    "output_dir": "the run directory is ./runs/NAME; write name: at the top level",
    "run_name": "write name: at the top level",
    "seed": "write seed: at the top level",
    "data_seed": "write seed: at the top level",
    "reward_weights": "write the weight at each reward, such as rewards: {accuracy: 1.0}",
    "use_cpu": "the device is found by itself; CUDA_VISIBLE_DEVICES= hides a card",
    "bf16": "the kit chooses the precision by device (`grpo-kit env`)",
    "fp16": "the kit chooses the precision by device (`grpo-kit env`)",
    "bf16_full_eval": "the kit chooses the precision by device (`grpo-kit env`)",
    "fp16_full_eval": "the kit chooses the precision by device (`grpo-kit env`)",
    "chat_template_kwargs": "write thinking: on or off at the top level",
    "push_to_hub": "upload the run's final/ folder yourself",
    "log_completions_hub_repo": "completions go to samples.jsonl",
    "trust_remote_code": "code from a hub is never executed",
    "resume_from_checkpoint": "use `grpo-kit run RECIPE --resume`",
    "remove_unused_columns": "rewards need the columns",
    "auto_find_batch_size": "TRL cannot use it with GRPO; set per_device_train_batch_size",
    "num_generations_eval": "write evaluation: {samples: N} at the top level",
    "metric_for_best_model": "checkpoints are judged by held-out accuracy only",
    "greater_is_better": "checkpoints are judged by held-out accuracy only",
    "logging_strategy": "metrics are recorded by steps; write logging_steps",
    "enable_jit_checkpoint": "a run that gets SIGTERM saves by itself",
    "vllm_importance_sampling_cap": "write vllm_importance_sampling_clip_max",
    "local_rank": LAUNCHER,
    "parallelism_config": LAUNCHER,
    "use_transformers_continuous_batching": "it casts the weights that are trained to half precision for good",
    "save_only_model": "a checkpoint without optimizer cannot be gone on from",
    "sync_ref_model": "the reference would be in no checkpoint, so a resumed run would be another",
    "dataloader_persistent_workers": "rows are only looked up, and a resumed run would draw other random numbers",
    "ignore_data_skip": "a resumed run would see other rows",
    "disable_tqdm": "progress is shown on a terminal only",
}
REFUSED_PREFIXES: dict[str, str] = {
    "eval_": "write eval_dataset:, eval_every: and evaluation: at the top level",
    "do_": "leave it out: `run` trains and evaluates",
    "load_best_": "checkpoints are judged by held-out accuracy, never by loss",
    "per_device_eval_": "evaluation uses the same number of completions at once as training",
    "hub_": "upload the run's final/ folder yourself",
    "ddp_": LAUNCHER,
    "fsdp": LAUNCHER,
    "deepspeed": LAUNCHER,
}


def set_elsewhere(key: str) -> str | None:
    """Where to set what is not set in `grpo:`, or None."""
    prefixed = (text for prefix, text in REFUSED_PREFIXES.items() if key.startswith(prefix))
    return RENAMED.get(key) or REFUSED.get(key) or next(prefixed, None)


def wrong_value(key: str, value: Any, default: Any, fields: Collection[str]) -> str | None:
    """What to write instead of a value that TRL would notice only after the first rollout, or never (None: good).

    `default` is TRL's own, `fields` are the keys that a recipe may set.
    """
    if value is None:
        return None if default is None else "write a value, or remove the key"
    reason = REASONS.get(key, "")
    if key in AT_LEAST and value < AT_LEAST[key]:
        return f"write at least {AT_LEAST[key]:g}{reason}"
    if key in ABOVE_ZERO and value <= 0:
        return f"write a number above 0{reason}"
    if key in AT_MOST_ONE and value > 1:
        return "write at most 1"
    if key == "max_steps" and (value == 0 or value < -1):
        return "write at least 1, or -1 to count by num_train_epochs"
    if value and key in PACKAGES and importlib.util.find_spec(PACKAGES[key]) is None:
        return f"needs the package {PACKAGES[key]}, which is not installed"
    if key in ("generation_kwargs", "model_init_kwargs") and not isinstance(value, dict):
        return "write a mapping (key: value)"
    for inner in value if key == "generation_kwargs" else ():
        if inner in fields:
            return f"write grpo.{inner}, so that loss and sampler agree"
        if set_elsewhere(str(inner)):
            return f"{inner}: {set_elsewhere(str(inner))}"
        if inner in SAMPLING:
            return f"leave {inner} out: GRPO needs the trainer's own"
    for inner, setting in value.items() if key == "model_init_kwargs" else ():
        if inner != "attn_implementation" or "/" in str(setting):
            return "write attn_implementation: eager, sdpa or flash_attention_2; no other key, and no code from a hub"
    return None
