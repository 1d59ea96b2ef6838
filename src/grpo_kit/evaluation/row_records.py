"""Judged rows as files: `rows.jsonl`, a line for each prompt, and `samples.jsonl`, a line for each completion."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_kit.data.filters import prompt_hash
from grpo_kit.errors import RecipeError
from grpo_kit.evaluation.judged import LENIENT, JudgedRow, Task
from grpo_kit.files.jsonl import for_each_line


@dataclass(frozen=True)
class RowResult:
    """What the judged completions of a prompt came to: one entry per completion in each list.

    `leniently` is *right* whatever the form; `truncated` and `tokens` are of the same completions.
    """

    right: list[bool]
    leniently: list[bool]
    truncated: list[bool]
    tokens: list[int]

    @property
    def pass_rate(self) -> float:
        return fmean(self.right)


def result_of(task: Task, row: JudgedRow) -> RowResult | None:
    """The completions of a row that the goal's reward judged; None where it judged none."""
    judged = [at for at, score in enumerate(row.scores[task.goal.label]) if score is not None]
    if not judged:
        return None
    truncated, tokens = [row.truncated[at] for at in judged], [row.tokens[at] for at in judged]
    return RowResult(row.right(task.goal), row.right_leniently(task.goal), truncated, tokens)


def row_record(task: Task, row: JudgedRow) -> dict[str, Any]:
    """One line of `rows.jsonl`: a prompt and what came of it; `pass_rate` is null where nothing was judged."""
    source = task.data.rows[row.row]
    result = result_of(task, row)
    return {
        "row": row.row,
        "prompt_sha256": prompt_hash(source),
        "prompt": source["prompt"][-1]["content"],
        "gold": source.get("answer"),
        "goal": task.goal.label,
        "pass_rate": result.pass_rate if result else None,
        **(vars(result) if result else {}),
    }


def sample_records(task: Task, row: JudgedRow) -> list[dict[str, Any]]:
    """The completions of a prompt, as `samples.jsonl` of a run keeps them."""
    source = task.data.rows[row.row]
    return [
        {
            "step": task.step,
            "row": row.row,
            "prompt": source["prompt"][-1]["content"],
            "completion": text,
            "gold": source.get("answer"),
            "answer_read": task.goal.read_answer(text),
            "rewards": {label: scores[at] for label, scores in row.scores.items() if label != LENIENT},
            "tokens": row.tokens[at],
            "truncated": row.truncated[at],
        }
        for at, text in enumerate(row.texts)
    ]


@dataclass(frozen=True)
class Measurement:
    """The results in a `rows.jsonl` by the hash of each prompt, in the order of the data, and their goal."""

    goal: str | None
    rows: dict[str, RowResult]


def read_rows(file: Path) -> Measurement:
    """What a measurement or a preflight wrote. Raises RecipeError for another file."""
    found: list[tuple[int, str, RowResult]] = []
    goals: dict[str | None, None] = {}

    def add(record: Any) -> None:
        goals[record.get("goal")] = None
        if record["pass_rate"] is not None:
            columns = [list(record[name]) for name in ("right", "leniently", "truncated", "tokens")]
            if not columns[0] or any(len(column) != len(columns[0]) for column in columns):
                raise ValueError
            found.append((int(record["row"]), str(record["prompt_sha256"]), RowResult(*columns)))

    try:
        for_each_line(file, add)
    except ValueError as error:
        raise RecipeError(f"{file}, {error}: is no line of a rows.jsonl that eval wrote") from None
    rows = {key: result for _, key, result in sorted(found, key=lambda one: one[0])}
    return Measurement(next(iter(goals), None), rows)
