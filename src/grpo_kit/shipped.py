"""Where the recipes and rewards that come with the kit lie: in the wheel, or in the repository it runs from."""

from pathlib import Path


def shipped(kind: str) -> Path:
    """The folder of the shipped `recipes` or `rewards`."""
    package = Path(__file__).resolve().parent
    installed = package / "shipped" / kind
    return installed if installed.is_dir() else package.parents[1] / kind


def tiny_model() -> Path:
    """The folder of the built-in model, `builtin:tiny`."""
    return Path(__file__).resolve().parent / "tiny"
