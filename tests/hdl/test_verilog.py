"""The emitted Verilog: three parsers accept it, names are safe, extremes of the parameters hold (AM-*, VL-04)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cosim import blocks
from cosim.blocks import Block, Configuration
from cosim.harness.toolchain import find_simulator
from cosim.rtl import rtl_text
from golden_model.params import ParameterError
from synth.emit import emit, share_modules

YOSYS = (
    "import sys; from pyosys import libyosys as ys; design = ys.Design()\n"
    "for line in sys.argv[1:]: ys.run_pass(line, design)"
)
KEYWORDS = frozenset(
    "accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins "
    "binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const "
    "constraint context continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge "
    "else end endcase endfunction endgenerate endmodule endtask enum event eventually expect export extends extern final "
    "first_match for force foreach forever fork forkjoin function generate genvar global highz0 highz1 if iff ifnone "
    "ignore_bins illegal_bins implements implies import incdir include initial inout input inside instance int integer "
    "interconnect interface intersect join join_any join_none large let liblist library local localparam logic longint "
    "macromodule matches medium modport module nand negedge nettype new nexttime nmos nor noshowcancelled not notif0 "
    "notif1 null or output package packed parameter pmos posedge primitive priority program property protected pull0 "
    "pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase randsequence rcmos real "
    "realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1 s_always s_eventually "
    "s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small soft solve specify "
    "specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on sync_reject_on table "
    "tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg type "
    "typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual void wait wait_order "
    "wand weak weak0 weak1 while wildcard wire with within wor xnor xor".split()
)  # IEEE 1800-2017 Annex B
WAIVED = {
    "PROCASSINIT": "registers have initial values beside their reset, for FPGA and simulation",
    "UNUSEDSIGNAL": "Yosys keeps wires for field names and bits that a shift leaves behind",
    "WIDTHEXPAND": "comparisons of different widths; Verilog extends the narrower operand as Amaranth does",
    "CASEINCOMPLETE": "a value is assigned before the case; it stands for the codes that are not listed",
    "DECLFILENAME": "one file may hold a top and its memory",
}
EXTREMES: list[tuple[str, dict[str, int]]] = [
    ("draft_pool", {"entries": 1, "request_bits": 1, "position_bits": 1, "token_bits": 1}),
    ("draft_pool", {"entries": 33, "request_bits": 16, "position_bits": 16, "token_bits": 32}),
    ("dot_product", {"lanes": 1, "align_frac_bits": 20}),
    ("dot_product", {"lanes": 3, "align_frac_bits": 78}),
    ("partial_sum", {"lanes": 8, "slots": 2}),
    ("partial_sum", {"lanes": 4, "slots": 64}),
    ("residual_add", {"lanes": 8}),
    ("normalization", {"lanes": 8}),
    ("stop_test", {"request_bits": 1, "length_bits": 1}),
    ("operator_mapping", {"token_bits": 1, "request_bits": 1, "group_bits": 1, "threshold_bits": 1}),
    ("operator_mapping", {"token_bits": 16, "request_bits": 16, "group_bits": 8, "threshold_bits": 24}),
    ("global_buffer", {"words": 4, "lanes": 32}),
    ("global_buffer", {"words": 1024, "lanes": 32}),
]
SHIPPED = [(block.stem, dict(configuration.parameters)) for block, configuration in blocks.jobs()]


def verilog_of(stem: str, parameters: dict[str, int], folder: Path) -> Path:
    block = blocks.find(stem)[0][0]
    for configuration in block.configurations:
        if parameters == configuration.parameters:  # a shipped one need not be made again
            path = folder / f"{stem}_x.v"
            path.write_text(re.sub(rf"\b{block.top(configuration)}\b", f"{stem}_x", rtl_text(block, configuration)))
            return path
    path = folder / f"{stem}_x.v"
    path.write_text(emit(block.component(Configuration("x", parameters)), f"{stem}_x"))
    return path


def lint(path: Path) -> str:
    simulator = find_simulator("verilator")
    if simulator is None:
        pytest.skip("Verilator is not installed")
    env = dict(os.environ) | ({"VERILATOR_ROOT": str(simulator.root)} if simulator.root else {})
    command = [str(simulator.executable), "--lint-only", "-Wall", "-Wno-fatal", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.mark.parametrize(("stem", "parameters"), EXTREMES + SHIPPED, ids=str)
def test_three_tools_accept_it(stem: str, parameters: dict[str, int], tmp_path: Path) -> None:
    path = verilog_of(stem, parameters, tmp_path)
    text = path.read_text()
    assert "[-1:0]" not in text
    assert '""' not in text
    assert set(re.findall(r"posedge ([^)\s]+)", text)) == {"clk"}  # a top with a domain of its own never clocks
    declared = re.findall(r"^\s*(?:input|output|wire|reg|module)\s+(?:\[[^]]*\]\s*)?([a-zA-Z_]\w*)", text, re.MULTILINE)
    assert "clk" in declared
    assert not set(declared) & KEYWORDS
    warnings = re.findall(r"%Warning-(\w+)", lint(path))
    assert "WIDTHTRUNC" not in warnings
    assert set(warnings) <= set(WAIVED), set(warnings) - set(WAIVED)
    if find_simulator("icarus"):
        subprocess.run(["iverilog", "-g2012", "-o", os.devnull, str(path)], check=True, capture_output=True)
    passes = [f"read_verilog -sv {path.name}", f"hierarchy -check -top {stem}_x", "proc", "check -assert"]
    yosys = [sys.executable, "-c", YOSYS, *passes]
    result = subprocess.run(yosys, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


BAD = [
    ("draft_pool", {"entries": 0}, r"entries must be an integer in \[1, 1024\], not 0"),
    ("draft_pool", {"entries": 1025}, r"entries must be an integer in \[1, 1024\], not 1025"),
    ("draft_pool", {"token_bits": True}, r"token_bits must be an integer in \[1, 32\], not True"),
    ("dot_product", {"lanes": 65}, r"lanes must be an integer in \[1, 64\], not 65"),
    ("dot_product", {"align_frac_bits": 19}, r"align_frac_bits must be an integer in \[20, 78\], not 19"),
    ("stop_test", {"length_bits": 0}, r"length_bits must be an integer in \[1, 8\], not 0"),
    ("softmax_statistics", {"lanes": 12}, r"lanes must be a power of two in \[4, 16\], not 12"),
    ("softmax_normalizer", {"lanes": 2}, r"lanes must be a power of two in \[4, 16\], not 2"),
    ("activation", {"lanes": 32}, r"lanes must be a power of two in \[4, 16\], not 32"),
    ("operator_mapping", {"group_bits": 9}, r"group_bits must be an integer in \[1, 8\], not 9"),
    ("global_buffer", {"words": 2}, r"words must be a power of two in \[4, 1024\], not 2"),
    ("global_buffer", {"words": 96}, r"words must be a power of two in \[4, 1024\], not 96"),
    ("global_buffer", {"lanes": 64}, r"lanes must be a power of two in \[2, 32\], not 64"),
]


@pytest.mark.parametrize(("stem", "parameters", "message"), BAD, ids=[f"{b[0]}-{b[1]}" for b in BAD])
def test_parameters_out_of_range(stem: str, parameters: dict[str, int], message: str) -> None:
    block: Block = blocks.find(stem)[0][0]
    with pytest.raises(ParameterError, match=f"^{message}$"):
        block.component(Configuration("x", parameters))


def test_two_sizes_in_one_design(tmp_path: Path) -> None:
    """AM-08: pools of two sizes side by side; every module is defined once and each answers for itself."""
    from amaranth.hdl import Module, Signal
    from amaranth.lib import wiring
    from amaranth.lib.wiring import Out

    from hdl.manager.draft_pool import DraftPool

    class Pair(wiring.Component):
        full: Signal
        empty: Signal

        def __init__(self) -> None:
            super().__init__({"full": Out(2), "empty": Out(2)})

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.submodules.small = small = DraftPool(entries=4)
            m.submodules.large = large = DraftPool(entries=8)
            m.d.comb += [
                self.full.eq(small.full + (large.full << 1)), self.empty.eq(small.empty + (large.empty << 1)),
            ]  # fmt: skip
            return m

    text = emit(Pair(), "pair")
    modules = re.findall(r"^module (\S+?)\s*\(", text, re.MULTILINE)
    assert len(modules) == len(set(modules)) >= 3
    assert any("small" in name for name in modules)
    assert any("large" in name for name in modules)
    (tmp_path / "pair.v").write_text(text)
    lint(tmp_path / "pair.v")


def test_a_deep_memory_makes_no_long_file() -> None:
    """AM-09: the largest global buffer, 128 KB, in a few kilobytes of Verilog that no word count lengthens."""
    sizes = []
    for words in (256, 1024):
        block = blocks.find("global_buffer")[0][0]
        text = emit(block.component(Configuration("x", {"words": words, "lanes": 32})), "x")
        assert f"for (word = 0; word < {2 * words}; word = word + 1) memory[word] = 512'h0" in text
        sizes.append(len(text))
    assert sizes[1] < 6000
    assert sizes[1] - sizes[0] < 100


@pytest.mark.parametrize(("tokens", "threshold"), [(0, 0), (0, 1), (1023, 4095), (255, 4080), (256, 4095)])
def test_amaranth_simulator_agrees_at_the_extremes(tokens: int, threshold: int) -> None:
    """AM-03: the third engine beside Verilator and Icarus, which run the same corners in the bench."""
    from amaranth.sim import Simulator

    from golden_model.manager.operator_mapping import OperatorMapping as Golden
    from hdl.manager.operator_mapping import OperatorMapping

    dut = OperatorMapping()
    answers = []

    async def bench(ctx):  # type: ignore[no-untyped-def]
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.dlm_fc_threshold, threshold)
        ctx.set(dut.i.payload.tokens, tokens)
        ctx.set(dut.i.valid, 1)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.o.valid)
        answers.append(ctx.get(dut.o.payload.on_pim))

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    golden = Golden().on_pim(0, tokens, 0, dlm_fc_threshold=threshold, tlm_attention_threshold=0, kv_group=0)
    assert answers == [golden]


def test_alike_submodules_become_one_module() -> None:
    text = emit(blocks.find("bank_group")[0][0].component(Configuration("x", {"lanes": 2})), "bank_group_x")
    modules = re.findall(r"^module (\S+)", text, re.MULTILINE)
    assert len(modules) == 3  # the top, the first bank, whose handshake speaks for all, and one for the others
    assert len(re.findall(r"^  \\bank_group_x\.bank_1 +bank_[123] \(", text, re.MULTILINE)) == 3


def test_modules_that_differ_stay_apart() -> None:
    alike = "module \\{}\n  wire width 2 \\x\nend\n"
    top = "module \\top\n  cell \\a \\one\n  end\n  cell \\b \\two\n  end\n  cell \\c \\three\n  end\nend\n"
    text = top + alike.format("a") + alike.format("b") + alike.format("c").replace("width 2", "width 3")
    shared = share_modules(text)
    assert re.findall(r"^module (\S+)$", shared, re.MULTILINE) == ["\\top", "\\a", "\\c"]
    assert re.findall(r"^  cell (\S+) ", shared, re.MULTILINE) == ["\\a", "\\a", "\\c"]
