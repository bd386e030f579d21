"""Figures of an evaluation, drawn without a display and byte-identical for equal results."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cosim.report.claims import Table
from cosim.system.statistics import bootstrap_mean

__all__ = ["draw_fig12"]

COLOURS = {
    "GPU-AD": "#9aa5b1", "GPU-SD": "#52606d", "PIM-AD": "#8fc1a9", "PIM-SD": "#2f7d5b", "SADDLE": "#c2410c",
    "SADDLE-literal": "#f0a070",
}


def draw_fig12(rows: Sequence[Mapping[str, Any]], *, note: str, unverified: bool) -> dict[str, bytes]:
    """Draw throughput per batch, normalised to GPU-AD where it was evaluated (paper Fig. 12).

    Parameters
    ----------
    rows
        Rows of ``results.csv`` as dictionaries.
    note
        Assumptions, printed below the plot.
    unverified
        Whether to mark the figure.

    Returns
    -------
    dict
        ``fig12.png`` and ``fig12.svg`` as bytes.
    """
    table = Table(rows)
    normalised = "GPU-AD" in table.systems
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "fig12"
        figure = Figure(figsize=(8.0, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        width = 0.8 / len(table.systems)
        for number, system in enumerate(table.systems):
            values = (
                table.ratio(system, "GPU-AD") if normalised else table.matrix(system, "output_throughput_tok_s")
            )
            intervals = [bootstrap_mean(values[index : index + 1]) for index in range(len(table.batches))]
            places = [index + (number - (len(table.systems) - 1) / 2) * width for index in range(len(table.batches))]
            means = [interval.mean for interval in intervals]
            errors = [
                [max(0.0, interval.mean - interval.low) for interval in intervals],
                [max(0.0, interval.high - interval.mean) for interval in intervals],
            ]
            axes.bar(places, means, width, yerr=errors, label=system, color=COLOURS.get(system), capsize=2,
                     error_kw={"linewidth": 0.8})
        axes.set_xticks(range(len(table.batches)), [str(batch) for batch in table.batches])
        axes.set_xlabel("batch size (requests)")
        axes.set_ylabel("output throughput / GPU-AD (1 = GPU-AD)" if normalised else "output throughput (tokens/s)")
        if normalised:
            axes.axhline(1.0, color="black", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title("Throughput by batch size (model; error bars: bootstrap 95 % over seeds)", fontsize=10)
        figure.legend(loc="outside upper center", ncols=min(6, len(table.systems)), frameon=False, fontsize=8)
        figure.supxlabel("\n".join(textwrap.wrap(note, 130)), fontsize=6.5, color="#444444")
        if unverified:
            axes.text(0.5, 0.5, "UNVERIFIED", transform=axes.transAxes, fontsize=44, color="#b00020", alpha=0.28,
                      ha="center", va="center", rotation=20, zorder=10)
        files = {}
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=150, metadata=metadata)
            files[f"fig12.{kind}"] = stream.getvalue()
    return files
