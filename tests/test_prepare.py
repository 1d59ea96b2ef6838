"""What is known before weights load: the order of checks, the plan, prompts that do not fit, the model's own files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import RECIPE, VARIETY, assert_says, changed, questions, with_key, write_rows

from grpo_kit.errors import RecipeError
from grpo_kit.prepare.prepare import Prepared, prepare
from grpo_kit.recipe.recipe import load_recipe


def prepared(*overrides: str, recipe: str = RECIPE) -> Prepared:
    Path("r.yaml").write_text(recipe)
    return prepare(load_recipe(Path("r.yaml"), overrides))


# Order: from cheap to dear

CHEAP = {
    "shape": "modle: model",
    "value": "seed: x",
    "file": "dataset.path=none.jsonl",
    "column": "dataset.prompt='{questoin}'",
    "last row": "dataset.path=bad.jsonl",
    "gold answer": "dataset.path=gold.jsonl",
    "reward name": "rewards.varity=1",
    "reward option": "rewards.variety={zz: 1}",
    "reward column": "rewards.needy=1",
    "model folder": "model=./none",
    "built-in model": "model=builtin:huge",
    "key of grpo": "grpo.num_generation=4",
    "renamed key of grpo": "grpo.warmup_ratio=0.1",
    "word of grpo": "grpo.loss_type=drgrpo",
    "held-out file": "eval_dataset.path=none.jsonl",
}


def test_cheap_mistakes_are_found_before_anything_heavy_is_imported(tmp_path):
    """In one fresh interpreter: no mistake of these kinds may cost the import of torch."""
    Path("model").mkdir()
    Path("model/config.json").write_text("{}")
    Path("model/model.safetensors").touch()
    write_rows("rows.jsonl", questions(8))
    write_rows("bad.jsonl", [*questions(7), {"question": "", "answer": "1"}])
    write_rows("gold.jsonl", [{"question": "a", "answer": ""}])
    Path("rewards").mkdir()
    Path("rewards/variety.py").write_text(VARIETY)
    Path("rewards/needy.py").write_text("def needy(completion, nothing): return 1.0")
    Path("r.yaml").write_text(RECIPE)
    Path("shape.yaml").write_text(changed("model: model", "modle: model"))
    program = """
import contextlib, io, json, sys
from grpo_kit.cli import main
found = {}
for kind, override in json.load(sys.stdin).items():
    arguments = ["shape.yaml"] if kind == "shape" else ["r.yaml", override]
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        try:
            main(["check", *arguments])
        except SystemExit as ended:
            code = ended.code
    heavy = [name for name in ("torch", "transformers", "datasets", "trl", "peft", "sympy") if name in sys.modules]
    found[kind] = [code, error.getvalue().count("\\n"), heavy]
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(CHEAP), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {kind: [2, 1, []] for kind in CHEAP}


def test_the_first_mistake_is_the_one_that_is_cheapest_to_find(cli):
    """Of several at once: the shape, then rewards, then the model's folder, then data, then the trainer's settings."""
    everything = ["seed=x", "rewards.none=1", "model=./none", "dataset.path=none.jsonl", "grpo.beta=-1"]
    for wrong in ("seed", "rewards.none", "model", "dataset.path", "grpo.beta"):
        assert_says(cli.refuses(*everything), f"override of r.yaml: {wrong}: ")
        everything.pop(0)


# Plan


@pytest.mark.parametrize(
    ("rows", "overrides", "plan"),
    [
        # 4 x 2 completions in groups of 4: a rollout of 2 prompts serves one step; 8 // 2 = 4 steps an epoch
        (8, ["grpo.max_steps=-1", "grpo.num_train_epochs=1"], (4, 1.0, 2, 8, 0)),
        (8, ["grpo.max_steps=-1", "grpo.num_train_epochs=2.5"], (10, 2.5, 2, 8, 0)),
        (8, ["grpo.max_steps=-1", "grpo.num_train_epochs=0.1"], (1, 0.25, 2, 8, 0)),  # 0.4 of a step is one
        (8, ["grpo.max_steps=6", "grpo.num_train_epochs=1"], (6, 1.5, 2, 8, 0)),
        (9, ["grpo.max_steps=-1", "grpo.num_train_epochs=1"], (4, 1.0, 2, 8, 1)),
        # each rollout is used twice
        (8, ["grpo.max_steps=-1", "grpo.num_train_epochs=1", "grpo.num_iterations=2"], (8, 1.0, 2, 8, 0)),
        # a rollout of 4 x 4 completions, 4 prompts, serves two steps of 2 prompts: 8 // 4 = 2 rollouts
        (8, ["grpo.max_steps=-1", "grpo.num_train_epochs=1", "grpo.steps_per_generation=4"], (4, 1.0, 2, 8, 0)),
        (7, ["grpo.max_steps=-1", "grpo.num_train_epochs=1", "grpo.steps_per_generation=4"], (2, 1.0, 2, 8, 3)),
        # a rollout of 4 completions, one prompt, is half a step
        (8, ["grpo.max_steps=-1", "grpo.num_train_epochs=1", "grpo.steps_per_generation=1"], (4, 1.0, 2, 8, 0)),
        # a group of 8 over two micro-batches
        (8, ["grpo.num_generations=8", "grpo.max_steps=2"], (2, 0.25, 1, 8, 0)),
    ],
)
def test_plan(cli, rows, overrides, plan):
    write_rows("rows.jsonl", questions(rows))
    found = prepared(*overrides).plan
    assert (
        found.steps, found.epochs, found.prompts_per_step, found.completions_per_step, found.unused_rows_per_epoch,
    ) == plan  # fmt: skip


BATCH_8 = ["grpo.per_device_train_batch_size=8", "grpo.gradient_accumulation_steps=1"]


def test_too_few_rows_for_a_single_step(cli):
    write_rows("rows.jsonl", questions(1))
    assert cli.refuses(*BATCH_8) == (
        "r.yaml:2: dataset: has 1 row, but one generation batch needs 2 (8 completions in groups of 4); "
        "give more rows, or lower grpo.gradient_accumulation_steps or grpo.per_device_train_batch_size"
    )
    write_rows("rows.jsonl", questions(8))
    assert_says(cli.refuses("dataset.limit=1"), "r.yaml:2: dataset: has 1 row, but one generation batch needs 2")


def test_rows_that_an_epoch_leaves_unused_are_said(cli):
    write_rows("rows.jsonl", questions(5))
    shown = cli.passes(*BATCH_8, "grpo.max_steps=-1", "grpo.num_train_epochs=1")
    assert "1 of 5 rows unused per epoch" in shown  # 5 rows in batches of 2
    assert "2 steps (1 epochs) of 2 prompts x 4 = 8 completions" in shown
    write_rows("rows.jsonl", questions(4))
    assert "unused" not in cli.passes(*BATCH_8)


@pytest.mark.parametrize(
    ("overrides", "checkpoints"),
    [
        ([], 2),  # the kit keeps two
        (["grpo.save_total_limit=5"], 5),
        (["grpo.save_total_limit=null", "grpo.save_steps=2"], 5),  # after steps 2, 4, 6, 8, 10
        (["grpo.save_total_limit=null", "grpo.save_steps=0.5"], 2),  # a share: after 5 and 10 of 10
        (["grpo.save_total_limit=null", "grpo.save_steps=500"], 1),  # the last step always saves
        (["grpo.save_total_limit=null", "grpo.save_strategy=epoch"], 2),  # 10 steps are 2.5 epochs of 4
        (["grpo.save_total_limit=null", "grpo.save_strategy='no'"], 1),
    ],
)
def test_the_disk_that_checkpoints_need(cli, overrides, checkpoints):
    found = prepared("grpo.max_steps=10", *overrides).plan
    # Embedding 259 x 32; in 2 layers query 32 x 32 + 32, key and value 32 x 16 + 16 each, output 32 x 32, three of
    # 32 x 64 and two norms of 32; a last norm. A weight and Adam's two moments are 12 bytes.
    parameters = 8288 + 2 * (1056 + 2 * 528 + 1024 + 6144 + 64) + 32
    one = found.memory.checkpoint
    assert one == pytest.approx(parameters * 12e-9)
    assert found.disk_gb == pytest.approx((checkpoints + 1) * one + one / 3)  # one being written, and final/


def test_a_model_that_cannot_fit(cli):
    shutil.copytree("model", "big")
    config = json.loads(Path("big/config.json").read_text())
    Path("big/config.json").write_text(json.dumps({**config, "vocab_size": 10**9}))
    message = cli.refuses("model=big")
    # 32 x 1e9 weights of 4 bytes, gradients, and Adam's two moments
    assert_says(
        message, "override of r.yaml: model: needs weights 128.0 + gradients 128.0 + optimizer 256.0 = 512.0 GB"
    )


# Prompts


def test_prompts_that_do_not_fit_are_counted_and_left_out(cli):
    """1024 positions less 8 for the completion; one byte is one token, the template adds 30."""
    template = (
        len("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n") - 2 * len("<|im_start|>") - len("<|im_end|>") + 3
    )
    fits = 1024 - 8 - template
    write_rows("rows.jsonl", [{"question": "x" * n} for n in (fits, fits + 1, 5, 6, 2000)])
    shown = cli.passes()
    assert (
        "note       rows.jsonl: 2 of 5 rows left out, prompt and 8 completion tokens exceed the model's 1024" in shown
    )
    assert "rows.jsonl, 3 rows" in shown
    assert "to 1016" in shown  # the longest that is left: 1024 - 8
    assert [len(row["question"]) for row in prepared().data.rows] == [fits, 5, 6]


def test_no_prompt_that_fits(cli):
    assert cli.refuses("grpo.max_completion_length=1020") == (
        "override of r.yaml: grpo.max_completion_length: no prompt of rows.jsonl leaves room for 1020 completion "
        "tokens within the model's 1024 positions; lower it"
    )
    write_rows("held_out.jsonl", [{"question": "another"}])
    message = cli.refuses("eval_dataset.path=held_out.jsonl", "evaluation.max_completion_length=1020")
    assert_says(
        message, "override of r.yaml: evaluation.max_completion_length: no prompt of held_out.jsonl leaves room"
    )


def test_too_few_prompts_that_fit(cli):
    write_rows("rows.jsonl", [{"question": "x" * 2000}] * 5 + [{"question": "y"}])
    assert_says(cli.refuses(), "r.yaml:2: dataset: has 1 row, but one generation batch needs 2")


def test_a_prompt_is_wrapped_as_a_user_message(cli):
    shown = cli.passes()
    assert (
        "first prompt, as the model sees it:\n  | <|im_start|>user\n  | What is 0+0?<|im_end|>\n"
        "  | <|im_start|>assistant\n" in shown
    )
    assert "<|im_start|>system\n  | Be brief.<|im_end|>\n  | <|im_start|>user" in cli.passes("dataset.system=Be brief.")


def test_a_prompt_has_no_second_start_token(cli):
    """The tokens are the rendered template's, and nothing is put before them."""
    found = prepared()
    row = found.data.rows[0]["prompt"]
    assert found.chat.encode(row) == found.chat.tokenizer(found.chat.render(row), add_special_tokens=False)["input_ids"]


# Held-out rows


@pytest.mark.parametrize("held_out", ["{}", "{limit: 2}", "{path: copy.jsonl}"])
def test_held_out_rows_that_are_the_training_rows(cli, held_out):
    shutil.copy("rows.jsonl", "copy.jsonl")
    assert_says(cli.refuses(recipe=with_key(f"eval_dataset: {held_out}")), "r.yaml:13: eval_dataset: ", "training")


def test_conversations_that_only_end_alike_are_different_prompts(cli):
    def talk(start):
        return {"messages": [{"role": "user", "content": start}, {"role": "assistant", "content": "ok"},
                             {"role": "user", "content": "Continue."}]}  # fmt: skip

    write_rows("rows.jsonl", [talk(f"Count from {i}.") for i in range(8)])
    write_rows("held_out.jsonl", [talk(f"Count from {i}.") for i in (7, 90, 91)])
    recipe = changed("  prompt: '{question}'\n", "").replace(
        "rewards:", "eval_dataset: {path: held_out.jsonl}\nrewards:"
    )
    assert "held-out   held_out.jsonl, 2 rows x 4" in cli.passes(recipe=recipe)  # one is trained on


def test_a_repeated_held_out_prompt_counts_once(cli):
    write_rows("held_out.jsonl", [{"question": "What is 90+90?"}, {"question": "What is  90+90? "}, *questions(2)])
    shown = cli.passes(recipe=with_key("eval_dataset: {path: held_out.jsonl}"))
    assert "held-out   held_out.jsonl, 1 rows x 4" in shown  # two spellings of one, and two that are trained on


def test_held_out_rows_that_are_trained_on_are_left_out(cli):
    write_rows("held_out.jsonl", questions(12)[6:])
    shown = cli.passes(recipe=with_key("eval_dataset: {path: held_out.jsonl}\nevaluation: {samples: 3}"))
    assert "note       held_out.jsonl: 2 of 6 held-out rows left out, their prompts are trained on or repeated" in shown
    assert "held-out   held_out.jsonl, 4 rows x 3" in shown


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "r.yaml:13: eval_dataset.path: held_out.jsonl has no rows"),
        ([{"task": "a"}], "r.yaml:13: eval_dataset.prompt: no column 'question' (columns: task)"),
        ([{"question": ""}], "r.yaml:13: eval_dataset: held_out.jsonl, row 0 (from 0) column 'question' is ''"),
    ],
)
def test_held_out_rows_are_checked_too(cli, rows, message):
    write_rows("held_out.jsonl", rows)
    assert_says(cli.refuses(recipe=with_key("eval_dataset: {path: held_out.jsonl}")), message)


def test_rewards_need_their_columns_in_the_held_out_rows_too(cli):
    write_rows("held_out.jsonl", [{"question": "a"}, {"question": "b"}])
    Path("rewards/strict.py").write_text("def strict(completion, answer): return float(answer in completion)")
    message = cli.refuses("eval_dataset.path=held_out.jsonl", recipe=changed("variety: 1.0", "strict: 1.0"))
    assert_says(message, "r.yaml:6: rewards.strict: needs the column 'answer', but the data has question")


# Hub


@pytest.mark.parametrize("name", ["openai/gsm8k", "no/such data"])
def test_a_data_set_of_a_hub_that_is_out_of_reach(cli, name):
    message = cli.refuses(f"dataset.path={name}", "dataset.name=main")
    assert_says(
        message,
        f"override of r.yaml: dataset.path: the hub was asked for {name} (main), split train and gave nothing (",
        "and nothing is cached here",
        "name a local file, or try recipes/smoke.yaml, which needs no hub",
    )


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-0.5B-Instruct", "no-such-model"])
def test_a_model_of_a_hub_that_is_out_of_reach(cli, name):
    assert cli.refuses(f"model={name}") == (
        f"override of r.yaml: model: the hub was asked for the tokenizer of {name} and cannot be reached, and nothing "
        "is cached here; name a local folder, or try recipes/smoke.yaml, which needs no hub"
    )


# The model's files


@pytest.fixture
def own_model(cli, model_folder):
    """A copy of the model that a test may damage, and the command line for it."""
    Path("model").unlink()
    shutil.copytree(model_folder, "model")
    return cli


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./none", "no such folder: './none'"),
        ("a/b/c", "no such folder: 'a/b/c'"),
        ("~/no-such-folder", "no such folder: '~/no-such-folder'"),
        ("rewards", "{}/rewards has no config.json, so it is no checkpoint folder"),
        ("rows.jsonl", "{}/rows.jsonl has no config.json, so it is no checkpoint folder"),
        ("builtin:big", "found 'builtin:big'; the only built-in model is builtin:tiny"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B", "found 'https://huggingface.co/Qwen/Qwen3-0.6B'; write the hub id"),
        ("'Qwen/Qwen3-0.6B '", "no such folder: 'Qwen/Qwen3-0.6B '"),
        ("n" * 5000, "no such folder: 'nnn"),
    ],
)
def test_a_model_that_is_not_there(cli, name, message):
    assert_says(cli.refuses(f"model={name}"), f"override of r.yaml: model: {message.format(Path.cwd())}")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "has no config.json, so it is no checkpoint folder"),
        ("config.json", "{", "the tokenizer of model cannot be loaded: It looks like the config file"),
        ("config.json", "[]", "the tokenizer of model cannot be loaded: "),
        (
            "config.json",
            '{"model_type": "none"}',
            "the config of model cannot be loaded: The checkpoint you are trying",
        ),
        (
            "config.json",
            '{"model_type": "t5"}',
            "the config of model cannot be loaded: Unrecognized configuration class",
        ),
        (
            "config.json",
            '{"model_type": "none", "auto_map": {"AutoConfig": "a.B", "AutoModelForCausalLM": "a.C"}}',
            "the config of model cannot be loaded: The repository ",  # it wants its own code to be executed
        ),
        ("model.safetensors", None, "has no weights (*.safetensors)"),
        ("tokenizer.json", "{", "the tokenizer of model cannot be loaded: "),
        (
            "chat_template.jinja",
            "{% for x in",
            "the chat template of model refuses [{'role': 'user', 'content': 'Hello'}]",
        ),
        ("chat_template.jinja", "{{ 1 + 'a' }}", "the chat template of model refuses [{'role': 'user'"),
        ("chat_template.jinja", "", "tokenizer and chat template of model make nothing of [{'role': 'user'"),
    ],
)
def test_a_damaged_model_folder(own_model, file, content, message):
    if content is None:
        Path("model", file).unlink()
    else:
        Path("model", file).write_text(content)
    assert_says(own_model.refuses(), "r.yaml:1: model: ", message)


def test_a_model_folder_without_its_tokenizer(own_model):
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        Path("model", file).unlink()
    assert_says(own_model.refuses(), "r.yaml:1: model: ", "tokenizer of model")


def test_a_tokenizer_with_tokens_that_the_model_does_not_know(own_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("model")
    tokenizer.add_tokens(["one more"])
    tokenizer.save_pretrained("model")
    assert own_model.refuses() == "r.yaml:1: model: its tokenizer has 260 tokens, but the model knows only 259"


def test_a_template_that_refuses_a_role(own_model):
    template = Path("model/chat_template.jinja")
    template.write_text(
        "{{ raise_exception('no system role') if messages[0].role == 'system' }}" + template.read_text()
    )
    own_model.passes()
    assert_says(own_model.refuses("dataset.system=Be brief."), "r.yaml:1: model: the chat template of model refuses [")
    # also where only a late row has the role
    rows = [[{"role": "user", "content": f"q{i}"}] for i in range(1100)]
    rows[1050].insert(0, {"role": "system", "content": "s"})
    write_rows("chats.jsonl", [{"messages": row} for row in rows])
    message = own_model.refuses(recipe=changed("path: rows.jsonl\n  prompt: '{question}'", "path: chats.jsonl"))
    assert message.endswith(": no system role")


# Thinking


@pytest.mark.parametrize(("thinking", "shown"), [("on", False), ("off", True)])
def test_thinking_is_passed_to_a_template_that_has_the_switch(cli, thinking, shown):
    assert ("  | <think>" in cli.passes(recipe=with_key(f"thinking: {thinking}"))) == shown


@pytest.mark.parametrize("thinking", ["on", "off"])
def test_thinking_on_a_template_that_ignores_it(own_model, thinking):
    template = Path("model/chat_template.jinja")
    template.write_text(template.read_text().replace("enable_thinking", "enable_thoughts"))
    message = own_model.refuses(recipe=with_key(f"thinking: {thinking}"))
    assert message == "r.yaml:13: thinking: the chat template of this model ignores it; remove the key"
    own_model.passes()


def test_a_model_without_a_chat_template(own_model):
    Path("model/chat_template.jinja").unlink()
    assert "first prompt, as the model sees it:\n  | What is 0+0?\n" in own_model.passes()
    assert_says(own_model.refuses("thinking=off"), "override of r.yaml: thinking: ")


# Adapters


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ("{r: 0}", "lora: `r` should be a positive integer value but the value passed is 0"),
        ("{r: true}", "lora.r: found True; write a number"),
        ("{r: 4.5}", "lora.r: found 4.5; write a valid integer"),
        ("{lora_alpha: .inf}", "lora.lora_alpha: found inf; write a finite number"),
        ("{bias: some}", "lora.bias: found 'some'; write 'none', 'all' or 'lora_only'"),
        ("{init_lora_weights: some}", "lora.init_lora_weights: found 'some'; write a valid boolean"),
        ("{target_modules: none}", "lora: Target modules none not found in the base model."),
        ("{target_modules: '('}", "lora: missing ), unterminated subpattern"),
        (
            "{target_modules: [lm_head]}",
            "lora.target_modules: names the output layer, which TRL would not train; leave",
        ),
        ("{inference_mode: true}", "lora.inference_mode: not set here: the kit fills it in"),
        ("{megatron_config: {a: 1}}", "lora: No module named 'megatron'"),
    ],
)
def test_a_wrong_adapter(cli, lora, message):
    assert_says(cli.refuses(recipe=with_key(f"lora: {lora}")), f"r.yaml:13: {message}")


@pytest.mark.parametrize(
    "lora", ["{}", "{r: 4}", "{r: '4'}", "{target_modules: [q_proj]}", "{init_lora_weights: pissa}", "{use_dora: true}"]
)
def test_a_right_adapter(cli, lora):
    assert "LoRA r=" in cli.passes(recipe=with_key(f"lora: {lora}"))


def test_the_size_of_an_adapter(cli):
    """r x (in + out) of each q_proj: 4 x (32 + 32) in 2 layers; weights, gradient and two moments, 4 bytes each."""
    found = prepared("lora={r: 4, target_modules: [q_proj]}")
    assert found.plan.memory.checkpoint == pytest.approx(2 * 4 * 64 * 12e-9)
    assert found.plan.memory.gradients == pytest.approx(2 * 4 * 64 * 4e-9)


def test_weights_that_are_spread_over_processes_are_refused(cli, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(RecipeError, match="FSDP spreads the weights over the processes"):
        prepared()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"num_beams": 4}, "sets num_beams: 4"),
        ({"num_return_sequences": 2}, "sets num_return_sequences: 2"),
        ({"no_repeat_ngram_size": 3}, "sets no_repeat_ngram_size: 3"),
        ({"suppress_tokens": [1, 2]}, "sets suppress_tokens: [1, 2]"),
    ],
)
def test_a_model_that_would_be_sampled_from_otherwise_is_refused(cli, model_folder, own, said):
    Path("model").unlink()
    shutil.copytree(model_folder, "model")
    file = Path("model/generation_config.json")
    before = json.loads(file.read_text()) if file.is_file() else {}
    set_by_the_recipe = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.1, "max_length": 99}
    off = {"num_beams": 1, "length_penalty": 1.0, "early_stopping": False, "typical_p": 1.0, "no_repeat_ngram_size": 0}
    unknown = {"chat_format": "chatml", "max_window_size": 6144}  # as Qwen's first models have it
    file.write_text(json.dumps({**before, "do_sample": True, **set_by_the_recipe, **off, **unknown}))
    assert cli.check()[0] == 0
    file.write_text(json.dumps({**before, **own}))
    code, _, error = cli.check()
    assert code == 2
    assert f"its generation_config.json {said}, by which" in error


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("adapter_config.json", "{}", "has an adapter beside its weights"),
        ("generation_config.json", '{"do_sample": false, "num_beams": "x"}', "generation_config.json"),
        ("generation_config.json", '{"max_new_tokens": -3}', "generation_config.json"),
    ],
)
def test_a_model_folder_that_would_fail_at_the_load_is_refused(cli, model_folder, file, content, said):
    Path("model").unlink()
    shutil.copytree(model_folder, "model")
    Path("model", file).write_text(content)
    code, _, error = cli.check()
    assert (code, error.count("\n")) == (2, 1)
    assert said in error
