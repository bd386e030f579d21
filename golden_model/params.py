"""Validation shared by golden models and RTL: one clear line that names the thing, the value and the range."""

from __future__ import annotations

import operator

__all__ = ["ParameterError", "check_code", "check_power_of_two", "check_range"]


class ParameterError(ValueError):
    """A parameter outside its legal range.  The message is one line fit for a user."""


def check_range(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` as a Python int, or say which range it left.

    Parameters
    ----------
    name
        What the user calls the parameter.
    value
        Anything that Python can use as an index (``bool`` and floats are refused).
    low, high
        Legal range, both ends included.

    Raises
    ------
    ParameterError
        ``<name> must be an integer in [<low>, <high>], not <value>``.

    >>> check_range("lanes", 16, 1, 64)
    16
    >>> check_range("lanes", 0, 1, 64)
    Traceback (most recent call last):
    ...
    golden_model.params.ParameterError: lanes must be an integer in [1, 64], not 0
    """
    message = f"{name} must be an integer in [{low}, {high}], not {value!r}"
    if isinstance(value, bool):
        raise ParameterError(message)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ParameterError(message) from None
    if not low <= number <= high:
        raise ParameterError(message)
    return number


def check_code(name: str, value: object, bits: int) -> int:
    """Return ``value`` as an unsigned code of ``bits`` bits, or raise :class:`ParameterError`.

    >>> check_code("request", 127, 7)
    127
    """
    return check_range(name, value, 0, (1 << bits) - 1)


def check_power_of_two(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` as a Python int if it is a power of two in ``[low, high]``, or raise :class:`ParameterError`.

    >>> check_power_of_two("lanes", 12, 2, 32)
    Traceback (most recent call last):
    ...
    golden_model.params.ParameterError: lanes must be a power of two in [2, 32], not 12
    """
    message = f"{name} must be a power of two in [{low}, {high}], not {value!r}"
    try:
        number = check_range(name, value, low, high)
    except ParameterError:
        raise ParameterError(message) from None
    if number & (number - 1):
        raise ParameterError(message)
    return number
