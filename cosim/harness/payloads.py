"""Payloads of many transfers at once, as arrays of 32-bit words: what ``golden_model.layouts`` does for one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from golden_model.layouts import Fields, width

__all__ = ["Words", "pack_columns", "unpack_columns", "words_of"]

Words = npt.NDArray[np.uint32]


def words_of(bits: int) -> int:
    """Return the 32-bit words of a payload of so many bits, at least one."""
    return max(-(-bits // 32), 1)


def pack_columns(fields: Fields, columns: Mapping[str, npt.ArrayLike]) -> Words:
    """Pack one array (or one number) per field into payloads, as ``golden_model.layouts.pack`` does for one.

    Returns
    -------
    Words
        Shape (n, words), the lowest 32 bits first; n is the length of the arrays.

    >>> pack_columns((("low", 4), ("high", 2)), {"low": [5, 1], "high": 3}).tolist()
    [[53], [49]]
    """
    if set(columns) != {name for name, _ in fields}:
        raise ValueError(f"fields {sorted(set(columns) ^ {name for name, _ in fields})} are missing or unknown")
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    count = max((len(array) for array in arrays.values() if array.ndim), default=1)
    result = np.zeros((count, words_of(width(fields))), np.uint32)
    offset = 0
    for name, bits in fields:
        array = arrays[name]
        if array.dtype.kind not in "iub" or bits > 64:
            raise ValueError(f"{name} must have integers of at most 64 bits, not {bits} bits of {array.dtype}")
        if array.size and not (0 <= int(array.min()) and int(array.max()) < 1 << bits):
            raise ValueError(f"{name} must be in [0, {(1 << bits) - 1}], not [{array.min()}, {array.max()}]")
        values = array.astype(np.uint64)
        word, shift = divmod(offset, 32)
        result[:, word] |= (values << np.uint64(shift)).astype(np.uint32)
        for place in range(1, words_of(shift + bits)):
            result[:, word + place] |= (values >> np.uint64(32 * place - shift)).astype(np.uint32)
        offset += bits
    return result


def unpack_columns(fields: Fields, words: Words) -> dict[str, npt.NDArray[np.uint64]]:
    """Split payloads of shape (n, words) into one array per field; the reverse of :func:`pack_columns`."""
    columns, offset = {}, 0
    for name, bits in fields:
        word, shift = divmod(offset, 32)
        values = words[:, word].astype(np.uint64) >> np.uint64(shift)
        for place in range(1, words_of(shift + bits)):
            values |= words[:, word + place].astype(np.uint64) << np.uint64(32 * place - shift)
        columns[name] = values & np.uint64((1 << bits) - 1)
        offset += bits
    return columns
