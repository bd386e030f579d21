"""Field tables of every stream payload: (name, width) from the lowest bit up.

Bit offsets exist here and nowhere else: ``hdl.shapes`` turns the tables into Amaranth layouts, the benches and the
replay pack and unpack with :func:`pack` and :func:`unpack`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

__all__ = ["Fields", "pack", "unpack", "width"]

Fields = tuple[tuple[str, int], ...]


def width(fields: Fields) -> int:
    """Return the number of bits of a payload."""
    return sum(bits for _, bits in fields)


def pack(fields: Fields, values: Mapping[str, int]) -> int:
    """Pack named values into one payload; every field must be given and must fit.

    >>> pack((("low", 4), ("high", 2)), {"low": 5, "high": 3})
    53
    """
    if unknown := set(values) - {name for name, _ in fields}:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    payload, offset = 0, 0
    for name, bits in fields:
        value = operator.index(values[name])  # an int: a numpy integer would wrap around
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} must be in [0, {(1 << bits) - 1}], not {value}")
        payload |= value << offset
        offset += bits
    return payload


def unpack(fields: Fields, payload: int) -> dict[str, int]:
    """Split a payload into its named fields.

    >>> unpack((("low", 4), ("high", 2)), 53)
    {'low': 5, 'high': 3}
    """
    values = {}
    for name, bits in fields:
        values[name] = payload & ((1 << bits) - 1)
        payload >>= bits
    return values
