"""The fast trainer beside TRL's own where vLLM samples: old log-probs, their ratio to vLLM's, and the gradients.

There is no vLLM here: a stand-in gives completions and log-probs where TRL asks its vLLM for them.
"""

from typing import Any

import pytest
import torch
from random_model import save_random_model
from test_fast_parity import GROUP, TOLERANCE, deviation, trainer_of
from trl import GRPOTrainer

from grpo_kit.trainer.fast_trainer import FastTrainer

PROMPTS = ("a", "What is 2+2?", "abcde", "What is the sum of 12 and 30?")


class Sampler:
    """Random completions of 1 to 12 tokens, and log-probs near those of a model that knows nothing: ln(1/257) = -5.5.

    One token's is NaN, as vLLM's can be.
    """

    synced = 0

    def sync_weights(self) -> None:
        self.synced += 1

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(1, 13, (len(prompts),), generator=generator).tolist()
        ids = [torch.randint(97, 123, (length,), generator=generator).tolist() for length in lengths]
        logps = [(torch.randn(length, generator=generator) * 0.1 - 5.5).tolist() for length in lengths]
        logps[3][0] = float("nan")
        return prompts, ids, [[[value] for value in row] for row in logps], None


def count_of_a(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """The groups of the first prompt are flat."""
    return [0.0 if p == PROMPTS[0] else float(c.count("a") + len(c)) for p, c in zip(prompts, completions, strict=True)]


def step(kind: type, folder: Any, loss_type: str, mode: str) -> tuple[list[torch.Tensor], list[dict[str, Any]], Any]:
    """Gradients of an optimizer step of 4 micro-batches with 4 rows, and these micro-batches."""
    trainer = trainer_of(kind, folder, False, loss_type, 4, 0.0)
    trainer.reward_funcs = [count_of_a]
    trainer.use_vllm, trainer.vllm_generation, trainer._last_loaded_step = True, Sampler(), -1
    trainer.vllm_importance_sampling_mode = mode
    torch.manual_seed(0)  # TRL shuffles the rows
    rows = [{"prompt": prompt} for prompt in PROMPTS for _ in range(GROUP)]
    batches = []
    for at in range(4):
        trainer._step = at
        batches.append(trainer._prepare_inputs([dict(row) for row in rows]))
        trainer.compute_loss(trainer.model, batches[-1]).backward()
    return [p.grad for p in trainer.model.parameters()], batches, trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("vllm") / "model")


@pytest.mark.parametrize(
    ("loss_type", "mode"),
    [("dapo", "sequence_mask"), ("dapo", "token_truncate"), ("grpo", "token_mask"), ("vespo", "token_truncate")],
)
def test_gradients_are_trls_with_completions_of_vllm(folder, loss_type, mode):
    ours, batches, trainer = step(FastTrainer, folder, loss_type, mode)
    theirs, bare, _ = step(GRPOTrainer, folder, loss_type, mode)
    assert deviation(ours, theirs) < TOLERANCE
    assert trainer.vllm_generation.synced == 1

    def by_row(found: list[dict[str, Any]], key: str) -> dict[tuple[int, ...], list[float]]:
        """Whatever the order: the values of a row, by its prompt and completion."""
        return {
            (*batch["prompt_ids"][i].tolist(), *batch["completion_ids"][i].tolist()): batch[key][i].tolist()
            for batch in found
            for i in range(len(batch["advantages"]))
        }

    for key in ("old_per_token_logps", "importance_sampling_ratio"):
        rows, same = by_row(batches, key), by_row(bare, key)
        assert len(rows) == 16  # those of flat groups too: TRL wants the ratio of all rows
        mask = by_row(bare, "completion_mask")
        for row, values in rows.items():
            kept = mask[row] if len(values) > 1 else [1]
            pairs = zip(values, same[row], kept, strict=True)
            assert all(abs(a - b) < 1e-4 for a, b, counts in pairs if counts)
    assert any((batch["advantages"] == 0).any() for batch in batches)
