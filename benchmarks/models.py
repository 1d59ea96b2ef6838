"""Randomly initialised Qwen2 models of any size, with a tokenizer that makes one token of each byte."""

from dataclasses import dataclass
from pathlib import Path

CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
PAD, END = 256, 257
"""Ids below are bytes; those above no text is made into, but a random model samples them: w258, w259, ..."""


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Qwen2 model; heads are of `hidden // heads` values."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    positions: int


SMALL = Shape(hidden=128, layers=2, heads=4, kv_heads=2, intermediate=256, vocabulary=1024, positions=2048)
QWEN_HALF_B = Shape(896, 24, 14, 2, 4864, 151_936, 32_768)
"""Qwen2.5-0.5B's."""


def save_random_model(folder: Path, shape: Shape, seed: int = 0) -> Path:
    """Write weights and tokenizer to `folder`, which `from_pretrained` loads; the same at every call."""
    import torch
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging

    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>", "<|im_end|>"]
    symbols += [f"w{at}" for at in range(len(symbols), shape.vocabulary)]
    core = Tokenizer(BPE(vocab={symbol: at for at, symbol in enumerate(symbols)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|endoftext|>", eos_token="<|im_end|>", chat_template=CHAT_TEMPLATE
    ).save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    logging.disable_progress_bar()
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def question(row: int, tokens: int) -> str:
    """A user message that makes a prompt of so many tokens, another for each row: bytes, then `<|im_end|>`."""
    return (f"{row}, " * tokens)[: tokens - 1]
