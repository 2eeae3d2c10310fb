# Every target sets up what it needs in .venv from a bare clone; Python 3.11 or newer, git and make
# are all that must be there. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.light
BENCH := $(VENV)/.bench
FULL := $(VENV)/.full
MERMAID ?= 11
KATEX ?= 0.19
# What pip is told to install as torch. On Linux an index's own build may bring gigabytes of CUDA:
#   make test TORCH='torch==2.13.0 --index-url ADDRESS'    takes the build you name.
TORCH ?= torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help check test test-env bench bench-env lint fix hooks serve site screenshots vendor benchmark clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Shardbook needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25'
	@touch $@

$(LIGHT): $(VENV)/.pip pyproject.toml
	@echo "installing the checker (about 15 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(BENCH): $(LIGHT)
	@echo "installing torch ($(TORCH); 200 MB for a CPU build, 3 GB or more with CUDA: TORCH=… chooses)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@echo "installing what the bench needs (about 80 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(FULL): $(BENCH)
	@echo "installing what the tests, the site and the linters need (about 80 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

check: $(LIGHT) ## prove the workbook's notes (the main job)
	@$(BIN)/shardbook check

test-env: $(FULL) ## set up all that the tests need

test: $(FULL) ## run every test
	@$(BIN)/python -m pytest

bench-env: $(BENCH) ## set up all that the bench needs

bench: ## measure this machine, judge the claims (tools/bench)
	@tools/bench

lint: $(FULL) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

fix: $(FULL) ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

hooks: $(FULL) ## install the pre-commit hook
	@$(BIN)/pre-commit install

serve: $(FULL) ## read the workbook in a browser
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

site: $(FULL) ## build the site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: $(FULL) ## take the README's pictures of the site (needs chromium)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m tests.site.screenshots

vendor: $(FULL) ## refresh the vendored mermaid and KaTeX (MERMAID=11.x.y KATEX=0.x.y; needs npm)
	@$(BIN)/python tools/sitelab/vendor.py mermaid=$(MERMAID) katex=$(KATEX)

benchmark: $(FULL) ## measure checker (needs npm), kernels and site (needs chromium)
	@$(BIN)/python -m pytest -m benchmark -s tests/notelab/benchmark tests/shardlab/benchmark \
	  tests/site/benchmark

clean: ## remove everything that make made
	rm -rf $(VENV) site .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
