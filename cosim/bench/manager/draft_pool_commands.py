"""Random command streams for the draft pool: plausible drafts mixed with adverse commands, in phases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from golden_model.manager.draft_pool import DraftPool, Op

__all__ = ["random_commands_of"]

_ONE = 0x3C00
_STEPS = (0, 0, 1, 64, 1024)
"""By how much the code of H falls from token to token; 0 gives equal probabilities."""


def random_commands_of(model: DraftPool, rng: np.random.Generator, count: int) -> Iterator[tuple[Op, dict[str, int]]]:
    """Yield about ``count`` commands, a flush of whatever is left, and a flush of the empty pool.

    Phases that fill the pool (until inserts are refused) alternate with phases that work on it and empty it.  The
    caller must carry out each command on ``model`` before asking for the next: some commands depend on its fill.
    """
    ids = min(1 << model.request_bits, max(3, model.entries // 4))
    drafts: dict[int, tuple[int, int]] = {}  # request -> next position, H
    phase = max(40, min(3 * model.entries, count // 3))
    for number in range(count):
        filling = number // phase % 2 == 0
        request, scope, kind = int(rng.integers(ids)), int(rng.integers(4)), int(rng.integers(100))
        if kind < (78 if filling else 35):
            position, h = drafts.get(request, (0, _ONE))
            if rng.integers(16) == 0:
                position = int(rng.integers(1 << model.position_bits))  # out of turn: often a duplicate
            yield Op.INSERT, {"request": request, "position": position, "probability": h, "token": int(rng.integers(1 << 32))}
            step = int(rng.choice(_STEPS))
            drafts[request] = ((position + 1) % (1 << model.position_bits), max(0, h - step))
        elif kind < 84:
            yield Op.MATCH, {"request": request, "scope": scope}
        elif kind < 90:
            yield Op.DROP, {"request": request, "scope": scope}
            drafts.pop(request, None)
        elif kind < 94:
            yield Op.DRAIN, {"request": request, "scope": scope}
        elif kind < 97:
            top = (1 << model.count_bits) - 1
            near = (0, 1, model.waiting, max(model.waiting - 1, 0), int(rng.integers(top + 1)), int(rng.integers(8)))
            yield Op.SELECT, {"capacity": near[int(rng.integers(len(near)))]}
        elif kind < 98:
            yield Op.LOCK, {}
            for _ in range(int(rng.integers(4))):
                yield Op.INSERT, {"request": request, "position": int(rng.integers(4)), "probability": 1}
            yield (Op.FLUSH if rng.integers(64) == 0 else Op.UNLOCK), {}
        elif rng.integers(200 if filling else 20) == 0:
            yield Op.FLUSH, {}
            drafts.clear()
        else:
            yield Op.MATCH, {"request": request, "scope": scope}
    yield Op.FLUSH, {}
    yield Op.FLUSH, {}
