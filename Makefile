# Two commands do everything on a fresh machine: `make serve` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: serve test test-all clients screenshots samples check format

serve: .venv/serve
	$(BIN)/tts-spec serve

# Everything but the tests marked slow; test-all runs those too. The real clients have their own environments and command.
test: .venv/test
	$(BIN)/pytest -m "not slow and not clients"

test-all: .venv/test
	$(BIN)/pytest -m "not clients"

clients: .venv/test .clients/sdk/made .clients/pipecat/made .clients/livekit/made
	$(BIN)/pytest -m clients

# The pictures of the README, with the starter voice.
screenshots: .venv/test
	TTS_SPEC_SCREENSHOTS=demo/screenshots $(BIN)/pytest tests/demo/test_screenshots.py

# The clips of the README, spoken by the voice of the day.
samples: .venv/serve
	mkdir -p models/samples
	$(BIN)/tts-spec say --voice heart --seed 1 -o models/samples/heart.mp3 "Text goes in by the word, and audio comes out by the frame, while the text is still being written."
	$(BIN)/tts-spec say --voice michael --seed 2 -o models/samples/michael.mp3 "The train to Dublin leaves at 10:45 from platform 12. Have you got your ticket?"
	$(BIN)/tts-spec say --voice "emma(2)+heart(1)" --seed 3 -o models/samples/mixed.mp3 "I am nobody in particular: two parts Emma, and one part Heart."

.clients/%/made: tests/clients/requirements/%.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	touch $@

check: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tts-spec needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/serve: pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/test: pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --editable '.[test,eval,train]'
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || (apt-get update -q && apt-get install -q -y --no-install-recommends chromium)
	@command -v chromium >/dev/null || echo "The browser tests need chromium: install it with your package manager." >&2
	touch $@ .venv/serve
