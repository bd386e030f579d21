"""Golden global buffer against a naive one that replays the whole history for every answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_model.params import ParameterError
from golden_model.pim.global_buffer import Command, GlobalBuffer, Op, UndefinedWordError

COMMANDS = st.lists(
    st.builds(Command, op=st.sampled_from(list(Op)), addr=st.integers(0, 3), data=st.integers(0, 2**32 - 1)), max_size=40
)


def last_write(history: list[Command], addr: int) -> int | None:
    """Search backwards for the WRITE that a READ at the end of ``history`` shows: an odd number of SWAPs ago."""
    swaps = 0
    for command in reversed(history):
        swaps += command.op == Op.SWAP
        if command.op == Op.WRITE and command.addr == addr and swaps % 2:
            return command.data
    return None


@given(COMMANDS)
def test_equals_a_search_through_the_history(commands: list[Command]) -> None:
    buffer = GlobalBuffer(words=4, lanes=2)
    for number, command in enumerate(commands):
        expected = last_write(commands[:number], command.addr)
        if command.op == Op.READ:
            assert buffer.is_defined(command.addr) == (expected is not None)
            if expected is None:
                with pytest.raises(UndefinedWordError, match=f"word {command.addr} of half . was read before"):
                    buffer.execute(command)
                continue
            assert buffer.execute(command) == expected
        else:
            assert buffer.execute(command) is None


def test_reset_forgets_every_word() -> None:
    buffer = GlobalBuffer(words=4, lanes=2)
    for op in (Op.WRITE, Op.SWAP):
        buffer.execute(Command(op, 1, 5))
    assert buffer.is_defined(1)
    buffer.reset()
    assert not buffer.is_defined(1)
    buffer.execute(Command(Op.SWAP))
    assert not buffer.is_defined(1)


def test_the_default_holds_eight_queries_of_128_dimensions() -> None:
    buffer = GlobalBuffer()
    assert buffer.words * buffer.lanes == 8 * 128
    assert buffer.command_fields == (("op", 2), ("addr", 6), ("data", 256))
    assert buffer.answer_fields == (("data", 256),)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"words": 2}, r"words must be a power of two in \[4, 1024\], not 2"),  # less than a row's 64 FP16 numbers
        ({"words": 48}, r"words must be a power of two in \[4, 1024\], not 48"),
        ({"words": 2048}, r"words must be a power of two in \[4, 1024\], not 2048"),
        ({"lanes": True}, r"lanes must be a power of two in \[2, 32\], not True"),
        ({"lanes": 1}, r"lanes must be a power of two in \[2, 32\], not 1"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}$"):
        GlobalBuffer(**parameters)


def test_commands_are_checked() -> None:
    buffer = GlobalBuffer(words=4, lanes=2)
    for command, message in (
        (Command(4), r"op must be an integer in \[0, 3\], not 4"),
        (Command(Op.READ, 4), r"addr must be an integer in \[0, 3\], not 4"),
        (Command(Op.WRITE, 0, 1 << 32), r"data must be an integer in \[0, 4294967295\], not 4294967296"),
    ):
        with pytest.raises(ParameterError, match=message):
            buffer.execute(command)
    with pytest.raises(ParameterError, match=r"addr must be an integer in \[0, 3\], not -1"):
        buffer.is_defined(-1)
