# Every target makes what it needs itself; none needs another one before it.
PY := .venv/bin/python
# Two processes: one begins with the tests of a shared Spark session, both take the rest, the longest first (tests/conftest.py).
PARALLEL := --numprocesses=2 --dist=loadscope --no-loadscope-reorder
# Tests start hundreds of Python processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo quick test night check mutants bench notebooks headless clean

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

quick: ## check, the unit tests, and for the rest of a minute full tests near the changed files; ARGS are places, which run alone, and options of pytest
	@$(PY) -m tests.quick $(ARGS)

test: check ## check, then the unit, full and live tests; ARGS are passed to pytest, --keep writes the kept figures
	@$(PY) -m pytest $(PARALLEL) -m "not night" $(ARGS)

night: check ## all tests with ten times the examples, all benchmarks, all mutants of the rooms that changed in a day
	@CUTLINE_EXAMPLES=10 $(PY) -m pytest $(PARALLEL) -o faulthandler_timeout=9000 $(ARGS)
	@$(PY) -m benchmarks
	@scripts/setup mutants
	@nice $(PY) -m tests.mutants --all --changed

mutants: ## change the code in 300 places, and see whether a test fails that is not live; ARGS are --seeds 1 2 3, --count, --all, --fresh, folders
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
