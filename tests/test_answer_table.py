"""The accuracy reward on completions as models write them, kind by kind, against what a careful person would give.

`answers.jsonl` holds them: kind, completion, gold, expect (1.0 or 0.0) and why.
"""

import json
from collections import defaultdict
from pathlib import Path

from grpo_kit.recipe.recipe import Recipe, load_recipe
from grpo_kit.rewards.rewards import Completions, load_rewards
from grpo_kit.rewards.scoring import Scorer

ROWS = [json.loads(line) for line in (Path(__file__).parent / "answers.jsonl").read_text("utf-8").splitlines()]

NEVER_PAID = ("hack_", "code_injection", "think_tags", "truncated", "empty_degenerate", "huge_input", "multi_boxed")
"""Kinds in which a wrong payment teaches the model a trick."""


def accuracy_recipe() -> Recipe:
    Path("r.yaml").write_text("model: m\ndataset: {path: d.jsonl}\nrewards: {accuracy: 1.0}\n")
    return load_recipe(Path("r.yaml"))


def test_right_in_every_kind(capsys):
    prompt = [{"role": "user", "content": "?"}]
    batch = Completions(
        [row["completion"] for row in ROWS],
        [[0]] * len(ROWS),
        [{"prompt": prompt, "answer": row["gold"]} for row in ROWS],
    )
    scores = Scorer(load_rewards(accuracy_recipe())).score(batch).values["accuracy"]
    kinds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row, score in zip(ROWS, scores, strict=True):
        kinds[row["kind"]].append((row["expect"], score or 0.0))
    with capsys.disabled():
        print("\n\nkind                     rows  right  paid wrongly")
        for kind, pairs in sorted(kinds.items()):
            right, paid = (sum(e == s for e, s in pairs), sum(e < s for e, s in pairs))
            print(f"{kind:<24} {len(pairs):>4}  {right:>5}  {paid or '':>12}")
    pairs = [pair for found in kinds.values() for pair in found]
    assert len(kinds) == 42
    assert sum(e == s for e, s in pairs) >= 0.97 * len(pairs)
    hacks = [kind for kind in kinds if kind.startswith(NEVER_PAID)]
    assert len(hacks) == 12
    assert not [kind for kind in hacks if any(e < s for e, s in kinds[kind])]
