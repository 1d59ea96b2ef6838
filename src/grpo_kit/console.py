"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from grpo_kit.processes import is_main
from grpo_kit.terminal import is_unread, show, visible

if TYPE_CHECKING:
    from grpo_kit.diagnosis.findings import Finding
    from grpo_kit.evaluation.evaluate import Evaluation
    from grpo_kit.prepare.prepare import Prepared

LOSS_NOTE = (
    "The loss is not shown: with one update per rollout the probability ratio is 1 and the advantages of a group sum "
    "to 0, so it is near 0 by construction, learning or not. Watch reward and accuracy."
)


class Console:
    """Prints lines above a progress bar; the bar exists only where standard error is a terminal.

    Of several processes the main one prints. What cannot be shown is dropped, and nothing is raised.
    """

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._unread = False

    def say(self, text: str = "") -> None:
        if not is_main():
            return
        with suppress(OSError, ValueError), tqdm.external_write_mode():
            show(text)
        if self._bar is not None and is_unread() and not self._unread:
            self._unread = True
            show("note: nobody reads standard output any more; it goes on without", error=True)

    def start_progress(self, what: str, total: int, done: int = 0) -> None:
        self.stop_progress()
        hidden = None if is_main() else True  # None: where standard error is no terminal
        with suppress(OSError, ValueError):
            self._bar = tqdm(
                total=total, initial=done, desc=visible(what), leave=False, disable=hidden, dynamic_ncols=True
            )

    def progress(self, count: int = 1) -> None:
        if self._bar is not None:
            with suppress(OSError, ValueError):
                self._bar.update(count)

    def stop_progress(self) -> None:
        if self._bar is not None:
            with suppress(OSError, ValueError):
                self._bar.close()
            self._bar = None


def step_line(metrics: dict[str, Any], steps: int) -> str:
    """The line of one step: what matters for GRPO, shares as fractions of 1."""

    def get(key: str) -> float:
        value = metrics.get(key)
        return float("nan") if value is None else float(value)

    head = f"step {metrics['step']:>{len(str(steps))}}/{steps}"
    tail = f"grad norm {get('grad_norm'):.3g}  {get('kit/seconds/step'):.2f} s/step"
    if "kit/accuracy" not in metrics:  # num_iterations or steps_per_generation let several steps share a rollout
        return f"{head}  the same completions once more  {tail}"
    more = ""
    if "kit/sampling/prompts" in metrics:
        more = f"left {get('kit/sampling/flat_left_share'):.2f} of {get('kit/sampling/prompts'):g} prompts  "
    lost = f"unscored {get('kit/unscored_share'):.2f}  " if metrics.get("kit/unscored_share") else ""
    return (
        f"{head}  reward {get('reward'):.3f}  accuracy {get('kit/accuracy'):.2f}  "
        f"flat {get('kit/flat_group_share'):.2f} (all right {get('kit/all_right'):.2f}, "
        f"all wrong {get('kit/all_wrong'):.2f})  {more}truncated {get('kit/truncated_share'):.2f}  "
        f"tokens {get('completions/mean_length'):.0f}  {lost}{tail}"
    )


def evaluation_lines(evaluation: "Evaluation") -> list[str]:
    """Accuracy with its interval, the rewards' means, and one completion in full."""
    accuracy = "nothing could be judged"
    if evaluation.accuracy is not None and evaluation.ci95 is not None:
        low, high = evaluation.ci95
        accuracy = (
            f"accuracy {evaluation.accuracy:.3f} (95% interval {low:.3f} to {high:.3f}, "
            f"{evaluation.n} prompts x {evaluation.samples})"
        )
    own = {evaluation.goal: evaluation.accuracy}  # the goal's mean says nothing more where it is 0 or 1 for each
    means = [(name, mean) for name, mean in evaluation.rewards.items() if mean is not None and own.get(name) != mean]
    parts = [accuracy, *(f"{name} {mean:.3f}" for name, mean in means)]
    parts += [f"tokens {evaluation.mean_tokens:.0f}", f"truncated {evaluation.truncated_share:.2f}"]
    parts += [f"not judged by {name} {share:.2f}" for name, share in evaluation.unscored.items() if share]
    return [f"held-out after step {evaluation.step}: {'  '.join(parts)}", *example_lines(evaluation.example)]


def example_lines(example: dict[str, Any]) -> list[str]:
    """One completion in full, with the answer read in it and its rewards."""
    rewards = "  ".join(
        f"{name} {'not judged' if value is None else format(value, '.3g')}"
        for name, value in example["rewards"].items()
    )
    lines = [f"  | {line}" for line in visible(example["completion"]).split("\n")]
    gold = "" if example.get("gold") is None else f"   gold: {visible(str(example['gold']))}"
    read = "none" if example.get("answer_read") is None else visible(str(example["answer_read"]))
    return [f"  prompt: {visible(example['prompt'])}", *lines, f"  answer read: {read}{gold}   {rewards}"]


def finding_lines(finding: "Finding", completions: Sequence[str] = ()) -> list[str]:
    """What is wrong and since when; how it shows, why, and what to change; some completions that show it."""
    return [
        f"finding      {finding.name}, since step {finding.since}   ({finding.reference})",
        f"  seen       {visible(finding.evidence)}",
        f"  why        {visible(finding.cause)}",
        f"  change     {visible(finding.change)}",
        *([f"  override   {finding.override}"] if finding.override else []),
        *(f"  sample     {visible(text)}".replace("\n", "\n             ") for text in completions),
    ]


def plan_lines(prepared: "Prepared") -> list[str]:
    """What a run will do, as `check` prints it and `run` begins with."""
    plan, args, recipe = prepared.plan, prepared.args, prepared.recipe
    first = prepared.data.rows[0]
    lora = "full fine-tuning" if prepared.lora is None else f"LoRA r={prepared.lora.r}"
    unused = (
        f", {plan.unused_rows_per_epoch} of {plan.rows} rows unused per epoch" if plan.unused_rows_per_epoch else ""
    )
    each = f"{args.world_size} processes, each on " if args.world_size > 1 else ""
    held_out = "none: nothing will be measured"
    if prepared.eval_data is not None:
        held_out = f"{prepared.eval_data.label}, {len(prepared.eval_data.rows)} rows x {recipe.evaluation.samples}"
    lines = [
        f"recipe     {recipe.source}",
        f"device     {each}{prepared.device.describe()}",
        f"model      {recipe.model}, {lora}, completions end at {_end_tokens(prepared)}",
        f"data       {prepared.data.label}, {plan.rows} rows{unused}; prompts of {plan.prompt_tokens_median} tokens "
        f"(median) to {plan.prompt_tokens_max}",
        f"held-out   {held_out}",
        *(f"reward     {r.label} x {r.weight:g}  {r.path}" for r in prepared.rewards),
        *([f"gold       {prepared.gold.describe()}"] if prepared.gold else []),
        f"plan       {plan.steps} steps ({plan.epochs:.2g} epochs) of {plan.prompts_per_step:g} prompts x "
        f"{args.num_generations} = {plan.completions_per_step} completions, up to {args.max_completion_length} tokens",
        f"memory     {plan.memory.describe()}, of {plan.memory_gb:.3g} GB"
        f"{' of a bfloat16 card' if plan.largest else ''}; disk up to {max(plan.disk_gb, 0.1):.1f} GB",
        *([f"fits       up to {plan.largest}"] if plan.largest else []),
        *(f"note       {note}" for note in prepared.notes),
    ]
    shown = ["first prompt, as the model sees it:", *(f"  | {x}" for x in _rendered(prepared, first).split("\n"))]
    return [*lines, *shown, *([f"  gold: {visible(first['answer'])}"] if first.get("answer") is not None else [])]


def closing_lines(summary: dict[str, Any], goal: str, folder: Path) -> list[str]:
    """The end of the story in a few lines."""
    before, after, gain = summary["eval_before"], summary["eval_after"], summary["gain"]
    lines = []
    if before and after and gain:
        own = "accuracy" if goal == "accuracy" or "accuracy" not in after["rewards"] else f"right ({goal})"
        pairs = {own: (before["accuracy"], after["accuracy"])}
        pairs |= {label: (before["rewards"][label], mean) for label, mean in after["rewards"].items() if label != goal}
        lines = [f"{name:<12} {a:.3f} -> {b:.3f}" for name, (a, b) in pairs.items() if a is not None and b is not None]
        low, high = gain["ci95"]
        lines.append(f"gain         {gain['value']:+.3f} (95% interval {low:+.3f} to {high:+.3f}, paired by prompt)")
    lines.append(f"status       {summary['status']}" + (f": {summary['reason']}" if summary["reason"] else ""))
    more = f"; about {gain['rows_needed']} held-out rows would tell" if gain and gain["rows_needed"] else ""
    lines.append(f"verdict      {summary['verdict']}{more}")
    best = summary["best"]
    if best is not None and best["step"] != summary["steps"]:
        lines.append(f"best         {best['accuracy']:.3f} after step {best['step']}, kept in {folder}/best")
    report = folder / "report.html"
    return [*lines, *([f"report       {report}"] if report.is_file() else []), f"files        {folder}"]


def settings_lines(prepared: "Prepared") -> list[str]:
    """Every value of the trainer's configuration and where it comes from."""
    values = prepared.args.to_dict()
    return [f"{key} = {values[key]!r}   ({prepared.settings.origin(key)})" for key in sorted(values)]


def _rendered(prepared: "Prepared", row: dict[str, Any]) -> str:
    return visible(prepared.chat.render(row["prompt"]))


def _end_tokens(prepared: "Prepared") -> str:
    return " ".join(prepared.chat.tokenizer.convert_ids_to_tokens(sorted(prepared.chat.end_ids)))
