"""What a run holds in memory at once, found by running the run's own code on tensors that have shapes and no memory.

The model is built from its configuration; the update, the optimizer's step and the sampling of the last token of a
rollout then run under torch's FakeTensorMode, while every storage that comes and goes is counted. Nothing is fitted
and no weight is read.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from grpo_kit.memory.heap import MMAP_THRESHOLD
from grpo_kit.memory.live_bytes import LiveBytes, Peak
from grpo_kit.memory.skeleton import checkpoint, go_on_as_a_line, materialise, skeleton
from grpo_kit.model.decode import decode_unfinished
from grpo_kit.model.logps import SharedPrompts, causal_model, completion_logps
from grpo_kit.model.model import ModelSize

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedConfig
    from trl import GRPOConfig


@dataclass(frozen=True)
class Shapes:
    """The largest batches of a run: `rows` completions of `prompts` prompts in a micro-batch, `generation_rows` of
    `generation_prompts` in a rollout, each of `prompt_tokens` and `completion_tokens`.

    `fast`: the kit's way and not TRL's own; `shared`: rows of one prompt share it in the update; `accumulates`:
    gradients of earlier micro-batches are there; `checkpointed`: activations are computed again in the backward pass.
    """

    rows: int
    prompts: int
    generation_rows: int
    generation_prompts: int
    prompt_tokens: int
    completion_tokens: int
    fast: bool
    shared: bool
    accumulates: bool
    checkpointed: bool


@dataclass(frozen=True)
class Precision:
    """Names of torch dtypes; `cuda` chooses TRL's Triton kernels for the vocabulary, which allocate nothing."""

    weights: str
    autocast: str | None
    cuda: bool


def peaks_of(
    config: "PreTrainedConfig",
    lora: "LoraConfig | None",
    init_kwargs: dict[str, Any],
    args: "GRPOConfig",
    shapes: Shapes,
    precision: Precision,
    size: ModelSize,
) -> list[Peak]:
    """The peak of every stretch of a run. Raises whatever the model's code raises on tensors without memory.

    Where all layers are alike, two and three of them are run, and every stretch goes on as a line: each further layer
    adds the same. Stretches between a first and a last layer are below one of their neighbours, and left out.
    """

    text = config.get_text_config()
    depth, kinds = text.num_hidden_layers, set(getattr(text, "layer_types", None) or ())
    options: Any = args.activation_checkpointing_kwargs or {}
    every = options.get("every_n_layers", 1) if shapes.checkpointed else 1
    if depth > 3 and len(kinds) <= 1 and every == 1:
        models = [skeleton(config, layers, lora, init_kwargs, precision.weights) for layers in (2, 3)]
        if go_on_as_a_line(models, depth, size):
            two, three = (_run(m, n, args, shapes, precision) for m, n in zip(models, (2, 3), strict=True))
            return [_further(a, b, depth) for a, b in zip(two, three, strict=True) if not a.between]
    return _run(skeleton(config, depth, lora, init_kwargs, precision.weights), depth, args, shapes, precision)


def _further(two: Peak, three: Peak, depth: int) -> Peak:
    """The peak at `depth` layers from those at two and three."""
    terms = two.terms.keys() | three.terms.keys()
    line = {t: (two.terms.get(t, 0), three.terms.get(t, 0)) for t in terms}
    small = two.small + (three.small - two.small) * (depth - 2)
    return Peak(two.phase, False, {t: a + (b - a) * (depth - 2) for t, (a, b) in line.items()}, small)


def _run(model: Any, layers: int, args: "GRPOConfig", shapes: Shapes, precision: Precision) -> list[Peak]:
    from trl.trainer.utils import add_fused_lm_head

    causal = causal_model(model)
    live = LiveBytes(MMAP_THRESHOLD)
    with warnings.catch_warnings(), FakeTensorMode(), live, _vocabulary_kernels(precision, causal):
        warnings.simplefilter("ignore")
        materialise(model)
        if args.beta and causal is model:  # a second model; under an adapter it is the first one without
            live.label = "reference"
            held = [torch.empty_like(weight) for weight in model.parameters()]  # noqa: F841
        model.train()
        add_fused_lm_head(causal, temperature=args.temperature, outputs=("log_probs", "entropy"))
        if shapes.checkpointed:
            checkpoint(model, causal is not model, args)
        _watch(causal, layers, live)
        optimizer = _step(model, args, live, keep_gradients=shapes.accumulates)
        _update(model, causal, shapes, precision, live)
        optimizer.zero_grad(set_to_none=True)
        if not args.use_vllm:
            with torch.no_grad(), _autocast(precision):
                _rollout(causal, args, shapes, live)
    return live.peaks


def _autocast(precision: Precision) -> Any:
    """The precision of the run's forward; a CPU's autocast stands for the card's, which keeps the same copies."""
    dtype = precision.autocast
    return torch.autocast("cpu", dtype=getattr(torch, dtype)) if dtype else nullcontext()


@contextmanager
def _vocabulary_kernels(precision: Precision, model: Any) -> Iterator[None]:
    """TRL's tiles as they are held: on a card they are folded by kernels that allocate nothing, and on a CPU the part
    of a tile beyond the vocabulary is never touched."""
    from trl.kernels import chunked_logprob as kernels
    from trl.trainer import utils

    def nothing(*_: Any, **__: Any) -> None: ...

    changed: list[tuple[Any, str, Any]] = []
    if precision.cuda:
        changed = [(kernels, name, nothing) for name in ("_forward_tile", "_backward_tile", "_addmm_fp32")]
    else:
        width = min(utils._CHUNKED_LOGPROB_CHUNK_SIZE, model.config.get_text_config().vocab_size)
        changed = [(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", width)]
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    try:
        for module, name, value in changed:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _watch(causal: Any, count: int, live: LiveBytes) -> None:
    """Hooks that tell `live` where a stretch begins and what is being made: in the layers or for the vocabulary."""
    backbone = causal.base_model
    layers = next(m for m in backbone.modules() if isinstance(m, nn.ModuleList) and len(m) == count)

    def on_gradient(tensor: Tensor, act: Any) -> None:
        if tensor.requires_grad:
            tensor.register_hook(act)

    def after_first(module: Any, given: Any, output: Any) -> None:
        if not live.backward:
            live.start(between=True)
            if count > 2:
                on_gradient(_first(output), lambda _: live.start())

    def before_last(module: Any, given: Any) -> None:
        if not live.backward:
            live.start()
            on_gradient(given[0], after_last)

    def after_last(gradient: Tensor) -> None:
        live.start(between=True)
        if count == 2:  # this is the gradient after the first layer, too
            live.start()

    def into_layers(*_: Any) -> None:
        live.label = "activations"

    def out_of_layers(module: Any, given: Any, output: Any) -> None:
        live.label = "vocabulary"
        on_gradient(output.last_hidden_state, into_layers)

    if count > 1:
        layers[0].register_forward_hook(after_first)
        layers[-1].register_forward_pre_hook(before_last)
    backbone.register_forward_pre_hook(into_layers)
    backbone.register_forward_hook(out_of_layers)


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _step(model: nn.Module, args: "GRPOConfig", live: LiveBytes, keep_gradients: bool) -> torch.optim.Optimizer:
    """The first step of the optimizer, which makes its state."""
    from transformers import Trainer

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    kind, options = Trainer.get_optimizer_cls_and_kwargs(args)
    optimizer = kind(trained, **options)
    live.start("update")
    live.label = "gradients"
    for weight in trained:
        weight.grad = torch.zeros_like(weight)
        weight.register_post_accumulate_grad_hook(lambda w: live.relabel(w.grad, "gradients"))
    live.label = "optimizer"
    optimizer.step()
    if not keep_gradients:
        optimizer.zero_grad(set_to_none=True)
    return optimizer


def _update(model: Any, causal: Any, shapes: Shapes, precision: Precision, live: LiveBytes) -> None:
    """Forward and backward of one micro-batch, in which every row is needed and has the greatest lengths."""
    live.label = "activations"
    prompts = shapes.prompts if shapes.shared else shapes.rows
    ids, mask = _tokens(prompts, shapes.prompt_tokens)
    completion_ids, completion_mask = _tokens(shapes.rows, shapes.completion_tokens)
    prompt_of = torch.zeros(shapes.rows, dtype=torch.long)
    live.start("update")
    if shapes.fast or precision.cuda:
        rows = SharedPrompts(ids, mask, prompt_of, completion_ids, completion_mask)
        with _autocast(precision):
            logps, _ = completion_logps(model, causal.base_model, rows, entropy=True)
    else:  # TRL's own way, which on a CPU projects prompts onto the vocabulary too
        input_ids, attention_mask = torch.cat([ids, completion_ids], 1), torch.cat([mask, completion_mask], 1)
        labels = input_ids.masked_fill(attention_mask == 0, -100)
        with _autocast(precision):
            logps = model(
                input_ids=input_ids, attention_mask=attention_mask, labels=labels, fused_lm_head=True
            ).log_probs
    loss = (torch.exp(logps - logps.detach()) * torch.ones_like(logps)).sum()
    live.label, live.backward = "vocabulary", True
    loss.backward()
    live.label, live.backward = "activations", False


def _rollout(causal: Any, args: "GRPOConfig", shapes: Shapes, live: LiveBytes) -> None:
    """The prompts, and then the last token of all completions at once, from a cache that has all before it."""
    from transformers import GenerationConfig

    length, rows = shapes.prompt_tokens + shapes.completion_tokens, shapes.generation_rows
    options = {name: getattr(args, name) for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
    sampler = GenerationConfig(
        do_sample=True, max_new_tokens=1, pad_token_id=0, eos_token_id=0, disable_compile=True, **options
    )
    live.start("rollout")
    if shapes.fast:
        ids, mask = _tokens(shapes.generation_prompts, shapes.prompt_tokens)
        cache = causal.base_model(input_ids=ids, attention_mask=mask, use_cache=True).cache
        cache.batch_select_indices(torch.zeros(rows, dtype=torch.long))
    else:
        ids, mask = _tokens(rows, shapes.prompt_tokens)
        causal(input_ids=ids, attention_mask=mask, use_cache=True, logits_to_keep=1)
        cache = causal.base_model(input_ids=ids[:1, :2], attention_mask=mask[:1, :2], use_cache=True).cache
    live.cache_length = length
    for layer in cache.layers:
        for name in ("keys", "values"):
            _, heads, _, size = getattr(layer, name).shape
            grown = getattr(layer, name).new_empty(rows, heads, length - 1, size)
            live.relabel(grown, "kv_cache")
            setattr(layer, name, grown)
    live.start()
    ids, mask = _tokens(rows, length)
    own = {"custom_generate": decode_unfinished}  # it also stands for the loop of transformers: the same tensors
    causal.generate(input_ids=ids, attention_mask=mask, generation_config=sampler, cache=cache, **own)


def _tokens(rows: int, length: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(rows, length, dtype=torch.long), torch.ones(rows, length, dtype=torch.long)
