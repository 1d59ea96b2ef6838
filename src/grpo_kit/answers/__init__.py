"""A completion's final answer, and its equality with the gold answer. Text is compared, never run."""

from .equality import same_answer, usable_gold
from .final import final_answer
from .kinds import kind_of

__all__ = ["final_answer", "kind_of", "same_answer", "usable_gold"]
