"""The cost of exports in other precisions is measured and stored."""

import functools
import json
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from serving import check
from serving.export import export
from serving.export.__main__ import main
from serving.export.export_options import Batching
from serving.export.exported_tasks import metric_of
from serving.export.validation import Validation
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
    assert "AVX512-VNNI" in content["requires"]
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


def test_int8_is_refused_where_products_saturate(multiplied, monkeypatch, capfd):
    """oneDNN can be told to do without the processor's instruction for 8-bit products."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert check.main([str(multiplied)]) == 1
    out = capfd.readouterr().out
    assert "requires: TensorFlow with oneDNN (Linux on x86-64) on a processor with AVX512-" in out
    assert "cannot load it: " in out
    assert "The processor does not multiply 8-bit numbers exactly" in out


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"label": "good"}\n', "has the columns ['label']; expected text. Say which are meant: "),
        ("", "has no examples"),
        (None, "does not exist"),
    ],
)
def test_a_bad_calibration_file(run_program, int8_products, tmp_path, capsys, content, error):
    file = tmp_path / "texts.jsonl"
    if content is not None:
        file.write_text(content)
    assert run_program("bad", "--int8", f"--calibration={file}") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and error in lines[0]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"calibration": [{"text": "a"}]}, "`calibration` is for `int8`"),
        ({"int8": True, "int8_storage": True}, "Received both"),
        ({"int8": True, "calibration": []}, "Cannot calibrate on the calibration's examples"),
    ],
)
def test_options_that_do_not_go_together(model, int8_products, tmp_path, options, error):
    with pytest.raises(ValueError, match=error):
        export(model, tmp_path, **options)


def test_int8_needs_a_transformer_of_floats(model, tiny_tokenizer, int8_products, tmp_path):
    lstm = gpt1_keras.LSTMBackbone(tiny_tokenizer.vocabulary_size(), 16, 16, max_sequence_length=48)
    quantized = gpt1_keras.GPT1Backbone.from_config(model.backbone.get_config())
    quantized.quantize("int8")  # whose kernels mean nothing without their scales
    for backbone in (lstm, quantized):
        lm = gpt1_keras.GPT1CausalLM(
            backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, 48)
        )
        with pytest.raises(ValueError, match="GPT1Backbone"):
            export(lm, tmp_path, int8=True)


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


@pytest.mark.slow
def test_a_file_of_a_spreadsheet(tiny_tokenizer, tmp_path):
    """A byte-order mark, texts that begin with a quotation mark, and columns of choices.

    Once, the first column's name had the mark, a quotation mark swallowed the rest of the file, and
    `choice1` was not known.
    """
    chooser = gpt1_keras.GPT1MultipleChoice(
        gpt1_keras.GPT1Backbone(
            tiny_tokenizer.vocabulary_size(), 1, 2, 16, 32, max_sequence_length=24
        ),
        gpt1_keras.GPT1MultipleChoicePreprocessor(tiny_tokenizer, fields=("context", "choices")),
    )
    chooser.save_to_preset(str(tmp_path / "preset"))
    rows = [
        ("a film", ["good", "dull", "bad"]),
        ('"a good film', ["one", '"two', ""]),
        ('the "staff', ['"', "kind", ""]),
    ]
    texts = {
        "context": [context for context, _ in rows],
        "choices": tf.ragged.constant([[each for each in choices if each] for _, choices in rows]),
    }
    labels = chooser.predict(texts, verbose=0).argmax(axis=-1)
    file = tmp_path / "examples.tsv"
    columns = ["Kontext", "choice1", "choice2", "choice3", "label"]
    lines = [[context, *choices, str(n)] for (context, choices), n in zip(rows, labels)]
    content = "".join("\t".join(cells) + "\n" for cells in [columns, *lines])
    file.write_text(content, encoding="utf-8-sig")
    arguments = [f"--model={tmp_path / 'preset'}", f"--output={tmp_path / 'out'}"]
    assert main([*arguments, f"--validation={file}", "--columns=context=Kontext"]) == 0
    assert metadata(tmp_path / "out" / "1")["validation"] == {
        "examples": 3,
        "metric": "accuracy",
        "before": 1.0,
        "after": 1.0,
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", "text,label\n", "has no examples"),
        ("list.jsonl", "[1]\n", r"line 1: must be an object. Received: \[1\]"),
        ("a.txt", "", "ends in .csv, .tsv, .jsonl, .parquet or .xlsx"),
        ("a.parquet", "", "a.parquet is damaged"),
        ("own.csv", "Kommentar;Urteil\na;good\n", r"'Urteil'\]; expected text, label"),
        ("columns.csv", "text,label\na,b,c\n", "line 2: has another number of columns"),
    ],
)
def test_bad_files_of_examples(model, tmp_path, capsys, name, content, message):
    model.save_to_preset(str(tmp_path / "preset"))
    (tmp_path / name).write_text(content)
    arguments = [f"--model={tmp_path / 'preset'}", f"--output={tmp_path / 'out'}"]
    assert main([*arguments, f"--validation={tmp_path / name}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert re.search(message, error)
    assert not (tmp_path / "out").exists()


def test_examples_that_do_not_fit_the_model(model, tmp_path):
    for rows, message in [
        ([{"text": "a", "label": "fine"}], r"Expected labels of \['bad', 'good'\]. .* \['fine'\]"),
        ([{"sentence": "a", "label": "bad"}], r"Some have no \['text'\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            export(model, tmp_path / "out", validation=rows)
    assert not list((tmp_path / "out").glob("*"))


def test_scores_with_decimal_commas(model, tiny_tokenizer, monkeypatch, tmp_path, capsys):
    scorer = gpt1_keras.GPT1TextSimilarity(
        model.backbone,
        score_range=(0, 5),
        preprocessor=gpt1_keras.GPT1TextSimilarityPreprocessor(tiny_tokenizer),
    )
    (tmp_path / "a.csv").write_text("text1;text2;label\na;b;4,5\na;c;3,0\n")

    def stop(task, metric, rows):
        raise ValueError(f"labels: {[row['label'] for row in rows]}")

    monkeypatch.setattr("serving.export.exporter.Validation", stop)
    with pytest.raises(ValueError, match=r"labels: \['4.5', '3'\]"):
        export(scorer, tmp_path / "out", validation=tmp_path / "a.csv")
    assert "decimal comma" in capsys.readouterr().err


def test_metrics_of_scores_and_choices(model, tiny_tokenizer, monkeypatch, tmp_path):
    scorer = gpt1_keras.GPT1TextSimilarity(
        model.backbone,
        score_range=(0, 5),
        preprocessor=gpt1_keras.GPT1TextSimilarityPreprocessor(tiny_tokenizer),
    )
    chooser = gpt1_keras.GPT1MultipleChoice(
        model.backbone,
        gpt1_keras.GPT1MultipleChoicePreprocessor(tiny_tokenizer, fields=("context", "choices")),
    )
    pairs = [{"text1": "a", "text2": "b", "label": label} for label in ("1", 2.5, 4)]
    stories = [
        {"context": "a", "choices": ["a", "b"], "label": 0},
        {"context": "a", "choices": ["a", "b", "c"], "label": 2},
    ]
    answers = {
        "score": {"score": np.array([1.0, 2.0, 4.5])},
        "choice": {"choice": np.array([0, 1])},
    }
    for task, rows, key, metric, value in [
        (
            scorer,
            pairs,
            "score",
            "Pearson correlation",
            np.corrcoef([1, 2, 4.5], [1, 2.5, 4])[0, 1],
        ),
        (chooser, stories, "choice", "accuracy", 0.5),
    ]:
        found = {name: tf.constant(array) for name, array in answers[key].items()}
        asked = []

        class Fixed:
            def __init__(self, *args):
                pass

            def predict(self, name, protos, key=key, asked=asked):
                asked.append({field: tf.make_ndarray(each) for field, each in protos.items()})
                return answers[key]

        monkeypatch.setattr("serving.export.validation.Servable", Fixed)
        result = Validation(task, metric_of(task), rows).compare(
            lambda found=found, **texts: found, tmp_path
        )
        assert (result["metric"], result["before"]) == (metric, pytest.approx(value))
        assert result["after"] == result["before"]
    assert asked[0]["choices"].tolist() == [[b"a", b"b", b""], [b"a", b"b", b"c"]]
    with pytest.raises(ValueError, match="Expected a number as the label"):
        Validation(scorer, metric_of(scorer), [{"text1": "a", "text2": "b"}])


def test_sizes_that_the_program_refuses(model, tmp_path, capsys):
    model.save_to_preset(str(tmp_path / "preset"))
    arguments = [f"--model={tmp_path / 'preset'}", f"--output={tmp_path / 'out'}"]
    assert main([*arguments, "--batching", "--max-queue=0"]) == 1
    assert "`max_queue` must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-queue=4"], "expected --batching beside"),
        (["--batch-timeout-ms=2"], "expected --batching beside"),
        (["--explain-steps=4"], "expected --explain integrated-gradients beside --explain-steps"),
        (["--explain-max-words=4"], "expected --explain leave-one-out beside --explain-max-words"),
        (["--explain=leave-one-out", "--explain-steps=4"], "expected --explain integrated-grad"),
    ],
)
def test_options_that_would_have_no_effect(tmp_path, capsys, more, message):
    with pytest.raises(SystemExit, match="2"):
        main(["--model=x", f"--output={tmp_path / 'out'}", *more])
    assert message in capsys.readouterr().err


def test_another_backend_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="exported with Keras's backend TensorFlow"):
        export(model, tmp_path)
    with pytest.raises(ValueError, match="Received: KERAS_BACKEND=jax"):
        convert(model, tmp_path / "model.tflite")
