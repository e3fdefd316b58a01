# make quickstart   set up, then fine-tune, export, serve and query a small classifier
# make check        set up, then lint, type check and the fast tests, in three minutes
# make test         set up, then lint, type check and the tests
# make test-slow    the tests that take more than four seconds each
# make fuzz         the property-based tests with a hundred times as many examples, then by coverage
# make docs         set up, then the API reference, in docs/api
# make bench        set up, then the benchmarks beside peers, whose figures go into docs/benchmarks/
# ARGS passes options on: make quickstart ARGS="--task sst2 --data-dir DIR"

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
export TF_CPP_MIN_LOG_LEVEL ?= 2

# Some of every room, chosen because they are fast.
FAST := tests/test_structure.py tests/test_light_programs.py tests/docs tests/benchmarks \
    tests/gpt1_keras/test_files.py tests/gpt1_keras/labelled_files tests/gpt1_keras/test_upstream.py \
    tests/gpt1_keras/models/test_golden.py tests/gpt1_keras/models/test_weights_files.py \
    tests/gpt1_keras/models/test_left_padding.py tests/gpt1_keras/optimization/test_objective.py \
    tests/gpt1_keras/presets/test_saved_models.py tests/gpt1_keras/tasks/test_masks_and_weights.py \
    tests/gpt1_keras/tokenization/test_lookup.py tests/gpt1_keras/tokenization/test_list_backend.py \
    tests/serving/export/decoder/test_decoder_steps.py tests/serving/client tests/serving/test_deploy.py \
    tests/serving/server/test_defaults.py tests/serving/server/test_flags.py tests/serving/server/test_grpc_predict.py \
    tests/serving/server/test_grpc_service.py tests/serving/server/test_limits.py tests/serving/server/test_rest_service.py \
    tests/training/datasets/test_user_files.py tests/training/evaluation tests/training/paper/test_report.py \
    tests/training/runs/test_checkpoints.py

.PHONY: quickstart check test test-slow fuzz lint style docs bench clean

quickstart: $(VENV)/installed
	$(BIN)/python -m examples.quickstart $(ARGS)

check: style $(VENV)/installed-test
	$(PYTEST) -m "not slow" $(FAST) --ignore tests/docs/test_examples.py $(ARGS)

test: lint $(VENV)/installed-test
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/installed-test
	$(PYTEST) -m slow $(ARGS)

fuzz: $(VENV)/installed-test
	$(BIN)/pip install --quiet --editable ".[test,fuzz]"
	FUZZ=100 $(PYTEST) -k fuzz
	$(BIN)/python -m tests.coverage_fuzz $(ARGS)

lint: docs style

style: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Without PDOC_ALLOW_EXEC, imports that ask the system for its processor's name print warnings.
docs: $(VENV)/installed-test
	PDOC_ALLOW_EXEC=1 $(BIN)/python -m pdoc --docformat google --output-directory docs/api \
	    gpt1_keras gpt1_keras.convert gpt1_keras.optimization.optimizer gpt1_keras.presets \
	    serving.export serving.tflite

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks $(ARGS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.py $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: setup.py $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $(VENV)/installed $@

$(VENV)/installed-bench: $(VENV)/installed-test
	$(BIN)/pip install --quiet --editable ".[test,bench]"
	touch $@

clean:
	rm -rf $(VENV) build docs/api *.egg-info
