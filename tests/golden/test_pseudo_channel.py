"""Golden bank group and pseudo-channel against plain matrix arithmetic on small integers, where every sum is exact."""

from __future__ import annotations

import numpy as np
import pytest

from golden_model.params import ParameterError
from golden_model.pim.bank_group import BankGroup, split_word
from golden_model.pim.global_buffer import UndefinedWordError
from golden_model.pim.processing_element import Operation
from golden_model.pim.pseudo_channel import Command, Op, PseudoChannel

RNG = np.random.default_rng(1)


def integers(*shape: int) -> np.ndarray:
    return RNG.integers(-8, 9, size=shape)


def word(numbers: np.ndarray) -> int:
    return int.from_bytes(numbers.astype("<f2").tobytes(), "little")


def singles(results: list[list[int]]) -> np.ndarray:
    return np.array(results, np.uint32).view(np.float32)


def halves(results: list[list[int]]) -> np.ndarray:
    return np.array(results, np.uint32).astype(np.uint16).view(np.float16)


def loaded(contents: np.ndarray, **parameters: int) -> PseudoChannel:
    channel = PseudoChannel(**parameters)
    for addr, numbers in enumerate(contents):
        channel.execute(Command(Op.WRITE_BUFFER, addr=addr, data=word(numbers)))
    channel.execute(Command(Op.SWAP_BUFFER))
    return channel


def flat(columns: np.ndarray) -> list[int]:
    """Columns of shape (groups, banks, lanes) in the order of the ports."""
    return [word(numbers) for numbers in columns.reshape(16, -1)]


@pytest.mark.parametrize("lanes", [4, 16, 32])
def test_dot_mode_sums_over_lanes_and_banks(lanes: int) -> None:
    words = integers(64, lanes)
    channel = loaded(words, lanes=lanes, contexts=3)
    total = np.zeros((3, 4), int)
    for _ in range(5):
        columns, addr, stride = integers(4, 4, lanes), int(RNG.integers(64)), int(RNG.integers(64))
        channel.execute(Command(Op.MAC_ALL_BANKS, queries=2, addr=addr, stride=stride), flat(columns))
        for query in range(3):
            first = (addr + query * stride) % 64 // 4 * 4
            total[query] += np.einsum("gbl,bl->g", columns, words[first : first + 4])
    move = Command(Op.MOVE_RESULT, queries=2)
    assert (singles(channel.execute(move)) == total).all()
    assert (singles(channel.execute(move)) == total).all()  # moving does not clear
    assert (halves(channel.execute(move._replace(half=1))) == total).all()
    channel.execute(Command(Op.CLEAR, context=1))
    total[1] = 0
    assert (singles(channel.execute(move)) == total).all()


@pytest.mark.parametrize("lanes", [4, 16])
def test_axpy_mode_scales_and_sums_over_groups(lanes: int) -> None:
    words = integers(16, lanes)
    channel = loaded(words, lanes=lanes, contexts=2, words=16)
    total = np.zeros((2, 4, lanes), int)
    for number in range(2 * lanes):
        columns, addr, stride = integers(4, 4, lanes), int(RNG.integers(16)), int(RNG.integers(16))
        first, slot = int(number == lanes), number % lanes
        mac = Command(Op.MAC_ALL_BANKS, axpy=1, first=first, queries=1, slot=slot, addr=addr, stride=stride)
        channel.execute(mac, flat(columns))
        for query in range(2):
            scalars = np.roll(words[(addr + query * stride) % 16], -(number % lanes))[:4]
            if number == lanes:
                total[query] = 0
            total[query] += np.einsum("g,gbl->bl", scalars, columns)
    results = singles(channel.execute(Command(Op.MOVE_RESULT, axpy=1, queries=1)))
    assert (results.reshape(2, lanes, 4).transpose(0, 2, 1) == total).all()


def test_same_bank_leaves_the_others_alone() -> None:
    words = integers(16, 16)
    channel = loaded(words, words=16)
    columns = integers(4, 4, 16)
    channel.execute(Command(Op.MAC_SAME_BANK, bank=2), flat(columns))
    expected = np.einsum("gl,l->g", columns[:, 2], words[2])
    assert (singles(channel.execute(Command(Op.MOVE_RESULT))) == expected).all()
    channel.execute(Command(Op.MAC_SAME_BANK, axpy=1, bank=1, addr=5), flat(columns))
    results = singles(channel.execute(Command(Op.MOVE_RESULT, axpy=1)))
    assert (results[:, 1] == np.einsum("g,gl->l", words[5][:4], columns[:, 1])).all()
    assert (results[:, [0, 2, 3]] == 0).all()


def test_the_other_half_is_read_after_a_swap() -> None:
    words = integers(16, 16)
    channel = loaded(words, words=16)
    for addr, numbers in enumerate(words):
        channel.execute(Command(Op.WRITE_BUFFER, addr=addr, data=word(-numbers)))
    columns = integers(4, 4, 16)
    expected = np.einsum("gbl,bl->g", columns, words[:4])
    for sign in (1, -1, 1):
        channel.execute(Command(Op.MAC_ALL_BANKS, first=1), flat(columns))
        assert (singles(channel.execute(Command(Op.MOVE_RESULT))) == sign * expected).all()
        channel.execute(Command(Op.SWAP_BUFFER))


def test_contexts_that_do_not_exist_hold_nothing() -> None:
    channel = loaded(integers(16, 16), words=16)
    channel.execute(Command(Op.MAC_ALL_BANKS, context=1), flat(integers(4, 4, 16)))
    assert (singles(channel.execute(Command(Op.MOVE_RESULT, queries=1))) == 0).all()


def test_bank_group_acts_on_the_active_banks() -> None:
    group = BankGroup(lanes=4)
    rows, vectors = integers(4, 4), integers(4, 4)
    words = {"rows": [word(x) for x in rows], "vectors": [word(x) for x in vectors]}
    assert group.step(Operation.MULTIPLY, active=0b0110, **words) is None
    values = np.array(group.step(Operation.READ), np.uint32).view(np.float32)
    assert (values == np.einsum("bl,bl->b", rows, vectors) * [0, 1, 1, 0]).all()
    group.step(Operation.CLEAR, active=0b0010)
    assert (group.step(Operation.READ, active=0) or [1, 1])[1] == 0
    assert split_word(word(np.arange(4)), 4) == [0, 0x3C00, 0x4000, 0x4200]


def test_bad_input_is_refused() -> None:
    channel = PseudoChannel()
    with pytest.raises(ParameterError, match=r"columns must have 16 elements, not 3"):
        channel.execute(Command(Op.MAC_ALL_BANKS), [0, 0, 0])
    for wide in (1 << 256, -1):
        with pytest.raises(ParameterError, match=rf"^columns\[15\] must be an integer in \[0, {(1 << 256) - 1}\], not {wide}$"):
            channel.execute(Command(Op.MAC_SAME_BANK, bank=0), [0] * 15 + [wide])
    for name in ("rows", "vectors"):
        words = {"rows": [0] * 4, "vectors": [0] * 4, name: [0, 0, 1 << 64, 0]}
        with pytest.raises(ParameterError, match=rf"^{name}\[2\] must be an integer in \[0, {(1 << 64) - 1}\]"):
            BankGroup(lanes=4).step(Operation.MULTIPLY, active=0b0001, **words)
    with pytest.raises(ParameterError, match=r"op must be an integer in \[0, 7\], not 8"):
        channel.execute(Command(8))
    with pytest.raises(UndefinedWordError):
        channel.execute(Command(Op.MAC_ALL_BANKS), [0] * 16)
    for name, value, text in (
        ("words", 8, r"words must be a power of two in \[16, 4096\], not 8"),
        ("lanes", 12, r"lanes must be a power of two in \[2, 32\], not 12"),
        ("contexts", 0, r"contexts must be an integer in \[1, 16\], not 0"),
        ("align_frac_bits", 79, r"align_frac_bits must be an integer in \[20, 78\], not 79"),
    ):
        with pytest.raises(ParameterError, match=text):
            PseudoChannel(**{name: value})
