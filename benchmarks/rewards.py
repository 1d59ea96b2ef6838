r"""Time of the accuracy reward, worker processes included, beside trl.rewards.accuracy_reward on the same batch.

    python benchmarks/rewards.py [--pairs 15]

A batch is 64 completions of about 300 tokens of worked mathematics. `plain` golds are numbers, `latex` golds are
expressions, sets, points and intervals; half of the completions are right, spelt as a model might spell it. The two are
timed in turn, and the ratio of each pair is printed: below 1 the kit is faster. TRL's numbers are given as it needs
them, in `$...$`; what each finds right is printed too, for a fast wrong answer is worth nothing.
"""

import argparse
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.rewards.rewards import Completions, load_rewards
from grpo_kit.rewards.scoring import Scorer
from grpo_kit.rewards.workers import shared_workers

SIZE = 64
PLAIN = [("42", "42"), ("1,250", "1250"), ("3/4", "0.75"), ("-7", "-7"), ("12.5", "12.50"), ("98", "98"), ("6", "6.0")]
LATEX = [
    (r"\frac{3}{4}", r"\dfrac{6}{8}"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"x^2+2x+1", r"(x+1)^2"),
    (r"(1, 2)", r"\left(1, 2\right)"),
    (r"\{1, 2, 3\}", r"\{3, 2, 1\}"),
    (r"[2, 5)", r"[2, 5)"),
    (r"\frac{\pi}{6}", r"\pi/6"),
]
STEPS = [
    "First, we let $n$ be the number of rows, so that $n^2 + 3n = {a}$ holds.",
    "Since {a} divided by {b} leaves a remainder of {c}, we try the next case.",
    "Therefore the total is {a} + {b} = {d}, and the half of it is {c}.",
    r"Substituting $x = \frac{{{b}}}{{{c}}}$ into the second equation gives ${a}x = {d}$.",
    "She then gives away {c} of them, which leaves {b} - {c} for the others.",
]


def batch(pairs: list[tuple[str, str]], seed: int) -> tuple[list[str], list[str]]:
    """64 worked solutions of about 300 tokens (1,100 characters) with their gold answers; every other one is wrong."""
    draw = random.Random(seed)
    texts, golds = [], []
    for at in range(SIZE):
        gold, spelt = pairs[at % len(pairs)]
        other = pairs[(at + 1) % len(pairs)][1]
        text = ""
        while len(text) < 1100:
            a, b, c = draw.randrange(20, 500), draw.randrange(2, 90), draw.randrange(2, 20)
            text += draw.choice(STEPS).format(a=a, b=b, c=c, d=a + b) + "\n"
        texts.append(f"{text}\nThe final answer is $\\boxed{{{spelt if at % 2 == 0 else other}}}$.")
        golds.append(gold)
    return texts, golds


def timed(function: Callable[[], list[float | None]]) -> tuple[float, list[float | None]]:
    started = time.perf_counter()
    scores = function()
    return time.perf_counter() - started, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of timings for each kind (default 15)")
    pairs = parser.parse_args().pairs
    from trl.rewards import accuracy_reward

    scorer = Scorer(load_rewards(load_recipe(Path(__file__).parents[1] / "recipes" / "math.yaml"))[:1])
    print(f"{SIZE} completions, {pairs} pairs, {os.cpu_count()} CPUs, {shared_workers().count} worker processes")
    for name, examples in (("plain", PLAIN), ("latex", LATEX)):
        ratios = []
        for at in range(pairs + 1):
            texts, golds = batch(examples, seed=at)  # a new batch each time, so that no cache answers
            rows = [{"prompt": [{"role": "user", "content": "?"}], "answer": gold} for gold in golds]
            judged = Completions(texts, [[0] * 300] * SIZE, rows)
            chats = [[{"role": "assistant", "content": text}] for text in texts]
            dollars = [f"${gold}$" for gold in golds]
            ours, scores = timed(lambda judged=judged: scorer.score(judged).values["accuracy"])
            theirs, others = timed(lambda chats=chats, dollars=dollars: accuracy_reward(chats, dollars))
            if at:  # the first pair warms both up
                ratios.append(ours / theirs)
        paid = [sum(bool(score) for score in found) for found in (scores, others)]
        print(
            f"{name}: ratio to accuracy_reward {median(ratios):.3f} (median; {min(ratios):.3f} to {max(ratios):.3f}); "
            f"paid {paid[0]}, accuracy_reward {paid[1]}; right are {SIZE // 2}"
        )


if __name__ == "__main__":
    main()
