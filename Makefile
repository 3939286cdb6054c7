# make        builds the environment and runs the default study; make test passes the tests; make clean-env removes .venv.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: study test lint clean-env

study: $(STAMP)
	$(VENV)/bin/snakemake --cores all

test: $(STAMP) lint
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/snakefmt --check Snakefile rules
	$(VENV)/bin/python tests/lint_workflow.py

$(STAMP): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Assay needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

clean-env:
	rm -rf $(VENV)
