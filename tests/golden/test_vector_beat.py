"""The beat of the special function unit."""

from __future__ import annotations

import pytest

from golden_model.layouts import width
from golden_model.params import ParameterError
from golden_model.pim import vector_beat


@pytest.mark.parametrize(("lanes", "bits"), [(4, 3), (8, 4), (16, 5)])
def test_fields(lanes: int, bits: int) -> None:
    assert width(vector_beat.input_fields(lanes)) == 1 + bits + 16 * lanes
    assert vector_beat.input_fields(lanes)[:3] == (("last", 1), ("count", bits), ("a_0", 16))
    assert vector_beat.output_fields(lanes)[:5] == (("last", 1), ("count", bits), ("masked", 1), ("invalid", 1), ("y_0", 16))
    assert vector_beat.output_fields(lanes)[-1] == (f"y_{lanes - 1}", 16)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_rows_survive_the_beats(lanes: int) -> None:
    for length in range(1, 3 * lanes + 1):
        codes = [(7 * k + 1) & 0xFFFF for k in range(length)]
        beats = vector_beat.row_to_beats(codes, lanes, filler=0x7E00)
        assert [beat["last"] for beat in beats] == [0] * (len(beats) - 1) + [1]
        assert sum((vector_beat.valid_codes(beat, lanes) for beat in beats), []) == codes
        renamed = [{name.replace("a_", "y_"): value for name, value in beat.items()} for beat in beats]
        assert vector_beat.codes_of_beats(renamed) == codes


def test_bad_input_is_refused() -> None:
    for lanes, message in ((2, r"\[4, 16\], not 2"), (12, r"a power of two in \[4, 16\], not 12"), (True, "not True")):
        with pytest.raises(ParameterError, match=message):
            vector_beat.check_lanes(lanes)
    with pytest.raises(ParameterError, match="at least one element"):
        vector_beat.row_to_beats([], 4)
    beat = {"last": 0, "count": 3, "a_0": 0, "a_1": 0, "a_2": 0, "a_3": 0}
    with pytest.raises(ParameterError, match=r"count must be an integer in \[4, 4\], not 3"):
        vector_beat.valid_codes(beat, 4)
    with pytest.raises(ParameterError, match=r"count must be an integer in \[1, 4\], not 0"):
        vector_beat.valid_codes({**beat, "last": 1, "count": 0}, 4)
