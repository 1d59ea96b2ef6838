"""Make the built-in model `builtin:tiny` and the sums that the smoke recipe trains on.

The model is a small Qwen3 with a byte-level tokenizer. It first learns to add, then copies a teacher that is often
wrong and often leaves out the box, so that it starts like a weak instruct model: about half right, half well-formed.
The skill is there, and GRPO has something to sharpen. Model and data come from one script because no held-out sum
may be seen in training, in either order.

    python scripts/make_tiny.py              # writes src/grpo_kit/tiny and recipes/data/sums_*.jsonl
    python scripts/make_tiny.py --data-only  # only the sums

About 12 minutes on one core. Seeds and thread count are fixed, so a rerun on one machine repeats itself; another CPU
may differ in the last bits of the weights. The data are the same everywhere.
"""

import argparse
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
OPERANDS = range(1, 50)
TEST_ROWS = 256
TRAIN_ROWS = 1536

END_OF_TURN = "<|im_end|>"
PAD = "<|endoftext|>"
SPECIAL_TOKENS = ["<|im_start|>", END_OF_TURN, PAD]
ROLES = ["system", "user", "assistant"]
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# The teacher's habits. Errors and missing boxes are drawn independently, so all four combinations occur.
BOXED = "\\boxed{%d}"
UNBOXED = ["%d", "It is %d.", "The answer is %d."]
BOXED_SHARE = 0.5
WRONG_SHARE = 0.3
SLIPS = [-20, -10, -2, -1, 1, 2, 10, 20]
SYSTEM = "Put the result in a box."
SYSTEM_SHARE = 0.1
NO_THINKING_SHARE = 0.2


@dataclass(frozen=True)
class Phase:
    """A stretch of supervised training."""

    steps: int
    learning_rate: float
    wrong_share: float


# Adding is learned from clean sums; the errors come last and stay shallow, which is what makes them easy to unlearn.
PHASES = [Phase(1500, 3e-3, 0.0), Phase(700, 2e-3, 0.0), Phase(300, 5e-4, WRONG_SHARE)]
BATCH = 64

Sum = tuple[int, int]


def split_sums(seed: int = SEED) -> tuple[list[Sum], list[Sum]]:
    """All sums to train on, and the held-out ones. A pair and its mirror image are on the same side."""
    pairs = [(a, b) for a in OPERANDS for b in OPERANDS if a <= b]
    rng = random.Random(seed)
    rng.shuffle(pairs)
    held_out = [(a, b) if rng.random() < 0.5 else (b, a) for a, b in pairs[:TEST_ROWS]]
    train = [pair for a, b in pairs[TEST_ROWS:] for pair in sorted({(a, b), (b, a)})]
    rng.shuffle(train)
    return train, held_out


def question(a: int, b: int) -> str:
    return f"What is {a}+{b}?"


def write_sums(path: Path, sums: list[Sum]) -> None:
    rows = [{"question": question(a, b), "answer": str(a + b)} for a, b in sums]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows)} rows")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, so any text goes in and comes out unchanged; roles are one token to keep prompts short."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(role, normalized=False) for role in ROLES])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
        padding_side="left",
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A random Qwen3 of about 0.6 M parameters."""
    torch.manual_seed(SEED)
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(shape)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


class Teacher:
    """Writes the conversations that the model copies."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, sums: list[Sum]) -> None:
        self.tokenizer = tokenizer
        self.sums = sums
        self.rng = random.Random(SEED + 1)

    def prompt_around(self) -> str:
        """The rendered prompt with `{}` for the question, with or without a system message and an empty thought."""
        messages = [{"role": "user", "content": "{}"}]
        if self.rng.random() < SYSTEM_SHARE:
            messages.insert(0, {"role": "system", "content": SYSTEM})
        thinking = self.rng.random() >= NO_THINKING_SHARE
        text = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, enable_thinking=thinking
        )
        return str(text)

    def completion(self, total: int, wrong_share: float) -> str:
        if self.rng.random() < wrong_share:
            total = self.rng.choice([total + slip for slip in SLIPS if total + slip > 0])
        style = BOXED if self.rng.random() < BOXED_SHARE else self.rng.choice(UNBOXED)
        return style % total + END_OF_TURN

    def batch(self, wrong_share: float) -> dict[str, torch.Tensor]:
        """Right-padded token ids; only the completion is learned. One prompt form for all keeps the padding short."""
        before, after = self.prompt_around().split("{}")
        sums = self.rng.choices(self.sums, k=BATCH)
        prompts = self.tokenizer([before + question(a, b) + after for a, b in sums])["input_ids"]
        completions = self.tokenizer([self.completion(a + b, wrong_share) for a, b in sums])["input_ids"]
        width = max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
        input_ids = torch.full((BATCH, width), self.tokenizer.pad_token_id)  # (B, T)
        labels = torch.full((BATCH, width), -100)  # (B, T)
        mask = torch.zeros((BATCH, width), dtype=torch.long)  # (B, T)
        for i, (p, c) in enumerate(zip(prompts, completions, strict=True)):
            end = len(p) + len(c)
            input_ids[i, :end] = torch.tensor(p + c)
            labels[i, len(p) : end] = torch.tensor(c)
            mask[i, :end] = 1
        return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


def supervise(model: Qwen3ForCausalLM, teacher: Teacher) -> None:
    """Train through the phases; each has its own warmup and cosine decay."""
    model.train()
    start = time.perf_counter()
    for phase in PHASES:
        optimizer = torch.optim.AdamW(model.parameters(), lr=phase.learning_rate, weight_decay=0.01)
        for step in range(phase.steps):
            decay = 0.5 * (1 + math.cos(math.pi * step / phase.steps))
            for group in optimizer.param_groups:
                group["lr"] = phase.learning_rate * min(1.0, (step + 1) / 50) * max(decay, 0.02)
            loss = model(**teacher.batch(phase.wrong_share)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if (step + 1) % 100 == 0:
                wall_s = time.perf_counter() - start
                print(f"step {step + 1}/{phase.steps}  loss {loss.item():.3f}  {wall_s:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the built-in model and its sums.")
    parser.add_argument("--out", type=Path, default=ROOT / "src/grpo_kit/tiny", help="folder of the model")
    parser.add_argument("--data", type=Path, default=ROOT / "recipes/data", help="folder of the two .jsonl files")
    parser.add_argument("--data-only", action="store_true", help="write the sums, leave the model as it is")
    options = parser.parse_args()

    train, held_out = split_sums()
    options.data.mkdir(parents=True, exist_ok=True)
    write_sums(options.data / "sums_train.jsonl", train[:TRAIN_ROWS])
    write_sums(options.data / "sums_test.jsonl", held_out)
    if options.data_only:
        return
    torch.set_num_threads(1)  # sums of floats depend on the number of threads
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    supervise(model, Teacher(tokenizer, train))
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"{options.out}: {model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
