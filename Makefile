# Each target makes its own environment if there is none; all that is needed is Python 3.11 and the package registries.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-slow torture fmt lint types layers smoke wheel docs bench study check clean

demo: $(STAMP)
	$(BIN)/embasis demo -o demo-run

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal

$(STAMP): pyproject.toml constraints-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints-cpu.txt -e ".[dev,images]"
	touch $(STAMP)

setup: $(STAMP)

test-slow: $(STAMP)
	$(BIN)/pytest -m slow

# One line for each goal of docs/reliability.md; half an hour on two cores.
torture: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/run.py

fmt: $(STAMP)
	$(BIN)/ruff format src tests benchmarks tools
	$(BIN)/ruff check --fix src tests benchmarks tools

lint: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

smoke: $(STAMP)
	$(BIN)/python -m benchmarks.smoke

# What a user installs: the wheel in an environment of its own, with one short fit of a table and one of images.
wheel: $(STAMP)
	$(BIN)/python tools/check_wheel.py

# The documentation as a site in site/, to read offline: every link is checked, and that no page asks for anything outside.
docs: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints-cpu.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python tools/check_site.py site

bench: $(STAMP)
	$(BIN)/python -m benchmarks.em_speed
	$(BIN)/python -m benchmarks.estimator_speed
	-OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.table_speed
	-OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.growth
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.map_speed --pictures 24

# All tables of benchmarks/README.md, "The study"; some two hours on two cores, and it goes on where it was stopped.
study: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints-cpu.txt -e ".[bench]"
	$(BIN)/python -m benchmarks.method --seeds 5 --jobs 2 -o study

check: lint types layers test smoke docs

clean:
	rm -rf .venv demo-run site .pytest_cache .mypy_cache .ruff_cache
