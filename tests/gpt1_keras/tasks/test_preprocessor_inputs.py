"""What preprocessors take: one text or many, in every form that users have."""

import inspect

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras

TEXTS = ["a good film", "the staff were kind", "é"]
PAIRS = (TEXTS, ["a dull one", "a bad film", ""])
QUESTIONS = (*PAIRS, [["kind", "dull"], ["a film", "a good one"], ["a", "the staff"]])


def as_arrays(outputs):
    return tf.nest.map_structure(np.array, outputs)


def assert_equal(outputs, expected):
    tf.nest.map_structure(np.testing.assert_array_equal, as_arrays(outputs), as_arrays(expected))


@pytest.fixture
def make(tiny_tokenizer):
    """Makes the preprocessor of a task by its name."""
    return lambda name, **kwargs: getattr(gpt1_keras, f"GPT1{name}Preprocessor")(
        tiny_tokenizer, **{"sequence_length": 32, **kwargs}
    )


BATCHES = {
    "list": TEXTS,
    "bytes": [text.encode() for text in TEXTS],
    "array": np.array(TEXTS),
    "array of bytes": np.array([text.encode() for text in TEXTS]),
    "array of objects": np.array(TEXTS, object),
    "tensor": tf.constant(TEXTS),
}


@pytest.mark.parametrize("texts", BATCHES.values(), ids=BATCHES)
def test_forms_of_batches(make, texts):
    classifier, lm = make("TextClassifier"), make("CausalLM")
    assert_equal(classifier(texts), classifier(TEXTS))
    assert_equal(classifier({"text": texts}), classifier(TEXTS))
    assert_equal(lm(texts), lm(TEXTS))


def test_tuples(make):
    assert_equal(make("CausalLM").generate_preprocess(tuple(TEXTS)), make("CausalLM")(TEXTS)[0])
    pair = make("TextSimilarity")
    assert_equal(pair(tuple(map(tuple, PAIRS))), pair(PAIRS))


def test_pandas_columns(make):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text1": PAIRS[0], "text2": PAIRS[1]})
    pair = make("TextSimilarity")
    assert_equal(pair((table["text1"], table["text2"])), pair(PAIRS))
    assert_equal(make("CausalLM")(table["text1"]), make("CausalLM")(TEXTS))


@pytest.mark.parametrize("as_form", [str, str.encode, np.str_, np.array, tf.constant])
def test_one_text(make, as_form):
    """Without a batch dimension, as a row of the batch."""
    for name, batch in (("TextClassifier", (TEXTS,)), ("TextSimilarity", PAIRS)):
        one = make(name)(tuple(as_form(texts[1]) for texts in batch))
        assert_equal(one, {key: value[1] for key, value in make(name)(batch).items()})
    lm = make("CausalLM")
    expected = tf.nest.map_structure(lambda batch: batch[1], lm(TEXTS))
    assert_equal(lm(as_form(TEXTS[1])), expected)
    assert_equal(lm.generate_preprocess(as_form(TEXTS[1])), expected[0])


@pytest.mark.parametrize("as_form", [lambda texts: texts, np.array, tf.constant])
def test_one_question(make, as_form):
    preprocessor = make("MultipleChoice")
    one = preprocessor(tuple(as_form(column[1]) for column in QUESTIONS), y=1)
    x, y = preprocessor(tuple(column[1:2] for column in QUESTIONS), y=[1])
    assert_equal(one, ({key: value[0] for key, value in x.items()}, y[0]))


@pytest.mark.parametrize(
    "name, x",
    [
        ("CausalLM", TEXTS),
        ("TextClassifier", TEXTS),
        ("TextSimilarity", PAIRS),
        ("MultipleChoice", QUESTIONS),
    ],
)
def test_data_sets_before_batching(make, name, x):
    preprocessor = make(name)
    # A tuple of texts stands in a tuple, as `map` would take it for texts and labels.
    mapped = tf.data.Dataset.from_tensor_slices((x,)).map(preprocessor)
    assert_equal(mapped.batch(3).get_single_element(), preprocessor(x))
    y = np.array([0, 1, 0])
    labelled = tf.data.Dataset.from_tensor_slices((x, y))
    if name == "CausalLM":
        with pytest.raises(ValueError, match="`y`"):
            labelled.map(preprocessor)
    else:
        found = labelled.map(preprocessor).batch(3).get_single_element()
        assert_equal(found, preprocessor(x, y=y))


def test_length_of_calls_and_of_tasks(make, tiny_backbone):
    """Calls pad to the sequence's length, as KerasHub's; tasks no more than they must."""
    preprocessor = make("TextClassifier")
    classifier = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    padded = preprocessor(TEXTS)
    assert padded["token_ids"].shape == (3, 32)
    classifier.jit_compile = True  # XLA compiles for each length
    in_bucket = classifier.preprocess_samples(TEXTS)
    assert in_bucket["token_ids"].shape == (3, 16)
    classifier.jit_compile = False
    trimmed = classifier.preprocess_samples(TEXTS)
    longest = int(padded["padding_mask"].numpy().sum(axis=1).max())
    assert longest < 16
    assert_equal(trimmed, {name: tensor[:, :longest] for name, tensor in padded.items()})
    preprocessor.sequence_length = 17
    assert preprocessor(TEXTS)["token_ids"].shape == (3, 17)


@pytest.mark.parametrize(
    ("name", "texts"),
    [("TextClassifier", PAIRS), ("TextSimilarity", PAIRS), ("MultipleChoice", QUESTIONS)],
)
def test_trimming_takes_nothing_but_padding(name, texts, make):
    fields = {"fields": ("premise", "hypothesis")} if name == "TextClassifier" else {}
    preprocessor = make(name, **fields)
    names = preprocessor.fields
    padded = preprocessor(dict(zip(names, texts, strict=True)), pad_to="bucket")
    trimmed = preprocessor.trim(padded)
    assert trimmed["token_ids"].shape[-1] < padded["token_ids"].shape[-1]
    np.testing.assert_array_equal(
        preprocessor.count_tokens(trimmed), preprocessor.count_tokens(padded)
    )
    assert preprocessor.count_tokens(trimmed).numpy().max() == trimmed["token_ids"].shape[-1]
    if name == "MultipleChoice":
        assert_equal(trimmed["extract_indices"], padded["extract_indices"])


def test_trimming_no_texts(make):
    preprocessor = make("TextClassifier")
    nothing = preprocessor.pad(preprocessor.transform([tf.constant([], tf.string)])[0])
    assert preprocessor.trim(nothing)["token_ids"].shape[0] == 0


def test_generated_text_without_a_batch(make, tiny_tokenizer):
    lm = make("CausalLM")
    packed = lm.generate_preprocess("a good film")
    assert lm.generate_postprocess(packed) == "a good film"
    assert lm.generate_postprocess(lm.generate_preprocess(TEXTS[:2])) == TEXTS[:2]


@pytest.mark.parametrize(
    "prompt", [b"a good", np.array("a good"), np.str_("a good"), tf.constant("a good")]
)
def test_generate_from_one_text(make, tiny_backbone, prompt):
    lm = gpt1_keras.GPT1CausalLM(tiny_backbone, make("CausalLM"))
    lm.compile(sampler="greedy", run_eagerly=True)
    continued = lm.generate("a good", max_length=4)
    assert isinstance(continued, str)
    assert lm.generate(prompt, max_length=4) == continued


@pytest.mark.parametrize(
    "base, name",
    [
        (keras_hub.models.TextClassifierPreprocessor, "TextClassifier"),
        (keras_hub.models.CausalLMPreprocessor, "CausalLM"),
    ],
)
def test_presets_from_the_base_class(make, tiny_backbone, tmp_path, base, name):
    saved = make(name)
    tiny_backbone.save_to_preset(tmp_path)
    saved.save_to_preset(tmp_path)
    loaded = base.from_preset(str(tmp_path))
    assert type(loaded) is type(saved)
    assert loaded.sequence_length == 32
    assert_equal(loaded(TEXTS), saved(TEXTS))
    # Of the same tokenizer, but as the preset of another task.
    other = gpt1_keras.GPT1TextSimilarityPreprocessor.from_preset(str(tmp_path))
    assert type(other) is gpt1_keras.GPT1TextSimilarityPreprocessor
    assert base.from_preset(str(tmp_path), sequence_length=24).sequence_length == 24


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (keras_hub.models.TextClassifierPreprocessor, gpt1_keras.GPT1TextClassifierPreprocessor),
        (keras_hub.models.CausalLMPreprocessor, gpt1_keras.GPT1CausalLMPreprocessor),
        (keras_hub.models.TextClassifier, gpt1_keras.GPT1TextClassifier),
        (keras_hub.models.CausalLM, gpt1_keras.GPT1CausalLM),
    ],
)
def test_one_class_is_found_from_the_base_class(base, expected):
    """KerasHub takes any of those that are registered for a backbone, in no order."""
    classes = set(filter(inspect.isclass, keras.saving.get_custom_objects().values()))
    found = [
        each
        for each in classes
        if issubclass(each, base)
        and each.backbone_cls is gpt1_keras.GPT1Backbone
        and each.__module__.startswith("gpt1_keras.")
    ]
    assert found == [expected]


@keras.saving.register_keras_serializable(package="test")
class Lengths(keras.layers.Layer):
    """Ids that only depend on how long texts are."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True

    def call(self, texts):
        ids = tf.sequence_mask(tf.strings.length(texts), 16, tf.int32)
        return {"token_ids": ids, "padding_mask": tf.ones_like(ids)}


@pytest.mark.parametrize("preprocessor", [Lengths(), lambda texts: Lengths()(texts)])
def test_preprocessors_of_one_s_own(tiny_backbone, preprocessor):
    classifier = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    expected = classifier(Lengths()(tf.constant(TEXTS)))
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=1e-5)
    classifier.compile(run_eagerly=True)
    classifier.fit(TEXTS, [0, 1, 0], verbose=0)


@pytest.mark.slow
def test_a_layer_as_preprocessor_is_saved(tiny_backbone, tmp_path):
    classifier = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=Lengths())
    classifier.save_to_preset(tmp_path)
    loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path))
    assert isinstance(loaded.preprocessor, Lengths)
    np.testing.assert_allclose(
        loaded.predict(TEXTS, verbose=0), classifier.predict(TEXTS, verbose=0), atol=1e-5
    )


def test_a_task_leaves_its_preprocessor_as_it_was(tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=500)
    classifier = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    assert preprocessor.sequence_length == 500
    assert classifier.preprocessor.sequence_length == tiny_backbone.max_sequence_length
    assert classifier.preprocessor.tokenizer is tiny_tokenizer


def test_padding_is_not_decoded(tiny_tokenizer):
    ids = tiny_tokenizer(["a good film", "film"])
    padded = ids.to_tensor(tiny_tokenizer.pad_token_id, shape=[None, 9])
    for inputs in (padded, padded.numpy()):
        assert tiny_tokenizer.detokenize(inputs) == ["a good film", "film"]
