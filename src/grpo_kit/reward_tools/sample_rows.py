"""A run's completions as `samples.jsonl` keeps them, and the data row that each was written for."""

from typing import Any

from grpo_kit.data.data import Data
from grpo_kit.data.sources import Row
from grpo_kit.errors import RecipeError
from grpo_kit.run.run_dir import RunDir

FILE = "samples.jsonl"

Sample = dict[str, Any]
"""One record of the file."""


def read_samples(run: RunDir) -> list[Sample]:
    """The completions that a run has written, oldest first. Raises RecipeError for none, and for damaged ones.

    A last line that a crash has cut off does not count.
    """
    records = list(run.lines(FILE))
    if not records:
        raise RecipeError(f"{run.path}: has no completions ({FILE})")
    with (run.path / FILE).open("rb") as file:
        damaged = sum(line.endswith(b"\n") for line in file) - sum(map(_is_sample, records))
    if damaged > 0:
        raise RecipeError(
            f"{run.path / FILE}: is damaged, {damaged} of its lines hold no completion; replay another run"
        )
    return [record for record in records if _is_sample(record)]


def _is_sample(record: dict[str, Any]) -> bool:
    kinds = {"step": int, "row": int, "tokens": int, "prompt": str, "completion": str, "rewards": dict}
    return all(isinstance(record.get(key), kind) for key, kind in kinds.items()) and all(
        score is None or isinstance(score, int | float) for score in record["rewards"].values()
    )


class RowFinder:
    """The data row that a completion was written for.

    A sample's `row` counts the rows that were trained on, without those whose prompts were too long; which these were
    only the model's tokenizer could tell. So where the data hold more rows now, a row is found by its prompt and gold
    answer, among those that the number can mean. None where two rows that differ could be meant.
    """

    def __init__(self, data: Data, recorded: dict[str, Any]):
        self.rows = data.rows
        now = data.fingerprint()
        self.dropped = len(data.rows) - recorded.get("rows", len(data.rows))
        other_rows = self.dropped == 0 and now["sha256"] != recorded.get("sha256")
        self.changed = other_rows or self.dropped < 0 or now["scanned"] != recorded.get("scanned")
        self._places: dict[str, list[int]] = {}
        for place, row in enumerate(data.rows):
            self._places.setdefault(row["prompt"][-1]["content"], []).append(place)

    def __call__(self, sample: Sample) -> Row | None:
        at = sample["row"]
        places = self._places.get(sample["prompt"], [])
        if self.dropped == 0 and at in places:
            return self.rows[at]
        places = [place for place in places if self.rows[place].get("answer") == sample.get("gold")] or places
        places = [place for place in places if at <= place <= at + self.dropped] or places
        rows = [self.rows[place] for place in places]
        return rows[0] if rows and all(row == rows[0] for row in rows) else None
