"""Adversarial beats for processing elements, for the benches and the golden tests alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from golden_model.arithmetic.dot_product_vectors import vector_classes
from golden_model.pim.processing_element import ProcessingElement

__all__ = ["Beat", "draw_beats"]

Beat = dict[str, Any]
"""Arguments of :meth:`ProcessingElement.step`."""

STAY = 32
"""Beats for which most operands are of one class, so that small terms are not drowned by those of another."""


def draw_beats(rng: np.random.Generator, element: ProcessingElement, count: int) -> Iterator[Beat]:
    """Draw beats with operands of every class of ``dot_product_vectors``.

    Operations, modes and contexts change from beat to beat or stay for a while; half of the time a READ follows each
    beat, so that a wrong term is seen before others cover it.
    """
    classes = list(vector_classes(rng, element.lanes).values())

    def below(limit: int) -> int:
        return int(rng.integers(limit))

    mode = context = favoured = 0
    for number in range(count):
        if number % STAY == 0:
            favoured = below(len(classes))
        if below(4) == 0:
            mode, context = below(2), below(1 << element.context_bits)
        op = (0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3)[below(11)] if below(2) else (0, 1)[number % 2]
        row, vector = classes[favoured if below(4) else below(len(classes))]()
        yield {
            "op": op, "axpy": mode, "first": int(below(5) == 0), "half": below(2), "context": context,
            "slot": below(element.lanes), "row": row, "vector": vector,
        }  # fmt: skip
