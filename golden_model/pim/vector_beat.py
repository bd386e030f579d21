"""The beat of the special function unit: up to ``lanes`` FP16 numbers of one row, and how rows become beats.

A row of any length from 1 on is sent as full beats and one last beat that may be shorter; rows follow each other back to
back.  Field order, lowest bit first, is the order of the tables.  Source: our choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from golden_model.arithmetic.formats import FP16
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_power_of_two, check_range

__all__ = [
    "LONGEST_ROW", "check_lanes", "codes_of_beats", "count_bits", "input_fields", "output_fields", "row_to_beats",
    "valid_codes",
]  # fmt: skip

LONGEST_ROW = 128_256
"""Elements of the longest row that error bounds are stated for: the vocabulary of Llama 3."""


def check_lanes(lanes: object) -> int:
    """Return ``lanes`` as an int: a power of two from 4 to 16.

    >>> check_lanes(12)
    Traceback (most recent call last):
    ...
    golden_model.params.ParameterError: lanes must be a power of two in [4, 16], not 12
    """
    return check_power_of_two("lanes", lanes, 4, 16)


def count_bits(lanes: int) -> int:
    """Return the width of the field ``count``, which holds 1 to ``lanes``."""
    return lanes.bit_length()


def _lane_fields(prefix: str, lanes: int) -> Fields:
    return tuple((f"{prefix}_{lane}", FP16.width) for lane in range(lanes))


def input_fields(lanes: int) -> Fields:
    """Return the fields of an input beat.

    ``last`` ends the row; ``count`` lanes hold elements (all of them unless ``last``); ``a_k`` are FP16 codes, those from
    lane ``count`` on are ignored.

    >>> input_fields(4)
    (('last', 1), ('count', 3), ('a_0', 16), ('a_1', 16), ('a_2', 16), ('a_3', 16))
    """
    return (("last", 1), ("count", count_bits(lanes)), *_lane_fields("a", lanes))


def output_fields(lanes: int) -> Fields:
    """Return the fields of an output beat.

    ``last`` and ``count`` as in the input; ``masked``: every element of the row was minus infinity; ``invalid``: the row
    held a NaN or plus infinity; ``y_k`` are FP16 codes, 0 from lane ``count`` on.
    """
    return (("last", 1), ("count", count_bits(lanes)), ("masked", 1), ("invalid", 1), *_lane_fields("y", lanes))


def row_to_beats(codes: Sequence[int], lanes: int, *, filler: int = 0) -> list[dict[str, int]]:
    """Return the input beats of one row of FP16 codes.

    Parameters
    ----------
    codes
        The row, at least one element.
    lanes
        Elements per beat.
    filler
        Code of the ignored lanes of the last beat.

    >>> [beat["count"] for beat in row_to_beats([0] * 9, 4)]
    [4, 4, 1]
    """
    if not codes:
        raise ParameterError("a row must have at least one element")
    beats = []
    for start in range(0, len(codes), lanes):
        part = codes[start : start + lanes]
        beat = {"last": int(start + lanes >= len(codes)), "count": len(part)}
        beat |= {f"a_{lane}": part[lane] if lane < len(part) else filler for lane in range(lanes)}
        beats.append(beat)
    return beats


def valid_codes(beat: Mapping[str, int], lanes: int) -> list[int]:
    """Return the elements of one input beat, after checking the beat.

    Raises
    ------
    ParameterError
        If ``count`` is 0 or above ``lanes``, or below ``lanes`` in a beat that is not the last of its row.
    """
    last = check_code("last", beat["last"], 1)
    count = check_range("count", beat["count"], 1 if last else lanes, lanes)
    return [check_code(f"a_{lane}", beat[f"a_{lane}"], FP16.width) for lane in range(count)]


def codes_of_beats(beats: Iterable[Mapping[str, int]]) -> list[int]:
    """Return the elements of output beats, in order.

    >>> codes_of_beats([{"last": 1, "count": 2, "masked": 0, "invalid": 0, "y_0": 7, "y_1": 8, "y_2": 0, "y_3": 0}])
    [7, 8]
    """
    return [beat[f"y_{lane}"] for beat in beats for lane in range(beat["count"])]
