"""A reward that says beforehand which groups are flat: 1.0 for rows with `flat: true`, else a number from the text."""

import hashlib


def planned(completion: str, flat: bool = False, **columns: object) -> float:
    if flat:
        return 1.0
    return int.from_bytes(hashlib.sha256(completion.encode()).digest()[:4], "big") / 2**32
