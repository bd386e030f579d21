# make        set up, write the Verilog, certify what the evaluation needs, evaluate the system
# make regress  run the regressions of all blocks that are due (minutes)
# make test   set up, lint, type check, run the tests
# make slow   millions of transactions on compiled RTL (minutes)
# BUILD=FOLDER puts everything that is made (the virtual environment too) there instead of build/ and .venv/

PYTHON ?= python3
IN := $(PYTHON) bootstrap.py
ifdef BUILD
export BUILD
endif

.PHONY: all setup verilog regress evaluate synth check test slow benchmark help
.DEFAULT_GOAL := all

all:
	@$(IN) saddle verilog
	@$(IN) saddle regress system
	@$(IN) saddle evaluate

setup:
	@$(IN)

verilog regress evaluate synth:
	@$(IN) saddle $@

check:
	@$(IN) ruff check --quiet .
	@$(IN) mypy

test: check
	@$(IN) pytest -q -n auto

slow:
	@$(IN) pytest -q -s -m slow

benchmark:
	@$(IN) pytest -q -s -m benchmarks

help:
	@sed -n '1,5s/^# //p' Makefile
