"""Reading a run's completions: filter them by reward, show them as text."""

import operator
import re
from collections.abc import Callable
from typing import Any

from grpo_kit.console import example_lines
from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.errors import RecipeError
from grpo_kit.run.run_dir import RunDir
from grpo_kit.stats import ROUNDING

CONDITION = re.compile(r"^\s*([^<>=\s]+)\s*(<=|>=|=|<|>)\s*(\S+)\s*$")
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
FIELDS = ("step", "row", "advantage", "tokens", "truncated")


def matching_samples(run: RunDir, conditions: list[str]) -> list[dict[str, Any]]:
    """The completions of a run that meet every condition such as `accuracy=0` or `tokens>200`, oldest first.

    Raises RecipeError for a condition that is malformed or names something that the run does not have.
    """
    records = list(run.records("samples.jsonl"))
    if not records:
        raise RecipeError(f"{run.path}: has no completions (samples.jsonl) yet")
    names = (*records[0]["rewards"], *FIELDS)
    tests = [_condition(text, names) for text in conditions]
    return [record for record in records if all(test(record) for test in tests)]


def sample_lines(sample: dict[str, Any]) -> list[str]:
    advantage = f"advantage {sample['advantage']:+.2f}  " if sample.get("advantage") is not None else ""
    head = (
        f"step {sample['step']}  row {sample['row']}  {advantage}tokens {sample['tokens']}"
        f"{'  truncated' if sample['truncated'] else ''}"
    )
    return [head, *example_lines(sample), ""]


SHOWN, WIDTH = 3, 300
"""So many completions, of so many characters, are shown of a finding."""


def telling_completions(run: RunDir, finding: Finding, facts: Facts) -> list[str]:
    """Up to three texts that show what a finding about a reward means, the plainest first; none for other findings.

    Since its step, those with the most of that reward whose goal is not reached; of `unscored` those without a score.
    """
    if finding.reward is None:
        return []
    found: dict[str, float] = {}
    for record in run.lines("samples.jsonl"):
        step, text, rewards = record.get("step"), record.get("completion"), record.get("rewards")
        if not isinstance(step, int) or step < finding.since or not isinstance(text, str):
            continue
        scores = rewards if isinstance(rewards, dict) else {}
        own, goal = scores.get(finding.reward), scores.get(facts.goal)
        if finding.name == "unscored":
            if own is None and finding.reward in scores:
                found[text] = 0.0
        elif isinstance(own, int | float) and not _reached(goal, finding.reward, facts):
            found[text] = float(own)
    best = sorted(found, key=lambda text: -found[text])[:SHOWN]
    return [text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..." for text in best]


def _reached(goal: Any, reward: str, facts: Facts) -> bool:
    """Whether the goal has its full marks; not asked where the finding is about the goal's own reward."""
    full = facts.full_marks.get(facts.goal or "", 1.0)
    return reward != facts.goal and isinstance(goal, int | float) and goal >= full - ROUNDING


def _condition(text: str, names: tuple[str, ...]) -> Callable[[dict[str, Any]], bool]:
    match = CONDITION.match(text)
    if match is None or match[1] not in names:
        raise RecipeError(f"--where {text!r}: write NAME=NUMBER (or < > <= >=); names: {', '.join(names)}")
    name, compare = match[1], COMPARE[match[2]]
    try:
        wanted = {"true": 1.0, "false": 0.0}.get(match[3].lower()) if match[3].isalpha() else float(match[3])
    except ValueError:
        wanted = None
    if wanted is None:
        raise RecipeError(f"--where {text!r}: {match[3]!r} is no number")

    def test(record: dict[str, Any]) -> bool:
        value = record.get(name) if name in FIELDS else record["rewards"].get(name)
        return value is not None and compare(float(value), wanted)

    return test
