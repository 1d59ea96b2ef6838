"""The built-in model is loadable, reads and writes any text, and starts where GRPO can teach it something."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "src/grpo_kit/tiny"
DATA = ROOT / "recipes/data"
TEXTS = {
    "english": "Don't  worry , it 's fine .\n\n  The end!",
    "chinese": "十七加二十五等于多少？答案是四十二。",
    "emoji": "👍🏽 is one, 👨‍👩‍👧 is another",
    "control": "\x00\x07\x1b[0m\r\n\t\x7f",
    "combining": "e\u0301 is not \u00e9; \ufeff \u200b \u00a0",
    "roles": "the user asked the system, users of superuser systems; assistantuser",
    "template": "<think>\n\n</think>\n\n\\boxed{42}",
    "special": "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "empty": "",
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(TINY)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(TINY).eval()


def read_rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def operands(row: dict[str, str]) -> tuple[int, int]:
    match = re.fullmatch(r"What is (\d+)\+(\d+)\?", row["question"])
    assert match, row
    return int(match[1]), int(match[2])


def render(tokenizer: PreTrainedTokenizerBase, question: str, **options: bool) -> str:
    messages = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)


def test_model_is_a_small_float32_qwen3(model):
    assert model.config.model_type == "qwen3"
    assert model.dtype == torch.float32
    assert 0.3e6 < model.num_parameters() < 1.5e6
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_files_hold_no_absolute_path_and_stay_small():
    assert sum(path.stat().st_size for path in TINY.iterdir()) < 5e6
    for path in TINY.glob("*.json"):
        assert not re.search(r'"(/|[A-Z]:\\)\w', path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_any_text_survives_the_tokenizer(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id is None


def test_every_byte_has_a_token(tokenizer):
    text = "".join(map(chr, range(0x800))) + "\uffff\U0010ffff"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_a_role_is_one_ordinary_token(tokenizer, role):
    ids = tokenizer(f"<|im_start|>{role}\n")["input_ids"]
    assert len(ids) == 3
    assert ids[1] not in tokenizer.all_special_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == f"{role}\n"


def test_template_is_chatml(tokenizer):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+1?"}]
    messages.append({"role": "assistant", "content": "2"})
    assert tokenizer.apply_chat_template(messages, tokenize=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is 1+1?<|im_end|>\n"
        "<|im_start|>assistant\n2<|im_end|>\n"
    )


def test_template_honours_enable_thinking(tokenizer):
    unset = render(tokenizer, "What is 1+1?")
    assert unset.endswith("<|im_start|>assistant\n")
    assert render(tokenizer, "What is 1+1?", enable_thinking=True) == unset
    assert render(tokenizer, "What is 1+1?", enable_thinking=False) == unset + "<think>\n\n</think>\n\n"


def test_a_turn_ends_where_generation_ends(tokenizer, model):
    ids = tokenizer.apply_chat_template([{"role": "assistant", "content": "x"}], return_dict=True)["input_ids"]
    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end_of_turn in ids
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == end_of_turn
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id != end_of_turn


@pytest.mark.parametrize("name", ["sums_train.jsonl", "sums_test.jsonl"])
def test_answers_are_the_sums(name):
    for row in read_rows(name):
        assert row["answer"] == str(sum(operands(row)))


def test_no_held_out_sum_is_trained_on_in_either_order():
    train = {frozenset(operands(row)) for row in read_rows("sums_train.jsonl")}
    held_out = {frozenset(operands(row)) for row in read_rows("sums_test.jsonl")}
    assert len(held_out) == 256
    assert not train & held_out


@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}], ids=["thinking", "no_thinking"])
def test_model_starts_about_half_right_and_half_well_formed(tokenizer, model, options):
    rows = [row for row in read_rows("sums_test.jsonl")[:64] for _ in range(2)]
    prompts = [render(tokenizer, row["question"], **options) for row in rows]
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        ids = model.generate(**batch, max_new_tokens=24)  # (B, P + T)
    completions = tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    boxed = [re.fullmatch(r"\\boxed\{\d+\}", text) is not None for text in completions]
    right = [re.findall(r"\d+", text)[-1:] == [row["answer"]] for text, row in zip(completions, rows, strict=True)]
    assert 0.3 < sum(boxed) / len(boxed) < 0.7
    assert 0.35 < sum(right) / len(right) < 0.75
    # All four combinations, so that neither reward can be read off the other.
    assert len(set(zip(boxed, right, strict=True))) == 4
