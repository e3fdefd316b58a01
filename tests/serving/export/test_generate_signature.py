"""The signature `generate`: what a request may leave out, stop texts, and spaces in its texts."""

import numpy as np
import pytest
import tensorflow as tf
from transformers import PreTrainedTokenizerBase

from serving.export.generation import before_stops, joined, joined_continuations
from serving.export.generation_options import GenerationOptions
from serving.server.models.servable import Servable, ServingError

PROMPTS = ["a good film", "the staff"]
GREEDY = {"length": [12], "temperature": [0.0]}


@pytest.fixture(scope="module")
def servable(path_of):
    return Servable("lm", 1, path_of("lm"))


@pytest.fixture
def ask(servable):
    """A function that continues prompts in the C++ runtime; returns lists, and texts as str."""

    def run(*prompts, **options):
        specs = servable.signature_defs["generate"].inputs
        inputs = {
            name: tf.make_tensor_proto(value, specs[name].dtype)
            for name, value in {"text": prompts, **options}.items()
        }
        found = servable.predict("generate", inputs)
        return {
            name: [text.decode() for text in values] if values.dtype == object else values.tolist()
            for name, values in found.items()
        }

    return run


@pytest.mark.slow
def test_options_that_are_left_out_have_the_programs_defaults(ask, servable):
    defaults = vars(GenerationOptions())
    saved = servable.signature_defs["generate"].defaults
    expected = {name: [value] for name, value in defaults.items()} | {"stop": [[b""]]}
    assert {name: tf.make_ndarray(value).tolist() for name, value in saved.items()} == {
        name: tf.constant(value).numpy().tolist() for name, value in expected.items()
    }
    whole = ask(*PROMPTS, **expected)
    assert ask(*PROMPTS) == whole
    assert ask(*PROMPTS, seed=[0], top_k=[40]) == whole
    assert ask(*PROMPTS, seed=[1, 2]) != whole
    assert ask() == dict.fromkeys(whole, [])


@pytest.mark.slow
def test_defaults_are_in_the_graph_too(ask, servable):
    """So a C++ session that is fed the text alone finds them."""
    inputs = {"text": tf.make_tensor_proto(PROMPTS)}
    found = servable.run(servable.signature_defs["generate"], inputs, ["text"], "Predict")["text"]
    assert [text.decode() for text in found] == ask(*PROMPTS)["text"]


def test_an_option_is_for_each_text_or_for_all(ask):
    of_each = ask(*PROMPTS, **{name: value * 2 for name, value in GREEDY.items()})
    assert ask(*PROMPTS, **GREEDY) == of_each
    assert [row[0] for row in ask(PROMPTS[1], **GREEDY).values()] == [
        row[1] for row in of_each.values()
    ]
    with pytest.raises(ServingError, match="Expected a seed for every text, or one for all"):
        ask(*PROMPTS, seed=[1, 2, 3])


def test_a_small_nucleus_has_the_likeliest_token_alone(ask):
    sampled = {"length": [12], "temperature": [1.5], "top_k": [0], "seed": [5]}
    assert ask(*PROMPTS, **sampled, top_p=[1e-6]) == ask(*PROMPTS, **GREEDY)
    assert ask(*PROMPTS, **sampled, top_p=[0.9]) != ask(*PROMPTS, **GREEDY)


def test_a_continuation_ends_before_the_first_stop_text(ask):
    whole = ask(*PROMPTS, **GREEDY)
    words = [continuation.split() for continuation in whole["continuation"]]
    stops = [[f"{words[0][2]} {words[0][3]}".upper(), words[0][5]], ["", "no such words"]]
    found = ask(*PROMPTS, **GREEDY, stop=stops)
    first = min(whole["continuation"][0].index(stop.lower()) for stop in stops[0])
    assert found["continuation"] == [
        whole["continuation"][0][:first].strip(),
        whole["continuation"][1],
    ]
    for row in range(2):
        assert found["text"][row].endswith(found["continuation"][row])
        assert whole["text"][row].startswith(found["text"][row])
    assert found["num_tokens"] == whole["num_tokens"]  # those that were computed


def test_any_stop_texts_in_any_order(ask):
    """As Python's `find` says, whatever the lists; a contraction is found as it is written."""
    rows, random = 64, np.random.default_rng(0)
    sampled = {"length": [30], "temperature": [3.0], "top_k": [0], "seed": list(range(rows))}
    prompts = ["a good film"] * rows
    whole = ask(*prompts, **sampled)["continuation"]
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
    assert ask(*prompts, **sampled, stop=stops)["continuation"] == expected
    assert len({len(text) for text in expected}) > 8  # at different places


def test_a_stop_text_in_the_prompt_does_not_count(ask):
    whole = ask("a good film", **GREEDY)
    text = whole["text"][0]
    assert ask("a good film", **GREEDY, stop=[["good film"]])["text"] == [
        text if "good film" not in whole["continuation"][0] else text[: text.rindex("good film")]
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": [0.0]}, "top_p must be above 0 and at most 1"),
        ({"top_p": [1.1]}, "top_p must be above 0 and at most 1"),
        ({"top_p": [float("nan")]}, "top_p must be above 0 and at most 1"),
        ({"stop": [["a", "\n"]]}, "Every stop text needs a token, or is empty for none"),
        ({"stop": [["a"], ["b"], ["c"]]}, "Expected a stop for every text, or one for all"),
    ],
)
def test_bad_options(ask, options, message):
    with pytest.raises(ServingError, match=message) as caught:
        ask(*PROMPTS, **options)
    assert caught.value.code.name == "INVALID_ARGUMENT"


WRITTEN = [  # the tokens' text, and what people write
    ("it did n't , and i 'm sure he 's . . . ok ? !", "it didn't, and i'm sure he's... ok?!"),
    ("they ' ve said it isn ' t so", "they've said it isn't so"),
    ("costs .5 , ( 5 % ) [ a ] ; b", "costs .5, (5%) [a]; b"),
    ('a \n b . \n " c " - d', 'a\nb.\n" c " - d'),
    ("the boys ' toys ' s\u00e9 n'tx", "the boys ' toys ' s\u00e9 n'tx"),
    ("", ""),
]


def test_texts_are_joined_as_people_write():
    found = joined(tf.constant([text for text, _ in WRITTEN])).numpy()
    assert [text.decode() for text in found] == [written for _, written in WRITTEN]


@pytest.mark.parametrize("text", ["it 's , they 've . you 're ! i 'm not ? do n't", "didn ' t . "])
def test_hugging_face_joins_the_same_words(text):
    expected = PreTrainedTokenizerBase.clean_up_tokenization(None, text)
    assert joined(tf.constant(text)).numpy().decode() == expected


@pytest.mark.parametrize(
    ("prompt", "continuation", "found"),
    [("it", "' s a film .", "'s a film."), ("did", "n't", "n't"), ("so", ", ( a", ", (a")],
)
def test_a_continuation_is_joined_as_in_the_whole_text(prompt, continuation, found):
    assert joined_continuations(tf.constant(continuation)) == found
    assert joined(tf.constant(f"{prompt} {continuation}")) == prompt + found


def test_the_first_of_several_stop_texts_counts():
    texts = tf.constant(["he said. and then.", "abc", "", "and the road", "and the road"])
    stops = [["then", "."], ["", ""], ["a", "b"], ["road", "the road"], ["the road", "road"]]
    found = before_stops(texts, tf.constant(stops))
    assert found.numpy().tolist() == [b"he said", b"abc", b"", b"and ", b"and "]
    assert (
        before_stops(texts, tf.zeros([5, 0], tf.string)).numpy().tolist() == texts.numpy().tolist()
    )
    assert np.size(before_stops(texts[:0], tf.zeros([0, 2], tf.string))) == 0
