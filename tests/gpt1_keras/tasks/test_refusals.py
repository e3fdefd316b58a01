"""What tasks and preprocessors refuse, each in words that name what was wrong."""

import functools

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.tasks.heads import Calibration

TEXTS = ["a good film", "a bad film", "the staff were kind", "a dull one"]
LABELS = [0, 1, 0, 1]
FIELDS = ("premise", "hypothesis")
CHOICES = {"context": TEXTS[:3], "question": ["", "?", ""], "choices": [["a", "b"], ["c"], ["a"]]}
IDS = np.arange(5, 17).reshape(2, 6)
LEFT = np.array([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
HOLES = np.array([[1, 0, 1, 0, 1, 1], [1, 1, 1, 0, 1, 1]])


class Made:
    """Small tasks, which run eagerly and which no test changes; each is made when it is needed."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def backbone(self, vocabulary_size=None, **arguments):
        size = vocabulary_size or self.tokenizer.vocabulary_size()
        return gpt1_keras.GPT1Backbone(size, 1, 2, 8, 16, max_sequence_length=24, **arguments)

    def framing(self, kind="TextClassifier", length=24, **arguments):
        """A preprocessor."""
        cls = getattr(gpt1_keras, f"GPT1{kind}Preprocessor")
        return cls(self.tokenizer, length, **arguments)

    def new(self, *arguments, kind="TextClassifier", **named):
        """A task of ids."""
        return getattr(gpt1_keras, f"GPT1{kind}")(self.backbone(), *arguments, **named)

    def task(self, kind="TextClassifier", backbone=None, fields=None, **arguments):
        framing = self.framing(kind, **({"fields": fields} if fields else {}))
        cls = getattr(gpt1_keras, f"GPT1{kind}")
        task = cls(backbone or self.backbone(), preprocessor=framing, **arguments)
        task.compile(run_eagerly=True)
        return task

    @functools.cached_property
    def classifier(self):
        return self.task(class_names=["negative", "positive"])

    @functools.cached_property
    def pairs(self):
        return self.task(fields=FIELDS, num_classes=2)

    @functools.cached_property
    def sigmoid(self):
        return self.task(num_classes=1, activation="sigmoid")

    @functools.cached_property
    def scorer(self):
        return self.task("TextSimilarity", score_range=(0, 5))

    @functools.cached_property
    def chooser(self):
        return self.task("MultipleChoice")

    @functools.cached_property
    def lm(self):
        return self.task("CausalLM")

    def misfit(self, kind="TextClassifier", **arguments):
        """A task whose model embeds fewer tokens than its tokenizer has."""
        return self.task(kind, self.backbone(70), **arguments)

    def labelled(self, *labels):
        """The classifier's labels of as many texts."""
        return self.classifier.preprocess_samples(TEXTS[: len(labels)], np.array(labels))


@pytest.fixture(scope="module")
def made(tiny_tokenizer):
    return Made(tiny_tokenizer)


def ids(mask):
    return {"token_ids": IDS, "padding_mask": mask}


ARGUMENTS = [
    (lambda m: m.new(), "num_classes"),
    (lambda m: m.new(kind="TextSimilarity"), "num_classes"),
    (lambda m: m.new(num_classes=3, class_names=["a", "b"]), "num_classes=3, but 2 class_names"),
    *((lambda m, n=n: m.new(num_classes=n), "num_classes") for n in (0, -1, 2.0, True, "2")),
    (lambda m: m.new(m.framing()), "num_classes"),
    (lambda m: m.new(2, ["a", "b"]), "preprocessor"),
    (lambda m: m.new(class_names=["a", "b", "a"]), "differ.*'a', 'b', 'a'"),
    (lambda m: m.new(class_names=[1, "1"]), "differ"),
    (lambda m: m.new(class_names="ab"), "list of names"),
    (lambda m: m.new(class_names=["good"]), "two or more"),
    (lambda m: m.new(num_classes=1, activation="softmax"), "softmax"),
    (lambda m: m.new(score_range=(0, 5), activation="softmax"), "activation"),
    (lambda m: m.new(score_range=(0, 5), num_classes=2), "both"),
    (lambda m: m.new(score_range=(0, 0.5)), r"score_range.*\(0, 0.5\)"),
    (lambda m: m.new(score_range=(5, 0)), r"score_range.*\(5, 0\)"),
    (lambda m: m.new(2, temperature=0.0), "temperature"),
    (lambda m: m.new(2, temperature=float("nan")), "temperature"),
    (lambda m: m.new(2, sure_threshold=1.5), "sure_threshold"),
    (lambda m: m.new(2, temperature=2.0, activation="sigmoid"), "temperature is for logits"),
    (lambda m: m.new(1, temperature=2.0), "a single class"),
    (lambda m: m.new(score_range=(0, 5), sure_threshold=0.5), "score_range"),
    (lambda m: m.framing("CausalLM", add_start_token=True), "add_start_token"),
    (lambda m: m.framing("CausalLM", add_end_token=True), "add_end_token"),
    (lambda m: gpt1_keras.GPT1Tokenizer(dtype="string"), "dtype='string'"),
    *(
        (lambda m, kind=kind, fields=fields: m.framing(kind, fields=fields), "fields")
        for kind, wrong in (
            ("TextClassifier", [(), ("a", "b", "c"), ("a", "a"), "text"]),
            ("TextSimilarity", [("text",)]),
            ("MultipleChoice", [("a",), ("a", "a"), ("a", "b", "c", "d")]),
        )
        for fields in wrong
    ),
    (lambda m: m.framing(length=1)(TEXTS), "sequence_length"),
    (lambda m: m.framing(length=3, fields=FIELDS)((TEXTS, TEXTS)), "sequence_length"),
    (lambda m: m.framing("MultipleChoice", 4)(CHOICES), "sequence_length=4"),
    *(
        (lambda m, n=n, call=call: getattr(m.framing("CausalLM"), call)(TEXTS, sequence_length=n),
         f"Received: {n}")
        for n in (0, -1) for call in ("__call__", "generate_preprocess")
    ),
    (lambda m: m.lm.compile(lm_coefficient=0.5), "lm_coefficient=0.5"),
    (lambda m: m.lm.compile(accumulation_steps=0), "Received: 0"),
    (lambda m: m.lm.compile(accumulation_steps=-1), "Received: -1"),
    (lambda m: m.sigmoid.compile(loss="sparse_categorical_crossentropy"), "sparse loss"),
    (lambda m: m.scorer.compile(loss="sparse_categorical_crossentropy"), "ScoreHead"),
    (lambda m: m.scorer.probabilities(np.zeros((1, 6))), "probabilities.*ScoreHead"),
    (lambda m: setattr(m.scorer, "calibration", Calibration(2.0)), "ScoreHead"),
]  # fmt: skip

TEXTS_AND_IDS = [
    (lambda m: m.pairs.predict_on_batch(["a"]), "Received: 1"),
    (lambda m: m.pairs.predict_on_batch((["a"], ["b"], ["c"])), "Received: 3"),
    (lambda m: m.classifier.predict_on_batch((["a"], ["b"])), "Received: 2"),
    (lambda m: m.classifier.predict(("a", "b")), "Received: 2. A tuple .* a batch"),
    (lambda m: m.pairs.predict_on_batch({"premise": ["a"]}), r"fields.*\['premise'\]"),
    (lambda m: m.pairs.predict_on_batch({"premise": ["a"], "other": ["b"]}), "'other'"),
    (lambda m: m.classifier.predict_on_batch({"sentence": ["a"]}), r"fields.*\['sentence'\]"),
    (lambda m: m.classifier.predict_on_batch([["a", "b"]]), "ranks"),
    (lambda m: m.framing("CausalLM")([["a"], ["film"]]), "rank: 2"),
    (lambda m: m.framing("TextSimilarity")(("a film", ["a film"])), "ranks|Expected"),
    *(
        (lambda m, x=x, kind=kind: m.framing(kind)(x), "Expected a string, or a list or array")
        for x in (1, [1, 2], [None], ["a", 1], None, np.array([1.5]), pandas.Series(["a", None]))
        for kind in ("TextClassifier", "CausalLM")
    ),
    (lambda m: m.framing()({"text": 3}), "Expected a string, or a list or array"),
    (lambda m: m.framing("CausalLM")(TEXTS, y=[1]), "`y`"),
    (lambda m: m.framing("CausalLM")(TEXTS, sample_weight=[1]), "`sample_weight`"),
    (lambda m: m.chooser.predict({"context": ["a"], "choices": [["b"]]}), r"\['choices',"),
    (lambda m: m.chooser.predict((["a"], ["b"])), "Received: 2"),
    (lambda m: m.chooser.predict((["a"], ["b"], ["c"])), "'choices': 1"),
    (lambda m: m.chooser.predict(([["a"]], ["b"], [["c"]])), "'context': 2"),
    (lambda m: m.chooser.preprocess_samples({**CHOICES, "choices": [["a"], [], ["b"]]}), "choice"),
    (lambda m: m.chooser.preprocess_samples(
        {**CHOICES, "choices": np.array([["a", "b"], ["", ""], ["c", ""]])}), "choice"),
    *(
        (lambda m, kind=kind, named=named, call=call: call(m.misfit(kind, **named)),
         "77 tokens.* embeds 70")
        for kind, named, call in (
            ("TextClassifier", {"num_classes": 2}, lambda task: task.predict(TEXTS, verbose=0)),
            ("TextClassifier", {"num_classes": 2}, lambda task: task.fit(TEXTS, LABELS, verbose=0)),
            ("CausalLM", {}, lambda task: task.fit(TEXTS, verbose=0)),
            # "lovely" is token 73. XLA reads row 69 in its place, without a word.
            ("CausalLM", {}, lambda task: task.generate("lovely", max_length=4)),
        )
    ),
    *(
        (lambda m, kind=kind, call=call: getattr(m.new(2, kind=kind), call)(
            {name: np.stack([value] * 2, 1) if kind == "TextSimilarity" else value
             for name, value in ids(LEFT * [[1], [0]]).items()}), "at least one token")
        for kind in ("TextClassifier", "TextSimilarity") for call in ("__call__", "predict")
    ),
    (lambda m: m.new(2).predict({"token_ids": IDS, "attention_mask": LEFT}), "attention_mask"),
    (lambda m: m.new(2).fit({"token_ids": IDS, "attention_mask": LEFT}, [0, 1]), "attention_mask"),
    # Others were continued from the wrong places, without a word.
    *(
        (lambda m, mask=mask: m.new(kind="CausalLM").generate(ids(mask)), "padding begins")
        for mask in (LEFT, HOLES, LEFT * 0)
    ),
    (lambda m: m.new(kind="CausalLM").generate({"token_ids": IDS}), "padding_mask"),
    *((lambda m, x=x: m.lm.generate(x), "prompt") for x in ("", ["a", ""], [" \n "], [])),
    *(
        (lambda m, stop=stop: m.lm.generate("a good", stop_token_ids=stop), "stop_token_ids")
        for stop in ([[5]], ["a"], [1.5], [-1], 10**6, "stop", True)
    ),
    (lambda m: m.lm.score(IDS, scoring_mode="other"), "scoring_mode"),
    (lambda m: m.lm.score(IDS, scoring_mode="loss"), "target_ids"),
    (lambda m: m.lm.evaluate([]), "one example or more"),
    (lambda m: m.lm.fit(["a good film", None]), "^Expected a string, .*: None at index 1.$"),
    (lambda m: m.classifier.predict(iter([])), "generator"),
]  # fmt: skip


def data_of(labels):
    return tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(2)


class Quick(keras.callbacks.LearningRateScheduler):
    def __init__(self):
        super().__init__(lambda epoch: 0.1)


LABELS_AND_TRAINING = [
    *(
        (lambda m, label=label: m.labelled("negative" if isinstance(label, str) else 0, label),
         f"(?s)'negative', 'positive'.*{label}")
        for label in (2, -1, 2**32, "neutral", "Positive", "", "0")
    ),
    *(
        (lambda m, labels=labels: m.labelled(*labels), "Labels must be one of")
        for labels in ([0.7, 1.0], [1.6, 0.0])
    ),
    (lambda m: m.classifier.evaluate(TEXTS, np.eye(2)[LABELS]),
     r"\(4, 2\).*CategoricalCrossentropy"),
    (lambda m: m.sigmoid.evaluate(TEXTS, [0, 1, 2, 0]), "0 or 1"),
    (lambda m: m.sigmoid.evaluate(TEXTS, ["0", "1", "0", "1"]), "strings"),
    (lambda m: m.chooser.preprocess_samples(CHOICES, [0, 2, 0]), "indices of choices"),
    (lambda m: m.chooser.preprocess_samples(CHOICES, [0, -1, 0]), "indices of choices"),
    *(
        (lambda m, score=score: m.scorer.preprocess_samples((TEXTS, TEXTS), [1.0, 2.0, 3.0, score]),
         "from 0 to 5")
        for score in (5.1, -0.5, np.nan)
    ),
    (lambda m: m.task(num_classes=3, activation="sigmoid").evaluate(TEXTS, np.ones((4, 3))),
     r"BinaryCrossentropy\(from_logits=False\)"),
    *(
        (lambda m, activation=activation: m.task(num_classes=2, activation=activation).evaluate(
            TEXTS, LABELS), "default loss .*`loss`")
        for activation in ("sigmoid", lambda x: x / 2)
    ),
    *(
        (lambda m, weights=weights: m.classifier.fit(TEXTS, LABELS, class_weight=weights), noun)
        for weights, noun in (
            ({"fine": 1.0}, "unknown classes"), ({2: 1.0}, "unknown classes"),
            ({"positive": 1.0, 1: 2.0}, "a class twice"),
        )
    ),
    (lambda m: m.lm.fit(TEXTS, class_weight={0: 1.0}), "class_weight"),
    *(
        (lambda m, share=share: m.classifier.fit(TEXTS, LABELS, validation_split=share),
         "validation_split")
        for share in (0.99, 1.0, 1.5, -0.5)
    ),
    (lambda m: m.classifier.fit(data_of(LABELS), validation_split=0.25), "validation_split"),
    (lambda m: m.classifier.fit(data_of(LABELS).repeat()), "steps_per_epoch"),
    (lambda m: m.classifier.fit(iter([(TEXTS, LABELS)])), "steps_per_epoch"),
    *(
        (lambda m, callback=callback: m.classifier.fit(TEXTS, LABELS, callbacks=[callback()]),
         "sets .* FinetuningSchedule")
        for callback in (Quick, keras.callbacks.ReduceLROnPlateau)
    ),
    # They would weigh nothing: a language model's targets are tokens.
    *(
        (lambda m, task=task, call=call: getattr(task(m), call)(
            ids(LEFT), sample_weight=np.ones(2)), "weights without labels")
        for task in (lambda m: m.new(2), lambda m: m.new(kind="CausalLM"))
        for call in ("fit", "evaluate")
    ),
    (lambda m: m.lm.fit(TEXTS, LABELS), r"\AA language model's targets .*texts alone\.\Z"),
    (lambda m: m.classifier.train_on_batch(TEXTS, LABELS), "train_on_batch"),
    (lambda m: m.new(2, compile=False).fit(ids(LEFT), np.array([0, 1])), "compile"),
    (lambda m: m.new(2, compile=False).train_on_batch(ids(LEFT), np.array([0, 1])), "compile"),
    (lambda m: m.task(backbone=m.backbone(dtype="float16"), num_classes=2).fit(TEXTS, LABELS),
     "mixed_float16"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "noun"), [*ARGUMENTS, *TEXTS_AND_IDS, *LABELS_AND_TRAINING])
def test_values(call, noun, made):
    with pytest.raises(ValueError, match=noun):
        call(made)


@pytest.mark.parametrize(
    ("call", "noun"),
    [
        (lambda m: m.new(3, None, "softmax"), "positional"),
        (lambda m: m.new(None, None, ["a", "b"]), "positional"),
        (lambda m: m.new(None, 0.1, kind="MultipleChoice"), "positional"),
        # Keras, and so KerasHub's backbones, take any.
        (lambda m: m.new(2, class_name=["a", "b"]), "class_name"),
        (lambda m: m.backbone(max_length=64), "GPT1Backbone has no argument max_length"),
        (lambda m: gpt1_keras.LSTMBackbone(10, 16, 8, max_length=64), "LSTMBackbone .*max_length"),
        (lambda m: m.lm.generate(TEXTS, temperature=0.5), "compile.*temperature"),
        (lambda m: m.lm.generate(TEXTS, sampler="greedy"), "compile.*sampler"),
    ],
)
def test_names(call, noun, made):
    with pytest.raises(TypeError, match=noun):
        call(made)


def test_exports_of_keras(made, tmp_path):
    with pytest.raises(ValueError, match="OpenVINO.*GPT1TextClassifier"):
        made.classifier.export(tmp_path / "model.xml", format="openvino")
    with pytest.raises(ValueError, match=r"\['quantize'\].*serving.export.export\("):
        made.classifier.export(tmp_path / "model", quantize="int8")
    with pytest.raises(ValueError, match="format=tflite") as raised:
        made.classifier.export(tmp_path / "model", format="tflite")
    assert "serving.tflite.convert(model, file)" in raised.value.__notes__[0]
