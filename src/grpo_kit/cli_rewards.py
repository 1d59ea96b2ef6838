"""The commands about rewards, before and after a run: what there is, and what can be said against it."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_kit.errors import RecipeError
from grpo_kit.terminal import show

rewards_app = typer.Typer(
    help="List the rewards there are; test and attack them; replay a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

RecipeOption = Annotated[
    Path | None, typer.Option("--recipe", metavar="RECIPE", help="A recipe (.yaml), or the directory of a run.")
]


@rewards_app.command("list")
def list_all(recipe: RecipeOption = None) -> None:
    """Show what a recipe can use.

    Looks beside the recipe (else in ./rewards), one folder up, and among the shipped rewards.
    """
    from grpo_kit.reward_tools.listing import found_rewards, list_lines

    for line in list_lines(found_rewards(recipe)):
        show(line)


@rewards_app.command("test")
def put_to_test(
    name: Annotated[str | None, typer.Argument(help="A reward's name, or its .py file; absent: all of them.")] = None,
    recipe: RecipeOption = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="RUN", help="Attack with the model of a finished run instead.")
    ] = None,
) -> None:
    """Test rewards and attack them. Exit code 1 where something was found.

    Runs a file's CASES, looks whether scores repeat, and tries to be paid without an answer, on the recipe's own data.
    """
    if model is not None and name is not None:
        raise RecipeError(f"--model {model}: attacks all rewards of its recipe at once; leave out {name}")
    if model is not None:
        from grpo_kit.run.run_dir import find_run

        found = find_run(model)
        from grpo_kit.reward_tools.attack_model import attack_with_model

        findings = attack_with_model(found, recipe, show)
    else:
        from grpo_kit.reward_tools.testing import test_rewards

        findings = test_rewards(name, recipe, show)
    show(f"{findings} finding{'' if findings == 1 else 's'}" if findings else "nothing was found against them")
    raise typer.Exit(1 if findings else 0)


@rewards_app.command("replay")
def replay_run(
    run: Annotated[str, typer.Argument(help="A run's directory, or a recipe's name (its newest run).")],
    recipe: RecipeOption = None,
    limit: Annotated[int, typer.Option("--limit", help="How many changed completions to show.", min=0)] = 5,
) -> None:
    """Score a run's completions again, with the rewards as they are now.

    Those of --recipe; else of the recipe that the run was started from; else the run's own copies.
    """
    from grpo_kit.reward_tools.replay import replay
    from grpo_kit.run.run_dir import find_run

    for line in replay(find_run(run), recipe, limit):
        show(line)
