# Every target makes what it needs itself; none needs another one before it.
PY := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench notebooks clean

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

test: check ## check, then all tests; ARGS are passed to pytest
	@$(PY) -m pytest $(ARGS)

bench: setup ## measure, and print the tables; ARGS are names of benchmarks, --json, --quick
	@$(PY) -m benchmarks $(ARGS)

notebooks: ## JupyterLab on demos/
	@scripts/setup notebooks
	@$(PY) -m jupyterlab demos

clean: ## remove .venv and everything that was generated
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
