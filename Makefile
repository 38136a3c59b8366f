# One command from a fresh checkout: every target sets up what it needs, once.
#
#   make ask Q="..."   answer a question        make check   ruff and mypy
#   make test          the test suite           make bench   the quick benchmarks
#   make loop          collect, judge, reflect, train and ask again, once: an hour or two
#   make upstream OPENENV=DIR   OpenEnv's own rubric tests, from a checkout of it, on our rubrics
#
# TORCH_INDEX=URL takes torch from that index (say, the CPU builds); PYTHON=... names the Python.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := setup
.DELETE_ON_ERROR:
.PHONY: setup ask question loop test test-all upstream check bench clean

VENV := .venv
BIN := $(VENV)/bin
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
PYTHON ?=
TORCH_INDEX ?=
ARGS ?=
INPUTS := pyproject.toml constraints.txt
# Tests wait for servers and processes more than they compute: several at once take half the time.
WORKERS ?= auto
SHARED := -n $(WORKERS) --dist worksteal
# A test that outlasts its own limit hangs in native code; the run ends then, and tells where.
HANGS := -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true

# The question travels as an environment variable, exactly as typed: `value` keeps make from
# expanding $ in it, and the quoted variable keeps the shell from reading it as code.
unexport Q
export QUESTION := $(value Q)

setup: $(VENV)/dev.stamp

$(VENV)/base.stamp:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "setting up $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV) && $(PIP) install --upgrade pip && touch $@ && exit 0; \
	    exit 1; \
	  fi; \
	done; \
	echo 'error: no Python 3.11 or newer was found; install one, or name it: make PYTHON=/path/to/python3' >&2; \
	exit 1

$(VENV)/torch.stamp: constraints.txt | $(VENV)/base.stamp
	@$(if $(TORCH_INDEX),echo "installing torch from TORCH_INDEX"; \
	  $(PIP) install --no-deps -c constraints.txt --index-url "$(TORCH_INDEX)" torch)
	@touch $@

$(VENV)/run.stamp: $(INPUTS) | $(VENV)/torch.stamp
	@echo 'installing rubricem (a few minutes the first time)'
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/dev.stamp: $(INPUTS) | $(VENV)/torch.stamp
	@echo 'installing rubricem and its checks (a few minutes the first time)'
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/run.stamp $@

question:
	@[[ -n "$${QUESTION//[[:space:]]/}" ]] || \
	  { echo 'error: there is no question; ask one: make ask Q="How does ... ?"' >&2; exit 2; }

ask: question $(VENV)/run.stamp
	@$(BIN)/rubricem ask $(ARGS) -- "$$QUESTION"

loop: $(VENV)/run.stamp
	@$(BIN)/rubricem loop $(ARGS)

test: setup
	$(BIN)/python -m pytest -m 'not slow' $(SHARED) $(HANGS) $(ARGS)

test-all: setup
	$(BIN)/python -m pytest $(ARGS)
	$(BIN)/python -m pytest -m 'not slow' -p randomly $(SHARED) $(ARGS)

upstream: setup
	@$(BIN)/python -m tests.judge.rubrics.upstream $(if $(OPENENV),"$(OPENENV)") $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	@for name in house mutants ask_overhead peers startup corpus names embedded everyday unanswerable hops \
	    credit verify resume plain_loop \
	    judge_cost judge_throughput judge_accuracy stage_sensitivity bank_scale bank_effect \
	    collect_throughput collect_resume collect_embedded train_speed reflection_overlap learns \
	    serve_load page; do \
	  echo "== $$name"; $(BIN)/python -m "benchmarks.$$name" --quick || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
