"""``saddle numerics``: table and figure of the dot product's error, byte-identical for equal sources and seed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cosim.console import Tick
from cosim.files import write_set
from cosim.report.dot_product_error import DISTRIBUTIONS, LENGTHS, PROFILES, measure
from cosim.system.output import to_csv, to_json

__all__ = ["draw", "write_numerics"]

_NAME = "dot_product_error"
_SHOWN = 40  # F is drawn to scale up to here; the exact one stands apart
_EXACT_AT = 43
_FLOOR = 1e-12
_MARKERS = {"Volta": ("s", "#7c3aed"), "Ampere": ("^", "#0f766e"), "Hopper": ("D", "#b45309")}
_OURS, _PLAIN = "#1d4ed8", "#6b7280"

Rows = Sequence[Mapping[str, Any]]


def write_numerics(folder: Path, *, seed: int, vectors: int, tick: Tick) -> list[str]:
    """Compute the table, write it as CSV with its circumstances as JSON and the figure, and say where."""
    rows = []
    total = sum(1 for _ in DISTRIBUTIONS) * len(LENGTHS)
    for row in measure(seed=seed, vectors=vectors):
        rows.append(row)
        done = len({(r["distribution"], r["length"]) for r in rows})
        tick(done - 1, total, f"{row['distribution']}, {row['length']} products")
    facts = {
        "command": f"saddle numerics --seed {seed} --vectors {vectors}",
        "seed": seed,
        "vectors": vectors,
        "error": "(sum - exact) / sum of |a b|; max_error and mean_error of its magnitude",
        "versions": {name: version(name) for name in ("numpy", "matplotlib")},
        "tensor_core_models": {
            core.name: {"products_per_step": core.products, "fraction_bits": core.fraction_bits} for core in PROFILES
        },
    }
    files = {f"{_NAME}.csv": to_csv(rows), f"{_NAME}.json": to_json(facts), **draw(rows)}
    write_set(folder, files, manifest=f"{_NAME}.json")
    return [f"{len(rows)} rows in {folder / _NAME}.csv", f"figure in {folder / _NAME}.svg and .png"]


def draw(rows: Rows) -> dict[str, bytes]:
    """Draw error against F, a panel per length and distribution, and return SVG and PNG."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.hashsalt": _NAME, "font.size": 8})
        figure = Figure(figsize=(11.0, 6.4), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(LENGTHS), len(DISTRIBUTIONS), sharex=True, sharey=True, squeeze=False)
        for length, line in zip(LENGTHS, panels, strict=True):
            for distribution, axes in zip(DISTRIBUTIONS, line, strict=True):
                _panel(axes, [r for r in rows if (r["length"], r["distribution"]) == (length, distribution)])
                axes.set_title(f"{distribution}, {length} products", fontsize=9)
        for axes in panels[-1]:
            axes.set_xlabel("F, fraction bits kept after alignment")
        for axes in panels[:, 0]:
            axes.set_ylabel("error / sum of |a b|")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False)
        figure.supxlabel(
            "Filled: largest error of all vectors; hollow and dashed: mean magnitude. Fused: 16 products a step, nearest even, "
            "added in FP32. Tensor cores: published models, not measured here. Zero is drawn at the lower edge.",
            fontsize=7, color="#444444",
        )  # fmt: skip
        files = {}
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=120, metadata=metadata)
            files[f"{_NAME}.{kind}"] = stream.getvalue()
    return files


def _panel(axes: Axes, rows: Rows) -> None:
    fused = [row for row in rows if row["method"] == "fused"]
    shown = [row for row in fused if row["align_frac_bits"] <= _SHOWN]
    exact = [row for row in fused if row["align_frac_bits"] > _SHOWN][-1:]
    for key, style, label in (("max_error", "-", "fused, this work: largest"), ("mean_error", "--", "mean")):
        largest = key == "max_error"
        axes.plot([row["align_frac_bits"] for row in shown], _clip(shown, key), style, color=_OURS, label=label, linewidth=1.3)
        default = [row for row in shown if row["align_frac_bits"] == 28]
        for place, point in ((_EXACT_AT, exact), (28, default)):
            axes.plot([place], _clip(point, key), "o", color=_OURS, markersize=4, fillstyle="full" if largest else "none")
        for name, (marker, colour) in _MARKERS.items():
            core = [row for row in rows if row["method"] == name]
            text = f"{name} model, {core[0]['products_per_step']} a step" if largest else None
            axes.plot([core[0]["align_frac_bits"]], _clip(core, key), marker, color=colour, markersize=5, label=text,
                      linestyle="none", fillstyle="full" if largest else "none")  # fmt: skip
        plain = [row for row in rows if row["method"] == "sequential FP32"]
        axes.axhline(*_clip(plain, key), linestyle="-" if largest else "--", color=_PLAIN, linewidth=0.8,
                     label="sequential FP32" if largest else None)  # fmt: skip
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(_FLOOR / 1.5, 3e-4)
    axes.set_xlim(19, _EXACT_AT + 1.5)
    axes.set_xticks([20, 24, 28, 32, 36, 40, _EXACT_AT], ["20", "24", "28", "32", "36", "40", "78"])
    axes.axvline((_SHOWN + _EXACT_AT) / 2, color="#bbbbbb", linewidth=0.6, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.6)


def _clip(rows: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    return [max(row[key], _FLOOR) for row in rows]
