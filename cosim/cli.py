"""The ``saddle`` command: generate Verilog, run the regressions, evaluate the system from what they certified.

Exit codes: 0 all well, 1 a check failed, 2 bad input, a missing tool or a stale certificate.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from cosim import blocks
from cosim.console import progress, say
from cosim.errors import CheckFailed, UserError
from golden_model.params import ParameterError, check_range

__all__ = ["main"]

app = typer.Typer(
    name="saddle",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Reproduction of SADDLE (HPCA 2026): GPU + processing-in-memory for speculative decoding with a draft length "
    "per request.\n\nThe three verbs build on each other: **verilog** writes the hardware, **regress** proves it equal "
    "to its golden model and measures its cycles, **evaluate** computes system throughput from those cycles; **synth** "
    "states size and speed in standard cells.",
)

BlockNames = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[BLOCK]...", help="Block or configuration, e.g. draft_pool or draft_pool_32 [default: all]."),
]


def _whole(name: str, low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers whose complaint names the option, the value and the range."""

    def parse(text: str | int) -> int:
        try:
            number: object = int(text)
        except ValueError:
            number = text
        return check_range(name, number, low, high)

    return parse


def _seed(text: str) -> Any:
    return typer.Option(parser=_whole("--seed", 0, 2**32 - 1), metavar="N", help=f"{text} 0 to 4294967295.")


Jobs = Annotated[
    Optional[int],
    typer.Option(
        "--jobs", "-j", parser=_whole("--jobs", 1, 256), metavar="N", help="Processes at a time, 1 to 256 [default: all cores]."
    ),
]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _folder(out: Path | None, default: str) -> Path:
    """Return where a verb writes, after finding out, before any work, that it can."""
    from cosim.files import build_root, check_folder

    place = out or build_root() / default
    check_folder("--out" if out else "BUILD", place)
    return place


def _chosen(names: list[str] | None) -> list[tuple[blocks.Block, blocks.Configuration]]:
    found = [job for name in names or ["all"] for job in blocks.find(name)]
    return [job for job in blocks.jobs() if job in found]


@app.command()
def verilog(
    names: BlockNames = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder to write to [default: BUILD/verilog].")] = None,
) -> None:
    """Write the Verilog of blocks, with a manifest of ports, parameters and hashes."""
    from cosim.verilog import write_verilog

    chosen, place = _chosen(names), _folder(out, "verilog")
    with progress("verilog") as tick:
        for line in write_verilog(chosen, place, tick):
            print(line)
    print(f"Verilog in {place}")


@app.command()
def regress(
    names: BlockNames = None,
    simulator: Annotated[
        Optional[str], typer.Option(help="Only this simulator: verilator or icarus. Does not certify.")
    ] = None,
    seed: Annotated[Optional[int], _seed("Seed of all random stimuli [default: 1].")] = None,
    test: Annotated[Optional[str], typer.Option(help="Only tests whose name matches. Does not certify.")] = None,
    effort: Annotated[
        float, typer.Option(help="Factor on the number of random transactions, 0.001 to 1000; below 1 does not certify.")
    ] = 1.0,
    waves: Annotated[bool, typer.Option(help="Write waveforms (dump.vcd or dump.fst in the run's folder).")] = False,
    force: Annotated[bool, typer.Option(help="Run also what is certified already.")] = False,
    jobs: Jobs = None,
) -> None:
    """Compare blocks with their golden models in simulation, measure their cycles, certify what passes."""
    from cosim.regression_report import run_and_print

    if not 0.001 <= effort <= 1000:
        raise ParameterError(f"--effort must be a number in [0.001, 1000], not {effort}")

    chosen = _chosen(names)
    _folder(None, "certificates")
    failed = run_and_print(
        chosen, simulator=simulator, seed=seed, only=test, effort=effort, waves=waves, force=force,
        workers=jobs or _cores(),
    )
    raise typer.Exit(1 if failed else 0)


@app.command()
def evaluate(
    config: Annotated[
        Optional[Path], typer.Option(help="Configuration to rerun: a results.json of an earlier evaluation, or TOML.")
    ] = None,
    system: Annotated[Optional[list[str]], typer.Option(help="Only these systems (repeatable).")] = None,
    batch: Annotated[
        Optional[list[int]],
        typer.Option(
            parser=_whole("--batch", 1, 128), metavar="N", help="Batch size, 1 to 128 (repeatable) [default: 16 32 64 128]."
        ),
    ] = None,
    trace: Annotated[Optional[Path], typer.Option(help="Acceptance trace (CSV) [default: the recorded one].")] = None,
    seed: Annotated[Optional[int], _seed("First seed; further ones follow it.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for the results [default: BUILD/evaluation].")] = None,
    unverified: Annotated[
        bool, typer.Option(help="Go on without valid certificates, with predicted cycles; marks every result UNVERIFIED.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Compute again even if the results are up to date.")] = False,
    jobs: Jobs = None,
) -> None:
    """Evaluate system throughput from the golden Manager and the certified cycles."""
    from cosim.system.command import evaluate_and_print

    place = _folder(out, "evaluation")
    with progress("evaluate") as tick:
        lines = evaluate_and_print(
            place,
            config=config, systems=system, batches=batch, trace=trace, seed=seed,
            unverified=unverified, force=force, jobs=jobs or _cores(), tick=tick,
        )  # fmt: skip
    for line in lines:
        print(line)


@app.command()
def numerics(
    seed: Annotated[Optional[int], _seed("Seed of the vectors [default: 1].")] = None,
    vectors: Annotated[
        Optional[int],
        typer.Option(parser=_whole("--vectors", 1, 4096), metavar="N", help="Vectors per case, 1 to 4096 [default: 64]."),
    ] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for table and figure [default: BUILD/numerics].")] = None,
) -> None:
    """Compute the error of the fused dot product against its alignment width, beside models of tensor cores."""
    from cosim.report.numerics import write_numerics

    place = _folder(out, "numerics")
    with progress("numerics") as tick:
        lines = write_numerics(place, seed=1 if seed is None else seed, vectors=vectors or 64, tick=tick)
    for line in lines:
        print(line)


@app.command()
def attention(
    tokens: Annotated[
        Optional[int], typer.Option(parser=_whole("--tokens", 1, 131072), metavar="N", help="Cached tokens, 1 to 131072.")
    ] = None,
    head_dim: Annotated[
        Optional[int],
        typer.Option(parser=_whole("--head-dim", 1, 256), metavar="N", help="Dimensions, 1 to 256 [default: 128]."),
    ] = None,
    queries: Annotated[
        Optional[int],
        typer.Option(parser=_whole("--queries", 1, 64), metavar="N", help="Query heads of this KV head, 1 to 64 [default: 1]."),
    ] = None,
    pseudo_channels: Annotated[
        Optional[int],
        typer.Option(parser=_whole("--pseudo-channels", 1, 64), metavar="N", help="Pseudo-channels, 1 to 64 [default: 1]."),
    ] = None,
    seed: Annotated[Optional[int], _seed("Seed of q, K and V [default: 1].")] = None,
) -> None:
    """Run attention heads on the RTL, compare them with the golden models, write their cycles into certificates.

    Without --tokens: head sizes 64 and 128, 1 to 1,000 tokens, 1 and 8 queries.
    """
    from cosim.attention import LARGEST, SHAPES, Shape, run_shape

    if tokens is None and (head_dim or queries or pseudo_channels):
        raise UserError("--head-dim, --queries and --pseudo-channels need --tokens; without it the listed shapes run")
    shapes = SHAPES if tokens is None else (Shape(tokens, head_dim or 128, queries or 1, pseudo_channels or 1),)
    for shape in shapes:
        size = shape.tokens * shape.head_dim * shape.queries
        if size > LARGEST:
            reason = "the golden model, in Python, would take more than half an hour"
            raise UserError(f"tokens x head-dim x queries must be at most {LARGEST:,}, not {size:,}: {reason}")
    _folder(None, "certificates")
    lines = []
    with progress("attention") as tick:
        for number, shape in enumerate(shapes):
            tick(number, len(shapes), shape.name)
            lines.append(run_shape(shape, seed=1 if seed is None else seed).line)
    for line in lines:
        print(line)


@app.command()
def synth(
    names: BlockNames = None,
    liberty: Annotated[
        Optional[Path], typer.Option(help="Liberty file [default: $SADDLE_LIBERTY, or osu018 of Debian's qflow-tech-osu018].")
    ] = None,
    memory_bits: Annotated[
        int,
        typer.Option(
            parser=_whole("--memory-bits", 0, 2**30), metavar="N",
            help="Largest memory, in bits, that becomes flip-flops; a larger one stays a macro without area.",
        ),
    ] = 32768,
    recipe: Annotated[
        Optional[list[str]], typer.Option(help="Script of ABC (repeatable): tried in turn until the target is met.")
    ] = None,
    adder: Annotated[str, typer.Option(help="Carry networks: brent-kung or kogge-stone.")] = "brent-kung",
    booth: Annotated[bool, typer.Option(help="Multipliers in Booth's form.")] = False,
    smallest: Annotated[
        bool, typer.Option(help="Try every recipe and both forms of multipliers; take the smallest within the target.")
    ] = False,
    out: Annotated[Optional[Path], typer.Option(help="Folder for the results [default: BUILD/synth].")] = None,
    write_docs: Annotated[Optional[Path], typer.Option(help="Markdown page to put the table into.")] = None,
    force: Annotated[bool, typer.Option(help="Synthesise also what is unchanged.")] = False,
    jobs: Jobs = None,
) -> None:
    """Map blocks to standard cells with Yosys and ABC; print their size and longest paths.

    Blocks that are made of others are left out unless named; the sizes of their parts are added up.
    """
    from cosim.synthesis import synthesise_and_print

    chosen, place = [job for job in _chosen(names) if names or not job[0].parts], _folder(out, "synth")
    with progress("synth") as tick:
        show = synthesise_and_print(
            chosen,
            liberty=liberty, memory_bits=memory_bits, recipes=recipe, adder=adder, booth=booth,
            smallest=smallest, place=place, page=write_docs, workers=min(jobs or 2, _cores()), force=force, tick=tick,
        )  # fmt: skip
    show()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every expected error is one line on standard error."""
    command: Any = typer.main.get_command(app)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        for before, value in zip(["", *given], given, strict=False):
            if not value or (value.startswith("--") and value.endswith("=")):
                option = value.rstrip("=") or (before if before.startswith("-") else "an argument")
                raise UserError(f"{option} must not be empty")
        code = command.main(args=arguments, prog_name="saddle", standalone_mode=False)
        sys.stdout.flush()
    except (UserError, ParameterError) as error:
        say(f"saddle: {error}")
        code = 2
    except CheckFailed as error:
        say(f"saddle: {error}")
        code = 1
    except (KeyboardInterrupt, typer.Abort):
        say("saddle: interrupted")
        code = 130
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except typer.Exit as stop:
        code = stop.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message = re.sub(r"^Invalid value for .*: Value error, ", "", error.format_message())
        say(f"saddle: {message} (see saddle --help)")
        code = 2
    raise SystemExit(code or 0)


if __name__ == "__main__":
    main()
