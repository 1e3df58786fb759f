# Every target makes what it needs itself; none needs another one before it.
PY := .venv/bin/python
# Two processes: one has all live tests, the other takes the quick ones (tests/conftest.py).
PARALLEL := --numprocesses=2 --dist=loadscope
# Tests start hundreds of Python processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo quick test check mutants bench notebooks headless clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## create .venv and install everything; says what is missing
	@scripts/setup

demo: setup ## count the words of real text, kill a worker halfway, compare with Spark
	@.venv/bin/cutline demo wordcount

check: setup ## format, lint and types
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy

quick: check ## check, then the tests that need no Spark, Ray or browser, with a fifth of the examples; ARGS as in test
	@CUTLINE_EXAMPLES=$${CUTLINE_EXAMPLES:-0.2} $(PY) -m pytest $(PARALLEL) -m "not live" $(ARGS)

test: check ## check, then all tests; ARGS are passed to pytest
	@$(PY) -m pytest $(PARALLEL) $(ARGS)

mutants: ## change the code in 300 places, and see whether a quick test fails; ARGS are --seeds 1 2 3, --count, --all, --fresh, folders
	@scripts/setup mutants
	@nice $(PY) -m tests.mutants $(ARGS)

bench: setup ## measure, and print the tables; ARGS are names of benchmarks, --only, --json, --quick
	@$(PY) -m benchmarks $(ARGS)

notebooks: ## JupyterLab on demos/, with the first notebook open; ARGS are passed to it
	@scripts/setup notebooks
	@$(PY) -m jupyterlab $(ARGS) demos/01_balls.ipynb

# The pages need none of these scripts, and would load them from other sites.
NO_SCRIPTS = $(patsubst %,--HTMLExporter.%_url=data:text/javascript$(comma),require_js mathjax)
comma = ,

headless: ## run the notebooks without a browser, or those that ARGS name; pages with their outputs: artifacts/notebooks
	@scripts/setup notebooks
	@.venv/bin/jupyter nbconvert --execute --to html $(NO_SCRIPTS) --output-dir artifacts/notebooks \
		$(or $(ARGS:%=demos/%.ipynb),demos/*.ipynb)

clean: ## remove .venv and everything that was generated
	@rm -rf .venv .bench build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache spark-warehouse artifacts
	@find . \( -name __pycache__ -o -name .hypothesis -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +
