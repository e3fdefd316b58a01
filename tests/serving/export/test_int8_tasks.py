"""Every task can also be exported with 8-bit products."""

import functools
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from serving.export import export
from serving.export.export_options import Batching
from serving.server.models.servable import Servable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("int8_products")]

TEXTS = ["a good film", "the staff were kind, and a dull one", "good"]
WORDS = "a good film the staff were kind and a dull one lovely bad".split()
random = np.random.default_rng(0)


def texts(count):
    """Texts of one to six words."""
    return [" ".join(random.choice(WORDS, random.integers(1, 7))) for _ in range(count)]


INPUTS = {
    "scorer": {"text1": TEXTS, "text2": TEXTS[::-1]},
    "chooser": {  # several, as nearly equal choices of a few would decide
        "context": texts(40),
        "question": texts(40),
        "choices": [*(texts(3) for _ in range(39)), [*texts(2), ""]],
    },
    "lm": {"text": TEXTS},
}


@pytest.fixture(scope="module")
def ask(scorer, chooser, lm, path_of, tmp_path_factory):
    """A function that asks an export, in 8 bits or not."""
    models = {"scorer": scorer, "chooser": chooser, "lm": lm}

    @functools.cache
    def load(kind, int8):
        if not int8:
            return Servable(kind, 1, path_of(kind))
        path = export(models[kind], tmp_path_factory.mktemp(kind), batching=Batching(4), int8=True)
        return Servable(kind, 1, pathlib.Path(path))

    def run(kind, int8, signature, **inputs):
        protos = {
            name: tf.make_tensor_proto(
                values, tf.string if isinstance(np.ravel(values)[0], str) else None
            )
            for name, values in inputs.items()
        }
        return load(kind, int8).predict(signature, protos)

    return run


@pytest.mark.parametrize(
    ("kind", "output", "spread"),
    [("scorer", "score", 5.0), ("chooser", "scores", 1.0), ("lm", "log_probabilities", 3.0)],
)
def test_answers_are_nearly_those_in_float(ask, kind, output, spread):
    found, expected = (
        ask(kind, int8, "serving_default", **INPUTS[kind])[output] for int8 in (True, False)
    )
    # These weights are random and large, so that rounding errors are as well.
    assert 0.0 < np.sqrt(np.mean((found - expected) ** 2)) < 0.03 * spread


def test_answers_in_bfloat16(ask, scorer, tmp_path):
    """A product that returned bfloat16 would end the process where processors have none."""
    path = pathlib.Path(export(scorer, tmp_path, int8=True, dtype="bfloat16"))
    inputs = {name: tf.make_tensor_proto(texts) for name, texts in INPUTS["scorer"].items()}
    found = Servable("scorer", 1, path).predict("serving_default", inputs)["score"]
    expected = ask("scorer", False, "serving_default", **INPUTS["scorer"])["score"]
    assert 0.0 < np.sqrt(np.mean((found - expected) ** 2)) < 0.05 * 5.0


def test_generation(ask):
    options = {"length": 5, "temperature": 0.0, "top_k": 0, "seed": 0}
    inputs = {name: np.array([value] * 3) for name, value in options.items()}
    inputs["temperature"] = inputs["temperature"].astype(np.float32)
    inputs = {
        name: value.astype(np.int32) if value.dtype == int else value
        for name, value in inputs.items()
    }
    found = ask("lm", True, "generate", text=TEXTS, **inputs)
    again = ask("lm", True, "generate", text=TEXTS[:1], **{k: v[:1] for k, v in inputs.items()})
    assert found["text"][0] == again["text"][0]
    for text, prompt, continuation in zip(found["text"], TEXTS, found["continuation"]):
        written = prompt + continuation.decode()
        assert "".join(text.decode().split()) == "".join(written.split())
