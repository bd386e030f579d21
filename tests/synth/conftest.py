"""The Liberty file that the flow uses; without one its tests are skipped and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.errors import UserError
from cosim.synthesis import find_liberty
from synth.liberty import Liberty
from synth.report import read_liberty


@pytest.fixture
def liberty() -> Path:
    try:
        return find_liberty()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture
def library(liberty: Path) -> Liberty:
    return read_liberty(liberty)[0]
