"""Certificates: what a passed regression leaves behind, and the only source of cycle counts for the system model.

A certificate binds measured cycles to what was measured: the hashes of the generated RTL, of the golden model, of the
bench and of the configuration.  :func:`check` compares them with the present sources, so an edit makes it stale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosim.blocks import Block, Configuration, jobs
from cosim.errors import UserError
from cosim.files import build_root, write_atomically
from cosim.rtl import rtl_text
from cosim.sources import closure, content_hash, text_hash

__all__ = [
    "FORMAT", "CertificateProblem", "OperationTiming", "Timing", "check", "identity", "load_timing", "path", "write",
]  # fmt: skip

FORMAT = 1
"""Version of the file format."""


@dataclass(frozen=True)
class OperationTiming:
    """Measured timing of one operation of a block, in cycles of the block's clock.

    ``latency_cycles``: from the cycle in which the command is accepted to the one in which its answer (for a burst:
    the first beat) is handed over.  ``interval_cycles``: between two accepted commands, or two beats of a burst.
    """

    latency_cycles: int
    interval_cycles: int

    def cycles(self, count: int = 1) -> int:
        """Return the cycles from the first acceptance to the last answer of ``count`` back-to-back operations."""
        return self.latency_cycles + (count - 1) * self.interval_cycles if count else 0


Timing = Mapping[str, Mapping[str, OperationTiming]]
"""Block stem -> operation -> timing."""


class CertificateProblem(UserError):
    """A certificate is missing, corrupt or stale; the message names the block, why, and the command that mends it."""


def path(block: Block, configuration: Configuration, *, root: Path | None = None) -> Path:
    """Return where the certificate of a configuration lies."""
    return (root or build_root()) / "certificates" / f"{block.top(configuration)}.json"


def identity(block: Block, configuration: Configuration, *, root: Path | None = None) -> dict[str, Any]:
    """Return what a certificate is bound to, from the present sources."""
    bench = set(closure([block.bench_module, "cosim.harness.simulate"], within=("cosim",)))
    return {
        "format": FORMAT,
        "block": block.stem,
        "configuration": configuration.name,
        "parameters": dict(configuration.parameters),
        "rtl_sha256": text_hash(rtl_text(block, configuration, root=root)),
        "golden_sha256": content_hash(closure([block.golden_module], within=("golden_model",))),
        "bench_sha256": content_hash(sorted(bench)),
    }


_PARTS = {
    "format": "the certificate format",
    "parameters": "the configuration",
    "rtl_sha256": "the RTL",
    "golden_sha256": "the golden model",
    "bench_sha256": "the bench",
}


def _digest(content: Mapping[str, Any]) -> str:
    return text_hash(json.dumps({k: v for k, v in content.items() if k != "digest"}, sort_keys=True))


def write(content: dict[str, Any], place: Path) -> None:
    """Write a certificate with its own digest, atomically."""
    write_atomically(place, json.dumps({**content, "digest": _digest(content)}, indent=1, sort_keys=True) + "\n")


def check(block: Block, configuration: Configuration, *, root: Path | None = None) -> dict[str, Any]:
    """Return the certificate of a configuration if it is whole and fits the present sources.

    Raises
    ------
    CertificateProblem
        One line: which certificate, what is wrong, how to mend it.
    """
    top = block.top(configuration)
    mend = f"run: saddle regress {top}"
    place = path(block, configuration, root=root)
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CertificateProblem(f"certificate of {top} is missing ({place}); {mend}") from None
    except (OSError, ValueError) as error:
        raise CertificateProblem(f"certificate of {top} is corrupt ({place}: {error}); {mend}") from None
    if not isinstance(content, dict) or content.get("digest") != _digest(content):
        raise CertificateProblem(f"certificate of {top} is corrupt ({place}: its digest does not fit); {mend}")
    present = identity(block, configuration, root=root)
    changed = [_PARTS[key] for key in _PARTS if content.get(key) != present[key]]
    if changed:
        raise CertificateProblem(f"certificate of {top} is stale: {' and '.join(changed)} changed since; {mend}")
    return content


def load_timing(*, unverified: bool = False, root: Path | None = None) -> tuple[Timing, list[dict[str, Any]]]:
    """Return the measured timing of every block that the system model uses, and the certificates behind it.

    Parameters
    ----------
    unverified
        Where a certificate has a problem, take the timing that the component predicts of itself instead of refusing.
        The stand-in for its certificate then holds the key ``problem``.

    Raises
    ------
    CertificateProblem
        For the first certificate that is missing, corrupt or stale, unless ``unverified``.
    """
    timing, certificates = {}, []
    for block, configuration in jobs():
        if not configuration.system:
            continue
        try:
            certificate = check(block, configuration, root=root)
        except CertificateProblem as problem:
            if not unverified:
                raise
            certificate = {
                "block": block.stem,
                "configuration": configuration.name,
                "problem": str(problem),
                "timing": block.component(configuration).predicted_timing,
            }
        certificates.append(certificate)
        timing[block.stem] = {name: OperationTiming(**cycles) for name, cycles in certificate["timing"].items()}
    return timing, certificates
