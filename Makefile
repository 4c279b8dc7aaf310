# make run    set everything up and run the main scenario
# make test   set everything up and run every test
# make check  lint, types and the quick unit tests: less than a minute
# make docs   build the documentation site into build/site, which opens from disk
# make reference-check  run every reference scenario again and compare its table, byte for byte
# make reference        the same, and put what comes out in the place of results/reference

BIN := .venv/bin

.PHONY: help setup run test check docs reference reference-check format

help:
	@sed -n 's/^# //p' Makefile

setup:
	@scripts/setup

run: setup
	@$(BIN)/geokv run distance_ttft

test:
	@scripts/setup tests
	@$(BIN)/python tests/run_all.py

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/unit -q -n 2 -m "not slow"

docs: setup
	@$(BIN)/mkdocs build --strict

reference-check: setup
	@$(BIN)/python tests/reference.py

reference: setup
	@$(BIN)/python tests/reference.py --write

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
