# Everything starts from nothing: `make demo` and `make test` install what they need.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help install demo test test-all check format docs bench bench-compare results clean

help:
	@echo "make install   a virtual environment in .venv with everything in it"
	@echo "make demo      train pFedES on handwritten digits, in about a minute"
	@echo "make test      every behaviour once, in about 13 minutes on two cores"
	@echo "make test-all  also what shows the same again, more often or larger; measures coverage"
	@echo "make check     formatting, lint, types, layers and prose"
	@echo "make docs      the documentation as a site in build/site, which needs no network"
	@echo "make results   continue the runs behind results/, when the machine is idle; Ctrl-C stops"
	@echo "make bench     how fast it is on this machine; benchmarks/history keeps all figures"
	@echo "make bench-compare  the two latest measurements as ratios, and what got slower"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "== installing into .venv (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pfedes needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster,flare,hub,onnx,tensorboard,wandb,watch,docs,dev]'
	@touch $@

demo: $(INSTALLED)
	@echo "== training 10 clients with five different CNNs on handwritten digits"
	$(BIN)/pfedes run

# Four processes keep two cores busy: those that wait for a federation or a cluster need none.
TESTING := $(BIN)/python -m pytest -n 4 --dist loadgroup --durations=10

test: $(INSTALLED)
	@echo "== running the tests"
	$(TESTING)

test-all: $(INSTALLED)
	@echo "== running all tests, with their repetitions"
	$(TESTING) -m '' --hypothesis-profile=thorough --cov --cov-report=term

check: $(INSTALLED)
	@echo "== checking format, lint, types, layers and prose"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m codespell_lib src docs tests website examples *.md
	$(BIN)/python tests/worn_phrases.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Not --quiet: it would silence the warnings that --strict counts.
docs: $(INSTALLED)
	@echo "== building the site; open build/site/index.html"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(INSTALLED)
	@echo "== measuring, in about half an hour; set PFEDES_DATA to the directory that holds cifar10/"
	$(BIN)/python benchmarks/bench.py --json bench.json --history

bench-compare: $(INSTALLED)
	$(BIN)/python benchmarks/compare.py $(OLD) $(NEW)

# Days of training, at the lowest priority: what is committed in results/ is not run again.
results: $(INSTALLED)
	@echo "== training what is missing in results/; set PFEDES_DATA to the directory of the data"
	$(BIN)/pfedes paper queue --archive results

clean:
	rm -rf .venv build dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
