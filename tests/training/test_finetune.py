"""The fine-tuning program on real data, its interruptions and its errors."""

import dataclasses
import json
import os
import pathlib
import re
import signal

import keras
import numpy as np
import pytest
import sklearn.metrics
from tensorflow.python.framework import config as tensorflow_config

import gpt1_keras
from gpt1_keras.examples import Examples
from tests.helpers.eager import eagerly
from tests.helpers.small_disk import fill, small_disk
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS
from training.evaluation.predictions import read_predictions
from training.finetune import main
from training.runs import checkpoints, finetuning
from training.runs import run_folder as run_module
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import (
    as_recorded,
    build_model,
    find_dataset_of,
    finetune,
    with_recipe,
)
from training.runs.run_folder import facts_of

SMALL = {"config": "gpt1_micro", "num_merges": 200, "learning_rate": 1e-3, "limit_examples": 256}


@pytest.fixture
def write_file(tmp_path):
    """Writes a file of labelled texts, and returns its path."""

    def write_file(count):
        words = ("good", "bad", "lovely", "dull")
        lines = [f"{words[i % 4]} film {'again ' * (i % 7)},{'ny'[i % 2]}\n" for i in range(count)]
        (tmp_path / "texts.csv").write_text("text,label\n" + "".join(lines))
        return str(tmp_path / "texts.csv")

    return write_file


def micro(path):
    """The arguments of a small fine-tuning on a file."""
    arguments = ["--train", path, "--validation", path, "--config", "gpt1_micro", "--epochs", "1"]
    return [*arguments, "--num-merges", "20"]


def weights(folder):
    return gpt1_keras.GPT1TextClassifier.from_preset(str(folder)).get_weights()


@pytest.mark.slow
def test_fine_tuning_keeps_the_best_model_and_its_score(tfds_dir, tmp_path, capsys):
    options = FinetuneOptions("cola", epochs=2, **{**SMALL, "limit_examples": 64})
    result = finetune(options, tmp_path, DataOptions(tfds_dir))
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (result["metric"], result["decoder"]) == ("matthews", "GPT1Backbone")
    assert result["score"] == max(epoch["matthews"] for epoch in result["history"])
    assert list((tmp_path / "logs").rglob("events*"))
    card = (tmp_path / "best" / "README.md").read_text(encoding="utf-8")
    assert "| source | glue/cola of TensorFlow Datasets |" in card
    assert "| epoch | matthews |" in card
    assert f"| {result['best_epoch']} (this preset) | {result['score']:.4f} |" in card
    for name, score in result["baselines"]["scores"].items():
        assert f"| {name} | {score:.4f} |" in card

    # The preset gives the score, computed here over the whole split in its own order.
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "best"))
    assert classifier.class_names == ["unacceptable", "acceptable"]
    validation = load_examples(DATASETS["cola"], "validation", DataOptions(tfds_dir))
    predicted = classifier.predict(list(validation.texts["text"]), verbose=0).argmax(-1)
    score = sklearn.metrics.matthews_corrcoef(validation.labels, predicted)
    # And so do the predictions that the run keeps, which say which example is which.
    kept = {row["number"]: row for row in read_predictions(tmp_path)}
    assert [kept[number]["label"] for number in validation.indices] == validation.labels.tolist()
    assert [kept[number]["answer"] for number in validation.indices] == predicted.tolist()
    assert score == pytest.approx(result["score"], abs=1e-6)
    # It was calibrated on that split.
    calibrated = json.loads((tmp_path / "calibration.json").read_text())
    assert classifier.calibration.temperature == calibrated["temperature"] == result["temperature"]
    assert sum(calibrated["after"]["count"]) == calibrated["examples"] == len(validation)
    assert (tmp_path / "calibration.svg").exists()
    printed = capsys.readouterr().out
    assert "xpected calibration error" in printed
    assert re.search(r"^Epoch 2 of 2, .* left$", printed, re.MULTILINE)
    assert "Epoch 2/" not in printed  # Keras's own line, which would say 2/2 of any run


def test_how_long_the_rest_takes(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(finetuning.time, "monotonic", lambda: now[0])
    progress = finetuning.EpochProgress(epochs=9, may_end_early=True)
    progress.set_params({"verbose": 2, "epochs": 9, "steps": 100})
    progress.start(epoch=0, updates=900, seconds=[])
    progress.on_epoch_begin(0)
    for batch in range(9):
        now[0] += 10.0 if batch else 99.0  # the first also traces the graph
        progress.on_train_batch_end(batch, {"loss": 1.0})
    assert capsys.readouterr().out == "Epoch 1 of at most 9\n\nAbout 150 min left\n"
    progress.start(epoch=1, updates=750, seconds=[6.0])
    assert capsys.readouterr().out == "Epoch 2 of at most 9, about 75 min left\n"


@pytest.fixture
def deterministic_ops():
    """Sums in the same order each time, so that two runs may be compared bit for bit."""
    tensorflow_config.enable_op_determinism()
    yield
    tensorflow_config.disable_op_determinism()


@pytest.mark.slow
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    write_file, tmp_path, monkeypatch, deterministic_ops
):
    path = write_file(32)
    options = FinetuneOptions(
        train=path, validation=path, epochs=2, batch_size=8, **{**SMALL, "num_merges": 20}
    )
    expected = finetune(options, tmp_path / "whole")

    def interrupt(run, entry):
        raise KeyboardInterrupt

    def seconds_so_far(step):
        """Returns those of the epoch, which the only checkpoint notes."""
        kept = checkpoints.Checkpoints(tmp_path / "cut" / "checkpoints", {})
        assert [path.name for path in kept.folder.iterdir()] == [f"step-{step:08}.npz"]
        return kept.note(step)["seconds"]

    class Interrupt(keras.callbacks.Callback):
        def __init__(self, *_):
            super().__init__()

        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == 7:  # the second epoch's third batch
                os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as context:
        context.setattr(finetuning.keras.callbacks, "TensorBoard", Interrupt)
        with pytest.raises(KeyboardInterrupt):
            finetune(options, tmp_path / "cut")
    amid_epoch = seconds_so_far(7)
    with monkeypatch.context() as context:  # and again, before the second epoch's score is kept
        context.setattr(run_module.Run, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            finetune(options, tmp_path / "cut")
    before_score = seconds_so_far(8)
    result = finetune(options, tmp_path / "cut")

    def scores(history):
        return [{**epoch, "seconds": None} for epoch in history]

    assert scores(result["history"]) == scores(expected["history"])
    # What a run took is what its epochs took, however often it was cut off.
    assert 0 < amid_epoch < before_score < result["history"][1]["seconds"]
    assert result["seconds"] == pytest.approx(
        sum(epoch["seconds"] for epoch in result["history"]), abs=0.1
    )
    assert read_predictions(tmp_path / "cut") == read_predictions(tmp_path / "whole")
    for ours, theirs in zip(
        weights(tmp_path / "cut" / "best"), weights(tmp_path / "whole" / "best"), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def preset(tmp_path, tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)
    gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor).save_to_preset(str(tmp_path / "preset"))
    return str(tmp_path / "preset")


SENTENCES = Examples({"text": np.array([b"a film"])}, np.array([0]), np.array([0]), ["no", "yes"])


@pytest.mark.slow
def test_how_long_texts_are_read(preset, tmp_path):
    """By default in windows, where more than one text in a hundred is long; or as before."""

    def sentences(*texts, names=("text",)):
        zeros, column = np.zeros(len(texts), int), np.array(texts, object)
        return Examples(dict.fromkeys(names, column), zeros, zeros, ["no", "yes"])

    def model_of(train, task="sst2", **options):
        options = FinetuneOptions(task, **{"preset": preset, **options})
        return build_model(options, DATASETS[task], train)

    def chosen(*arguments, **options):
        model = model_of(*arguments, **options)
        return model.preprocessor.tail, model.windows

    short, long = b"a film", b"a film " * 99
    assert chosen(sentences(short)) == chosen(sentences(long, *[short] * 99)) == (0.0, 1)
    assert chosen(sentences(long, *[short] * 98)) == (0.0, 8)
    pairs = sentences(long, names=("premise", "hypothesis"))
    assert chosen(pairs, "rte") == (0.0, 1)
    expected = {"cut": (0.0, 1), "head-and-tail": (0.5, 1), "windows": (0.0, 8)}
    for name, choice in expected.items():
        earlier = tmp_path / name
        model = model_of(sentences(short), long_texts=name)
        model.save_to_preset(earlier)
        assert (model.preprocessor.tail, model.windows) == choice
        assert chosen(sentences(long), preset=str(earlier)) == choice
        assert chosen(sentences(long), preset=str(earlier), long_texts="cut") == (0.0, 1)
        assert chosen(pairs, "rte", preset=str(earlier)) == (0.0, 1)
    with pytest.raises(ValueError, match="premise"):
        model_of(pairs, "rte", long_texts="windows")
    with pytest.raises(ValueError, match="long_texts"):
        FinetuneOptions("sst2", preset=preset, long_texts="half")


@pytest.mark.parametrize("transfer, kept", [("all", 2), ("none", None), ("0", 0), ("1", 1)])
def test_what_is_transferred(transfer, kept, preset, tiny_backbone):
    options = FinetuneOptions("sst2", preset=preset, transfer=transfer)
    found = build_model(options, DATASETS["sst2"], SENTENCES).backbone

    def is_kept(layer, original):
        pairs = zip(layer.get_weights(), original.get_weights(), strict=True)
        return all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    assert is_kept(found.embedding, tiny_backbone.embedding) == (kept is not None)
    for number, blocks in enumerate(zip(found.blocks, tiny_backbone.blocks, strict=True)):
        assert is_kept(*blocks) == (kept is not None and number < kept)
    assert found.get_config() == tiny_backbone.get_config()


@pytest.mark.parametrize("transfer", ["all", "none", "1"])
def test_the_dtype(transfer, preset, tiny_backbone):
    options = FinetuneOptions("sst2", preset=preset, transfer=transfer, dtype="mixed_bfloat16")
    model = build_model(options, DATASETS["sst2"], SENTENCES)
    for layer in (model.backbone, *model.backbone.blocks, model.head):
        assert layer.compute_dtype == "bfloat16"
    assert {weight.dtype for weight in model.weights if "seed" not in weight.path} == {"float32"}
    if transfer == "all":
        pairs = zip(model.backbone.get_weights(), tiny_backbone.get_weights(), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)


def test_the_dtype_of_a_fresh_backbone():
    options = FinetuneOptions("sst2", config="gpt1_micro", num_merges=10, dtype="mixed_float16")
    assert build_model(options, DATASETS["sst2"], SENTENCES).backbone.compute_dtype == "float16"


@pytest.mark.slow
def test_in_float16_an_epoch_has_all_batches(preset, write_file, tmp_path, monkeypatch):
    """Whatever the optimizer skips: gradients overflow until Keras has found a scale for them."""
    trained, updates = [], []

    class Count(keras.callbacks.Callback):
        def __init__(self, *_):
            super().__init__()

        def on_train_begin(self, logs=None):
            if not trained:
                self.model.optimizer.build(self.model.trainable_variables)
                self.model.optimizer.dynamic_scale.assign(2.0**24)

        def on_train_batch_end(self, batch, logs=None):
            trained.append(batch)
            updates.append(int(self.model.optimizer.iterations))

    monkeypatch.setattr(finetuning.keras.callbacks, "TensorBoard", Count)
    monkeypatch.setattr(checkpoints, "_SECONDS_PER_CHECKPOINT", 0.0)
    path = write_file(32)
    options = FinetuneOptions(
        train=path, validation=path, preset=preset, epochs=3, batch_size=4, dtype="mixed_float16"
    )
    finetune(options, tmp_path / "run")
    assert trained == [*range(8)] * 3
    assert 0 < updates[-1] < 24
    tuned = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "run" / "best"))
    assert tuned.backbone.compute_dtype == "float32"  # as all presets are loaded
    assert all(np.isfinite(weight).all() for weight in tuned.get_weights())


def test_more_blocks_than_there_are(preset):
    options = FinetuneOptions("sst2", preset=preset, transfer="3")
    with pytest.raises(ValueError, match="transfer=3"):
        build_model(options, DATASETS["sst2"], SENTENCES)


@pytest.mark.slow
def test_the_normalization(preset):
    fresh = FinetuneOptions("sst2", config="gpt1_micro", num_merges=10, normalization="original")
    tokenizer = build_model(fresh, DATASETS["sst2"], SENTENCES).preprocessor.tokenizer
    assert tokenizer.normalization == "original"
    other = FinetuneOptions("sst2", preset=preset, normalization="original")
    with pytest.raises(ValueError, match="'bert'.*'original'"):
        build_model(other, DATASETS["sst2"], SENTENCES)


@pytest.mark.slow
def test_lora_is_merged_into_what_is_saved(preset, write_file, tmp_path):
    """The preset loads as any other; of its backbone only the adapted kernels have changed."""
    path = write_file(16)
    options = FinetuneOptions(
        train=path, validation=path, preset=preset, lora=2, epochs=2, batch_size=8,
        learning_rate=1e-2, dropout=0.0,
    )  # fmt: skip
    with eagerly():
        result = finetune(options, tmp_path / "run")
    tuned = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "run" / "best"))
    before = gpt1_keras.GPT1Backbone.from_preset(preset)
    changed = {
        variable.path
        for variable, old in zip(tuned.backbone.weights, before.weights, strict=True)
        if not np.array_equal(variable, old)
    }
    adapted = [f"block_{block}/attention/qkv" for block in (0, 1)]
    assert changed == {f"{layer}/{name}" for layer in adapted for name in ("kernel", "bias")}
    validation = load_examples(find_dataset_of(options), "validation")
    texts = [text.decode() for text in validation.texts["text"]]
    found = np.mean(tuned.predict(texts, verbose=0).argmax(-1) == validation.labels)
    assert found == pytest.approx(result["score"], abs=1e-6)


def test_lora_of_a_model_that_has_no_layers_for_it(preset, tmp_path):
    keras.utils.set_random_seed(0)
    tokenizer = gpt1_keras.GPT1Tokenizer.from_preset(preset)
    backbone = gpt1_keras.LSTMBackbone(tokenizer.vocabulary_size(), 8, 8)
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer)
    gpt1_keras.GPT1CausalLM(backbone, preprocessor).save_to_preset(str(tmp_path / "lstm"))
    options = FinetuneOptions("sst2", preset=str(tmp_path / "lstm"), lora=2)
    with pytest.raises(ValueError, match="LSTMBackbone"):
        build_model(options, DATASETS["sst2"], SENTENCES)


def test_balanced_class_weights(write_file, tmp_path, monkeypatch):
    labels = np.array([0, 1, 1, 1])
    examples = Examples({"text": np.array([b"a"] * 4)}, labels, labels, ["no", "yes"])
    weights = examples.balanced_class_weights()
    assert weights == pytest.approx({"no": 2.0, "yes": 2 / 3})
    given = []

    def fit(model, *arguments, class_weight=None, **more):
        given.append(class_weight)
        raise KeyboardInterrupt

    monkeypatch.setattr(gpt1_keras.GPT1TextClassifier, "fit", fit)
    path = write_file(5)  # three n, two y
    options = FinetuneOptions(
        train=path, validation=path, class_weight="balanced", **{**SMALL, "num_merges": 20}
    )
    with eagerly(), pytest.raises(KeyboardInterrupt):
        finetune(options, tmp_path / "run")
    assert given == [pytest.approx({"n": 5 / 6, "y": 5 / 4})]

    scores = Examples({"text": np.array([b"a"])}, np.array([0.5]), np.array([0]))
    with pytest.raises(ValueError, match="class_weight"):
        scores.balanced_class_weights()


@pytest.mark.parametrize(
    ("scores", "patience", "stops"),
    [
        ([], 1, False),
        ([0.5], 1, False),
        ([0.5, 0.6], 1, False),
        ([0.5, 0.5], 1, True),
        ([0.6, 0.5], 2, False),
        ([0.6, 0.5, 0.6], 2, True),
        ([0.6, 0.5, 0.7], 2, False),
        ([0.6, 0.5, 0.4], None, False),
    ],
)
def test_early_stopping(scores, patience, stops):
    history = [{"f1": score} for score in scores]
    assert finetuning._has_stopped_improving(history, "f1", patience) == stops


def run_main(capsys, *arguments):
    status = main(list(arguments))
    return status, capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "sst3"], "error: Unknown task 'sst3'; expected one of"),
        (["--task", "sst2", "--config", "gpt1_micro", "--epochs", "0"],
         "error: epochs must be at least 1. Received: 0."),
        (["--task", "sst2"], "error: Give either --preset, to fine-tune, or --config"),
        (["--config", "gpt1_micro"], "error: Give either --task or --train"),
        (["--task", "rte", "--columns", "text=a"], "error: validation, columns"),
        (["--task", "rte", "--validation-share", "0.1"], "error: validation_share needs --train"),
        (["--train", "a.csv", "--validation", "b.csv", "--config", "gpt1_micro"],
         "error: The file a.csv does not exist."),
        (["--task", "sst2", "--config", "gpt1_micro", "--transfer", "some"],
         "error: transfer must be all, none or a number. Received: some."),
        (["--task", "sst2", "--config", "gpt1_micro", "--layer-decay", "1.5"],
         "error: layer_decay must be above 0 and at most 1. Received: 1.5."),
        (["--task", "sst2", "--config", "gpt1_micro", "--lora", "2"],
         "error: lora adapts pre-trained weights: it needs --preset, and all of its blocks."),
        (["--task", "sst2", "--config", "gpt1_micro", "--class-weight", "even"],
         "error: class_weight must be balanced. Received: even."),
        (["--task", "stsb", "--config", "gpt1_micro", "--class-weight", "balanced"],
         "error: class_weight is for labels that are classes, not scores or choices."),
        (["--task", "sst2", "--config", "gpt1_micro", "--patience", "0"],
         "error: patience must be at least 1. Received: 0."),
        (["--task", "sst2", "--config", "gpt1_micro", "--dtype", "half"],
         "error: dtype must be one of ['float32', 'mixed_bfloat16', 'mixed_float16']. Received: "),
        (["--task", "sst2", "--config", "huge"], "error: Unknown configuration 'huge'"),
        (["--task", "sst2", "--config", "gpt1_micro", "--normalization", "newest"],
         "error: normalization='newest' is unknown; expected one of ['bert', 'original']."),
        (["--task", "sst2", "--preset", "nowhere"], "error: nowhere is not a preset"),
        (["--task", "rte", "--config", "gpt1_micro", "--tokenizer", "nowhere"],
         "error: The vocabulary file 'nowhere/vocabulary.json' does not exist."),
    ],
)  # fmt: skip
def test_bad_arguments_are_one_clear_line(arguments, message, tfds_dir, tmp_path, capsys):
    status, error = run_main(
        capsys, *arguments, "--data-dir", tfds_dir, "--output", str(tmp_path / "run")
    )
    assert status == 1
    assert error.startswith(message)
    assert "\n" not in error


@pytest.mark.slow
def test_a_run_goes_on_when_there_is_room_again(write_file, tmp_path, monkeypatch, capsys):
    save_preset, fills = run_module.Run.save_preset, []

    def fill_and_save(run, *arguments):
        """Others fill the disk after the checkpoint and before the preset."""
        fills.append(fill(run.folder))
        save_preset(run, *arguments)

    with small_disk(tmp_path / "small", "64m") as folder, eagerly():
        arguments = [*micro(write_file(8)), "--output", str(folder / "run")]
        monkeypatch.setattr(run_module.Run, "save_preset", fill_and_save)
        status, error = run_main(capsys, *arguments)
        assert (status, len(fills)) == (1, 1)
        full = f"error: [Errno 28] No space left on device: '{folder}/run/best'"
        assert error.splitlines()[-1] == full
        fills[0].unlink()
        monkeypatch.setattr(run_module.Run, "save_preset", save_preset)
        assert run_main(capsys, *arguments)[0] == 0
        assert weights(folder / "run" / "best")


def test_options_that_are_not_given(preset, tmp_path):
    """They are those of the run so far, whatever the defaults were then, or else the recipe's."""
    options = FinetuneOptions("rte", preset=preset)
    chosen = with_recipe(options, train_examples=240)
    assert (chosen.learning_rate, chosen.epochs) == (6.25e-5, 25)
    small = with_recipe(FinetuneOptions("rte", config="gpt1_micro", epochs=2), train_examples=240)
    assert (small.learning_rate, small.epochs) == (2e-4, 2)
    ships = FinetuneOptions("rte", preset="gpt1_tiny_books", batch_size=16)
    chosen = with_recipe(ships, train_examples=10_000)
    assert (chosen.learning_rate, chosen.epochs) == (2e-4, 3)

    assert (chosen.head_first, with_recipe(ships, train_examples=1000).head_first) == (False, True)
    afresh = dataclasses.replace(ships, transfer="none")
    assert not with_recipe(afresh, train_examples=1000).head_first

    assert as_recorded(ships, tmp_path) == ships
    earlier = dataclasses.replace(ships, learning_rate=6.25e-5, epochs=3, head_first=False)
    run_module.Run(tmp_path, facts_of(earlier)).start()
    assert as_recorded(ships, tmp_path) == earlier
    recorded = facts_of(earlier)
    del recorded["head_first"]  # as of an earlier version
    run_module.Run(tmp_path, recorded).start()
    assert as_recorded(ships, tmp_path) == earlier
    run_module.Run(tmp_path, facts_of(earlier))  # so it goes on with that run
    given = dataclasses.replace(ships, epochs=4)
    assert as_recorded(given, tmp_path) == dataclasses.replace(earlier, epochs=4)


def test_a_recipe_that_is_damaged(preset, tmp_path):
    path = pathlib.Path(preset, "config.json")
    config = json.loads(path.read_text())
    config["config"]["fine_tuning"] = {"learning_rate": "high"}
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="config.json.*learning_rate"):
        with_recipe(FinetuneOptions("rte", preset=preset), train_examples=240)


def test_a_run_with_other_options_is_refused(tmp_path, capsys):
    options = FinetuneOptions("rte", config="gpt1_micro", num_merges=200)
    run_module.Run(tmp_path, facts_of(options)).start()
    status, error = run_main(
        capsys, "--task", "rte", "--config", "gpt1_micro", "--output", str(tmp_path)
    )
    assert status == 1
    assert "holds a run with other options: num_merges was 200, not 8000" in error


def test_other_weights_of_the_same_name_are_refused(preset, tmp_path, capsys):
    arguments = ["--task", "rte", "--preset", preset, "--output", str(tmp_path / "run")]
    run_module.Run(tmp_path / "run", facts_of(FinetuneOptions("rte", preset=preset))).start()
    lm = gpt1_keras.GPT1CausalLM.from_preset(preset)
    lm.set_weights([2 * weights for weights in lm.get_weights()])
    lm.save_to_preset(preset)
    status, error = run_main(capsys, *arguments)
    assert status == 1
    assert re.search("other options: preset_fingerprint was [0-9a-f]{16}, not [0-9a-f]{16}", error)
    afresh = [
        facts_of(FinetuneOptions("rte", preset=preset, transfer="none")),
        facts_of(FinetuneOptions("rte", config="gpt1_micro")),
    ]
    assert [facts["preset_fingerprint"] for facts in afresh] == [None, None]


def test_a_run_on_other_data_is_refused(tmp_path, monkeypatch):
    """After an interruption, and when it is finished."""
    lines = [f"{'good' if i % 2 else 'bad'} film {i},{'ny'[i % 2]}" for i in range(20)]
    path, run = tmp_path / "a.csv", tmp_path / "run"
    options = FinetuneOptions(train=str(path), **SMALL | {"num_merges": 20})

    def finetune_on(lines):
        path.write_text("\n".join(["text,label", *lines]))
        return finetune(options, run)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(gpt1_keras.GPT1TextClassifier, "fit", interrupted)
    with eagerly(), pytest.raises(KeyboardInterrupt):
        finetune_on(lines)
    recorded = json.loads((run / "options.json").read_text())
    assert recorded["data_fingerprint"]["validation"]["examples"] == 4
    for result in (None, {**recorded, "score": 1.0}):
        if result:
            (run / "result.json").write_text(json.dumps(result))
        for changed, message in (
            (lines * 2, "had 16 training examples, and there are 32; .* had 4 validation ex"),
            (lines[:10], "had 16 training examples, and there are 8"),
            ([line.translate({110: "y", 121: "n"}) for line in lines], "the labels of its 16 t"),
            ([line.replace(",n", ",nein") for line in lines], "the labels of its 16 training ex"),
            ([line.replace("film 3", "Film 3") for line in lines], "the texts of its 16 training"),
            (lines[::-1], "the texts and the labels of its 16 training examples have changed"),
        ):
            with pytest.raises(ValueError, match=f"other data: .*{message}"):
                finetune_on(changed)
    assert finetune_on(lines) == result
    del recorded["data_fingerprint"]  # as earlier versions wrote it
    (run / "options.json").write_text(json.dumps(recorded))
    assert finetune_on(lines * 2) == result


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", v) for v in (float("nan"), float("inf"), 0.0, -1.0)]
    + [("lm_coefficient", float("nan")), ("dropout", 1.0), ("dropout", float("nan"))],
)
def test_numbers_out_of_their_range(name, value):
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        FinetuneOptions("sst2", config="gpt1_micro", **{name: value})


@pytest.mark.slow
@pytest.mark.parametrize("given", [None, False, True])
def test_the_head_is_fitted_first(preset, write_file, tmp_path, monkeypatch, given):
    """By the preset's recipe or as asked, once: a run that goes on has it already."""
    fitted = []
    monkeypatch.setattr(
        gpt1_keras.GPT1TextClassifier, "fit_head", lambda *_, **__: fitted.append(1)
    )
    path = write_file(8)
    options = FinetuneOptions(
        train=path, validation=path, preset=preset, epochs=1, head_first=given
    )
    with eagerly():
        result = finetune(options, tmp_path / "run")
        finetune(options, tmp_path / "run")
    assert len(fitted) == (given is True)  # the preset's recipe is the paper's
    assert result["head_first"] == (given is True)


@pytest.mark.slow
def test_a_head_that_cannot_be_first(preset, tfds_dir, tmp_path):
    options = FinetuneOptions("dprd", preset=preset, epochs=1, limit_examples=4, head_first=True)
    with pytest.raises(ValueError, match="fit_head.*ChoiceHead"), eagerly():
        finetune(options, tmp_path / "run", DataOptions(tfds_dir))
