"""The Liberty file that the flow uses; without one its tests are skipped and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.errors import UserError
from cosim.synthesis import find_liberty
from synth.liberty import Liberty
from synth.report import read_liberty
from tests.conftest import SHARED


@pytest.fixture
def liberty(monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patch:
        patch.setenv("BUILD", str(SHARED))  # a test's own build folder has none
        try:
            path = find_liberty()
        except UserError as error:
            pytest.skip(str(error))
    monkeypatch.setenv("SADDLE_LIBERTY", str(path))
    return path


@pytest.fixture
def library(liberty: Path) -> Liberty:
    return read_liberty(liberty)[0]
