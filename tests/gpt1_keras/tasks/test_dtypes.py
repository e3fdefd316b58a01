"""Every dtype of Keras: predictions near float32's; training, or a clear refusal."""

import contextlib

import keras
import numpy as np
import pytest

import gpt1_keras
from tests.helpers.eager import eagerly

TEXTS = ["a good film", "a bad film, and a dull one"]
LABELS = np.array([1, 0])
# Of float32 are 24 bits, of float16 11, of bfloat16 8.
ERRORS = {
    "float64": 1e-5,
    "mixed_float16": 1e-2,
    "mixed_bfloat16": 1e-1,
    "float16": 1e-2,
    "bfloat16": 1e-1,
}


@pytest.fixture(scope="module", params=[gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def classifier_of(request, tiny_tokenizer):
    """Makes a classifier of a dtype, whose weights are always the same."""
    sizes = {"hidden_dim": 16, "max_sequence_length": 16, "dropout": 0.0}
    if request.param is gpt1_keras.GPT1Backbone:
        sizes |= {"num_layers": 1, "num_heads": 2, "intermediate_dim": 32}
    else:
        sizes |= {"units": 16}
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, 16)

    def make(dtype):
        backbone = request.param(tiny_tokenizer.vocabulary_size(), dtype=dtype, **sizes)
        model = gpt1_keras.GPT1TextClassifier(
            backbone, 2, preprocessor=preprocessor, dropout=0.0, dtype=dtype
        )
        random = np.random.default_rng(0)
        model.set_weights([random.normal(0, 0.3, weight.shape) for weight in model.weights])
        return model

    return make


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "error"), ERRORS.items())
def test_dtypes(classifier_of, dtype, error):
    model = classifier_of(dtype)
    with eagerly():
        found = model.predict(TEXTS, verbose=0)
        np.testing.assert_allclose(
            found, classifier_of("float32").predict(TEXTS, verbose=0), atol=error
        )
        assert found.dtype == np.float32
        model.compile(keras.optimizers.Adam(0.1))
        if dtype == "float16":
            with pytest.raises(ValueError, match="float16"):
                model.fit(TEXTS, LABELS, verbose=0)
            return
        # Keras's Adam, too, computes in the weights' dtype, and so moves none in bfloat16.
        is_lost = dtype == "bfloat16"
        warned = pytest.warns(UserWarning, match="mixed_bfloat16")
        before = model.get_weights()
        with warned if is_lost else contextlib.nullcontext():
            history = model.fit(TEXTS, LABELS, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for old, new in zip(before, model.get_weights(), strict=True):
        assert np.isfinite(np.float32(new)).all()
        assert is_lost or (old != new).any()
