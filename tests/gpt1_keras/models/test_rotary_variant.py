"""A variant of the block, defined outside the package: positions rotate queries and keys.

It overrides `project` and says that the embeddings have no positions (Su et al., 2021, RoFormer).
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import gpt1_keras
from gpt1_keras.models.transformer_block import TransformerBlock
from serving.export.exporter import export
from serving.export.generation import joined
from serving.tflite.converter import convert
from tests.helpers.eager import eagerly

LENGTH = 16
TEXTS = ["a good film, and a lovely one", "a bad film", "the staff were kind", "a dull one"]
LABELS = np.array([1, 0, 1, 0])


def rotate(x, positions):
    """Turns pairs of numbers of each head, float `[..., heads, head_dim]`, by their positions."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-ops.arange(half, dtype="float32") / half)
    angles = ops.cast(positions, "float32")[..., None, None] * frequencies  # [..., 1, half]
    cosines, sines = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    first, second = x[..., :half], x[..., half:]
    return ops.concatenate(
        [first * cosines - second * sines, second * cosines + first * sines], axis=-1
    )


@keras.saving.register_keras_serializable(package="rotary")
class RotaryBlock(TransformerBlock):
    def project(self, x, positions):
        qkv = super().project(x, positions)
        *leading, width = ops.shape(qkv)
        heads = ops.reshape(qkv, (*leading, 3, self.num_heads, width // (3 * self.num_heads)))
        query, key, value = (heads[..., part, :, :] for part in range(3))
        turned = [rotate(query, positions), rotate(key, positions), value]
        return ops.reshape(ops.stack(turned, axis=-3), (*leading, width))


@keras.saving.register_keras_serializable(package="rotary")
class RotaryBackbone(gpt1_keras.GPT1Backbone):
    block_cls = RotaryBlock
    embeds_positions = False


@pytest.fixture
def backbone(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    made = RotaryBackbone(
        tiny_tokenizer.vocabulary_size(), 2, 2, 16, 32, max_sequence_length=LENGTH, dropout=0.0
    )
    random = np.random.default_rng(0)
    for weight in made.weights:
        if "float" in weight.dtype:
            weight.assign(weight + random.normal(0.0, 0.3, weight.shape))
    return made


@pytest.fixture
def classifier(backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, LENGTH)
    return gpt1_keras.GPT1TextClassifier(
        backbone, preprocessor=preprocessor, class_names=["bad", "good"], dropout=0.0
    )


@pytest.fixture
def lm(backbone, tiny_tokenizer):
    made = gpt1_keras.GPT1CausalLM(
        backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, LENGTH)
    )
    made.compile(sampler="greedy", run_eagerly=True)
    return made


def test_positions_come_from_the_blocks_alone(backbone):
    assert not any("positions" in weight.path for weight in backbone.weights)
    states = backbone.predict({"token_ids": np.array([[5, 5, 6], [5, 6, 5]])}, verbose=0)
    assert np.abs(states[0, 2] - states[1, 1]).max() > 1e-3


@pytest.mark.slow
def test_it_trains_on_strings_and_is_saved(classifier, tmp_path):
    classifier.compile(keras.optimizers.Adam(0.02))
    with eagerly():
        history = classifier.fit(TEXTS, LABELS, epochs=15, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
    expected = classifier.predict(TEXTS, verbose=0)
    assert (expected.argmax(axis=1) == LABELS).all()
    classifier.save_to_preset(tmp_path)
    loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path))
    assert type(loaded.backbone) is RotaryBackbone
    np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), expected, atol=1e-5)


@pytest.mark.slow
def test_it_generates_with_a_cache(lm):
    prompts = TEXTS[1:3]
    found = lm.generate(prompts, max_length=LENGTH)
    tokenizer = lm.preprocessor.tokenizer
    for prompt, text in zip(prompts, found):
        ids = tokenizer(prompt).numpy().tolist()
        while len(ids) < LENGTH:
            ids.append(int(np.argmax(lm({"token_ids": np.array([ids])})[0, -1])))
        assert text == tokenizer.detokenize(ids)


@pytest.mark.slow
def test_an_exported_classifier(classifier, tmp_path):
    path = export(classifier, tmp_path)
    answer = tf.saved_model.load(path).signatures["serving_default"]
    found = answer(text=tf.constant(TEXTS))["scores"]
    expected = ops.softmax(classifier.predict(TEXTS, verbose=0))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_an_exported_language_model(lm, tmp_path):
    loaded = tf.saved_model.load(export(lm, tmp_path))
    found = loaded.signatures["score"](text=tf.constant(TEXTS))
    for row, text in enumerate(TEXTS):
        ids = lm.preprocessor.tokenizer(text).numpy()
        logits = tf.nn.log_softmax(lm({"token_ids": ids[None]}))[0]
        expected = np.take_along_axis(logits.numpy()[:-1], ids[1:, None], axis=1)[:, 0]
        np.testing.assert_allclose(
            found["log_probabilities"][row, 1 : len(ids)], expected, atol=1e-4
        )
    prompts = TEXTS[1:3]
    texts = loaded.signatures["generate"](
        text=tf.constant(prompts),
        length=tf.constant([5, 4]),
        temperature=tf.zeros([2]),
        top_k=tf.zeros([2], tf.int32),
        top_p=tf.ones([2]),
        seed=tf.zeros([2], tf.int32),
        stop=tf.constant([[""]]),
    )["text"]
    for prompt, length, text in zip(prompts, [5, 4], texts.numpy()):
        num_tokens = len(lm.preprocessor.tokenizer(prompt)) + length
        assert text == joined(lm.generate(prompt, max_length=num_tokens))


def test_branches_have_the_positions_of_their_own_sequences(backbone):
    prefix, first, second = [5, 6, 7], [8, 9], [10, 11, 12]
    token_ids = np.array([prefix + first + second])
    positions = np.array([[0, 1, 2, 3, 4, 3, 4, 5]])
    branches = np.array([[0, 0, 0, 1, 1, 2, 2, 2]])
    found = backbone.states_at(token_ids, np.array([[4, 7]]), positions, branches)
    for row, branch in enumerate([first, second]):
        alone = backbone({"token_ids": np.array([prefix + branch])})[0, -1]
        np.testing.assert_allclose(found[0, row], alone, atol=1e-5)


@pytest.mark.parametrize("copy", ["transformers", "device", "int8"])
def test_what_reads_nothing_but_weights_refuses_it(lm, tmp_path, copy):
    with pytest.raises(ValueError, match="RotaryBackbone, RotaryBlock"):
        if copy == "transformers":
            lm.export_to_transformers(tmp_path / "folder")
        elif copy == "device":
            convert(lm, tmp_path / "model.tflite", sequence_length=8)
        else:
            export(lm, tmp_path / "export", int8=True)


@keras.saving.register_keras_serializable(package="rotary")
class WholeBlock(TransformerBlock):
    """It has no parts that attention could stand between."""

    def call(self, x, attention=None, training=None):
        return 2.0 * super().call(x, attention, training)


@keras.saving.register_keras_serializable(package="rotary")
class WholeBackbone(gpt1_keras.GPT1Backbone):
    block_cls = WholeBlock


@pytest.mark.slow
def test_a_block_that_overrides_call_is_used_as_a_whole(tiny_tokenizer, tmp_path):
    keras.utils.set_random_seed(0)
    backbone = WholeBackbone(
        tiny_tokenizer.vocabulary_size(), 2, 2, 16, 32, max_sequence_length=LENGTH
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, LENGTH)
    classifier = gpt1_keras.GPT1TextClassifier(
        backbone, preprocessor=preprocessor, class_names=["bad", "good"]
    )
    answer = tf.saved_model.load(export(classifier, tmp_path)).signatures["serving_default"]
    found = answer(text=tf.constant(TEXTS))["scores"]
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(found, ops.softmax(expected), atol=1e-5)
    lm = gpt1_keras.GPT1CausalLM(
        backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, LENGTH)
    )
    with pytest.raises(ValueError, match="`project` or `finish`.*WholeBlock"):
        lm.generate(TEXTS[1], max_length=8)
