"""Values that are not finite and memory that is not there, planted into real runs: what is said, and what is left."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_processes import TORCHRUN, ended
from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from whole_run import RECIPE, lines, run, same_weights, summary

from grpo_kit.device import a_card
from grpo_kit.errors import NotFiniteError, is_out_of_memory
from grpo_kit.memory.memory import Memory, Run
from grpo_kit.model import not_finite
from grpo_kit.shipped import tiny_model
from grpo_kit.train import Stopper
from grpo_kit.trainer import out_of_memory
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer

WEIGHT = "model.layers.1.mlp.down_proj.weight"
SHORT = ("eval_dataset=null", "grpo.save_steps=1", "grpo.save_total_limit=9")


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


def plant(monkeypatch, method: str, act: Any, step: int = 3, owner: type = DynamicSamplingTrainer) -> None:
    """While `step` is being made `act(trainer, result)` sees, and may change, what a method returns."""
    plain = getattr(owner, method)

    def planted(self, *args, **kwargs):
        result = plain(self, *args, **kwargs)
        if self.state.global_step + 1 == step:
            changed = act(self, result)
            result = result if changed is None else changed
        return result

    monkeypatch.setattr(owner, method, planted)


def spoil_weight_after(monkeypatch, step: int) -> None:
    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == step:
            model.get_parameter(WEIGHT).data[3, 5] = torch.nan

    monkeypatch.setattr(Stopper, "on_step_end", on_step_end)


def failed(capsys, *arguments: str, code: int = 1) -> str:
    """The one line with which a run ends; nothing but a run's own lines is on standard error before it."""
    capsys.readouterr()
    assert run("sums.yaml", *arguments) == code
    error = capsys.readouterr().err.strip().splitlines()
    assert error[-1].startswith("error: ")
    assert not any("Traceback" in line for line in error)
    return error[-1].removeprefix("error: ")


def checkpoints(name: str = "sums") -> list[str]:
    return sorted(path.name for path in (Path("runs") / name / "checkpoints").glob("checkpoint-*"))


def assert_all_finite() -> None:
    for file in Path("runs").rglob("*.safetensors"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(file).values()), file


# Not finite


def spoil_gradient(trainer, loss):
    trainer.model.get_parameter(WEIGHT).grad[3, 5] = torch.nan  # of 64 x 192 values, say: the message counts them


def spoil_loss(trainer, loss):
    return loss * torch.inf if trainer._step % 2 else loss  # the second of 2 micro-batches


def spoil(key: str, value: float):
    def act(trainer, output):
        output[key][:2] = value

    return act


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "act", "more", "said"),
    [
        ("training_step", spoil_gradient, (), f"the gradient of {WEIGHT} (nan in 1 of "),
        ("_compute_loss", spoil_loss, (), "the loss of micro-batch 2 of 2; "),
        ("_generate_and_score_completions", spoil("advantages", torch.nan), (), "advantages of micro-batch "),
    ],
)  # fmt: skip
def test_a_step_that_is_not_finite_is_not_taken(monkeypatch, capsys, method, act, more, said):
    run("sums.yaml", *SHORT, "name=whole")
    with monkeypatch.context() as patched:
        plant(patched, method, act)
        message = failed(capsys, "eval_dataset=null", "grpo.save_steps=100", *more)
    assert message.startswith(f"step 3: not finite: {said}")
    assert message.endswith("; the last good checkpoint is runs/sums/checkpoints/checkpoint-2")
    ended = summary("sums")
    assert (ended["status"], ended["steps"], ended["reason"]) == ("failed", 2, f"NotFiniteError: {message}")
    assert checkpoints() == ["checkpoint-2"]
    assert_all_finite()
    assert run("sums.yaml", "eval_dataset=null", "grpo.save_steps=100", "--resume") in (
        0,
        1,
    )  # it was no fault of the run
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]
    assert same_weights("whole", "sums")


@pytest.mark.slow
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
@pytest.mark.parametrize("fast", ["true", "false"])
def test_old_logps_are_named_before_the_loss_that_is_made_of_them(monkeypatch, capsys, value, fast):
    plant(monkeypatch, "_generate_and_score_completions", spoil("old_per_token_logps", value))
    message = failed(capsys, "eval_dataset=null", "grpo.num_iterations=2", "grpo.beta=0.1", f"fast={fast}")
    kind = "nan" if value != value else "inf"
    assert message.startswith(f"step 3: not finite: old_per_token_logps of micro-batch 1 of 2 ({kind} in ")
    assert_all_finite()


@pytest.mark.slow
def test_without_clipping_the_tensor_is_named_too(monkeypatch, capsys):
    plant(monkeypatch, "training_step", spoil_gradient, step=1)
    message = failed(capsys, "eval_dataset=null", "grpo.max_grad_norm=0")
    assert message.startswith(f"step 1: not finite: the gradient of {WEIGHT} (nan in 1 of ")
    assert message.endswith("; there is no checkpoint yet")
    assert checkpoints() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [("grpo.save_steps=1",), ("grpo.save_steps=100",), ("grpo.save_steps=1", "lora={r: 4}")]
)
def test_a_model_that_is_lost_is_never_written(monkeypatch, capsys, more):
    lora = "lora={r: 4}" in more

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == 2:
            next(w for w in model.parameters() if w.requires_grad).data[3, 5] = torch.nan

    monkeypatch.setattr(Stopper, "on_step_end", on_step_end)
    message = failed(capsys, *more)  # with save_steps=1 found when it is to be saved, else by the rollout of step 3
    name = (
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
        if lora
        else "model.embed_tokens.weight"
    )
    assert message.startswith(f"after step 2: not finite: weight {name} (nan in 1 of ")
    saved = "grpo.save_steps=1" in more
    last = "the last good checkpoint is runs/sums/checkpoints/checkpoint-1" if saved else "there is no checkpoint yet"
    assert message.endswith(f"; the model is lost: lower grpo.learning_rate and start again; {last}")
    assert checkpoints() == (["checkpoint-1"] if saved else [])
    assert not Path("runs/sums/final").exists()
    assert_all_finite()


@pytest.mark.slow
def test_a_model_that_is_lost_in_the_last_step_is_no_final_one(monkeypatch, capsys):
    spoil_weight_after(monkeypatch, 4)
    message = failed(capsys, "grpo.save_steps=3")
    assert message.startswith(f"after step 4: not finite: weight {WEIGHT} (nan in 1 of ")
    assert message.endswith("; the last good checkpoint is runs/sums/checkpoints/checkpoint-3")
    assert not Path("runs/sums/final").exists()


@pytest.mark.slow
def test_a_model_that_is_lost_is_never_the_best(monkeypatch, capsys):
    spoil_weight_after(monkeypatch, 2)
    message = failed(capsys, "eval_every=1", "grpo.save_steps=100")
    assert message.startswith(f"after step 2: not finite: weight {WEIGHT}")
    assert_all_finite()


@pytest.mark.slow
def test_weights_that_are_not_finite_are_refused_at_the_load(capsys):
    Path("spoilt").mkdir()
    for file in tiny_model().iterdir():
        (Path("spoilt") / file.name).write_bytes(file.read_bytes())
    weights = load_file("spoilt/model.safetensors")
    weights[WEIGHT][0, :2] = torch.inf
    save_file(weights, "spoilt/model.safetensors", metadata={"format": "pt"})
    message = failed(capsys, "model=spoilt", code=2)
    assert f"spoilt holds what is no number: weight {WEIGHT} (inf in 2 of " in message


@pytest.mark.slow
def test_a_healthy_run_looks_at_its_weights_only_where_they_are_read_or_written(monkeypatch):
    looked = []
    plain = not_finite.first_not_finite
    monkeypatch.setattr(not_finite, "first_not_finite", lambda tensors: looked.append(1) or plain(tensors))
    assert run("sums.yaml", "eval_dataset=null", "grpo.save_steps=2") == 0
    assert len(looked) == 5  # the load, checkpoints 2 and 4, the end of the training, final/


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["0", "0.01", "1.0"])
def test_the_norm_is_read_first_and_clips_as_before(monkeypatch, norm):
    assert run("sums.yaml", "eval_dataset=null", f"grpo.max_grad_norm={norm}", "name=ours") == 0
    monkeypatch.setattr(DynamicSamplingTrainer, "_reads_norm_first", False)
    assert run("sums.yaml", "eval_dataset=null", f"grpo.max_grad_norm={norm}", "name=theirs") == 0
    assert same_weights("ours", "theirs")
    ours, theirs = ([m["grad_norm"] for m in lines(name, "metrics.jsonl")] for name in ("ours", "theirs"))
    assert ours == theirs


SPOILT = """
import os, torch
from grpo_kit.cli import main
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer as Trainer
plain = Trainer._compute_loss
def planted(self, *args):
    loss = plain(self, *args)
    return loss * torch.nan if self.state.global_step == 2 and os.environ["RANK"] == "1" else loss
Trainer._compute_loss = planted
if __name__ == "__main__":
    main(["run", "sums.yaml", "eval_dataset=null", "grpo.per_device_train_batch_size=4"])
"""


@pytest.mark.slow
def test_a_loss_that_is_not_finite_in_one_process_ends_both():
    Path("spoilt.py").write_text(SPOILT)
    code, said, gone = ended([*TORCHRUN, "spoilt.py"])
    assert (code, gone) == (1, True), said
    assert said.count("error: step 3: not finite: the loss of micro-batch ") == 1, said
    assert said.count("exitcode  : 1 ") == 2, said
    assert checkpoints() == ["checkpoint-2"]
    assert_all_finite()


def test_its_error_travels_to_other_processes():
    error = pickle.loads(pickle.dumps(NotFiniteError("after step 2: ...", weights_lost=True)))
    assert (str(error), error.weights_lost, error.everywhere) == ("after step 2: ...", True, True)


# Out of memory

CUDA_TEXT = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.02 GiB is "
    "free. Including non-PyTorch memory, this process has 22.60 GiB memory in use. Of the allocated memory 21.90 GiB "
    "is allocated by PyTorch, and 212.05 MiB is reserved by PyTorch but unallocated."
)
CPU_TEXT = (
    "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes. Error code"
)
NUMPY_TEXT = "Unable to allocate 3.00 GiB for an array with shape (402653184,) and data type float64"


@pytest.mark.parametrize(
    ("error", "gb"),
    [
        (torch.OutOfMemoryError(CUDA_TEXT), 1.5 * 2**30 / 1e9),
        (RuntimeError(CPU_TEXT), 8.0),
        (MemoryError(NUMPY_TEXT), 3 * 2**30 / 1e9),
        (MemoryError(), None),
        (RuntimeError("CUDA error: out of memory"), None),
    ],
)  # fmt: skip
def test_what_was_asked_for_is_read_from_what_was_said(error, gb):
    assert is_out_of_memory(error)
    assert out_of_memory.asked_gb(error) == (pytest.approx(gb) if gb else None)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_what_others_hold_of_a_card_is_not_there(monkeypatch):
    # 24 GB, 2 free; of the 22 in use 15 are torch's own and 0.5 are CUDA's, so others hold 6.5
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * 10**9, 24 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 15 * 10**9)
    assert out_of_memory.memory_there(a_card(24.0)) == pytest.approx((17.5, 6.5))


def plan(**values) -> Run:
    settings = {
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 4,
        "num_generations": 8, "generation_batch_size": 32, "max_completion_length": 256, "world_size": 1,
        "activation_checkpointing": False, "gradient_checkpointing": False,
    }  # fmt: skip
    return Run("", None, {}, SimpleNamespace(**settings | values), a_card(24.0), None, True, 60)  # type: ignore[arg-type]


def made_up(rows: int, run: Run | None = None) -> Memory:
    """10 GB that last; 1 GB for each row of a micro-batch of 256 tokens, a fifth of it with checkpointing."""
    args = (run or plan()).args
    share = 0.2 if args.activation_checkpointing else 1.0
    return Memory("update", 0.0, weights=10.0, activations=rows * (args.max_completion_length or 0) / 256 * share)


def test_the_largest_micro_batch_that_fits_is_the_smallest_change():
    change = out_of_memory.smallest_change(plan(), made_up, 14.5)
    assert change == (
        "write grpo.per_device_train_batch_size=4 grpo.gradient_accumulation_steps=8, which needs 14.0 GB", True,
    )  # fmt: skip


def test_where_no_micro_batch_fits_the_group_the_length_and_checkpointing_are_tried_in_that_order():
    alone = plan(per_device_train_batch_size=1, gradient_accumulation_steps=32, steps_per_generation=32)
    # 10 GB and 1 GB for the row: 10.5 with half the length, 10.25 with a quarter, 10.2 with checkpointing
    assert out_of_memory.smallest_change(alone, made_up, 10.5) == (
        "write grpo.max_completion_length=128 (10.5 GB), or grpo.max_completion_length=64 (10.2 GB), or "
        "grpo.activation_checkpointing=true (10.2 GB)", False,
    )  # fmt: skip
    assert [text for text, _ in out_of_memory.alternatives(alone)][:3] == [
        "grpo.steps_per_generation=16",
        "grpo.gradient_accumulation_steps=16 grpo.num_generations=4",
        "grpo.max_completion_length=128",
    ]
    assert out_of_memory.smallest_change(alone, made_up, 9.0)[0].startswith("no micro-batch fits: use lora:")


def test_of_a_model_that_cannot_be_traced_half_a_micro_batch_is_tried():
    def unknown(rows: int, run: Run | None = None) -> Memory:
        return Memory("update", 0.0, weights=10.0, activations=None)

    assert out_of_memory.smallest_change(plan(), unknown, 9.9) == (
        "write grpo.per_device_train_batch_size=4 grpo.gradient_accumulation_steps=8, or less", True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "at_once", "smaller_group"),
    [
        ((8, 1, 1), "grpo.per_device_train_batch_size=4 grpo.gradient_accumulation_steps=2 grpo.steps_per_generation=1",
         "grpo.per_device_train_batch_size=4 grpo.num_generations=2"),
        ((8, 4, 1), "grpo.per_device_train_batch_size=4 grpo.gradient_accumulation_steps=8 grpo.steps_per_generation=1",
         "grpo.per_device_train_batch_size=4 grpo.num_generations=2 grpo.steps_per_generation=1"),
        ((2, 4, 4), "grpo.steps_per_generation=2", "grpo.gradient_accumulation_steps=2 grpo.num_generations=2"),
    ],
)  # fmt: skip
def test_what_is_sampled_at_once_is_halved_whatever_the_shape(shape, at_once, smaller_group):
    rows, steps, per_rollout = shape
    run = plan(
        per_device_train_batch_size=rows, gradient_accumulation_steps=steps, steps_per_generation=per_rollout,
        num_generations=4, generation_batch_size=rows * per_rollout,
    )  # fmt: skip
    (first, halved), (second, smaller), *_ = out_of_memory.alternatives(run)
    assert (first, second) == (at_once, smaller_group)
    assert halved.args.generation_batch_size == smaller.args.generation_batch_size == rows * per_rollout / 2
    assert halved.completions == run.completions == 2 * smaller.completions


class Away(TrainerCallback):
    """A tracker that reaches nobody after the second step."""

    def on_log(self, args, state, control, **given):
        if state.global_step == 2:
            raise ConnectionError("no route to host\nand more")


@pytest.mark.slow
def test_a_tracker_that_fails_is_a_warning(monkeypatch, capsys):
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "mlflow", Away)
    assert run("sums.yaml", "grpo.report_to=mlflow", "eval_dataset=null") == 0
    said = "the tracker Away failed, and the run goes on without it: no route to host"
    assert capsys.readouterr().out.count(said) == 1
    assert sum(event.get("message") == said for event in lines("sums", "events.jsonl")) == 1
    assert [record["step"] for record in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]


# a limit on the process, so that the allocator is really refused
REFUSED = """
import resource, sys
import psutil
from grpo_kit.cli import main
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer as Trainer
plain = Trainer.{method}
def limited(self, *args, **kwargs):
    if self.state.global_step == {step}:
        allowed = psutil.Process().memory_info().vms + {room_mb} * 10**6
        resource.setrlimit(resource.RLIMIT_AS, (allowed, resource.RLIM_INFINITY))
    return plain(self, *args, **kwargs)
Trainer.{method} = limited
if __name__ == "__main__":
    main(["run", "sums.yaml", *sys.argv[1:]])
"""
LARGE = (
    "eval_dataset=null", "dataset.limit=null", "grpo.num_generations=8", "grpo.gradient_accumulation_steps=1",
    "grpo.max_completion_length=40", "grpo.save_steps=1", "fast=false",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on a process's memory is Linux's")
@pytest.mark.parametrize(
    ("method", "phase", "step", "room_mb", "rows"),
    [
        ("_compute_loss", "update", 1, 50, 256),
        ("_generate", "rollout", 0, 5, 1024),
    ],
)
def test_memory_that_is_really_refused(method, phase, step, room_mb, rows):
    Path("refused.py").write_text(REFUSED.format(method=method, step=step, room_mb=room_mb))
    command = [sys.executable, "refused.py", *LARGE, f"grpo.per_device_train_batch_size={rows}"]
    # a set threshold: each block from 128 KB on is asked of the kernel, none is cut from a hole that the heap has left
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith(f"error: step {step + 1}: out of memory in the {phase}, asked for ")
    assert "; predicted there: " in message
    change = f"grpo.per_device_train_batch_size={rows // 2} grpo.gradient_accumulation_steps=2"
    assert f"; write {change}" in message
    assert summary("sums")["status"] == "failed"
    assert checkpoints() == [f"checkpoint-{n}" for n in range(1, step + 1)]


@pytest.mark.slow
def test_a_card_without_memory_keeps_the_last_step_and_the_change_goes_on_from_it(monkeypatch, capsys):
    def no_memory(trainer, output):
        raise torch.OutOfMemoryError(CUDA_TEXT)

    more = ("eval_dataset=null", "grpo.save_steps=100")
    with monkeypatch.context() as patched:
        plant(patched, "_compute_loss", no_memory)
        message = failed(capsys, *more)
    assert message.startswith("step 3: out of memory in the update, asked for 1.6 GB more; predicted there: ")
    assert "the last checkpoint is runs/sums/checkpoints/checkpoint-2" in message
    change = ("grpo.per_device_train_batch_size=4", "grpo.gradient_accumulation_steps=4")
    assert run("sums.yaml", *more, *change, "--resume") == 0
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]
    run("sums.yaml", *more, "name=whole")
    again, whole = ([m["reward"] for m in lines(name, "metrics.jsonl")] for name in ("sums", "whole"))
    assert again == pytest.approx(whole, abs=0.2)  # the same prompts and, but for rounding, the same completions


@pytest.mark.slow
def test_a_run_goes_on_with_other_micro_batches_only_where_a_step_stays_what_it_was(capsys, monkeypatch):
    spoil_weight_after(monkeypatch, 2)
    failed(capsys, *SHORT)
    assert run("sums.yaml", *SHORT, "grpo.per_device_train_batch_size=4", "--resume") == 2
    assert "grpo.per_device_train_batch_size (8 -> 4)" in capsys.readouterr().err
