"""Sampling with one model: tasks in, judged rows out, shown as they come and kept as they come."""

import time
from typing import Any

from grpo_kit.console import Console
from grpo_kit.evaluation.judged import JudgedRow, Task, judge_rows, lenient
from grpo_kit.evaluation.row_records import row_record, sample_records
from grpo_kit.prepare.inputs import Inputs
from grpo_kit.rewards.scoring import Scorer
from grpo_kit.run.run_dir import RunDir


class Sampler:
    """Samples tasks until Ctrl-C, and counts what that took: seconds, completions and their tokens."""

    def __init__(self, model: Any, inputs: Inputs, console: Console):
        rewards = [*inputs.rewards, *lenient(inputs.goal)]
        self.model, self.scorer, self.console = model, Scorer(rewards, inputs.recipe.on_reward_error == "skip"), console
        self.seconds, self.completions, self.tokens, self.interrupted = 0.0, 0, 0, False

    def judge(self, task: Task, what: str, folder: RunDir | None = None) -> list[JudgedRow]:
        """The judged rows of a task, as many as there was time for; each is written to `folder` at once.

        Raises KeyboardInterrupt where there was time for none.
        """
        if self.interrupted:
            return []
        found: list[JudgedRow] = []
        started = time.perf_counter()
        self.console.start_progress(what, len(task.data.rows))
        try:
            for rows, _ in judge_rows(task, self.model, self.scorer):
                found += rows
                if folder is not None:
                    folder.append("rows.jsonl", *(row_record(task, row) for row in rows))
                    folder.append("samples.jsonl", *(record for row in rows for record in sample_records(task, row)))
                self.console.progress(len(rows))
        except KeyboardInterrupt:
            if not found:
                raise
            self.interrupted = True
        finally:
            self.console.stop_progress()
        self.seconds += time.perf_counter() - started
        self.completions += sum(len(row.texts) for row in found)
        self.tokens += sum(sum(row.tokens) for row in found)
        return found

    def speed(self) -> str:
        return f"{self.completions} completions, {self.tokens / max(self.seconds, 1e-9):.0f} tokens/s"
