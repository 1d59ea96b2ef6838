"""What in a recipe, a command line or a message is nobody else's business, by its name or by how it looks."""

import json
import os
import re
from typing import Any

from grpo_kit.recipe.file import read_yaml
from grpo_kit.recipe.plain_values import plain

HIDDEN = "(not shown)"

NAME = re.compile(
    r"secret|passw|passphrase|credential|authori[sz]|bearer|cookie|(?:^|_)(?:pwd|auth|keys?)(?:_|$)"
    r"|(?:api|access|private|signing|account)keys?(?:_|$)"
)
"""Names, in snake case, whose values are secrets; those that hold a `key` or `token` as a word are, too."""

TOKEN = re.compile(r"tokens?(?:_|$)")

HARMLESS_TOKEN = re.compile(
    r"(?:^|_)(?:eos|bos|pad|unk|mask|sep|cls|stop|start|begin|end|special|image|new|max|min|num|input|think)_tokens?(?:_|$)"
    r"|tokens?_(?:ids?|counts?|limit|length|budget|share|seen|type)|across_devices"
)
"""Tokens of a tokenizer, not those that open a door."""

LOOKS = re.compile(
    r"(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}"
    r"|\b(?:sk|pk|rk)-[\w-]{6,}|\bhf_(?=[a-z]*[A-Z0-9])\w{5,}|\bgh[opsur]_\w{6,}|\bgithub_pat_\w+|\bglpat-[\w-]+"
    r"|\bxox[a-z]-[\w-]+|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)

USERINFO = re.compile(r"(?<=://)[^\s/?#@]*:[^\s/?#]*@|(?<=://)[^\s/?#@:]{12,}@")

HEADER = re.compile(r"(?i)\b((?:set-)?cookie|(?:proxy-)?authorization)(\s*[:=]\s*)[^\n\"']+")

NAMED = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]{1,80})(?P<is>["']?\s*[:=]\s*["']?)(?P<value>[^\s"',;&{}\[\]]+)""")
"""A value by its name within a text: of a query, a mapping that is not whole."""

SHORTEST = 8
"""Characters of a secret of the environment; what is shorter may stand in a text for something else."""

PROSE = re.compile(r"(?i)keys?|tokens?")
"""Words before a colon that are no names of secrets in a prompt."""


def is_secret(name: str, value: Any = "") -> bool:
    """Whether this name's value is a secret; switches are none, and a number is none for being called a token."""
    if value is None or isinstance(value, bool):
        return False
    snake = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()
    if NAME.search(snake):
        return True
    is_number = isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"[\d.]+", value))
    return not is_number and TOKEN.search(snake) is not None and not HARMLESS_TOKEN.search(snake)


def without_environment(text: str) -> str:
    """A text without the values of environment variables that are secrets by their names; paths are none."""
    own = [(name, value.strip()) for name, value in os.environ.items()]  # a token read from a file ends with a newline
    there = [(name, value) for name, value in own if len(value) >= SHORTEST and value in text]
    secrets = [value for name, value in there if is_secret(name, value) and not _is_path(value)]
    secrets += [found[0] for _, value in own for found in USERINFO.finditer(value)]  # of a proxy, with its password
    for value in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(value, HIDDEN)
    return text


def _is_path(value: str) -> bool:
    """Whether the variable names a file that holds the secret; one that happens to be called so here is another."""
    return os.path.isabs(value) and os.path.exists(value)


def hidden_in(text: str) -> str:
    """A text without what looks like a secret, or is one of the environment."""

    def named(found: re.Match[str]) -> str:
        prose = PROSE.fullmatch(found["name"]) and ":" in found["is"]
        hide = not prose and is_secret(found["name"], found["value"]) and not found["value"].startswith("(not")
        return f"{found['name']}{found['is']}{HIDDEN}" if hide else found[0]

    text = LOOKS.sub(HIDDEN, USERINFO.sub(f"{HIDDEN}@", without_environment(text)))
    text = HEADER.sub(rf"\1\2{HIDDEN}", text)
    return NAMED.sub(named, text)


def without_secrets(tree: Any, path: tuple[str, ...] = ()) -> Any:
    """A plain tree, such as a recipe, without them; the labels of `rewards` are names of the user's own."""
    if isinstance(tree, dict):
        named = next((str(tree[key]) for key in ("name", "key", "header") if isinstance(tree.get(key), str)), "")
        return {
            key: HIDDEN
            if (is_secret(key, value) and path != ("rewards",)) or (key == "value" and is_secret(named, value))
            else without_secrets(value, (*path, key))
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        if len(tree) == 2 and isinstance(tree[0], str) and is_secret(tree[0], tree[1]) and " " not in tree[0]:
            return [tree[0], HIDDEN]
        return [without_secrets(value, path) for value in tree]
    return hidden_in(tree) if isinstance(tree, str) else tree


def command_without_secrets(words: list[str]) -> list[str]:
    """A command line, with its overrides read as the recipe reads them."""
    found: list[str] = []
    for word in words:
        before = found[-1] if found else ""
        if before.startswith("-") and "=" not in before and is_secret(before.lstrip("-"), word):
            found.append(HIDDEN)
        else:
            found.append(_override(word))
    return found


def _override(word: str) -> str:
    key, is_set, text = word.partition("=")
    if not is_set or not re.fullmatch(r"[\w.-]+", key):
        return hidden_in(word)
    try:
        value = plain(read_yaml(text))
    except ValueError:
        value = text
    parts = key.lstrip("-").split(".")
    if isinstance(value, str) and not is_secret(parts[-1], value):
        return f"{key}={hidden_in(text)}"
    tree: Any = value
    for part in reversed(parts):
        tree = {part: tree}
    shown = without_secrets(tree)
    for part in parts:
        shown = shown[part] if isinstance(shown, dict) else shown
    if shown == value:
        return word
    return f"{key}={shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)}"
