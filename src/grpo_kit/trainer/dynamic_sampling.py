"""Flat groups replaced by fresh prompts before the update: the dynamic sampling of DAPO (arXiv 2503.14476, 3.2)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from grpo_kit.trainer.trainer import ObservedTrainer

Row = dict[str, Tensor]
"""What the update needs of one completion, by the names of TRL's batch."""

SAMPLING = "kit/sampling/"


class DynamicSamplingTrainer(ObservedTrainer):
    """`max_rounds=0` replaces nothing. A group is flat where the advantages of all its completions are 0.

    Which prompts are fresh follows from the seed, the step and the batch, so a resumed run draws the same ones. What
    TRL logs of a step stays that of the step's own prompts; a choice of the prompts that vary would flatter it.
    """

    def __init__(self, *, max_rounds: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self._max_rounds = max_rounds

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if not self._max_rounds or not self._policy.training:
            return output
        rows = gather_object([int(row["row"]) for row in inputs])[:: self.num_generations]  # of all processes
        flat = self._flat_groups(output)
        found: dict[int, list[Row]] = {}
        sampled = list(rows)
        with self._metrics_kept():
            for number in range(1, self._max_rounds + 1):
                missing = [group for group in flat if group not in found]
                fresh = self._fresh_rows(len(missing), sampled, number) if missing else []
                if not fresh:
                    break
                sampled += fresh
                self._round = number
                found |= dict(zip(missing, self._groups_that_vary(fresh), strict=False))
            self._round = 0
        metrics = self._metrics["train"]
        metrics[f"{SAMPLING}prompts"].append(len(sampled))
        metrics[f"{SAMPLING}flat_left_share"].append((len(flat) - len(found)) / len(rows))
        return self._with(output, found) if found else output

    def _flat_groups(self, output: dict[str, Any]) -> list[int]:
        """Of all processes: the numbers of the groups without any advantage."""
        advantages: Any = self.accelerator.gather(output["advantages"])
        return (advantages.view(-1, self.num_generations) == 0).all(dim=1).nonzero().flatten().tolist()

    def _fresh_rows(self, count: int, sampled: Sequence[int], number: int) -> list[int]:
        """Rows of the data that this step has not sampled yet, as many for each process: about `count` in all."""
        processes = self.accelerator.num_processes
        total = len(self.train_dataset)  # type: ignore[arg-type]
        random = np.random.default_rng([self.args.seed, self.state.global_step, number, *sampled])
        drawn = random.choice(total, size=min(total, count + processes + len(sampled)), replace=False).tolist()
        fresh = [row for row in drawn if row not in set(sampled)][: -(-count // processes) * processes]
        return fresh[: len(fresh) // processes * processes]

    def _groups_that_vary(self, rows: list[int]) -> list[list[Row]]:
        """Completions of these prompts, each process sampling its part of them; the groups that are not flat."""
        size, share = self.num_generations or 1, len(rows) // self.accelerator.num_processes
        own = rows[self.accelerator.process_index * share :][:share]
        inputs = [dict(self.train_dataset[row]) for row in own for _ in range(size)]  # type: ignore[index]
        output = super()._generate_and_score_completions(inputs)
        count = len(inputs)
        by_row = {key: value.cpu() for key, value in output.items() if isinstance(value, Tensor) and value.dim()}
        each = [{key: value[row] for key, value in by_row.items()} for row in range(count)]
        groups = [each[start : start + size] for start in range(0, count, size)]
        return gather_object([group for group in groups if any(row["advantages"] for row in group)])

    def _with(self, output: dict[str, Any], found: dict[int, list[Row]]) -> dict[str, Any]:
        """The batch with whole groups put in the place of flat ones; the denominator counts its new tokens."""
        count = len(output["advantages"])
        first = self.accelerator.process_index * count
        size = self.num_generations or 1
        places = {group * size + at: row for group, rows in found.items() for at, row in enumerate(rows)}
        own = {place - first: row for place, row in places.items() if first <= place < first + count}
        merged = {key: _replaced(key, value, own, self._tokenizer.pad_token_id) for key, value in output.items()}
        mask = merged["completion_mask"] * merged.get("tool_mask", 1)
        merged["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        return merged

    @contextmanager
    def _metrics_kept(self) -> Iterator[None]:
        """What is logged inside is forgotten, but for the count of tokens, which has only one entry."""
        metrics = self._metrics["train"]
        before = {key: len(values) for key, values in metrics.items()}
        try:
            yield
        finally:
            for key in list(metrics):
                del metrics[key][max(before.get(key, 0), key == "num_tokens") :]


def _replaced(key: str, value: Any, rows: dict[int, Row], pad_id: int) -> Any:
    """A tensor (B, ...) with some of its rows replaced, padded to the longest: prompts on the left, others right."""
    if not rows or not isinstance(value, Tensor) or not value.dim():
        return value
    each = [rows[at][key].to(value.device) if at in rows else value[at] for at in range(len(value))]
    if value.dim() == 1:
        return torch.stack(each)
    side = "left" if key.startswith("prompt") else "right"
    return pad_sequence(each, batch_first=True, padding_value=pad_id if key.endswith("_ids") else 0, padding_side=side)
