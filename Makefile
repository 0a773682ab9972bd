# Two commands: `make demo` and `make test`. Both set up .venv first, and rerun without reinstalling.
ENV = web
PY := .venv/bin/python

.PHONY: help demo test setup setup-demo lint format clean

help:           ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: setup-demo  ## trains both seats on a small scale, ends with a heatmap and runs/demo-$(ENV)/report.md
	$(PY) scripts/pipeline.py experiment=demo_$(ENV)

test: setup     ## set-up of everything, then all tests
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

setup-demo:
	@.ci/setup demo

setup:          ## everything: tests, vLLM, analysis
	@.ci/setup test

lint: setup     ## ruff and mypy
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

format: setup   ## formats the code
	$(PY) -m ruff check --fix . && $(PY) -m ruff format .

clean:          ## removes .venv and caches, not runs/
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache *.egg-info
