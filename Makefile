# From a bare clone: `make demo`, `make test`, `make docs`. Each makes .venv and installs into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test docs coverage clean

demo: $(VENV)/.demo
	$(BIN)/bcrl demo

# On first use it installs the three DSRL families into the user's cache, or skips their tests and says why.
test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n 2 --dist worksteal

# The site, to be opened from site/index.html. Material announces its successor on every build; that is silenced.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

coverage: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal --cov=bcrl --cov-report=term:skip-covered

# A stamp per set of extras: pip runs again only when pyproject.toml changed.
# The demo imports a small part of what it installs: bytecode is compiled on import, which saves ten seconds.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[report]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.docs

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.demo

$(BIN)/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"bcrl needs Python 3.11 or newer, and {sys.executable} is {v[0]}.{v[1]}: run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis site
