"""The shape of a recipe, through the command line: a mistake is one line with file, line, key and what to write."""

import os
from pathlib import Path

import pytest
from command_line import RECIPE, assert_says, changed, with_key

from grpo_kit.cli import main
from grpo_kit.errors import RecipeError
from grpo_kit.recipe.recipe import load_recipe

DATASET = "dataset:\n  path: rows.jsonl\n  prompt: '{question}'\n"
GRPO = RECIPE[RECIPE.index("grpo:") :]


def test_the_recipe_of_these_tests_is_right(cli):
    shown = cli.passes()
    assert "2 steps (0.5 epochs) of 2 prompts x 4 = 8 completions, up to 8 tokens" in shown  # 8 rows / 2 = 4 an epoch


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "r.yaml: is empty; a recipe is a mapping that starts with `model:`"),
        ("# nothing but a comment\n", "r.yaml: is empty"),
        ("- model: model\n", "r.yaml: has a list at the top; a recipe is a mapping that starts with `model:`"),
        ("model\n", "r.yaml: has a str at the top"),
        ("model: model\ndataset:\n\tpath: rows.jsonl\n", "r.yaml:3: not valid YAML: a tab; YAML indents with spaces"),
        (RECIPE + "---\nmodel: other\n", "r.yaml:13: not valid YAML: expected a single document in the stream"),
        ("model: [model\n", "r.yaml:2: not valid YAML: while parsing a flow sequence"),
        ("model: a\x07b\n", "r.yaml:1: not valid YAML: the character U+0007 is not allowed"),
        (b"model: \xff\xfe\n", "r.yaml: not UTF-8 text (invalid start byte at byte 7)"),
        (RECIPE.encode("utf-16"), "r.yaml: not UTF-8 text"),
        ("model: !!python/object/apply:os.system [ls]\n", "r.yaml:1: not valid YAML: could not determine a construct"),
        ("model: *nowhere\n", "r.yaml:1: not valid YAML: found undefined alias 'nowhere'"),
        ("model: &a x\nname: &a y\n", "r.yaml:2: not valid YAML: found duplicate anchor 'a'"),
        ("model: 2001-99-99\n", "r.yaml:1: not valid YAML: month must be in 1..12"),
        ("model: " + "[" * 1500 + "\n", "r.yaml:1: not valid YAML: nested too deeply"),
    ],
)
def test_a_file_that_is_no_recipe(cli, text, message):
    assert_says(cli.refuses(recipe=text), message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.yaml", "missing.yaml: no such file; recipes are YAML files such as recipes/smoke.yaml"),
        ("folder", "folder: is a folder, not a recipe; name a .yaml file or a run directory"),
        ("r.yaml/inside", "r.yaml/inside: cannot be read (Not a directory)"),
        ("loop.yaml", "loop.yaml: cannot be read (Too many levels of symbolic links)"),
        ("n" * 5000, "nnn"),
    ],
)
def test_a_path_that_is_no_recipe(capsys, name, message):
    Path("folder").mkdir()
    Path("r.yaml").touch()
    Path("loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(SystemExit) as ended:
        main(["check", name])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert_says(err, f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission(cli):
    Path("closed").mkdir()
    Path("closed/rows.jsonl").write_text("{}\n")
    Path("closed").chmod(0)
    message = cli.refuses("dataset.path=closed/rows.jsonl")
    assert_says(message, "closed/rows.jsonl: cannot be read (Permission denied)")
    Path("r.yaml").chmod(0)
    assert_says(cli.refuses(recipe=None), "r.yaml: cannot be read (Permission denied)")


@pytest.mark.parametrize(
    "recipe",
    [
        "\ufeff" + RECIPE,
        RECIPE.replace("\n", "\r\n"),
        changed("model: model", "model: &m model") + "name: *m\n",
        changed("  path: rows.jsonl\n", "  <<: {path: rows.jsonl, limit: 3}\n  limit: 8\n"),
        changed("dataset:\n", "dataset: !!map\n"),
    ],
    ids=["byte order mark", "CRLF", "anchor", "merge", "tag"],
)
def test_yaml_that_is_unusual_but_right(cli, recipe):
    assert "rows.jsonl, 8 rows" in cli.passes(recipe=recipe)


@pytest.mark.parametrize(
    ("first", "next_of"),
    [
        ("[x, x, x, x, x, x, x, x, x]", lambda before: f"[{', '.join([before] * 9)}]"),
        ("{a: 1, b: 2}", lambda before: f"{{<<: [{', '.join([before] * 9)}]}}"),
        ("{a: 1}", lambda before: "{" + ", ".join(f"k{at}: {before}" for at in range(9)) + "}"),
    ],
    ids=["lists", "merges", "mappings"],
)
@pytest.mark.parametrize("key", ["seed", "stop_on", "model", "lora", "grpo", "rewards", "nothing"])
def test_aliases_that_stand_for_more_than_fits_in_memory(cli, key, first, next_of):
    text = f"a0: &a0 {first}\n" + "".join(f"a{at}: &a{at} {next_of(f'*a{at - 1}')}\n" for at in range(1, 13))
    message = cli.refuses(recipe=f"{text}{key}: *a12\n")
    assert message == "r.yaml:1: it stands for more than 100000 values, with its aliases (*) written out"


@pytest.mark.parametrize("number", [str(2**63), "1" + "0" * 330, "-0x" + "f" * 40, "1_000_000_000_000_000_000_000"])
def test_an_integer_beyond_all_counts(cli, number):
    recipe = changed("  max_steps: 2\n", f"  max_steps: {number}\n")
    shown = repr(number) if len(repr(number)) <= 60 else f"{repr(number)[:57]}..."
    line = next(at for at, own in enumerate(recipe.splitlines(), 1) if "max_steps" in own)
    assert cli.refuses(recipe=recipe) == f"r.yaml:{line}: grpo.max_steps: found {shown}; write a number below 2^63"


def test_a_pipe_or_a_device_is_no_recipe(cli):
    os.mkfifo("pipe.yaml")
    for path in ("pipe.yaml", "/dev/zero"):
        with pytest.raises(RecipeError, match=f"{path}: is no regular file; write the recipe to one"):
            load_recipe(Path(path))


@pytest.mark.parametrize("name", ["'\"ab\\ud800cd\"'", "八" * 90, ".hidden", "a/b"])
def test_a_name_that_is_no_folders(cli, name):
    Path("r.yaml").write_text(RECIPE)
    with pytest.raises(RecipeError, match=r"name: found .*; write a folder's name"):
        load_recipe(Path("r.yaml"), [f"name={name.strip(chr(39))}"])


def test_a_file_whose_name_is_no_folders(cli):
    for name in ("..yaml", "a\nb.yaml", "八" * 81 + ".yaml"):
        Path(name).write_text(RECIPE)
        with pytest.raises(RecipeError, match="write name: or rename it"):
            load_recipe(Path(name))
        assert load_recipe(Path(name), ["name=mine"]).run_name == "mine"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("&a\nmodel: *a\n", 1),
        ("model: &a [*a]\n", 1),
        ("model: model\ndataset: &d\n  path: *d\n", 2),
        (with_key("lora: &l {r: {x: [*l]}}"), 13),
        (RECIPE + "  generation_kwargs: &g {a: *g}\n", 13),
    ],
)
def test_an_alias_to_what_contains_it(cli, text, line):
    assert cli.refuses(recipe=text) == f"r.yaml:{line}: an alias (*) refers to the very thing that contains it"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (with_key("seed: 1\nseed: 2"), "r.yaml:14: seed: given twice, first on line 13; remove one"),
        (RECIPE + "  max_steps: 3\n", "r.yaml:13: grpo.max_steps: given twice, first on line 12; remove one"),
        (with_key("grpo: {}"), "r.yaml:13: grpo: given twice, first on line 7; remove one"),
        (with_key("'seed': 1\nseed: 2"), "r.yaml:14: seed: given twice, first on line 13; remove one"),
        (
            with_key("eval_dataset: {path: a.jsonl, path: b.jsonl}"),
            "r.yaml:13: eval_dataset.path: given twice, first on line 13; remove one",
        ),
        (
            changed("  variety: 1.0", "  variety: {weight: 1, weight: 2}"),
            "r.yaml:6: rewards.variety.weight: given twice, first on line 6; remove one",
        ),
    ],
)
def test_a_key_given_twice(cli, recipe, message):
    assert cli.refuses(recipe=recipe) == message


@pytest.mark.parametrize(
    ("recipe", "parts"),
    [
        (with_key("1: 2"), ["r.yaml:13: 1:", "found the key 1; a key is text: put it in quotes, or remove it"]),
        (with_key("on: 2"), ["r.yaml:13: True:", "found the key True"]),
        (with_key("~: 2"), ["r.yaml:13: None:", "found the key None"]),
        (with_key("2001-01-01: 2"), ["r.yaml:13: 2001-01-01:", "a key is text"]),
        (changed("  path:", "  3: 4\n  path:"), ["r.yaml:3: dataset.3:", "found the key 3"]),
        (changed("  variety: 1.0", "  5: 1.0"), ["r.yaml:6: rewards.5:", "found the key 5"]),
        (changed("  variety: 1.0", "  no: 1.0"), ["r.yaml:6: rewards.False:", "found the key False"]),
        (RECIPE + "  7: 1\n", ["r.yaml:13: grpo.7:", "found the key 7"]),
        (with_key("? [a, b]\n: 1"), ["r.yaml:13: a key is a list or a mapping; write text"]),
        (with_key("? {a: b}\n: 1"), ["r.yaml:13: a key is a list or a mapping; write text"]),
        (RECIPE + "  ? [a]\n  : 2\n", ["r.yaml:13: a key is a list or a mapping; write text"]),
        (with_key("'': 2"), ["r.yaml:13: : unknown key at the top level (keys: model,"]),
    ],
)
def test_a_key_that_is_no_text(cli, recipe, parts):
    assert_says(cli.refuses(recipe=recipe), *parts)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (changed("model: model", "modle: model"), "r.yaml:1: modle: unknown key at the top level; did you mean model?"),
        (with_key("evaluaton: {}"), "r.yaml:13: evaluaton: unknown key at the top level; did you mean evaluation?"),
        (with_key("limit: 3"), "r.yaml:13: limit: unknown key at the top level; it belongs under dataset:"),
        (changed("  path:", "  seed: 3\n  path:"), "r.yaml:3: dataset.seed: unknown key in dataset; it belongs at the"),
        (
            changed("  path:", "  promt: x\n  path:"),
            "r.yaml:3: dataset.promt: unknown key in dataset; did you mean prompt?",
        ),
        (with_key("evaluation: {sample: 3}"), "r.yaml:13: evaluation.sample: unknown key in evaluation; did you mean"),
        (
            with_key("eval_dataset: {x: 3}"),
            "r.yaml:13: eval_dataset.x: unknown key in eval_dataset (keys: path, name, split, limit, system, prompt,",
        ),
        (RECIPE + "  limit: 3\n", "r.yaml:13: grpo.limit: unknown key in grpo; it belongs under dataset:"),
        (RECIPE + "  thinking: on\n", "r.yaml:13: grpo.thinking: unknown key in grpo; it belongs at the top level"),
        (RECIPE + "  num_generation: 4\n", "r.yaml:13: grpo.num_generation: unknown key in grpo; did you mean num_gen"),
        (RECIPE + "  epochs: 4\n", "r.yaml:13: grpo.epochs: unknown key in grpo; did you mean num_train_epochs?"),
        (RECIPE + "  Beta: 4\n", "r.yaml:13: grpo.Beta: unknown key in grpo; did you mean beta?"),
        (
            RECIPE + "  dispatch: 4\n",
            "r.yaml:13: grpo.dispatch: unknown key in grpo; its keys are those of trl.GRPOConfig",
        ),
        (with_key("lora: {R: 8}"), "r.yaml:13: lora.R: unknown key in lora; did you mean r?"),
        (with_key("lora: {alpha: 8}"), "r.yaml:13: lora.alpha: unknown key in lora; did you mean lora_alpha?"),
        (with_key("lora: {zz: 8}"), "r.yaml:13: lora.zz: unknown key in lora; its keys are those of peft.LoraConfig"),
        (with_key("lora: {task_type: CAUSAL_LM}"), "r.yaml:13: lora.task_type: not set here: the kit fills it in"),
        (with_key("source: x"), "r.yaml:13: source: unknown key at the top level"),
        (with_key("lines: {}"), "r.yaml:13: lines: unknown key at the top level"),
    ],
)
def test_an_unknown_key(cli, recipe, message):
    assert_says(cli.refuses(recipe=recipe), message)


def test_a_trainer_setting_at_the_top_level_is_sent_to_its_section(cli):
    message = cli.refuses(recipe=with_key("max_steps: 3"))
    assert_says(message, "r.yaml:13: max_steps: unknown key at the top level", "settings go under grpo:")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (changed("model: model\n", ""), "r.yaml: model: missing; write model: ..."),
        (changed(DATASET, ""), "r.yaml: dataset: missing; write dataset: ..."),
        (changed("  path: rows.jsonl\n", ""), "r.yaml:2: dataset.path: missing; write dataset: {path: ...}"),
        (changed("model: model", "model:"), "r.yaml:1: model: is empty; write text"),
        (changed("model: model", "model: ''"), "r.yaml:1: model: found ''; write"),
        (changed("path: rows.jsonl", "path: ''"), "r.yaml:3: dataset.path: found ''; write"),
        (changed(DATASET, "dataset:\n"), "r.yaml:2: dataset: is empty; write keys under it, or remove it"),
        (changed("\n  variety: 1.0", ""), "r.yaml:5: rewards: is empty; write keys under it, or remove it"),
        (changed(GRPO, "grpo:\n"), "r.yaml:7: grpo: is empty; write keys under it, or remove it"),
        (with_key("lora:"), "r.yaml:13: lora: is empty; write keys under it, or remove it"),
        (with_key("eval_dataset:"), "r.yaml:13: eval_dataset: is empty; write keys under it, or remove it"),
        (with_key("evaluation:"), "r.yaml:13: evaluation: is empty; write keys under it, or remove it"),
        (changed("\n  variety: 1.0", " {}"), "r.yaml:5: rewards: empty; name at least one reward"),
        (changed("variety: 1.0", "variety: 0"), "r.yaml:5: rewards: every weight is 0, so nothing could be learned"),
        (with_key("goal: accuracy"), "r.yaml:13: goal: found 'accuracy'; write one of the rewards: variety"),
    ],
)
def test_something_missing(cli, recipe, message):
    assert_says(cli.refuses(recipe=recipe), message)


@pytest.mark.parametrize("value", ["[a]", "3", "abc", "true"])
@pytest.mark.parametrize("section", ["dataset", "eval_dataset", "evaluation", "rewards", "lora", "grpo"])
def test_a_section_that_is_no_mapping(cli, section, value):
    pieces = {"dataset": DATASET, "rewards": "rewards:\n  variety: 1.0\n", "grpo": GRPO}
    line = {"dataset": 2, "rewards": 5, "grpo": 7}.get(section, 13)
    wrong = f"{section}: {value}\n"
    recipe = changed(pieces[section], wrong) if section in pieces else RECIPE + wrong
    assert_says(cli.refuses(recipe=recipe), f"r.yaml:{line}: {section}: found ", "write a mapping (key: value)")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seed: true", "found True; write a number"),
        ("seed: -1", "found -1; write a number greater than or equal to 0"),
        ("seed: 4294967296", "found 4294967296; write a number less than 4294967296"),
        ("seed: x", "found 'x'; write a valid integer"),
        ("seed: 1.5", "found 1.5; write a valid integer, got a number with a fractional part"),
        ("seed: .nan", "found nan; write a finite number"),
        ("seed: 1e999", "found inf; write a finite number"),
        ("seed: [1]", "found [1]; write a valid integer"),
        ("seed:", "is empty; write a valid integer"),
        ("thinking: maybe", "found 'maybe'; write a valid boolean"),
        ("eval_every: 0", "found 0; write a number greater than 0"),
        ("eval_every: on", "found True; write a number"),
        ("samples: 0", "found 0; write 'all' or a number greater than 0"),
        ("samples: some", "found 'some'; write 'all' or a valid integer"),
        ("samples: yes", "found True; write a number"),
        ("goal: 3", "found 3; write text"),
        ("goal: ''", "found ''; write one of the rewards: variety"),
        ("name: a/b", "found 'a/b'; write a folder's name: no / or"),
        ("name: ..", "found '..'; write a folder's name"),
        ("name: ''", "found ''; write a folder's name"),
        ("name: " + "n" * 101, "found 'nnn"),
        ("name: 3", "found 3; write text"),
    ],
)
def test_a_value_of_the_wrong_kind(cli, line, message):
    assert_says(cli.refuses(recipe=with_key(line)), f"r.yaml:13: {line.split(':')[0]}: {message}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("model: model", "model: 3", "r.yaml:1: model: found 3; write text"),
        ("model: model", "model: [a]", "r.yaml:1: model: found ['a']; write text"),
        ("path: rows.jsonl", "path: yes", "r.yaml:3: dataset.path: found True; write text"),
        (
            "prompt: '{question}'",
            "prompt: {question}",
            "r.yaml:4: dataset.prompt: found {'question': None}; write text; braces and colons need quotes: '{question",
        ),
        ("  path:", "  limit: true\n  path:", "r.yaml:3: dataset.limit: found True; write a number"),
        ("  path:", "  limit: 0\n  path:", "r.yaml:3: dataset.limit: found 0; write a number greater than 0"),
        ("variety: 1.0", "variety: true", "r.yaml:6: rewards.variety: found True; write a weight such as 1.0"),
        ("variety: 1.0", "variety: '1.0'", "r.yaml:6: rewards.variety: found '1.0'; write a weight"),
        ("variety: 1.0", "variety:", "r.yaml:6: rewards.variety: found None; write a weight"),
        ("variety: 1.0", "variety: [1]", "r.yaml:6: rewards.variety: found [1]; write a weight"),
        ("variety: 1.0", "variety: .inf", "r.yaml:6: rewards.variety.weight: found inf; write a finite number"),
        ("variety: 1.0", "variety: {weight: .nan}", "r.yaml:6: rewards.variety.weight: found nan; write a finite"),
        ("variety: 1.0", "variety: 1e308", "r.yaml:6: rewards.variety.weight: found 1e+308; write a number less than"),
        ("variety: 1.0", "variety: {weight: true}", "r.yaml:6: rewards.variety.weight: found True; write a number"),
        ("variety: 1.0", "variety: {weight: one}", "r.yaml:6: rewards.variety.weight: found 'one'; write a valid nu"),
        ("variety: 1.0", "variety: {file: 3}", "r.yaml:6: rewards.variety.file: found 3; write text"),
        ("variety: 1.0", "a/b: 1.0", "r.yaml:6: rewards.a/b: found the name 'a/b'; write letters, digits, _ and -"),
        ("variety: 1.0", "../x: 1.0", "r.yaml:6: rewards.../x: found the name '../x'; write letters"),
        ("variety: 1.0", "a.b: 1.0", "r.yaml:6: rewards.a.b: found the name 'a.b'; write letters"),
        ("variety: 1.0", "'': 1.0", "r.yaml:6: rewards.: found the name ''; write letters"),
        ("variety: 1.0", "my variety: 1.0", "r.yaml:6: rewards.my variety: found the name 'my variety'; write"),
    ],
)
def test_a_value_of_the_wrong_kind_in_a_section(cli, old, new, message):
    assert_says(cli.refuses(recipe=changed(old, new)), message)


@pytest.mark.parametrize(
    "line",
    [
        "seed: '7'",
        "seed: 1e3",
        "seed: 0x10",
        "samples: all",
        "samples: 5",
        "name: 数学-1.b",
        "thinking: on",
        "thinking: 'off'",
        "goal: variety",
        "goal:",
        "evaluation: {samples: 2.0, max_completion_length: '16'}",
        "lora: {}",
    ],
)
def test_values_with_a_plain_meaning(cli, line):
    cli.passes(recipe=with_key(line))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("x", "override 'x': write key=value, such as grpo.max_steps=100"),
        ("", "override '': write key=value"),
        ("=3", "override '=3': write key=value"),
        ("grpo..beta=1", "override 'grpo..beta=1': write key=value"),
        ("model.x=3", "override 'model.x=3': model is 'model', not a mapping; write model={...}"),
        (
            "rewards.variety.weight.x=2",
            "override 'rewards.variety.weight.x=2': rewards.variety.weight is 1.0, not a mapping; "
            "write rewards.variety.weight={...}",
        ),
        ("seed=[1", "override 'seed=[1': not valid YAML: while parsing a flow sequence"),
        ("seed=*a", "override 'seed=*a': not valid YAML: found undefined alias 'a'"),
        ("seed=!!python/none 1", "override 'seed=!!python/none 1': not valid YAML: could not determine a constructor"),
        ("lora={r: 1, r: 2}", "override 'lora={r: 1, r: 2}': r: given twice, first on line 1; remove one"),
        ("lora=&a {r: *a}", "override 'lora=&a {r: *a}': an alias (*) refers to the very thing that contains it"),
        ("seed=x", "override of r.yaml: seed: found 'x'; write a valid integer"),
        ("dataset.path=3", "override of r.yaml: dataset.path: found 3; write text"),
        ("dataset={path: 3}", "override of r.yaml: dataset.path: found 3; write text"),
        ("dataset.prompt={question}", "override of r.yaml: dataset.prompt: found {'question': None}; write text; brac"),
        ("grpo=3", "override of r.yaml: grpo: found 3; write a mapping (key: value)"),
        ("grpo.num_generation=4", "override of r.yaml: grpo.num_generation: unknown key in grpo; did you mean num_gen"),
        ("rewards.variety=yes", "override of r.yaml: rewards.variety: found True; write a weight"),
        ("rewards.nothing=1", "override of r.yaml: rewards.nothing: no file nothing.py in rewards/"),
        ("model=", "override of r.yaml: model: missing; write model: ..."),
        ("grpo.beta=", "override of r.yaml: grpo.beta: is empty; write a valid number"),
    ],
)
def test_a_wrong_override(cli, override, message):
    assert_says(cli.refuses(override), message)


@pytest.mark.parametrize(
    ("overrides", "shown"),
    [
        (["grpo.max_steps=3", "grpo.max_steps=4"], "plan       4 steps"),
        (["dataset.limit=4"], "rows.jsonl, 4 rows"),
        (["dataset.prompt='Q: {question}'"], "| Q: What is 0+0?"),
        (["dataset.prompt='a=b {question}'"], "| a=b What is 0+0?"),
        (["rewards.variety={weight: 0.5}"], "variety x 0.5"),
        (["lora.r=8"], "LoRA r=8"),
        (["lora={r: 4}", "lora=null"], "full fine-tuning"),
        (["eval_dataset.limit=2", "eval_dataset=null"], "none: nothing will be measured"),
        (["seed=1e2"], "plan       2 steps"),
        # a mapping replaces a mapping: of `grpo:` only this is left, so max_completion_length is TRL's 512 again
        (
            ["grpo={num_generations: 2, per_device_train_batch_size: 2, gradient_accumulation_steps: 1}"],
            "x 2 = 2 completions, up to 512 tokens",
        ),
    ],
)
def test_a_right_override(cli, overrides, shown):
    assert shown in cli.passes(*overrides)


@pytest.mark.parametrize("wrong", ["seed=x", "dataset.path=none.jsonl", "rewards.none=1", "grpo.beta=-1"])
def test_run_refuses_what_check_refuses_and_makes_no_run(cli, capsys, wrong):
    message = cli.refuses(wrong)
    with pytest.raises(SystemExit) as ended:
        main(["run", "r.yaml", wrong])
    assert (ended.value.code, capsys.readouterr()) == (2, ("", f"error: {message}\n"))
    assert not Path("runs").exists()


def test_keys_that_the_held_out_data_lacks_come_from_the_training_data():
    """All of them; but another path's `name` and `split` are its own."""
    text = "model: m\ndataset: {path: a/b, name: main, split: train, limit: 5, prompt: '{q}'}\nrewards: {x: 1}\n"
    Path("same.yaml").write_text(text + "eval_dataset: {split: test, limit: null}\n")
    Path("other.yaml").write_text(text + "eval_dataset: {path: c/d}\n")
    same, other = load_recipe(Path("same.yaml")).eval_dataset, load_recipe(Path("other.yaml")).eval_dataset
    assert (same.path, same.name, same.split, same.limit, same.prompt) == ("a/b", "main", "test", None, "{q}")
    assert (other.path, other.name, other.split, other.limit, other.prompt) == ("c/d", None, None, 5, "{q}")
