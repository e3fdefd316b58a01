"""The cost of exports in other precisions is measured and stored."""

import functools
import json
import pathlib
import unittest.mock

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import gpt1_keras
from serving.export import export
from serving.export.__main__ import main
from serving.export.check import failures, read_graph, requests_for, run_in
from serving.export.export_options import Batching
from serving.export.exported_tasks import metric_of
from serving.export.validation import Validation
from serving.server.inference import read_warmup
from serving.server.models.servable import Servable
from serving.tflite import convert

CLASS_NAMES = ["bad", "good"]


@pytest.fixture(scope="module")
def model(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), 1, 2, 128, 256, max_sequence_length=48
    )
    made = gpt1_keras.GPT1TextClassifier(
        backbone,
        class_names=CLASS_NAMES,
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer),
    )
    random = np.random.default_rng(0)
    for weight in made.weights:
        weight.assign(weight + random.normal(0.0, 0.1, weight.shape))
    return made


@pytest.fixture(scope="module")
def examples(model):
    """Texts labelled with the model's own answers, but for one in four."""
    words = ["a", "good", "bad", "film", "lovely", "dull", "staff", "kind", "one", "the"]
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(words, random.integers(1, 30))) for _ in range(60)]
    answers = model.predict(np.array(texts, object), verbose=0).argmax(axis=-1)
    answers[::4] = 1 - answers[::4]
    labels = [CLASS_NAMES[answer] for answer in answers]
    return [{"text": text, "label": label} for text, label in zip(texts, labels)]


@pytest.fixture(scope="module")
def files(model, examples, tmp_path_factory):
    """A folder with the model's preset and a file of its examples; both files have a blank text."""
    folder = tmp_path_factory.mktemp("files")
    model.save_to_preset(str(folder / "preset"))
    blank = {"text": "\x01", "label": "of no class"}
    lines = [json.dumps(each) + "\n" for each in [blank, *examples]]
    (folder / "examples.jsonl").write_text("".join(lines))
    texts = [json.dumps({"text": each["text"]}) + "\n" for each in [*examples[:40], blank]]
    (folder / "texts.jsonl").write_text("".join(texts))
    return folder


@pytest.fixture(scope="module")
def run_program(files):
    """A function from further arguments to the program's exit status."""
    batching = ["--batching", "--max-batch-size=4", "--batch-timeout-ms=2.5", "--max-queue=70"]

    def run(output, *arguments):
        always = [f"--model={files / 'preset'}", f"--output={files / output}", *batching]
        return main([*always, f"--validation={files / 'examples.jsonl'}", *arguments])

    return run


@pytest.fixture(scope="module")
def stored(files, run_program):
    """The path of an export whose matrices are stored in 8 bits."""
    assert run_program("stored", "--int8-storage") == 0
    return files / "stored" / "1"


@pytest.fixture(scope="module")
def multiplied(files, run_program, int8_products):
    """The path of an export whose matrices are multiplied in 8 bits."""
    assert run_program("multiplied", "--int8", f"--calibration={files / 'texts.jsonl'}") == 0
    return files / "multiplied" / "1"


def metadata(path):
    return json.loads((pathlib.Path(path) / "assets.extra" / "gpt1_keras.json").read_text())


def size(path):
    return sum(child.stat().st_size for child in (pathlib.Path(path) / "variables").iterdir())


@functools.cache
def answers(path, texts):
    """What an export answers in the C++ runtime."""
    protos = {"text": tf.make_tensor_proto(texts)}
    return Servable("m", 1, pathlib.Path(path)).predict("serving_default", protos)


def texts_of(examples):
    return tuple(example["text"] for example in examples)


@pytest.mark.slow
def test_int8_storage(model, examples, stored):
    assert size(stored) < 0.3 * 4 * model.count_params()  # biases stay, and a scale for each row
    # The same as when the model's own matrices are rounded, here by numpy.
    rounded = gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone.from_config(model.backbone.get_config()),
        class_names=CLASS_NAMES,
        preprocessor=model.preprocessor,
    )
    for source, target in zip(model.weights, rounded.weights):
        values = np.array(source)
        if values.ndim == 2:
            axis = 1 if source.name == "embeddings" else 0
            scale = np.abs(values).max(axis=axis, keepdims=True) / 127
            values = np.round(values / scale) * scale
        target.assign(values)
    logits = rounded.predict(np.array(texts_of(examples), object), verbose=0)
    found = answers(stored, texts_of(examples))
    np.testing.assert_allclose(found["scores"], keras.ops.softmax(logits), atol=1e-4)
    content = metadata(stored)
    assert (content["weights"], content["products"], content["requires"]) == ("int8", None, None)
    labels = [example["label"].encode() for example in examples]
    assert content["validation"] == {
        "examples": 60,
        "metric": "accuracy",
        "before": 0.75,
        "after": pytest.approx(np.mean(found["label"] == labels)),
    }
    assert content["batching"] == {"max_batch_size": 4, "timeout_ms": 2.5, "max_queue": 70}
    readme = (stored / "assets.extra" / "README.md").read_text()
    assert "Measured: accuracy on 60 labelled examples: 0.7500 before" in readme
    assert "Matrices are stored in 8 bits" in readme
    assert "TF_ONEDNN" not in readme


def test_int8(model, examples, multiplied):
    assert size(multiplied) < 0.3 * 4 * model.count_params()
    texts = texts_of(examples)
    exact = keras.ops.softmax(model.predict(np.array(texts, object), verbose=0))
    differences = np.abs(answers(multiplied, texts)["scores"] - exact)
    # Its weights are random, and much larger than a trained model's: so are rounding errors.
    assert 0.0 < differences.mean() < 0.02
    content = metadata(multiplied)
    assert (content["weights"], content["products"]) == ("int8", "int8")
    assert "x86-64" in content["requires"]
    tokens = sum(len(ids) + 2 for ids in model.preprocessor.tokenizer(texts[:40]).to_list())
    assert content["calibration"] == {
        "source": "the calibration's examples",
        "examples": 40,
        "tokens": tokens,
    }
    labels = [example["label"].encode() for example in examples]
    found = answers(multiplied, texts)["label"]
    assert content["validation"]["after"] == pytest.approx(np.mean(found == labels))
    readme = (multiplied / "assets.extra" / "README.md").read_text()
    assert "multiplied in 8 bits" in readme
    assert f"on the calibration's examples: 40 of {tokens} tokens" in readme


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored", "multiplied"])
def test_int8_loads_in_python(examples, kind, request):
    path = request.getfixturevalue(kind)
    loaded = tf.saved_model.load(str(path)).signatures["serving_default"]
    texts = texts_of(examples)
    expected = answers(path, texts)["scores"]
    np.testing.assert_allclose(loaded(text=tf.constant(texts))["scores"], expected, atol=1e-5)


@pytest.mark.slow
def test_int8_is_the_same_without_vnni(multiplied):
    """oneDNN can be told to do without the processor's instruction for 8-bit products."""
    requests = requests_for(read_graph(multiplied), read_warmup(multiplied))
    folder = pathlib.Path(tf.__file__).parent
    runs = [
        run_in(folder, multiplied, requests, {"ONEDNN_MAX_CPU_ISA": isa, "ONEDNN_VERBOSE": "1"})
        for isa in ("ALL", "AVX2")
    ]
    products = [" ".join(sum(run["products"], [])) for run in runs]
    assert "x64:gemm" in products[1]
    assert not list(failures(requests, runs[1], runs[0]))


@pytest.mark.slow
def test_bfloat16_batched(model, examples, tmp_path):
    path = export(model, tmp_path, dtype="bfloat16", batching=Batching(8))
    assert size(path) < 0.6 * 4 * model.count_params()
    texts = texts_of(examples)
    exact = keras.ops.softmax(model.predict(np.array(texts, object), verbose=0))
    difference = np.abs(answers(path, texts)["scores"] - exact)
    assert 0.0 < difference.max() < 0.05
    content = metadata(path)
    assert (content["dtype"], content["weights"]) == ("bfloat16", "bfloat16")
    assert content["batching"] == {"max_batch_size": 8, "timeout_ms": 0.0, "max_queue": 16}
    assert content["validation"] is None
    readme = (pathlib.Path(path) / "assets.extra" / "README.md").read_text()
    assert "Set `TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1`" in readme
    assert "What that costs was not measured" in readme


@pytest.mark.slow
def test_a_language_model_in_int8_and_bfloat16(model, tmp_path):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(model.preprocessor.tokenizer, 48)
    lm = gpt1_keras.GPT1CausalLM(model.backbone, preprocessor)
    texts = [{"text": "a good film and a lovely one"}, {"text": "the staff were kind"}]
    before = lm.get_weights()
    path = export(lm, tmp_path, int8_storage=True, dtype="bfloat16", validation=texts)
    for old, new in zip(before, lm.get_weights()):  # what is rounded is a copy
        np.testing.assert_array_equal(old, new)
    found = metadata(path)["validation"]
    assert found["metric"] == "log-probability of a token"
    total, count = 0.0, 0
    for example in texts:
        tokens = preprocessor.tokenizer(example["text"]).numpy()
        logits = np.array(lm({"token_ids": tokens[None]}))[0].astype("float64")
        table = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        total += sum(table[i, token] for i, token in enumerate(tokens[1:]))
        count += len(tokens) - 1
    assert found["before"] == pytest.approx(total / count, abs=1e-4)
    assert found["after"] == pytest.approx(found["before"], abs=0.1)


# --- labelled examples ---


@pytest.fixture(scope="module")
def scorer(model, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextSimilarityPreprocessor(tiny_tokenizer)
    return gpt1_keras.GPT1TextSimilarity(
        model.backbone, score_range=(0, 5), preprocessor=preprocessor
    )


@pytest.fixture(scope="module")
def chooser(model, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(
        tiny_tokenizer, fields=("context", "choices")
    )
    return gpt1_keras.GPT1MultipleChoice(model.backbone, preprocessor)


@pytest.mark.slow
def test_a_table_of_choices(chooser, tmp_path):
    chooser.save_to_preset(str(tmp_path / "preset"))
    rows = [("a film", ["good", "dull", "bad"]), ("a good film", ["one", "two", ""])]
    texts = {"context": [context for context, _ in rows], "choices": [rows[0][1], rows[1][1][:2]]}
    labels = [answer["choice"] for answer in chooser.classify(texts)]
    lines = ["Kontext,choice1,choice2,choice3,label"]
    lines += [",".join([context, *each, str(n)]) for (context, each), n in zip(rows, labels)]
    (tmp_path / "examples.csv").write_text("\n".join(lines))
    arguments = [f"--model={tmp_path / 'preset'}", f"--output={tmp_path / 'out'}"]
    arguments += [f"--validation={tmp_path / 'examples.csv'}", "--columns=context=Kontext"]
    assert main(arguments) == 0
    found = metadata(tmp_path / "out" / "1")["validation"]
    assert found == {"examples": 2, "metric": "accuracy", "before": 1.0, "after": 1.0}


def test_scores_with_decimal_commas(scorer, monkeypatch, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text1;text2;label\na;b;4,5\na;c;3,0\n")

    def stop(task, metric, rows):
        raise ValueError(f"labels: {[row['label'] for row in rows]}")

    monkeypatch.setattr("serving.export.exporter.Validation", stop)
    with pytest.raises(ValueError, match=r"labels: \['4.5', '3'\]"):
        export(scorer, tmp_path / "out", validation=tmp_path / "a.csv")
    assert "decimal comma" in capsys.readouterr().err


def test_metrics_of_scores_and_choices(scorer, chooser, monkeypatch, tmp_path):
    """The model's answers are measured like those of the export, whose texts are the rows'."""
    pairs = [{"text1": "a", "text2": "b", "label": label} for label in ("1", 2.5, 4)]
    stories = [
        {"context": "a", "choices": ["a", "b"], "label": 0},
        {"context": "a", "choices": ["a", "b", "c"], "label": 2},
    ]
    correlation = scipy.stats.pearsonr([1, 2, 4.5], [1, 2.5, 4]).statistic
    for task, rows, answers, name, value in [
        (scorer, pairs, {"score": [1.0, 2.0, 4.5]}, "Pearson correlation", correlation),
        (scorer, pairs, {"score": [2.0, 2.0, 2.0]}, "Pearson correlation", 0.0),
        (chooser, stories, {"choice": [0, 1]}, "accuracy", 0.5),
    ]:
        arrays = {name: np.array(each) for name, each in answers.items()}
        servable = unittest.mock.Mock()
        servable.predict.return_value = arrays
        monkeypatch.setattr("serving.export.validation.Servable", lambda *_, found=servable: found)
        tensors = {name: tf.constant(array) for name, array in arrays.items()}
        validation = Validation(task, metric_of(task), rows)
        found = validation.compare(lambda found=tensors, **texts: found, tmp_path)
        assert found["metric"] == name
        assert found["before"] == found["after"] == pytest.approx(value)
    _, protos = servable.predict.call_args.args
    asked = tf.make_ndarray(protos["choices"]).tolist()
    assert asked == [[b"a", b"b", b""], [b"a", b"b", b"c"]]


# --- what is refused ---


@pytest.mark.parametrize(
    ("labels", "noun"),
    [
        (["3", "3"], "different"),
        (["nan", "3"], "line 1: .*'nan'"),
        (["3", "7"], "line 2: .*from 0 to 5"),
        (["3"], "different"),
        ([None], "label"),
    ],
)
def test_labels_without_a_correlation(scorer, labels, noun):
    rows = [{"text1": "a", "text2": "b", "label": label} for label in labels]
    with pytest.raises(ValueError, match=noun):
        Validation(scorer, metric_of(scorer), rows)


@pytest.mark.parametrize(
    ("options", "noun"),
    [
        ({"calibration": [{"text": "a"}]}, "int8"),
        ({"int8": True, "int8_storage": True}, "both"),
        ({"int8": True, "calibration": []}, "calibration's examples"),
        ({"validation": [{"text": "a", "label": "fine"}]}, r"\['fine'\]"),
        ({"validation": [{"sentence": "a", "label": "bad"}]}, r"\['text'\]"),
    ],
)
def test_options_that_do_not_fit(model, int8_products, tmp_path, options, noun):
    with pytest.raises(ValueError, match=noun):
        export(model, tmp_path / "out", **options)
    assert not list((tmp_path / "out").glob("*"))


def test_int8_needs_a_transformer_of_floats(model, tiny_tokenizer, int8_products, tmp_path):
    lstm = gpt1_keras.LSTMBackbone(tiny_tokenizer.vocabulary_size(), 16, 16, max_sequence_length=48)
    quantized = gpt1_keras.GPT1Backbone.from_config(model.backbone.get_config())
    quantized.quantize("int8")  # whose kernels mean nothing without their scales
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, 48)
    for backbone in (lstm, quantized):
        with pytest.raises(ValueError, match="GPT1Backbone"):
            export(gpt1_keras.GPT1CausalLM(backbone, preprocessor), tmp_path, int8=True)


def test_another_backend(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    for write in export, convert:
        with pytest.raises(ValueError, match="KERAS_BACKEND=jax"):
            write(model, tmp_path / "model")


@pytest.mark.parametrize(
    ("option", "content", "noun"),
    [
        ("--validation", "", "no examples"),
        ("--validation", '{"Kommentar": "a", "label": "good"}\n', "text"),
        ("--validation", None, "does not exist"),
        ("--calibration", "", "no examples"),
        ("--calibration", '{"label": "good"}\n', "text"),
        ("--calibration", None, "does not exist"),
    ],
)
def test_bad_files(files, int8_products, tmp_path, capsys, option, content, noun):
    if content is not None:
        (tmp_path / "examples.jsonl").write_text(content)
    arguments = [f"--model={files / 'preset'}", f"--output={tmp_path / 'out'}", "--int8"]
    assert main([*arguments, f"{option}={tmp_path / 'examples.jsonl'}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and noun in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "noun"),
    [
        (["--max-queue=4"], "--batching"),
        (["--batch-timeout-ms=2"], "--batching"),
        (["--explain-steps=4"], "--explain integrated-gradients"),
        (["--explain-max-words=4"], "--explain leave-one-out"),
        (["--explain=leave-one-out", "--explain-steps=4"], "--explain integrated-gradients"),
        (["--batching", "--max-queue=0"], "max_queue"),
        (["--embed-normalize"], "--embed"),
    ],
)
def test_options_of_the_program(files, tmp_path, capsys, options, noun):
    try:
        status = main([f"--model={files / 'preset'}", f"--output={tmp_path / 'out'}", *options])
    except SystemExit as stop:
        status = stop.code
    assert status in (1, 2) and noun in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
