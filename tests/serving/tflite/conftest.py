"""Models with random weights, their .tflite files, and LiteRT's two runtimes."""

import keras
import numpy as np
import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

import gpt1_keras
from serving.tflite import convert

CONTEXT = 64
MAX_BYTES = 200
SEQUENCE_LENGTH = 40


def to_input(text, max_bytes=MAX_BYTES):
    """UTF-8 padded with zeros, int32 `[max_bytes]`."""
    bytes = text.encode() if isinstance(text, str) else text
    return np.frombuffer(bytes.ljust(max_bytes, b"\0"), np.uint8).astype(np.int32)


@pytest.fixture(scope="session")
def as_input():
    return to_input


@pytest.fixture(scope="session")
def make_task(tiny_tokenizer):
    """A function that makes a task with weights far from their initial values."""

    def make(
        task,
        tokenizer=tiny_tokenizer,
        length=SEQUENCE_LENGTH,
        num_layers=1,
        fields=None,
        **arguments,
    ):
        keras.utils.set_random_seed(0)
        backbone = gpt1_keras.GPT1Backbone(
            tokenizer.vocabulary_size(),
            num_layers,
            2,
            32,
            64,
            max_sequence_length=max(CONTEXT, length),
        )
        preprocessor = task.preprocessor_cls(
            tokenizer, length, **({"fields": fields} if fields else {})
        )
        model = task(backbone, preprocessor=preprocessor, **arguments)
        random = np.random.default_rng(0)
        for variable in model.weights:
            variable.assign(variable + random.normal(0.0, 0.2, variable.shape))
        return model

    return make


@pytest.fixture(scope="session")
def single(make_task, tmp_path_factory):
    """A classifier of single texts and its file."""
    names = ["negative", "neutral", "positive"]
    arguments = {"class_names": names, "temperature": 1.5, "sure_threshold": 0.6}
    model = make_task(gpt1_keras.GPT1TextClassifier, num_layers=2, **arguments)
    path = tmp_path_factory.mktemp("single") / "model.tflite"
    return model, convert(model, path, MAX_BYTES, SEQUENCE_LENGTH)


@pytest.fixture(scope="session")
def interpret():
    """A function that returns a file's signature in LiteRT's Interpreter, as a function."""

    def load(path, signature):
        return Interpreter(str(path), num_threads=1).get_signature_runner(signature)

    return load


@pytest.fixture(scope="session")
def compile_model():
    """As `interpret`, in LiteRT's CompiledModel."""

    def load(path, signature):
        model = CompiledModel.from_file(str(path))
        names = model.get_signature_list()[signature]
        details = model.get_output_tensor_details(signature)
        inputs = {n: model.create_input_buffer_by_name(signature, n) for n in names["inputs"]}
        outputs = {n: model.create_output_buffer_by_name(signature, n) for n in names["outputs"]}

        def run(**arrays):
            for name, array in arrays.items():
                inputs[name].write(array)
            model.run_by_name(signature, inputs, outputs)
            results = {}
            for name, buffer in outputs.items():
                shape = details[name]["shape"]
                dtype = np.dtype(details[name]["dtype"])
                results[name] = buffer.read(int(np.prod(shape)), dtype).reshape(shape)
            return results

        return run

    return load


@pytest.fixture(scope="session")
def assert_answers(as_input):
    """A function that compares a file's signatures with the task it was made of.

    For classification, regression and similarity; texts are a list for each field.
    """

    def assert_same(model, path, texts, load, max_bytes=MAX_BYTES, tolerance=1e-4):
        preprocessor = model.preprocessor
        columns = [np.array([_as_bytes(text) for text in column], object) for column in texts]
        ids, cut = preprocessor.transform(columns)
        expected = model(preprocessor.pad(ids))
        answer = "scores" if model.score_range is None else "score"
        if answer == "score":
            expected = model.score_of(expected)
        elif model.activation is not keras.activations.softmax:
            expected = keras.ops.softmax(expected / model.calibration.temperature)
        orders = ids.nrows() // len(columns[0])
        score, tokenize, score_tokens = (load(path, n) for n in ("text", "tokenize", "tokens"))
        for number, row in enumerate(zip(*columns)):
            inputs = {n: as_input(text, max_bytes) for n, text in zip(preprocessor.fields, row)}
            tokens, answers = tokenize(**inputs), score(**inputs)
            for order in range(orders):
                of_order = ids[number * orders + order].numpy().tolist()
                found = tokens["token_ids"][order]
                assert found[: len(of_order)].tolist() == of_order
                assert not np.any(found[len(of_order) :] != preprocessor.tokenizer.pad_token_id)
            is_blank = not all(map(len, preprocessor.tokenizer(row)))
            fills = any(len(text) == max_bytes for text in row)
            for outputs in (tokens, answers):
                assert outputs["num_tokens"].tolist() == [len(of_order)]
                assert outputs["truncated"].tolist() == [int(cut[number] or fills)]
                assert outputs["blank"].tolist() == [int(is_blank)]
            of_tokens = score_tokens(token_ids=tokens["token_ids"], num_tokens=tokens["num_tokens"])
            if answer == "scores" and model.calibration.sure_threshold is not None:
                # By the file's own scores: 8 and 4 bits may move one over the threshold.
                is_sure = np.max(answers["scores"]) >= model.calibration.sure_threshold
                assert answers["is_sure"].tolist() == of_tokens["is_sure"].tolist() == [is_sure]
            for found in (answers[answer], of_tokens[answer]):
                np.testing.assert_allclose(
                    found, np.reshape(expected[number], -1), atol=tolerance, rtol=0
                )

    return assert_same


def _as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()
