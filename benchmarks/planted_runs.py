"""Does the diagnosis name what is wrong with real runs, and is it silent on those that learn?

    python benchmarks/planted_runs.py [--only FAULT ...] [--json FILE]

Runs of the built-in model, one after another, on one core: the smoke recipe as it is, and with one thing planted that
is known to go wrong. What a run said of itself while it trained (`finding` in events.jsonl) is compared with what was
planted. A finding is right where it is one of those that the fault may show itself as; a fault is found where a right
finding was made of it.
"""

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from grpo_kit.cli import main as grpo_kit
from grpo_kit.run.run_dir import RunDir

RECIPE = Path(__file__).parents[1] / "recipes" / "smoke.yaml"


@dataclass(frozen=True)
class Plan:
    """Runs with the same overrides. `expected` are the findings that are right, `why` says where they come from."""

    name: str
    why: str
    overrides: tuple[str, ...] = ()
    expected: frozenset[str] = frozenset()
    seeds: Sequence[int] = (1, 2, 3)
    steps: int = 40
    rewards: dict[str, str] = field(default_factory=dict)


THROWN = frozenset(
    {
        "accuracy-collapse", "entropy-explosion", "entropy-collapse", "length-growth", "length-collapse",
        "gradient-spike", "no-gradient", "truncation",
    }
)  # fmt: skip
"""Ways in which a policy shows that it was thrown away: noise, or one text for all prompts."""

CONSTANT = '"""Always the same."""\n\n\ndef constant(completion):\n    return 0.5\n'
NINES = '"""A quarter for each nine."""\n\n\ndef nines(completion):\n    return min(completion.count("9"), 4) / 4\n'

PLANS = (
    Plan("healthy", "the smoke recipe, which learns", seeds=(1, 2, 3, 4, 5), steps=60),
    Plan(
        "learning rate x 30",
        "updates of this size throw the policy away",
        ("grpo.learning_rate=6e-3",),
        THROWN,
    ),
    Plan(
        "constant reward",
        "no completion is better than another",
        ("rewards={constant: 1.0}",),
        frozenset({"no-gradient"}),
        steps=10,
        rewards={"constant": CONSTANT},
    ),
    Plan(
        "too small a budget",
        "answers have 7 to 12 tokens; where all are cut, none is right, and no group has a gradient",
        ("grpo.max_completion_length=8",),
        frozenset({"truncation", "no-gradient"}),
        steps=20,
    ),
    Plan(
        "hackable reward",
        "nines pay ten times what a right answer does, and are easier to find, so they are what is learned",
        ("rewards={accuracy: 0.1, nines: 1.0}", "goal=accuracy"),
        frozenset({"farmed-reward", "dominating-reward", "accuracy-collapse", "length-growth", "truncation"}),
        rewards={"nines": NINES},
    ),
    Plan(
        "temperature 0.05",
        "completions of a prompt are all the same text",
        ("grpo.temperature=0.05",),
        frozenset({"no-gradient"}),
        steps=20,
    ),
    Plan(
        "KL",
        "the policy is torn from its reference model faster than beta holds it",
        ("grpo.beta=0.04", "grpo.learning_rate=3e-3"),
        THROWN | {"kl"},
    ),
)


@dataclass(frozen=True)
class Found:
    plan: Plan
    seed: int
    findings: dict[str, int]  # by name, the step at which it was said first
    accuracy: float
    seconds: float


def run(plan: Plan, seed: int) -> Found:
    """One run in a folder of its own."""
    started, before = time.perf_counter(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        os.chdir(folder)
        try:
            Path("smoke.yaml").write_text(RECIPE.read_text("utf-8").replace("data/", f"{RECIPE.parent}/data/"), "utf-8")
            for label, text in plan.rewards.items():
                Path("rewards").mkdir(exist_ok=True)
                Path(f"rewards/{label}.py").write_text(text, encoding="utf-8")
            settings = (f"seed={seed}", f"grpo.max_steps={plan.steps}", "eval_dataset=null", "grpo.save_strategy='no'")
            with contextlib.suppress(SystemExit):  # a run that learned nothing ends with 1
                grpo_kit(["run", "smoke.yaml", *plan.overrides, *settings])
            metrics = list(RunDir(Path("runs/smoke")).lines("metrics.jsonl"))
            if not metrics:
                raise SystemExit(f"{plan.name}, seed {seed}: no step was made\n{said.getvalue()}")
            findings: dict[str, int] = {}
            for event in RunDir(Path("runs/smoke")).lines("events.jsonl"):
                if event["event"] == "finding":
                    findings.setdefault(event["name"], event["step"])
        finally:
            os.chdir(before)
    return Found(plan, seed, findings, metrics[-1]["kit/accuracy"], time.perf_counter() - started)


def line(found: Found) -> str:
    """What was said of a run, each finding with its step; those that are wrong are marked."""
    expected = found.plan.expected
    told = [f"{name} {step}{'' if name in expected else ' (wrong)'}" for name, step in found.findings.items()]
    hit = bool(expected & found.findings.keys()) if expected else not found.findings
    return (
        f"{found.plan.name:<20} {found.seed:>4}  {found.accuracy:>8.2f}  {found.seconds:>4.0f} s  "
        f"{'right' if hit else 'MISSED' if expected else 'WRONG':<6}  {', '.join(told) or '-'}"
    )


def verdict(found: Sequence[Found]) -> str:
    """Precision over all findings, recall over the runs with a fault."""
    right = sum(name in one.plan.expected for one in found for name in one.findings)
    made = sum(len(one.findings) for one in found)
    faulty = [one for one in found if one.plan.expected]
    hit = sum(bool(one.plan.expected & one.findings.keys()) for one in faulty)
    healthy = [one for one in found if not one.plan.expected]
    return (
        f"precision {right}/{made} findings, recall {hit}/{len(faulty)} faulty runs, "
        f"{sum(bool(one.findings) for one in healthy)}/{len(healthy)} healthy runs with a finding"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[plan.name for plan in PLANS], help="these alone")
    parser.add_argument("--json", type=Path, help="write what was found to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'run':<20} seed  accuracy  time    verdict findings, and the step at which each was made")
    found = []
    for plan in PLANS:
        if options.only and plan.name not in options.only:
            continue
        for seed in plan.seeds:
            found.append(run(plan, seed))
            print(line(found[-1]), flush=True)
    print(verdict(found))
    print(
        "\n".join(
            f"{plan.name}: {plan.why}; {', '.join(sorted(plan.expected)) or 'nothing'} is right" for plan in PLANS
        )
    )
    if options.json:
        records = [
            {"run": one.plan.name, "seed": one.seed, "findings": one.findings, "seconds": one.seconds} for one in found
        ]
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
