"""GPT1Tokenizer with the `original` normalization: equal ids everywhere, errors for misuse."""

import base64
import itertools

import pytest
import tensorflow as tf

import gpt1_keras
from benchmarks.harness.texts import book_paragraphs, data_set_texts
from gpt1_keras import GPT1Tokenizer
from tests.helpers.original_texts import compare, fuzz_texts

TEXTS = [
    "I don't know; Mr. Brown's U.S.A. trip cost $5.50 (in May. 2018)...",
    "",
    "naïve CAFÉ – “don’t”\n&eacute; rÃ´le",
    "word" * 40 + " antidisestablishmentarianism",
    "ISTANBUL I İ Iı J̀ Į̃ Ì Í Ĩ ΣΑΣ",
]
INVALID = [b"fi\xfflm isn't", b"\xe2\x82 it's", b"a\xed\xa0\x80b \xc0\x80", b"\0a\0."]
NEWLINE_ID = 40477


@pytest.fixture(scope="module")
def saved_model(tokenizer, save_graph):
    """The path of a SavedModel with one signature: text to ids, padded with -1."""
    return save_graph(tokenizer, lambda text: {"ids": tokenizer(text).to_tensor(-1)})


@pytest.fixture(scope="module")
def expected(reference):
    """The ids of all texts, from the Python pipeline."""
    return [
        reference(text) for text in [*TEXTS, *(text.decode("utf-8", "replace") for text in INVALID)]
    ]


def padded(rows):
    width = max(map(len, rows))
    return [row + [-1] * (width - len(row)) for row in rows]


def test_ids(tokenizer, expected):
    assert tokenizer([*TEXTS, *INVALID]).to_list() == expected
    assert tokenizer(TEXTS[0]).numpy().tolist() == expected[0]
    assert tokenizer(tf.zeros([0], tf.string)).to_list() == []


def test_a_line_end_is_the_last_id_of_the_vocabulary(tokenizer):
    assert tokenizer.line_end_id == NEWLINE_ID
    assert tokenizer.id_to_token(NEWLINE_ID) == "\n</w>"
    ids = tokenizer("Some text.\n\nSome more").numpy().tolist()
    assert ids.index(NEWLINE_ID) == 3
    assert tokenizer.detokenize(ids) == "some text . \n some more"


@pytest.mark.slow
def test_dataset(tokenizer, expected):
    data = tf.data.Dataset.from_tensor_slices(TEXTS + INVALID).batch(4)
    data = data.map(tokenizer, num_parallel_calls=2)
    assert [ids for batch in data for ids in batch.to_list()] == expected


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "tr_TR.UTF-8", "lt_LT.UTF-8"])
def test_saved_model_in_the_cpp_runtime(saved_model, expected, run_cpp, monkeypatch, locale):
    """In a Turkish process, too, where the lower case of `I` is another letter."""
    monkeypatch.setenv("LC_ALL", locale)
    invalid = [{"b64": base64.b64encode(text).decode()} for text in INVALID]
    got = run_cpp(saved_model, "serving_default", text=TEXTS + invalid)
    assert got == {"ids": padded(expected)}


@pytest.mark.parametrize("name", ["glue/sst2", "glue/cola", "glue/rte", "race/middle", "snli"])
def test_data_sets(tokenizer, reference, tfds_dir, name):
    """A few hundred texts of each."""
    texts = itertools.islice(data_set_texts(name, tfds_dir), 0, 1600, 4)
    assert compare(tokenizer, reference, texts)[1] == []


def test_books(tokenizer, reference, books_dir):
    texts = itertools.islice(book_paragraphs(books_dir / "valid"), 0, 8000, 8)
    assert compare(tokenizer, reference, texts) == (1000, [])


def test_random_strings(tokenizer, reference):
    assert compare(tokenizer, reference, fuzz_texts(2000, seed=1))[1] == []


@pytest.fixture
def make_lm(tiny_backbone):
    """A language model whose tokenizer has one of the normalizations."""

    def make(normalization):
        tokens, merges = {"<unk>": 0, "a": 1, "a</w>": 2, "aa</w>": 3}, ["a a</w>"]
        tokenizer = GPT1Tokenizer(tokens, merges, normalization=normalization)
        preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer)
        return gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor)

    return make


BOTH = pytest.mark.parametrize(("saved", "received"), [("original", "bert"), ("bert", "original")])


@BOTH
def test_a_preset_keeps_its_normalization(make_lm, tmp_path, saved, received):
    lm = make_lm(saved)
    lm.save_to_preset(tmp_path)
    loaded = gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path)).preprocessor.tokenizer
    assert loaded.normalization == saved
    assert loaded.fingerprint == lm.preprocessor.tokenizer.fingerprint
    message = f"was saved with normalization={saved!r}, .* Received: {received!r}"
    with pytest.raises(ValueError, match=message):
        GPT1Tokenizer.from_preset(str(tmp_path), normalization=received)


@BOTH
def test_a_model_with_a_preprocessor_of_the_other_normalization(make_lm, tmp_path, saved, received):
    make_lm(saved).save_to_preset(tmp_path)
    other = make_lm(received).preprocessor
    message = f"Received: normalization={received!r}, .* expected normalization={saved!r}"
    with pytest.raises(ValueError, match=message):
        gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path), preprocessor=other)
    fresh = gpt1_keras.GPT1CausalLM.from_preset(
        str(tmp_path), load_weights=False, preprocessor=other
    )
    assert fresh.preprocessor.tokenizer.normalization == received


@pytest.mark.slow
def test_learned_words_are_those_of_the_normalization():
    texts = ["They don't.", "We don't."] * 3
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(texts, num_merges=30, normalization="original")
    words = {token for token in tokenizer.get_vocabulary() if token.endswith("</w>")}
    assert {"they</w>", "do</w>", "n't</w>", "\n</w>", ".</w>"} <= words
    assert not any("do" in word and "'" in word for word in words)
    assert tokenizer.detokenize(tokenizer("\n".join(texts[:2]))) == "they do n't . \n we do n't ."
