"""Small models with weights far from their initial values, and an export of each."""

import functools
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from serving.export import export
from serving.server.models.servable import Servable

CONTEXT = 48
CLASS_NAMES = ["negative", "neutral", "positive"]
SEQUENCE_LENGTH = 40
FIELDS = {"single": ("text",), "pair": ("premise", "hypothesis")}
TEXTS = {
    "single": [
        ["a good film", "", "the Staff were KIND, and a film", b"a g\xffood\xc3 film", b"\xfe"]
    ],
    "pair": [["a good film", "", "a lovely one", b"a g\xffood\xc3 film", ""]],
}
TEXTS["single"][0] += ["good " * 38, "good bad " * 50]
TEXTS["pair"][0] += ["good " * 18, "good " * 19]
TEXTS["pair"].append(["a bad one", "a bad one", "", "a bad one", "", "dull " * 18, "dull " * 19])


def spread(model):
    random = np.random.default_rng(0)
    for variable in model.weights:
        if variable.dtype == "float32":
            variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    return model


@pytest.fixture(scope="session")
def make_classifier(tiny_tokenizer):
    """A function that makes a classifier of single texts or pairs."""

    def make(kind, num_layers=1, **arguments):
        keras.utils.set_random_seed(0)
        backbone = gpt1_keras.GPT1Backbone(
            tiny_tokenizer.vocabulary_size(),
            num_layers,
            2,
            32,
            64,
            max_sequence_length=SEQUENCE_LENGTH,
        )
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(
            tiny_tokenizer, fields=FIELDS[kind]
        )
        return spread(
            gpt1_keras.GPT1TextClassifier(
                backbone, class_names=CLASS_NAMES, preprocessor=preprocessor, **arguments
            )
        )

    return make


class Exported:
    """A classifier, its export in a folder that it was moved to, and the expected answers."""

    def __init__(self, kind, model, folder):
        self.kind, self.fields, self.texts = kind, FIELDS[kind], TEXTS[kind]
        self.model = model
        x = tuple(np.array([encode(text) for text in texts], object) for texts in self.texts)
        scores = self.spread_scores(x if len(x) > 1 else x[0])
        self.path = folder / "moved" / "here"
        self.path.parent.mkdir()
        shutil.move(export(self.model, folder / "sentiment"), self.path)
        self.scores = np.array(keras.ops.softmax(scores))
        self.labels = [CLASS_NAMES[index] for index in self.scores.argmax(axis=-1)]
        segments = [model.preprocessor.tokenizer(texts).to_list() for texts in x]
        lengths = [len(x) + 1 + sum(map(len, rows)) for rows in zip(*segments)]
        self.num_tokens = [min(length, SEQUENCE_LENGTH) for length in lengths]
        self.blank = [not all(rows) for rows in zip(*segments)]
        self.truncated = [length > SEQUENCE_LENGTH for length in lengths]

    def spread_scores(self, x):
        """Sets the head so that the texts fall into different classes; returns their logits."""
        head = self.model.head
        head.kernel.assign(4.0 * head.kernel)
        head.bias.assign_sub(self.model.predict_on_batch(x).mean(axis=0))
        return self.model.predict_on_batch(x)


def encode(text):
    return text.encode() if isinstance(text, str) else text


@pytest.fixture(scope="session")
def exported_classifier(make_classifier, tmp_path_factory):
    """A function from `"single"` or `"pair"` to that classifier's `Exported`."""

    @functools.cache
    def find(kind):
        model = make_classifier(kind, num_layers=2 if kind == "single" else 1)
        return Exported(kind, model, tmp_path_factory.mktemp(kind))

    return find


@pytest.fixture(scope="session")
def backbone(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    sizes = {"max_sequence_length": CONTEXT, "num_untrained_tokens": 1}  # `<extract>`
    return spread(gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), 2, 2, 32, 64, **sizes))


@pytest.fixture(scope="session")
def scorer(backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextSimilarityPreprocessor(tiny_tokenizer)
    return spread(
        gpt1_keras.GPT1TextSimilarity(backbone, score_range=(0, 5), preprocessor=preprocessor)
    )


@pytest.fixture(scope="session")
def chooser(backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(tiny_tokenizer)
    return spread(gpt1_keras.GPT1MultipleChoice(backbone, preprocessor))


@pytest.fixture(scope="session")
def lm(backbone, tiny_tokenizer):
    return gpt1_keras.GPT1CausalLM(
        backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, CONTEXT)
    )


@pytest.fixture(scope="session")
def path_of(scorer, chooser, lm, tmp_path_factory):
    """A function from `"scorer"`, `"chooser"` or `"lm"` to the path of its export."""
    # `spread` of one changes the backbone of all, so all are made before one is exported.
    models = {"scorer": scorer, "chooser": chooser, "lm": lm}

    @functools.cache
    def find(kind):
        return pathlib.Path(export(models[kind], tmp_path_factory.mktemp(kind)))

    return find


@pytest.fixture(scope="session")
def ask(path_of):
    """A function that runs a signature in the C++ runtime; returns lists, and texts as str."""
    load = functools.cache(lambda kind: Servable(kind, 1, path_of(kind)))

    def run(kind, signature, **inputs):
        specs = load(kind).signature_defs[signature].inputs
        protos = {
            name: tf.make_tensor_proto(value, specs[name].dtype) for name, value in inputs.items()
        }
        found = load(kind).predict(signature, protos)
        return {name: _plain(array.tolist()) for name, array in found.items()}

    return run


def _plain(value):
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value
