# make run    set everything up and run the main scenario
# make test   set everything up and run every test
# make check  lint, types and the quick unit tests: about a minute

BIN := .venv/bin

.PHONY: help setup run test check format

help:
	@sed -n 's/^# //p' Makefile

setup:
	@scripts/setup

run: setup
	@$(BIN)/geokv run distance_ttft

test: setup
	@$(BIN)/python tests/run_all.py

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/unit -q -n 2 -m "not slow"

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
