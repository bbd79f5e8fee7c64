# Everything a fresh machine needs is git, make and Python 3.11 or newer; the rest goes into .venv here.
#   make plan    the main job on the bundled real trace: report in reports/, verdict on the screen
#   make test    the test suite
#   make dask    the tests on a Dask cluster, on this machine
#   make browser the tests of the dashboard in a real browser (Chromium must be installed)
#   make real    the tests on real vLLM, on this machine's CPU, in an environment of its own (.venv-vllm)
#   make validate  two real vLLM engines on this machine's CPU: calibrate, then predicted against measured (15 min, quiet)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
REPORT := reports/retail-h200.html
NOW := $(shell date +%Y%m%d-%H%M%S)
CONTRAST := retail-h200 llama-a100 edge-cloud autonomous-h200

# PYTHON=/path/to/python chooses the interpreter; otherwise the first of these that is new enough and can make a venv.
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3 python)

.DEFAULT_GOAL := help
.PHONY: help plan test dask browser real validate lint types format clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

plan: $(VENV)/.base  ## set up, plan the bundled case, write its report, then contrast the bundled cases
	@mkdir -p $(dir $(REPORT))
	$(BIN)/specroof plan retail-h200 -o $(REPORT)
	$(BIN)/specroof plan $(CONTRAST)

test: $(VENV)/.test  ## set up and run the test suite
	$(BIN)/python -m pytest -n auto

dask: $(VENV)/.dask  ## set up Dask and run the tests that need it
	$(BIN)/python -m pytest -m dask

browser: $(VENV)/.browser  ## set up Dash and Playwright and run the tests of the dashboard in Chromium
	$(BIN)/python -m pytest tests/dashboards/test_app.py
	$(BIN)/python -m pytest -m browser tests/dashboards

real: | $(BIN)/python  ## set up real vLLM on the CPU and run the tests that need it
	@python="$$(.ci/vllm-env)" && "$$python" -m pytest -m vllm tests/real

validate: | $(BIN)/python  ## set up real vLLM on the CPU, calibrate it here, show predicted against measured (15 min)
	@python="$$(.ci/vllm-env)" && "$$python" -m specroof.on_this_machine -o reports/validate-$(NOW)

lint: $(VENV)/.dev  ## style, layout and import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy --strict

format: $(VENV)/.dev  ## rewrite the layout and what can be fixed safely
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment, caches and reports
	rm -rf $(VENV) .venv-vllm build dist reports *.egg-info .coverage* htmlcov .hypothesis .pytest_cache .mypy_cache .ruff_cache
	rm -rf .import_linter_cache

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.base

$(VENV)/.dask: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test,dask]'
	@touch $@ $(VENV)/.test $(VENV)/.base

$(VENV)/.browser: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test,browser]'
	@touch $@ $(VENV)/.test $(VENV)/.base

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.test $(VENV)/.base

$(BIN)/python:
	@old=""; bare=""; good=""; \
	for python in $(CANDIDATES); do \
	  command -v "$$python" >/dev/null 2>&1 || continue; \
	  if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then old="$$python"; continue; fi; \
	  if ! "$$python" -c 'import venv, ensurepip' 2>/dev/null; then bare="$$python"; continue; fi; \
	  good="$$python"; break; \
	done; \
	if [ -n "$$good" ]; then \
	  echo "creating $(VENV) with $$("$$good" --version) and installing specroof into it (a minute or two)"; \
	  rm -rf $(VENV) && "$$good" -m venv $(VENV); \
	elif [ -n "$$bare" ]; then \
	  echo "specroof: $$bare cannot create virtual environments (no venv or ensurepip); on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; \
	elif [ -n "$$old" ]; then \
	  echo "specroof: $$old is older than Python 3.11; install a newer one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	else \
	  echo "specroof: no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	fi
