# Each target sets up what it needs, once, in a fresh checkout.
#
#   make ask Q="..."   answer a question       make check   ruff and mypy
#   make test          the tests               make bench   the quick form of every benchmark
#   make lock          choose versions and hashes again for constraints.txt
#   make audit         known advisories of what is locked; make sbom OUT=FILE   what it is made of
#   make rehearse      the scripts of examples/rubricem_8b with tiny models
#
# TORCH_INDEX=URL takes torch from that index (for example a CUDA build). PYTHON=... names the Python.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := setup
.DELETE_ON_ERROR:
.PHONY: setup ask question test test-all check bench rehearse lock audit sbom clean

VENV := .venv
BIN := $(VENV)/bin
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
PYTHON ?=
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ARGS ?=
LOCKED := $(PIP) install --no-deps --require-hashes -r
# uv takes seconds for what takes pip minutes, and has the same hashes. It knows nothing of an index
# that pip was told of, so that pip goes there itself.
UV := UV_SYSTEM_CERTS=1 $(BIN)/uv pip install --quiet --python $(BIN)/python
QUICKLY = if $(PIP) config list | grep -q '\.index-url=' || ! $(LOCKED) constraints-uv.txt || \
	    ! $(UV) --no-deps --require-hashes -r $(1); then $(LOCKED) $(1) $(LAZY); fi
OURS := $(PIP) install --no-deps --no-build-isolation -e .
# Of all packages a tenth is imported: to compile the others took a minute of the set-up.
LAZY := --no-compile
TORCH := $(LOCKED) constraints-torch.txt $(LAZY)
# Tests wait for servers and processes, too: two workers more than there are cores fill them.
WORKERS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 2 )))
SHARED := -n $(WORKERS) --dist worksteal
# A test that outlasts its own limit hangs in native code; the run ends then, and tells where.
HANGS := -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true

# The question travels as an environment variable, exactly as typed: `value` keeps make from
# expanding $ in it, and the quoted variable keeps the shell from reading it as code.
unexport Q
export QUESTION := $(value Q)

# What Python compiles is kept: the tests' workers and the programs they start are many.
unexport PYTHONDONTWRITEBYTECODE

setup: $(VENV)/dev.stamp

$(VENV)/base.stamp:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "setting up $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV) && touch $@ && exit 0; \
	    exit 1; \
	  fi; \
	done; \
	echo 'error: no Python 3.11 or newer was found; install one, or name it: make PYTHON=/path/to/python3' >&2; \
	exit 1

# The package index serves torch for Linux with gigabytes of CUDA libraries, so the CPU build is
# looked for first. Each build has a hash of its own, so that of an index that was named is unknown.
$(VENV)/torch.stamp: Makefile constraints-torch.txt | $(VENV)/base.stamp
ifeq ($(origin TORCH_INDEX),file)
	@$(TORCH) --retries 1 --index-url "$(TORCH_INDEX)" || \
	  { echo 'no such torch there: looking on the package index' >&2; $(TORCH); } || \
	  { echo 'error: constraints-torch.txt has no build of torch for this Python and machine that' \
	    'is to be had; make setup TORCH_INDEX=URL takes one without comparing its hash' >&2; exit 1; }
else
	@echo 'torch is taken from $(TORCH_INDEX) without comparing its hash' >&2
	@$(PIP) install $(LAZY) --no-deps --index-url "$(TORCH_INDEX)" torch==2.13.0
endif
	@touch $@

$(VENV)/ask.stamp: pyproject.toml constraints-ask.txt | $(VENV)/base.stamp
	@echo 'installing rubricem (740 MB; nothing more is said for a minute or two, on a slow machine longer)'
	@$(call QUICKLY,constraints-ask.txt)
	@$(OURS)
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/torch.stamp
	@echo 'installing rubricem and its checks (a few minutes the first time)'
	@$(call QUICKLY,constraints.txt)
	@$(OURS)
	@touch $(VENV)/ask.stamp $@

# All published files of a version are accepted. Versions stay as they are; ARGS=--upgrade renews them.
lock: $(VENV)/base.stamp
	@$(PIP) install uv
	@echo uv | UV_SYSTEM_CERTS=1 $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate -o constraints-uv.txt $(ARGS) -
	@echo torch >$(VENV)/unlocked
	@for part in 'dev constraints.txt' 'local constraints-ask.txt'; do \
	  set -- $$part; \
	  printf '%s\n' hatchling $$([[ $$1 = dev ]] && echo networkx sympy) | \
	    UV_SYSTEM_CERTS=1 $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --excludes $(VENV)/unlocked \
	    --extra $$1 -o $$2 $(ARGS) pyproject.toml -; \
	done

# Tools of their own, which nothing else of ours is to depend on.
$(VENV)/tools.stamp: Makefile | $(VENV)/base.stamp
	@$(BIN)/python -m venv --clear $(VENV)/tools
	@$(VENV)/tools/bin/pip install --quiet pip-audit==2.10.1 cyclonedx-bom==7.5.0
	@touch $@

# What could not be looked up fails it as well: else an index without advisories would pass all.
audit: $(VENV)/tools.stamp
	@$(VENV)/tools/bin/pip-audit --strict --disable-pip --require-hashes -r constraints.txt $(ARGS)

sbom: $(VENV)/tools.stamp
	@cat constraints.txt constraints-torch.txt | PYTHONWARNINGS=ignore $(VENV)/tools/bin/cyclonedx-py \
	  requirements --pyproject pyproject.toml --output-reproducible -o $(or $(OUT),sbom.json) -

question:
	@[[ -n "$${QUESTION//[[:space:]]/}" ]] || \
	  { echo 'error: there is no question; ask one: make ask Q="How does ... ?"' >&2; exit 2; }

ask: question $(VENV)/ask.stamp
	@# A partial report (3) is no error of make.
	@$(BIN)/rubricem ask $(ARGS) -- "$$QUESTION" || { status=$$?; [[ $$status -eq 3 ]] || exit $$status; }

test: setup
	@command -v chromium >/dev/null || \
	  echo 'There is no Chromium, so the tests of the web page are skipped. On Debian: apt install chromium'
	$(BIN)/python -m pytest -m 'not slow' $(SHARED) $(HANGS) $(ARGS)

test-all: setup
	$(BIN)/python -m pytest $(ARGS)
	$(BIN)/python -m pytest -m 'not slow' -p randomly $(SHARED) $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	@for name in house deep judged embedded everyday unanswerable hops natural languages claims judge_accuracy \
	    bank_effect learns train_speed collect_throughput faults hostile flows page reading; do \
	  echo "== $$name"; $(BIN)/python -m "benchmarks.$$name" --quick || exit 1; \
	done

# VERL_PYTHON=... names a Python with verl, of which a step is made then.
rehearse: setup
	@$(BIN)/python examples/rubricem_8b/rehearse.py $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
