# Every target sets up what it needs in .venv from a bare clone; Python 3.11.2 or newer, git and make
# are all that must be there. `make` lists the targets.
PYTHON ?= python3
VENV ?= .venv
IN := "$(VENV)/bin/python" -m
MERMAID ?= 11
KATEX ?= 0.19
# What pip is told to install as torch. On Linux an index's own build may bring gigabytes of CUDA:
#   make test TORCH='torch==2.13.0 --index-url ADDRESS'    takes the build you name.
TORCH ?= torch==2.13.0
# A clone's commands run its own code, also where PYTHONPATH names another clone's tools.
unexport PYTHONPATH
# Bytecode is cached. Otherwise every process that a test starts compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Which tests `make test` runs, as pytest's -m says it; without it, those that a laptop runs.
MARKS ?=
# What `make serve` builds: English, or with `ONLY=` both languages, which takes twice as long.
ONLY ?= en

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help check check-env test test-env hf-env bench bench-env lint fix hooks serve site \
  screenshots vendor benchmark repin-eval lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

define set-up
@is=$$("$(PYTHON)" -c 'import sys; print("Python " + sys.version.split()[0]); sys.exit(sys.version_info < (3, 11, 2))' 2>/dev/null) || \
  { echo "Shardbook needs Python 3.11.2 or newer; $(PYTHON) is $${is:-none that runs}. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
@"$(PYTHON)" tools/environment.py $(1) --venv "$(VENV)" --torch '$(TORCH)'
endef

check-env:
	$(call set-up,check)

bench-env: ## set up all that the bench needs
	$(call set-up,bench)

test-env: ## set up all that the tests need
	$(call set-up,test)

hf-env: ## set up transformers too, against which tests compare
	$(call set-up,hf)

check: check-env ## prove the workbook's notes (the main job)
	@$(IN) notelab check --by-lab

test: test-env ## run the tests
	@$(IN) pytest -n 3 --durations 12 --durations-min 2 $(if $(MARKS),-m '$(MARKS)')

bench: ## measure this machine, judge the claims (tools/bench)
	@tools/bench

lint: test-env ## ruff and mypy
	@$(IN) ruff check .
	@$(IN) ruff format --check .
	@$(IN) mypy

fix: test-env ## let ruff mend what it can
	@$(IN) ruff check --fix .
	@$(IN) ruff format .

hooks: test-env ## install the pre-commit hook
	@$(IN) pre_commit install

serve: test-env ## read the workbook in a browser (in English; ONLY= builds both languages)
	@echo "Building $(if $(ONLY),the English pages; \`make serve ONLY=\` builds both languages,both languages). They will be at http://127.0.0.1:8000/"
	@SHARDBOOK_ONLY=$(ONLY) $(IN) mkdocs serve

site: test-env ## build the site into site/
	@$(IN) mkdocs build --strict

screenshots: test-env ## take the README's pictures of the site (needs chromium)
	@$(IN) pages.screenshots

vendor: test-env ## refresh the vendored mermaid and KaTeX (MERMAID=11.x.y KATEX=0.x.y; needs npm)
	@"$(VENV)/bin/python" tools/sitelab/vendor.py mermaid=$(MERMAID) katex=$(KATEX)

benchmark: test-env ## measure checker (needs npm), kernels and site (needs chromium)
	@$(IN) pages promise --record
	@$(IN) pages corpora --record
	@$(IN) pytest -m benchmark -s tests/notelab/benchmark tests/costlab/benchmark \
	  tests/shardlab/compositions/test_benchmark_compositions.py tests/site/test_benchmark_site.py
	@$(IN) costlab kernels

repin-eval: test-env ## what repin carries and proposes, scored (needs a clone of Megatron-LM)
	@$(IN) tests.notelab.repin.evaluate

lock: ## refresh the locks in .ci/lock (UPGRADE=--upgrade takes the newest of everything)
	@PYTHON="$(PYTHON)" .ci/lock/refresh $(UPGRADE)

clean: ## remove everything that make made
	rm -rf "$(VENV)" site .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "left: experiments/*/results/local (what your bench measured), gpu-report, trace,"
	@echo "      $${XDG_CACHE_HOME:-~/.cache}/shardbook (files that notes cite; it fills itself again),"
	@echo "      $${XDG_DATA_HOME:-~/.local/share}/shardbook (your recall cards)"
