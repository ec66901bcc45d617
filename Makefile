# Everything starts from nothing: `make demo` and `make test` install what they need.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help install demo test check format bench clean

help:
	@echo "make install   a virtual environment in .venv with everything in it"
	@echo "make demo      train pFedES on handwritten digits, in about a minute"
	@echo "make test      all tests"
	@echo "make check     formatting, lint and types"
	@echo "make bench     how fast it is on this machine; bench.json has all figures"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "== installing into .venv (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pfedes needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster,flare,hub,onnx,dev]'
	@touch $@

demo: $(INSTALLED)
	@echo "== training 10 clients with five different CNNs on handwritten digits"
	$(BIN)/pfedes run

test: $(INSTALLED)
	@echo "== running all tests"
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(INSTALLED)
	@echo "== checking format, lint and types"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)
	@echo "== measuring, in about half an hour; set PFEDES_DATA to the directory that holds cifar10/"
	$(BIN)/python benchmarks/bench.py --json bench.json

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
