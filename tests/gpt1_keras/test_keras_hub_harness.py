"""Backbones and tasks pass the harness of KerasHub, its expectations unchanged."""

import importlib.util
import sys
import types

import keras
import numpy as np
import pytest

import gpt1_keras

TEXTS = ["a good film", "a bad film", "the staff were kind", "a dull one"]
PAIRS = (TEXTS, TEXTS[::-1])
CHOICES = {
    "context": TEXTS,
    "question": ["a film"] * 4,
    "choices": [["good", "bad"], ["one", "kind"], ["staff", "dull"], ["lovely", "film"]],
}
LABELS = np.array([0, 1, 0, 1])

BACKBONES = {
    gpt1_keras.GPT1Backbone: {
        "vocabulary_size": 10,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 4,
        "intermediate_dim": 8,
        "max_sequence_length": 5,
    },
    gpt1_keras.LSTMBackbone: {
        "vocabulary_size": 10,
        "hidden_dim": 4,
        "units": 6,
        "max_sequence_length": 5,
    },
}
TASKS = {
    gpt1_keras.GPT1CausalLM: (gpt1_keras.GPT1CausalLMPreprocessor, {}, (TEXTS,)),
    gpt1_keras.GPT1TextClassifier: (
        gpt1_keras.GPT1TextClassifierPreprocessor,
        {"num_classes": 2},
        (TEXTS, LABELS),
    ),
    gpt1_keras.GPT1TextSimilarity: (
        gpt1_keras.GPT1TextSimilarityPreprocessor,
        {"num_classes": 2},
        (PAIRS, LABELS),
    ),
    gpt1_keras.GPT1MultipleChoice: (
        gpt1_keras.GPT1MultipleChoicePreprocessor,
        {},
        (CHOICES, LABELS),
    ),
}


@pytest.fixture(scope="module")
def harness():
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("grain") is None:
            # The harness imports it, and uses it for preprocessors alone.
            patch.setitem(sys.modules, "grain", types.ModuleType("grain"))
        from keras_hub.src.tests.test_case import TestCase
    return TestCase()


def ids():
    return {name: keras.ops.ones((2, 5), dtype="int32") for name in ("token_ids", "padding_mask")}


@pytest.fixture(params=BACKBONES, ids=lambda cls: cls.__name__)
def backbone_cls(request):
    return request.param


def test_backbone(harness, backbone_cls):
    harness.run_backbone_test(
        backbone_cls,
        dict(BACKBONES[backbone_cls]),
        ids(),
        expected_output_shape=(2, 5, 4),
        run_mixed_precision_check=False,
        run_quantization_check=False,
    )


def test_backbone_precision(harness, backbone_cls):
    harness.run_precision_test(backbone_cls, dict(BACKBONES[backbone_cls]), ids())


def test_backbone_quantization(harness, backbone_cls):
    arguments = dict(BACKBONES[backbone_cls])
    harness.run_quantization_test(backbone_cls(**arguments), backbone_cls, arguments, ids())


def test_backbone_saving(harness, backbone_cls):
    harness.run_model_saving_test(backbone_cls, dict(BACKBONES[backbone_cls]), ids())


def test_backbone_preset(harness, backbone_cls, tmp_path):
    backbone = backbone_cls(**BACKBONES[backbone_cls])
    backbone.save_to_preset(tmp_path)
    harness.run_preset_test(backbone_cls, str(tmp_path), ids(), expected_output=backbone(ids()))


@pytest.fixture(params=TASKS, ids=lambda cls: cls.__name__)
def task(request, tiny_tokenizer):
    """A task's class, its arguments, and data to train on."""
    preprocessor_cls, arguments, data = TASKS[request.param]
    sizes = BACKBONES[gpt1_keras.GPT1Backbone] | {
        "vocabulary_size": tiny_tokenizer.vocabulary_size(),
        "max_sequence_length": 16,
    }
    arguments = arguments | {
        "preprocessor": preprocessor_cls(tiny_tokenizer, sequence_length=16),
        "backbone": gpt1_keras.GPT1Backbone(**sizes),
    }
    return request.param, arguments, data


@pytest.mark.slow
def test_task(harness, task):
    harness.run_task_test(*task, compile_kwargs={"run_eagerly": True})


def test_task_serialization(harness, task):
    cls, arguments, _ = task
    harness.run_serialization_test(cls(**arguments))


def test_task_saving(harness, task):
    cls, arguments, (x, *_) = task
    inputs = arguments["preprocessor"](x)
    inputs = keras.utils.unpack_x_y_sample_weight(inputs)[0]
    harness.run_model_saving_test(cls, arguments, inputs)


def test_task_preset(harness, task, tmp_path):
    cls, arguments, (x, *_) = task
    model = cls(**arguments)
    model.save_to_preset(tmp_path)
    inputs = keras.utils.unpack_x_y_sample_weight(arguments["preprocessor"](x))[0]
    harness.run_preset_test(cls, str(tmp_path), inputs, expected_output=model(inputs))
