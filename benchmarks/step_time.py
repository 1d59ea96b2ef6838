r"""Step time and memory of the kit (`fast: true`) beside bare TRL (`fast: false`): same seeds, same data, in turn.

    python benchmarks/step_time.py [CASE ...] [--model FOLDER] [--pairs 5] [--one-at-a-time] [--json FILE]

Two processes hold one trainer each, and take a step by turns; the first step of each is left out. Printed is the median
of the ratios bare / kit with the least and the greatest, and the medians of both, in seconds. `tokens/s` are the
completions' tokens by the whole step. Memory is the peak of each process (VmHWM), and the peak of the steps above what
it held with the trainer just built; it is one figure a case. The short and long cases need a Qwen2.5-0.5B-class
checkpoint: `--model FOLDER`.
"""

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from pairs import Child, Measured, machine, measure, measure_apart, spread

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Case:
    """A recipe; with `data` its rows in order, of which `flat` in each `prompts` are planned to be flat groups."""

    what: str
    recipe: str
    data: str = ""
    prompts: int = 0
    flat: int = 0
    settings: tuple[str, ...] = ()
    needs_model: bool = False


SMOKE = ("benchmarks/recipes/builtin.yaml", "sums_train.jsonl", 10)
LONG = ("benchmarks/recipes/long.yaml", "two_digit_train.jsonl")
WHOLE = ("grpo.per_device_train_batch_size=32", "grpo.gradient_accumulation_steps=1")
FIVE = ("grpo.gradient_accumulation_steps=5",)
CASES = {
    "smoke": Case("built-in model, recipes/smoke.yaml as it is", "recipes/smoke.yaml"),
    "tiny-0": Case("built-in model, 10 x 8 completions of 24 tokens, no flat group", *SMOKE, flat=0),
    "tiny-50": Case("the same with 5 of 10 groups flat", *SMOKE, flat=5),
    "tiny-80": Case("the same with 8 of 10 groups flat", *SMOKE, flat=8),
    "short": Case("0.5B, LoRA, 4 x 8, answers of a few tokens", "benchmarks/recipes/short.yaml", needs_model=True),
    "short-32": Case(
        "the same as one micro-batch of 32", "benchmarks/recipes/short.yaml", settings=WHOLE, needs_model=True
    ),
    "long": Case("0.5B, LoRA, 4 x 8 completions of 64 tokens, no flat group", *LONG, 4, needs_model=True),
    "long-32": Case("the same as one micro-batch of 32", *LONG, 4, settings=WHOLE, needs_model=True),
    "long-50": Case("the same with 2 of 4 groups flat", *LONG, 4, 2, needs_model=True),
    "long-80": Case("the same with 5 prompts, 4 of 5 groups flat", *LONG, 5, 4, FIVE, needs_model=True),
}


PARTS = {
    "step": "wall_s",
    "generation": "kit/seconds/generation",
    "rewards": "kit/seconds/rewards",
    "update": "kit/seconds/update",
    "tokens/s": "tokens_per_s",
}


def overrides(case: Case, model: str | None, pairs: int, folder: Path) -> list[str]:
    """What the recipe is run with; planned rows are written to the folder."""
    given = [*case.settings]
    if case.needs_model:
        given.append(f"model={model}")
    if case.data:
        lines = (ROOT / "recipes" / "data" / case.data).read_text().splitlines()[: case.prompts * (pairs + 1)]
        rows = [{**json.loads(line), "flat": at % case.prompts < case.flat} for at, line in enumerate(lines)]
        file = folder / "rows.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        given.append(f"dataset.path={file}")
    return given


def run(case: Case, model: str | None, pairs: int, apart: bool) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        settings = overrides(case, model, pairs, Path(folder))
        if apart:
            return measure_apart(ROOT / case.recipe, settings, pairs)
        with Child(fast=True) as kit, Child(fast=False) as bare:
            return measure(ROOT / case.recipe, settings, pairs, kit, bare)


def report(name: str, case: Case, found: Measured) -> None:
    """The lines of one case."""
    same = "yes" if found.same_rewards() else "no"
    print(f"\n{name}: {case.what}")
    print(f"  {len(found.kit)} pairs; flat groups {found.flat_share():.2f}; rewards of both the same: {same}")
    print(f"  {'':<13}{'bare / kit, median (min to max)':<34}{'kit':>9}{'bare':>10}")
    for part, key in PARTS.items():
        kit, bare = [median(step[key] for step in steps) for steps in (found.kit, found.bare)]
        print(f"  {part:<13}{spread(found.ratios(key)):<34}{kit:>9.4g}{bare:>10.4g}")
    for label, key in (("memory", "peak_gb"), ("above start", "above_start_gb")):
        kit_gb, bare_gb = found.memory["kit"][key], found.memory["bare"][key]
        print(f"  {label:<13}{bare_gb / kit_gb:<34.2f}{kit_gb:>7.2f}GB{bare_gb:>8.2f}GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = "\n".join(f"{name:<8} {case.what}" for name, case in CASES.items())
    parser.epilog = f"cases (default: all that can be run):\n{cases}"
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--model", help="folder of a Qwen2.5-0.5B-class checkpoint")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of steps, after one of warm-up (default 5)")
    parser.add_argument("--one-at-a-time", action="store_true", help="for where memory does not hold both models")
    parser.add_argument("--json", type=Path, help="write machine, versions and every step to this file")
    given = parser.parse_args()
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    facts = machine()
    print("\n".join(f"{key:<16} {value}" for key, value in facts.items()))
    records = {}
    for name in given.cases or CASES:
        case = CASES[name]
        if case.needs_model and given.model is None:
            print(f"\n{name}: {case.what}\n  not run: give a checkpoint with --model FOLDER", flush=True)
            continue
        found = run(case, given.model, given.pairs, given.one_at_a_time)
        report(name, case, found)
        records[name] = {"what": case.what, **asdict(found)}
    if given.json:
        given.json.write_text(json.dumps({**facts, "pairs": given.pairs, "cases": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
