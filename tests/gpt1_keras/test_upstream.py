"""What is private in Keras and KerasHub is still there, and still called.

`test_on_jax.py` runs all of it on the JAX backend too.
"""

import collections
import contextlib
import json

import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.utils.transformers import preset_loader

import gpt1_keras
from gpt1_keras import upstream
from gpt1_keras.convert.from_transformers import OpenAIGPTLoader
from gpt1_keras.optimization.training_step import TaskHooks
from gpt1_keras.upstream import AdamHooks, ModelHooks

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
OVERRIDDEN = [
    (keras.optimizers.Adam, AdamHooks, "_clip_gradients"),
    *(
        (keras.Model, ours, name)
        for ours, name in (
            [
                (ModelHooks, "_resolve_auto_jit_compile"),
                (ModelHooks, "_maybe_symbolic_build"),
                (TaskHooks, "train_step"),
            ]
            if IS_TENSORFLOW
            else [
                (ModelHooks, "_symbolic_build"),
                (TaskHooks, "compute_loss_and_updates"),
                (ModelHooks, "_update_metrics_variables"),
            ]
        )
    ),
]


class Batch(keras.utils.PyDataset):
    """One batch of an epoch."""

    def __init__(self, *batch):
        super().__init__()
        self.batch = batch

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.batch


def _counted(method, name, counts):
    def counted(*args, **kwargs):
        counts[name] += 1
        return method(*args, **kwargs)

    return counted


@contextlib.contextmanager
def counting(methods):
    """Counts the calls of methods, pairs of a class and a name, by name."""
    counts = collections.Counter()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in methods:
            patch.setattr(owner, name, _counted(getattr(owner, name), name, counts))
        yield counts


@pytest.fixture(scope="module")
def trained():
    """A language model after one update, and how often Keras called what is private."""
    methods = [(owner, name) for _, owner, name in OVERRIDDEN]
    if IS_TENSORFLOW:
        methods.append((keras.optimizers.Adam, "_all_reduce_sum_gradients"))
    backbone = gpt1_keras.GPT1Backbone(20, 1, 2, 8, 16, max_sequence_length=8, dropout=0.0)
    lm = gpt1_keras.GPT1CausalLM(backbone)
    rows = np.arange(16).reshape(2, 8)
    with counting(methods) as counts:
        lm.compile(gpt1_keras.optimizer.GPT1Adam(1e-2, global_clipnorm=1.0))
        lm.fit(Batch({"token_ids": rows}, rows), verbose=0)
    return lm, counts


@pytest.mark.parametrize(("upstream", "ours", "name"), OVERRIDDEN)
def test_what_is_overridden_is_called(upstream, ours, name, trained):
    assert callable(getattr(upstream, name))
    assert name in vars(ours)
    assert trained[1][name] > 0


def test_moments(trained):
    lm, _ = trained
    for variable in lm.trainable_variables:
        for moment, name in zip(lm.optimizer.moments_of(variable), ("momentum", "velocity")):
            assert moment.shape == variable.shape and moment.path.endswith(name)


@pytest.mark.skipif(not IS_TENSORFLOW, reason="JaxStep is for one device")
def test_keras_does_not_sum_our_gradients_again(trained):
    lm, counts = trained
    assert counts["_all_reduce_sum_gradients"] == 0
    assert lm.optimizer._all_reduce_sum_gradients is list
    with counting([(keras.optimizers.Adam, "_all_reduce_sum_gradients")]) as counts:
        keras.optimizers.Adam().apply([keras.ops.ones([1])], [keras.Variable([1.0])])
    assert counts["_all_reduce_sum_gradients"] == 1


@pytest.mark.skipif(not IS_TENSORFLOW, reason="JaxStep leaves compilation to Keras")
def test_keras_reads_what_we_set(trained):
    lm, _ = trained
    assert lm._distribute_strategy is None
    lm._jit_compile = "marked"
    assert lm.jit_compile == "marked"
    with upstream.without_outer_jit(lm):
        assert lm.jit_compile is False
    assert lm.jit_compile == "marked"


def test_the_metric_of_the_loss(trained):
    lm, _ = trained
    assert lm._loss_tracker in lm.metrics
    assert float(lm._loss_tracker.result()) > 0.0


def test_the_schedule():
    schedule = gpt1_keras.optimizer.FinetuningSchedule(total_steps=10)
    assert upstream.schedule_of(keras.optimizers.Adam(schedule)) is schedule


def test_names_that_texts_need():
    """Of KerasHub, used by preprocessors and the tokenizer."""
    tokenizer = keras_hub.tokenizers.Tokenizer
    assert callable(tokenizer._add_special_token)
    assert callable(tokenizer._update_special_token_ids)
    # What `take_tuples_for_texts` sets is what KerasHub reads.
    assert keras_hub.layers.StartEndPacker(4)._call_accepts_labels is False


def test_functions_of_presets():
    assert upstream.TOKENIZER_CONFIG_FILE == "tokenizer.json"
    for name in ("check_file_exists", "get_file", "get_preset_loader", "load_json"):
        assert callable(getattr(upstream, name))
    assert callable(upstream.register_presets)


@pytest.mark.parametrize(("model_type", "is_ours"), [("openai-gpt", True), ("gpt2", False)])
def test_the_loader_of_a_model_type(model_type, is_ours, tmp_path):
    """KerasHub asks for ours, and only for our type."""
    sizes = {"n_layer": 1, "n_head": 1, "n_embd": 4, "n_positions": 4}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **sizes}))
    loader = upstream.get_preset_loader(str(tmp_path))
    assert isinstance(loader, upstream.PresetLoader)
    assert isinstance(loader, OpenAIGPTLoader) == is_ours
    if not is_ours:
        assert isinstance(loader, preset_loader.TransformersPresetLoader)
        assert loader.converter.backbone_cls is keras_hub.models.GPT2Backbone
