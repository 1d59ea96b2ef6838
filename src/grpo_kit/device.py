"""What this machine has, and the precision that follows from it."""

import platform
from dataclasses import dataclass
from importlib import metadata

from grpo_kit.processes import card

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


@dataclass(frozen=True)
class Device:
    """The device a run would use here, and its precision.

    `weights` and `autocast` are torch dtype names; `autocast` is None where the forward runs in the weights' dtype.
    """

    kind: str  # "cuda" or "cpu"
    name: str
    memory_gb: float
    weights: str
    autocast: str | None
    reason: str

    def lora_base(self) -> str:
        """Dtype of the frozen base weights under an adapter: they are not updated, so bfloat16 loses nothing."""
        return "bfloat16" if self.autocast == "bfloat16" else "float32"

    def describe(self) -> str:
        precision = f"{self.weights} weights" + (f", {self.autocast} autocast" if self.autocast else "")
        return f"{self.name} ({self.memory_gb:.0f} GB): {precision}; {self.reason}"


def find_device() -> Device:
    """Ask torch what there is. Weights stay float32 everywhere: a bfloat16 weight rounds an update of 1e-6 away."""
    import torch

    if not torch.cuda.is_available():
        import psutil

        memory_gb = psutil.virtual_memory().total / 1e9
        return Device("cpu", "CPU", memory_gb, "float32", None, "no CUDA device found, so this is slow")
    name = torch.cuda.get_device_name(card())
    memory_gb = torch.cuda.get_device_properties(card()).total_memory / 1e9
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return Device("cuda", name, memory_gb, "float32", "bfloat16", "the card computes in bfloat16")
    return Device(
        "cuda", name, memory_gb, "float32", "float16", "the card has no bfloat16, so float16 with loss scaling"
    )


def a_card(memory_gb: float) -> Device:
    """A card that computes in bfloat16, wherever it is."""
    return Device("cuda", "a card", memory_gb, "float32", "bfloat16", "asked about")


def environment() -> list[tuple[str, str]]:
    """Label and value of all that a bug report needs. Raises ImportError where torch cannot be imported."""
    import torch

    device = find_device()
    rows = [("python", platform.python_version()), ("platform", platform.platform())]
    rows += [(package, metadata.version(package)) for package in PACKAGES]
    rows += [("cuda", str(torch.version.cuda or "none (CPU build of torch)")), ("device", device.name)]
    rows += [("memory", f"{device.memory_gb:.1f} GB"), ("bf16", "yes" if device.autocast == "bfloat16" else "no")]
    return [*rows, ("precision", device.describe().split(": ", 1)[1])]


def blockers() -> list[str]:
    """Reasons why no run could start here; empty where one could."""
    found = []
    for package in PACKAGES:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            found.append(f"{package} is not installed: pip install {package}")
            continue
        if package == "trl" and not version.startswith("1.16."):
            found.append(f"trl {version} is installed, but the kit is proved against 1.16: pip install 'trl~=1.16.0'")
    try:
        import torch  # noqa: F401
    except Exception as error:  # a broken installation fails in many ways
        found.append(f"torch cannot be imported ({error}): pip install --force-reinstall torch")
    return found
