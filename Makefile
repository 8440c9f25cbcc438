# The five verbs that CI and CONTRIBUTING.md use. PYTHON is any Python >= 3.11; VENV is where everything is installed.
PYTHON ?= python3
VENV ?= .venv
ZOO_VENV ?= .venv-zoo
BIN = $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: setup lint test zoo bench gpu docs decades articles

setup:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e . --group dev

lint:
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test:
	$(BIN)/python -m pytest -n 2

zoo:
	test -x $(ZOO_VENV)/bin/python || $(PYTHON) -m venv $(ZOO_VENV)
	$(ZOO_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(ZOO_VENV)/bin/pip install --quiet -r zoo/requirements.txt -e . --group test
	GRADSCOPE_TRAINERS=required $(ZOO_VENV)/bin/python -m pytest tests/probe/test_trainers.py
	$(ZOO_VENV)/bin/python -m zoo $(ZOO_ARGS)
	$(ZOO_VENV)/bin/python -m zoo.flows
	$(ZOO_VENV)/bin/python -m zoo.checkpoints

bench:
	$(BIN)/python -m benchmarks

gpu:
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python -m benchmarks --device cuda --pairs-s 5 --budget-s 240

docs:
	$(BIN)/python -c "from gradscope.report.rule_pages import markdown; print(markdown(), end='')" > docs/rules.md

decades:
	$(BIN)/python -m tests.variants.measure_decades

articles:
	$(BIN)/python -m benchmarks.articles_page
