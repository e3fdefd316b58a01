"""A language model's signatures: scores, continuations, their options, stop texts and spaces."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers import PreTrainedTokenizerBase
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

import gpt1_keras
from serving.export.decoder.packed_decoder import CachedDecoder
from serving.export.generation import (
    before_stops,
    continuations,
    joined,
    joined_continuations,
    sample_tokens,
)
from serving.export.generation_options import GenerationOptions
from serving.server.models.servable import Servable, ServingError

CONTEXT = 48
PROMPTS = ["a good film", "the staff", "one and a lovely dull film"]
GREEDY = {"length": [12], "temperature": [0.0], "top_k": [0]}


@pytest.fixture
def go_on(ask):
    """A function that continues prompts in the C++ runtime."""
    return lambda *prompts, **options: ask("lm", "generate", text=prompts, **options)


def as_written(text):
    return joined(tf.constant(text)).numpy().decode()


@pytest.mark.slow
def test_as_keras(lm, path_of, ask, run_cpp):
    texts = [*PROMPTS, "", "good " * 60]
    found = ask("lm", "score", text=texts)
    default = ask("lm", "serving_default", text=texts)
    for name, values in found.items():
        np.testing.assert_allclose(default[name], values, atol=1e-5)
    for row, text in enumerate(texts):
        tokens = lm.preprocessor.tokenizer(text).numpy()[:CONTEXT]
        logs = []
        if len(tokens):
            logits = np.array(lm({"token_ids": tokens[None]}))[0].astype("float64")
            table = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            logs = [table[i, token] for i, token in enumerate(tokens[1:])]
        assert found["num_tokens"][row] == len(tokens)
        assert found["token_ids"][row][: len(tokens)] == tokens.tolist()
        np.testing.assert_allclose(
            found["log_probabilities"][row][: len(tokens)], ([0] + logs)[: len(tokens)], atol=1e-4
        )
        assert found["score"][row] == pytest.approx(np.mean(logs) if logs else -np.inf, abs=1e-4)
    assert found["truncated"] == [False, False, False, False, True]
    assert found["blank"] == [False, False, False, True, False]

    lm.compile(sampler="greedy")
    options = {**GREEDY, "length": [6], "seed": [0], "top_p": [1.0], "stop": [[""]]}
    columns = {name: value * len(PROMPTS) for name, value in options.items()}
    found = run_cpp(path_of("lm"), "generate", text=PROMPTS, **columns)  # no Python TensorFlow
    for row, prompt in enumerate(PROMPTS):
        count = len(lm.preprocessor.tokenizer(prompt)) + 6
        assert found["text"][row] == as_written(lm.generate(prompt, max_length=count))
        assert found["num_tokens"][row] == count
    [text] = ask("lm", "generate", text=["a"], **{**options, "length": [1]})["text"]
    assert text == as_written(lm.generate("a", max_length=2))


# --- which tokens are chosen ---


def test_samples_do_not_depend_on_the_other_texts(go_on):
    sampled = {"length": [6], "temperature": [1.0], "top_k": [0]}
    whole = go_on(*PROMPTS, **sampled, seed=[7])
    assert whole != go_on(*PROMPTS, **sampled, seed=[8])
    for row, prompt in enumerate(PROMPTS):
        alone = go_on(prompt, **sampled, seed=[7])
        assert alone["text"] == whole["text"][row : row + 1]
        assert whole["text"][row].endswith(whole["continuation"][row])
    likeliest = go_on(*PROMPTS, **{**sampled, "top_k": [1]}, seed=[3])
    assert likeliest == go_on(*PROMPTS, **{**GREEDY, "length": [6]})


def test_samples_follow_the_probabilities(lm, go_on):
    """Of 3,000 samples of one token, as often as the softmax over the three likeliest says."""
    tokens = lm.preprocessor.tokenizer("a good film").numpy()
    logits = np.array(lm({"token_ids": tokens[None]}))[0, -1].astype("float64") / 2.0
    logits[list(lm.preprocessor.tokenizer.special_token_ids)] = -np.inf
    likeliest = np.argsort(-logits)[:3]
    expected = np.exp(logits[likeliest]) / np.exp(logits[likeliest]).sum()
    count = 3000
    found = go_on(
        *["a good film"] * count, length=[1], temperature=[2.0], top_k=[3], seed=list(range(count))
    )["continuation"]
    words = [lm.preprocessor.tokenizer.detokenize([int(token)]) for token in likeliest]
    shares = [found.count(word) / count for word in words]
    assert sum(shares) == 1.0
    np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / count))


VOCABULARY = 11


def test_all_tokens_are_sampled_by_their_probabilities():
    """Whatever else is chosen beside it: from the likeliest, or the likeliest alone."""
    logits = np.random.default_rng(0).normal(0.0, 2.0, VOCABULARY).astype(np.float32)
    logits[[2, 7]] = -np.inf
    count = 2000
    uniform = tf.random.stateless_uniform([count], [1, 2])
    uniform = tf.concat([uniform, [0.0, 1.0 - 2.0**-23]], axis=0)
    rows = tf.constant(np.tile(logits, (count + 2, 1)))
    temperature = tf.fill([count + 2], 2.0)
    from_all = tf.zeros([count + 2], tf.int32)
    all_of_it = tf.ones([count + 2])
    found = sample_tokens(rows, uniform, temperature, from_all, all_of_it).numpy()
    expected = np.exp(logits / 2.0) / np.exp(logits / 2.0).sum()
    shares = np.bincount(found, minlength=VOCABULARY) / len(found)
    assert shares[2] == shares[7] == 0.0
    np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / count))
    mixed = sample_tokens(
        rows,
        uniform,
        tf.where(tf.range(count + 2) % 3 == 0, 0.0, 2.0),
        tf.where(tf.range(count + 2) % 3 == 1, 4, 0),
        all_of_it,
    ).numpy()
    assert (mixed[::3] == logits.argmax()).all()
    assert set(mixed[1::3]) == set(np.argsort(-logits)[:4])
    assert (mixed[2::3] == found[2::3]).all()


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-30])
def test_temperatures_next_to_zero(temperature):
    logits = tf.constant([[0.0, 3.0, 2.9]])
    for top_k in 0, 2, 3:
        found = sample_tokens(
            *(logits, tf.constant([0.9]), tf.constant([temperature]), tf.constant([top_k])),
            tf.constant([1.0]),
        )
        assert found.numpy().tolist() == [1]


@pytest.mark.parametrize("top_k", [0, 3, 9])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.6, 0.9, 0.999, 1.0])
def test_a_nucleus_is_the_one_that_hugging_face_keeps(top_k, top_p):
    logits = np.random.default_rng(1).normal(0.0, 2.0, [1, VOCABULARY]).astype(np.float32)
    kept = torch.tensor(logits) / 0.7
    if top_k:
        kept = TopKLogitsWarper(top_k)(None, kept)
    kept = TopPLogitsWarper(top_p)(None, kept) if top_p < 1.0 else kept
    shares = torch.softmax(kept, dim=-1)[0].numpy()
    count = 3000
    found = sample_tokens(
        tf.constant(np.tile(logits, (count, 1))),
        (tf.range(count, dtype=tf.float32) + 0.5) / count,
        tf.fill([count], 0.7),
        tf.fill([count], top_k),
        tf.fill([count], top_p),
    ).numpy()
    found = np.bincount(found, minlength=VOCABULARY) / count
    assert (found[shares == 0.0] == 0.0).all()
    np.testing.assert_allclose(found, shares, atol=2 / count)


class NotingDecoder(CachedDecoder):
    """Notes the texts and columns of each step."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.steps = []

    def step(self, token_ids, positions, cache, starts, window, index):
        columns = cache[0][0].shape[2] + index + 1
        assert int(tf.reduce_max(positions)) < columns <= 40
        self.steps.append((len(token_ids), int(columns)))
        return super().step(token_ids, positions, cache, starts, window, index)


def test_a_text_that_has_its_tokens_is_no_longer_computed():
    backbone = gpt1_keras.GPT1Backbone(VOCABULARY, 1, 1, 4, 4, max_sequence_length=40)
    decoder = NotingDecoder(backbone, [16, 40])
    prompts = tf.random.stateless_uniform([4, 40], [1, 2], 0, VOCABULARY, tf.int32)
    kept, length = [38, 3, 10, 1], [2, 20, 1, 5]
    logits = lambda states: backbone.token_embedding(states, reverse=True)  # noqa: E731
    found = continuations(
        *(decoder, logits, prompts, tf.constant(kept), tf.constant(length)),
        *(tf.ones([4]), tf.zeros([4], tf.int32), tf.ones([4]), tf.range(4)),
    )
    # The first token of each takes no step. The longest prompt's columns leave with it.
    texts = [3] + [2] * 3 + [1] * 15
    columns = [39] + [3 + step for step in range(2, 20)]
    assert decoder.steps == list(zip(texts, columns))
    assert found.shape == (4, 40)
    for row, count in zip(found.numpy(), length):
        assert not row[count:].any()


# --- options ---


@pytest.mark.slow
def test_options_that_are_left_out_have_the_programs_defaults(go_on, path_of):
    """They are in the graph, too, so a C++ session that is fed the text alone finds them."""
    servable = Servable("lm", 1, path_of("lm"))
    signature = servable.signature_defs["generate"]
    defaults = vars(GenerationOptions())
    expected = {name: [value] for name, value in defaults.items()} | {"stop": [[b""]]}
    saved = {name: tf.make_ndarray(each).tolist() for name, each in signature.defaults.items()}
    assert saved == {name: tf.constant(value).numpy().tolist() for name, value in expected.items()}
    whole = go_on(*PROMPTS, **expected)
    assert go_on(*PROMPTS) == whole
    assert go_on(*PROMPTS, seed=[0], top_k=[40]) == whole
    assert go_on(*PROMPTS, seed=[1, 2, 3]) != whole
    assert go_on() == dict.fromkeys(whole, [])
    inputs = {"text": tf.make_tensor_proto(PROMPTS)}
    found = servable.run(signature, inputs, ["text"], "Predict")["text"]
    assert [text.decode() for text in found] == whole["text"]


def test_an_option_is_for_each_text_or_for_all(go_on):
    of_each = go_on(*PROMPTS, **{name: value * 3 for name, value in GREEDY.items()})
    assert go_on(*PROMPTS, **GREEDY) == of_each
    alone = go_on(PROMPTS[1], **GREEDY)
    assert [row[0] for row in alone.values()] == [row[1] for row in of_each.values()]


def test_a_small_nucleus_has_the_likeliest_token_alone(go_on):
    sampled = {"length": [12], "temperature": [1.5], "top_k": [0], "seed": [5]}
    assert go_on(*PROMPTS, **sampled, top_p=[1e-6]) == go_on(*PROMPTS, **GREEDY)
    assert go_on(*PROMPTS, **sampled, top_p=[0.9]) != go_on(*PROMPTS, **GREEDY)


def test_a_long_prompt_loses_its_first_tokens(go_on):
    options = {**GREEDY, "length": [8]}
    found = go_on("good " * 60 + "film", **options)
    assert found["truncated"] == [True] and found["num_tokens"] == [CONTEXT]
    expected = go_on("good " * (CONTEXT - 9) + "film", **options)
    assert found["continuation"] == expected["continuation"]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("length", [0]),
        ("length", [CONTEXT]),
        ("temperature", [-1.0]),
        ("temperature", [float("nan")]),
        ("temperature", [float("inf")]),
        ("top_k", [-1]),
        ("top_p", [0.0]),
        ("top_p", [1.1]),
        ("top_p", [float("nan")]),
        ("seed", [1, 2]),
        ("stop", [["a", "\n"]]),
        ("stop", [["a"], ["b"]]),
        ("text", ["a film", " ", "a"]),
    ],
)
def test_bad_options(ask, option, values):
    with pytest.raises(ServingError, match=option) as caught:
        ask("lm", "generate", **{"text": PROMPTS, option: values})
    assert caught.value.code.name == "INVALID_ARGUMENT"


# --- stop texts, and spaces ---


def test_a_continuation_ends_before_the_first_stop_text(go_on):
    whole = go_on(*PROMPTS[:2], **GREEDY)
    words = [continuation.split() for continuation in whole["continuation"]]
    stops = [[f"{words[0][2]} {words[0][3]}".upper(), words[0][5]], ["", "no such words"]]
    found = go_on(*PROMPTS[:2], **GREEDY, stop=stops)
    first = min(whole["continuation"][0].index(stop.lower()) for stop in stops[0])
    assert found["continuation"] == [
        whole["continuation"][0][:first].strip(),
        whole["continuation"][1],
    ]
    for row in range(2):
        assert found["text"][row].endswith(found["continuation"][row])
        assert whole["text"][row].startswith(found["text"][row])
    assert found["num_tokens"] == whole["num_tokens"]  # those that were computed


def test_any_stop_texts_in_any_order(go_on):
    """As Python's `find` says, whatever the lists; a contraction is found as it is written."""
    rows, random = 64, np.random.default_rng(0)
    sampled = {"length": [30], "temperature": [3.0], "top_k": [0], "seed": list(range(rows))}
    prompts = ["a good film"] * rows
    whole = go_on(*prompts, **sampled)["continuation"]
    stops = []
    for continuation in whole:
        words = continuation.replace("<unk>", " ").split()  # which nobody can type
        starts = random.integers(len(words), size=3)
        found = [" ".join(words[start : start + random.integers(1, 4)]) for start in starts]
        stops.append([*found, *random.choice(["", "a", "it's", "'s", "no such words"], 2)])
    expected = [
        text[: min([text.find(stop) for stop in row if stop in text and stop] or [None])].strip()
        for text, row in zip(whole, stops)
    ]
    assert go_on(*prompts, **sampled, stop=stops)["continuation"] == expected
    assert len({len(text) for text in expected}) > 8  # at different places


def test_a_stop_text_in_the_prompt_does_not_count(go_on):
    whole = go_on("a good film", **GREEDY)
    text = whole["text"][0]
    assert go_on("a good film", **GREEDY, stop=[["good film"]])["text"] == [
        text if "good film" not in whole["continuation"][0] else text[: text.rindex("good film")]
    ]


def test_the_first_of_several_stop_texts_counts():
    texts = tf.constant(["he said. and then.", "abc", "", "and the road", "and the road"])
    stops = [["then", "."], ["", ""], ["a", "b"], ["road", "the road"], ["the road", "road"]]
    found = before_stops(texts, tf.constant(stops))
    assert found.numpy().tolist() == [b"he said", b"abc", b"", b"and ", b"and "]
    assert (
        before_stops(texts, tf.zeros([5, 0], tf.string)).numpy().tolist() == texts.numpy().tolist()
    )
    assert np.size(before_stops(texts[:0], tf.zeros([0, 2], tf.string))) == 0


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("it did n't , and i 'm sure he 's . . . ok ? !", "it didn't, and i'm sure he's... ok?!"),
        ("they ' ve said it isn ' t so", "they've said it isn't so"),
        ("costs .5 , ( 5 % ) [ a ] ; b", "costs .5, (5%) [a]; b"),
        ('a \n b . \n " c " - d', 'a\nb.\n" c " - d'),
        ("the boys ' toys ' s\u00e9 n'tx", "the boys ' toys ' s\u00e9 n'tx"),
        ("", ""),
    ],
)
def test_texts_are_joined_as_people_write(text, written):
    assert as_written(text) == written


@pytest.mark.parametrize("text", ["it 's , they 've . you 're ! i 'm not ? do n't", "didn ' t . "])
def test_hugging_face_joins_the_same_words(text):
    assert as_written(text) == PreTrainedTokenizerBase.clean_up_tokenization(None, text)


@pytest.mark.parametrize(
    ("prompt", "continuation", "found"),
    [("it", "' s a film .", "'s a film."), ("did", "n't", "n't"), ("so", ", ( a", ", (a")],
)
def test_a_continuation_is_joined_as_in_the_whole_text(prompt, continuation, found):
    assert joined_continuations(tf.constant(continuation)) == found
    assert as_written(f"{prompt} {continuation}") == prompt + found
