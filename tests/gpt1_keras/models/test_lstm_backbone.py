"""The LSTM as the backbone: its recurrence, every task, presets."""

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.presets import CONFIGURATIONS, build_backbone
from training.evaluation.throughput import flops_per_token


@pytest.fixture
def lstm(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.LSTMBackbone(
        tiny_tokenizer.vocabulary_size(), hidden_dim=16, units=24, max_sequence_length=64
    )
    for variable in backbone.trainable_variables:  # else the states hardly differ
        variable.assign(5 * variable)
    return backbone


def test_states_by_hand(lstm):
    """Against the recurrence as Hochreiter and Schmidhuber's with forget gates, in numpy."""
    ids = np.array([[5, 9, 3, 7]])
    kernel, recurrent, bias = lstm.lstm.get_weights()
    projection, offset = lstm.output_projection.get_weights()
    state, cell = np.zeros(24), np.zeros(24)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    expected = []
    for embedded in lstm.token_embedding.get_weights()[0][ids[0]]:
        gates = np.split(embedded @ kernel + state @ recurrent + bias, 4)
        input, forget, output = (sigmoid(gates[i]) for i in (0, 1, 3))
        cell = forget * cell + input * np.tanh(gates[2])
        state = output * np.tanh(cell)
        expected.append(state @ projection + offset)
    np.testing.assert_allclose(lstm({"token_ids": ids})[0], expected, atol=1e-5)


TEXTS = {
    "context": ["a good film and a lovely one", "a dull film", "the staff were kind"],
    "question": ["the staff were?", "a film", ""],
    "choices": [["kind", "bad and dull staff", "lovely"], ["good", "a bad film"], ["one"]],
}


@pytest.mark.slow
def test_choices_are_scored_as_if_each_were_read_alone(lstm, tiny_tokenizer):
    chooser = gpt1_keras.GPT1MultipleChoice(
        lstm, preprocessor=gpt1_keras.GPT1MultipleChoicePreprocessor(tiny_tokenizer)
    )
    chooser.head.set_weights([np.random.default_rng(0).normal(size=(16, 1)), np.zeros(1)])
    found = chooser.predict(TEXTS, verbose=0)
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    rows = zip(TEXTS["context"], TEXTS["question"], TEXTS["choices"])
    for row, (context, question, choices) in enumerate(rows):
        for number, choice in enumerate(choices):
            parts = [tiny_tokenizer(text).numpy().tolist() for text in (context, question, choice)]
            ids = [start, *parts[0], *parts[1], delimiter, *parts[2], extract]
            state = lstm({"token_ids": np.array([ids])})[:, -1]
            assert found[row, number] == pytest.approx(float(chooser.head(state)[0, 0]), abs=1e-5)
        assert (found[row, len(choices) :] < -1e8).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "inputs", "answers"),
    [
        (gpt1_keras.GPT1TextClassifier, ["a film", "a kind one"], {"num_classes": 2}),
        (gpt1_keras.GPT1TextSimilarity, (["a", "b"], ["c", "d"]), {"score_range": (0, 5)}),
        (gpt1_keras.GPT1MultipleChoice, TEXTS, {}),
        (gpt1_keras.GPT1CausalLM, None, {}),
    ],
)
def test_presets_of_every_task(task, inputs, answers, lstm, tiny_tokenizer, tmp_path):
    model = task(lstm, preprocessor=task.preprocessor_cls(tiny_tokenizer), **answers)
    model.save_to_preset(str(tmp_path))
    loaded = task.from_preset(str(tmp_path))
    assert type(loaded) is task and type(loaded.backbone) is gpt1_keras.LSTMBackbone
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if inputs is not None:
        found, expected = (each(each.preprocess_samples(inputs)) for each in (loaded, model))
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # A fresh head on the same backbone.
    other = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path), num_classes=3)
    np.testing.assert_array_equal(other.backbone.get_weights()[0], lstm.get_weights()[0])


@pytest.mark.slow
def test_fine_tuning_with_the_auxiliary_loss(lstm, tiny_tokenizer):
    keras.utils.set_random_seed(0)
    classifier = gpt1_keras.GPT1TextClassifier(
        lstm, num_classes=2, preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    )
    classifier.compile(finetuning_optimizer(1e-2))
    texts, labels = ["good film", "dull film", "kind staff", "bad staff"] * 8, [1, 0] * 16
    losses = classifier.fit(texts, labels, batch_size=8, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_there_are_no_keys_to_generate_with(lstm, tiny_tokenizer):
    lm = gpt1_keras.GPT1CausalLM(lstm, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer))
    with pytest.raises(ValueError, match="LSTMBackbone"):
        lm.generate("a film")


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if "paper" not in name])
def test_configurations(name):
    decoder = build_backbone(name, 100, dropout=0.0)
    assert decoder.dropout == 0.0
    assert type(decoder).__name__ == ("LSTMBackbone" if "lstm" in name else "GPT1Backbone")
    weights = sum(
        int(np.prod(variable.shape))
        for variable in decoder.trainable_variables
        if len(variable.shape) > 1 and "positions" not in variable.path
    )
    attention = 12 * decoder.num_layers * decoder.hidden_dim * 8 if "gpt1" in name else 0
    assert flops_per_token(decoder.get_config(), length=8) == 6 * weights + attention


def test_the_paper_s_lstm():
    """One layer of 2,048 units, and the linear layer that takes it to the token table's width."""
    backbone = build_backbone("lstm_paper", 40481)
    assert backbone.count_params() == 40481 * 768 + 4 * (768 + 2048 + 1) * 2048 + 2049 * 768
