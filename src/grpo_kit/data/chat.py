"""Prompts as the model sees them, and completions as people and rewards see them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_kit.errors import RecipeError, first_line, shorten
from grpo_kit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Chat:
    """A tokenizer with the recipe's way of using its chat template.

    `opened` is what the template's generation prompt leaves open in the assistant turn (`<think>` and what follows);
    `end_ids` are the tokens that end a completion.
    """

    tokenizer: "PreTrainedTokenizerBase"
    kwargs: dict[str, Any]
    end_ids: frozenset[int]
    opened: str = ""

    def prompt(self, messages: Messages) -> Messages | str:
        """What TRL gets: the messages, or plain text where the tokenizer has no chat template."""
        if self.tokenizer.chat_template is not None:
            return messages
        return "\n\n".join(message["content"] for message in messages)

    def render(self, messages: Messages) -> str:
        """The text that the model continues."""
        prompt = self.prompt(messages)
        if isinstance(prompt, str):
            return prompt
        return str(
            self.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **self.kwargs)
        )

    def encode(self, messages: Messages) -> list[int]:
        """The prompt's tokens, exactly as TRL makes them."""
        prompt = self.prompt(messages)
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        encoded: Any = self.tokenizer.apply_chat_template(
            prompt, tokenize=True, add_generation_prompt=True, return_dict=True, **self.kwargs
        )
        return list(encoded["input_ids"])

    def is_truncated(self, completion_ids: list[int]) -> bool:
        """Did no end token end it?"""
        return not completion_ids or completion_ids[-1] not in self.end_ids

    def decode(self, completion_ids: list[int]) -> str:
        """The assistant turn as text: tags that are special tokens stay, the tokens that ended it go."""
        ids = list(completion_ids)
        while ids and (ids[-1] in self.end_ids or ids[-1] == self.tokenizer.pad_token_id):
            ids.pop()
        return self.opened + str(self.tokenizer.decode(ids, skip_special_tokens=False))


def load_chat(recipe: Recipe, model_path: str) -> Chat:
    """Load the tokenizer and check that its template does what the recipe asks. Raises RecipeError."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model_path, padding_side="left", truncation_side="left", trust_remote_code=False
        )
    except Exception as error:  # transformers raises many types for a damaged folder: all are the user's to mend
        raise not_loadable(recipe, "tokenizer", error) from None
    kwargs = {} if recipe.thinking is None else {"enable_thinking": recipe.thinking}
    chat = Chat(tokenizer, kwargs, _end_ids(recipe, tokenizer, model_path))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(min(chat.end_ids))
    hello: Messages = [{"role": "user", "content": "Hello"}]
    token_count(recipe, chat, hello)
    if recipe.thinking is not None:
        other = Chat(tokenizer, {"enable_thinking": not recipe.thinking}, chat.end_ids)
        if chat.render(hello) == other.render(hello):
            raise recipe.error("thinking", "the chat template of this model ignores it; remove the key")
    return Chat(tokenizer, kwargs, chat.end_ids, _opened(chat.render(hello)))


def token_count(recipe: Recipe, chat: Chat, messages: Messages) -> int:
    """The length of a prompt as the model sees it. Raises RecipeError where the chat template makes none of it."""
    try:
        count = len(chat.encode(messages))
    except Exception as error:  # of whatever type: a template is a program of its own
        what = f"the chat template of {recipe.model} refuses {shorten(messages)}"
        raise recipe.error("model", f"{what}: {first_line(error)}") from None
    if count == 0:
        raise recipe.error(
            "model", f"tokenizer and chat template of {recipe.model} make nothing of {shorten(messages)}"
        )
    return count


def end_of_turn_warning(chat: Chat) -> str | None:
    """The token that ends the template's assistant turn should also end a completion."""
    if chat.tokenizer.chat_template is None:
        return None
    messages: Messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "@@@"}]
    text = str(chat.tokenizer.apply_chat_template(messages, tokenize=False, **chat.kwargs))
    after = chat.tokenizer(text.rsplit("@@@", 1)[-1].strip(), add_special_tokens=False)["input_ids"]
    if not after or after[0] in chat.end_ids:
        return None
    names = ", ".join(chat.tokenizer.convert_ids_to_tokens(sorted(chat.end_ids)))
    token = chat.tokenizer.convert_ids_to_tokens(after[0])
    return f"the chat template ends a turn with {token}, but completions end only at {names}"


def not_loadable(recipe: Recipe, what: str, error: BaseException) -> RecipeError:
    """One line for a checkpoint that cannot be had or read."""
    first = first_line(error)
    if "couldn't connect" in str(error).lower() or "offline" in str(error).lower() or "connection" in first.lower():
        return recipe.error(
            "model",
            f"the hub was asked for the {what} of {recipe.model} and cannot be reached, and nothing is cached here; "
            "name a local folder, or try recipes/smoke.yaml, which needs no hub",
        )
    return recipe.error("model", f"the {what} of {recipe.model} cannot be loaded: {first}")


def _opened(rendered: str) -> str:
    start = rendered.rfind("<think>")
    return rendered[start:] if start >= 0 and "</think>" not in rendered[start:] else ""


def _end_ids(recipe: Recipe, tokenizer: "PreTrainedTokenizerBase", model_path: str) -> frozenset[int]:
    """As TRL resolves them: the generation config's end tokens and the tokenizer's. Raises RecipeError for none."""
    from transformers import AutoConfig, GenerationConfig

    try:
        declared = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:  # a checkpoint need not have one; the model then makes it from its config
        declared = getattr(AutoConfig.from_pretrained(model_path, trust_remote_code=False), "eos_token_id", None)
    except (ValueError, TypeError, AttributeError) as error:
        raise recipe.error("model", f"generation_config.json of {recipe.model}: {first_line(error)}") from None
    ids = {declared} if isinstance(declared, int) else set(declared or ())
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    if not ids:
        raise recipe.error("model", f"{recipe.model} has no end-of-sequence token, so no completion would ever end")
    if None in tokenizer.convert_ids_to_tokens(sorted(ids)):
        raise recipe.error("model", f"the tokenizer of {recipe.model} lacks its end token; are its files there?")
    return frozenset(ids)
