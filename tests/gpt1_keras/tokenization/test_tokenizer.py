"""GPT1Tokenizer: KerasHub's conventions, and the same ids in eager mode, tf.data and SavedModel."""

import base64
import json
import zipfile

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras import GPT1Tokenizer
from gpt1_keras.presets import load_tokenizer

VOCABULARY = {"<unk>": 0, "a": 1, "b": 2, "a</w>": 3, "b</w>": 4, "ab": 5, "abb</w>": 6}
MERGES = ["a b", "ab b</w>"]
OTHER_DTYPES = ["string", "int64", np.int64, keras.DTypePolicy("uint8")]
SPECIAL_TOKENS = ["<start>", "<delimiter>", "<extract>"]

TEXTS = ["A good film, isn't it?", "", "naïve CAFÉ – 東京 한국 😀", "word" * 40, " \n ", "ß…"]
INVALID = [b"fi\xfflm", b"\xe2\x82", b"a\xed\xa0\x80b \xc0\x80", b"\0a\0"]


@pytest.fixture(scope="module")
def toy_tokenizer():
    return GPT1Tokenizer(VOCABULARY, MERGES)


@pytest.fixture(scope="module")
def saved_model(original_tokenizer, save_graph):
    """The path of a SavedModel with one signature: text to ids, padded with -1."""
    return save_graph(
        original_tokenizer, lambda text: {"ids": original_tokenizer(text).to_tensor(-1)}
    )


def to_dense(ids):
    """Ragged ids as nested lists padded with -1."""
    return ids.to_tensor(-1).numpy().tolist()


def test_special_tokens_follow_the_original_vocabulary(original_tokenizer):
    assert original_tokenizer.vocabulary_size() == 40481
    assert original_tokenizer.start_token_id == 40478
    assert original_tokenizer.delimiter_token_id == 40479
    assert original_tokenizer.extract_token_id == 40480
    for id, token in enumerate(SPECIAL_TOKENS, start=40478):
        assert original_tokenizer.token_to_id(token) == id
        assert original_tokenizer.id_to_token(id) == token


def test_special_tokens(toy_tokenizer):
    assert toy_tokenizer.start_token == "<start>"
    assert toy_tokenizer.delimiter_token == "<delimiter>"
    assert toy_tokenizer.extract_token == "<extract>"
    assert sorted(toy_tokenizer.special_tokens) == sorted(SPECIAL_TOKENS)
    assert sorted(toy_tokenizer.special_token_ids) == [7, 8, 9]
    assert 0 <= toy_tokenizer.pad_token_id < toy_tokenizer.vocabulary_size()


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_no_text_gives_a_special_token(original_tokenizer, token):
    ids = original_tokenizer([token, f"a{token}b", f" {token} ", token.upper()])
    assert max(ids.values.numpy()) < 40478


def test_vocabulary(toy_tokenizer):
    tokens = toy_tokenizer.get_vocabulary()
    assert tokens == [*VOCABULARY, *SPECIAL_TOKENS]
    assert [toy_tokenizer.token_to_id(token) for token in tokens] == list(range(10))
    assert [toy_tokenizer.id_to_token(id) for id in range(10)] == tokens
    assert toy_tokenizer.id_to_token(np.int32(5)) == "ab"
    tokens.clear()  # a copy
    assert toy_tokenizer.vocabulary_size() == 10


@pytest.mark.parametrize("token", ["c", "", "A", "ab</w>", "start"])
def test_unknown_token(toy_tokenizer, token):
    assert toy_tokenizer.token_to_id(token) == VOCABULARY["<unk>"]


def test_merges(toy_tokenizer):
    texts = ["abb", "ABB abba", "b a", "xab", "ab.", "ab\u00adb", "àb b"]
    expected = [[6], [6, 5, 2, 3], [4, 3], [0, 1, 4], [1, 4, 0], [6], [1, 4, 4]]
    assert toy_tokenizer(texts).to_list() == expected


def test_original_vocabulary(original_tokenizer):
    assert original_tokenizer(["Some text", ""]).to_list() == [[803, 4830], []]


def test_one_string(toy_tokenizer):
    ids = toy_tokenizer("abb ab")
    assert isinstance(ids, tf.Tensor)
    assert ids.dtype == tf.int32
    assert ids.numpy().tolist() == [6, 1, 4]
    assert toy_tokenizer("").shape == [0]


@pytest.mark.parametrize(
    "texts",
    [
        ["abb ab", "", "b"],
        ("abb ab", "", "b"),
        [b"abb ab", b"", b"b"],
        np.array(["abb ab", "", "b"]),
        np.array(["abb ab", "", "b"], object),
        tf.constant(["abb ab", "", "b"]),
    ],
    ids=["list", "tuple", "bytes", "array", "array of objects", "tensor"],
)
def test_batch(toy_tokenizer, texts):
    ids = toy_tokenizer(texts)
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.shape == [3, None]
    assert ids.to_list() == [[6, 1, 4], [], [4]]


def test_lists_of_texts(toy_tokenizer):
    ids = toy_tokenizer([["abb", ""], ["a a", "b"], ["", ""]])
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.shape == [3, 2, None]
    assert ids.to_list() == [[[6], []], [[3, 3], [4]], [[], []]]
    ids = toy_tokenizer.tokenize([[["abb"], [""]], [["a a"], ["b"]]])
    assert ids.shape == [2, 2, 1, None]
    assert ids.to_list() == [[[[6]], [[]]], [[[3, 3]], [[4]]]]


def test_empty_list(toy_tokenizer):
    ids = toy_tokenizer([])
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.to_list() == []


@pytest.mark.parametrize("shape", [[0], [0, 3], [3, 0], [0, 0], [2, 3, 0], [2, 0, 3]])
def test_shape_without_texts(toy_tokenizer, shape):
    ids = toy_tokenizer(tf.zeros(shape, tf.string))
    assert ids.shape == [*shape, None]
    assert ids.dtype == tf.int32


@pytest.mark.parametrize(
    "ids, text",
    [
        ([803, 4830], "some text"),
        ((803, 4830), "some text"),
        (np.array([803, 4830]), "some text"),
        (tf.constant([803, 4830]), "some text"),
        (tf.constant([803, 4830], tf.int64), "some text"),
        ([], ""),
        ([[803, 4830], [], [4830]], ["some text", "", "text"]),
        ([np.array([803, 4830]), np.array([4830])], ["some text", "text"]),
        (tf.constant([[803, 4830], [4830, 803]]), ["some text", "text some"]),
        (tf.ragged.constant([[803, 4830], [], [4830]]), ["some text", "", "text"]),
        ([40478, 803, 40479, 4830, 40480], "<start> some <delimiter> text <extract>"),
    ],
)
def test_detokenize(original_tokenizer, ids, text):
    assert original_tokenizer.detokenize(ids) == text


def test_detokenize_gives_normalized_words(original_tokenizer):
    texts = ["Some  TEXT, naïve!", "", "unquestionably antidisestablishmentarianism"]
    expected = ["some text , naive !", "", "unquestionably antidisestablishmentarianism"]
    assert original_tokenizer.detokenize(original_tokenizer(texts)) == expected
    assert original_tokenizer.detokenize(original_tokenizer(texts[0])) == expected[0]


def test_detokenize_in_a_graph(original_tokenizer):
    data = tf.data.Dataset.from_tensor_slices(["Some text", "a good film"]).batch(2)
    (texts,) = data.map(original_tokenizer).map(original_tokenizer.detokenize)
    assert texts.numpy().tolist() == [b"some text", b"a good film"]


TOY = {"vocabulary": VOCABULARY, "merges": MERGES}


@pytest.mark.parametrize(
    ("given", "noun"),
    [
        ({"vocabulary": VOCABULARY}, "`vocabulary`"),
        ({"merges": MERGES}, "`merges`"),
        ({"normalization": "BERT"}, "'BERT'.*'bert'"),
        (TOY | {"normalization": "BERT"}, "'BERT'.*'bert'"),
        *((TOY | {"dtype": dtype}, "int32.*dtype") for dtype in OTHER_DTYPES),
    ],
)
def test_arguments_that_are_refused(given, noun):
    with pytest.raises(ValueError, match=noun):
        GPT1Tokenizer(**given)


@pytest.mark.parametrize(
    ("method", "argument", "noun"),
    [
        *(("id_to_token", id, rf"\[0, 10\).* {id}$") for id in (-1, 10, 10**9)),
        ("detokenize", np.array([6.5]), "integers"),
        *(("tokenize", x, "string") for x in (None, 1, [1, 2], ["a", None], [["a"], ["b", "c"]])),
    ],
)
def test_calls_that_are_refused(toy_tokenizer, method, argument, noun):
    with pytest.raises(ValueError, match=noun):
        getattr(toy_tokenizer, method)(argument)


@pytest.mark.parametrize(
    "use",
    [
        lambda tokenizer: tokenizer("a"),
        lambda tokenizer: tokenizer.tokenize(["a"]),
        lambda tokenizer: tokenizer.detokenize([1]),
        lambda tokenizer: tokenizer.get_vocabulary(),
        lambda tokenizer: tokenizer.vocabulary_size(),
        lambda tokenizer: tokenizer.id_to_token(1),
        lambda tokenizer: tokenizer.token_to_id("a"),
        lambda tokenizer: tokenizer.save_files("tokens.json", "merges.txt"),
        lambda tokenizer: tokenizer.save_assets("assets"),
    ],
)
def test_use_before_a_vocabulary_is_set(use):
    with pytest.raises(ValueError, match="vocabulary"):
        use(GPT1Tokenizer())


def test_vocabulary_set_later(toy_tokenizer):
    tokenizer = GPT1Tokenizer()
    assert tokenizer.start_token_id is None
    tokenizer.set_vocabulary_and_merges(VOCABULARY, MERGES)
    assert tokenizer.start_token_id == 7
    assert tokenizer("abb ab").numpy().tolist() == [6, 1, 4]
    tokenizer.set_vocabulary_and_merges({"<unk>": 0, "a": 1, "a</w>": 2}, [])
    assert tokenizer.start_token_id == 3
    assert tokenizer("abb ab").numpy().tolist() == [1, 0, 0, 1, 0]


def test_config_and_assets(tiny_tokenizer, tmp_path):
    config = json.loads(json.dumps(tiny_tokenizer.get_config()))
    assert config["normalization"] == "bert"
    tiny_tokenizer.save_assets(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(tiny_tokenizer.file_assets)
    loaded = GPT1Tokenizer.from_config(config)
    loaded.load_assets(tmp_path)
    assert_equal(loaded, tiny_tokenizer)


def test_normalization_travels_in_the_config(tmp_path):
    """A config of an unknown normalization is refused, not read as another."""
    config = {**GPT1Tokenizer().get_config(), "normalization": "newest"}
    GPT1Tokenizer(VOCABULARY, MERGES).save_assets(tmp_path)
    # Keras turns an error of a constructor into a TypeError around it.
    with pytest.raises(TypeError, match="'newest'"):
        GPT1Tokenizer.from_config(config).load_assets(tmp_path)


def test_keras_serialization(tiny_tokenizer):
    config = keras.saving.serialize_keras_object(tiny_tokenizer)
    assert config["registered_name"] == "gpt1_keras>GPT1Tokenizer"
    loaded = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
    assert isinstance(loaded, GPT1Tokenizer)
    assert loaded.get_config() == tiny_tokenizer.get_config()


@pytest.mark.parametrize("dtype", ["int32", "float32", "mixed_bfloat16", None])
def test_a_dtype_that_does_not_concern_ids(dtype):
    assert GPT1Tokenizer(VOCABULARY, MERGES, dtype=dtype)(["abb"]).dtype == tf.int32


@pytest.mark.parametrize("dtype", ["uint16", "int64", "uint8"])
def test_detokenize_takes_any_integers(toy_tokenizer, dtype):
    assert toy_tokenizer.detokenize(np.array([[6, 5, 4, 0]], dtype)) == ["abb abb"]
    assert toy_tokenizer.detokenize(np.array(6, dtype)) == "abb"
    assert toy_tokenizer.detokenize(6) == "abb"


@pytest.mark.parametrize("cls", [GPT1Tokenizer, keras_hub.tokenizers.Tokenizer])
def test_preset(tiny_tokenizer, tiny_backbone, tmp_path, cls):
    tiny_backbone.save_to_preset(tmp_path)  # a preset is one only with a model's configuration
    tiny_tokenizer.save_to_preset(tmp_path)
    assert_equal(cls.from_preset(str(tmp_path)), tiny_tokenizer)


def assert_equal(tokenizer, expected):
    assert isinstance(tokenizer, GPT1Tokenizer)
    assert tokenizer.normalization == expected.normalization
    assert tokenizer.get_vocabulary() == expected.get_vocabulary()
    assert tokenizer.start_token_id == expected.start_token_id
    assert tokenizer(TEXTS).to_list() == expected(TEXTS).to_list()


def test_unbatched_dataset(original_tokenizer):
    data = tf.data.Dataset.from_tensor_slices(TEXTS + INVALID).map(original_tokenizer)
    assert data.element_spec == tf.TensorSpec([None], tf.int32)
    got = [ids.numpy().tolist() for ids in data]
    assert got == original_tokenizer(TEXTS + INVALID).to_list()


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_batched_dataset(original_tokenizer, batch_size):
    data = tf.data.Dataset.from_tensor_slices(TEXTS + INVALID).batch(batch_size)
    data = data.map(original_tokenizer, num_parallel_calls=2)
    assert data.element_spec.shape.as_list() == [None, None]
    assert data.element_spec.dtype == tf.int32
    got = [ids for batch in data for ids in batch.to_list()]
    assert got == original_tokenizer(TEXTS + INVALID).to_list()


def test_graph_of_unknown_shapes(original_tokenizer):
    spec = tf.TensorSpec([None, None], tf.string)
    tokenize = tf.function(original_tokenizer, input_signature=[spec])
    for rows in [[TEXTS[:3], TEXTS[3:]], [TEXTS], [[text] for text in TEXTS]]:
        got = tokenize(tf.constant(rows))
        assert got.to_list() == original_tokenizer(rows).to_list()


def test_saved_model_in_the_cpp_runtime(original_tokenizer, saved_model, run_cpp):
    invalid = [{"b64": base64.b64encode(text).decode()} for text in INVALID]
    got = run_cpp(saved_model, "serving_default", text=TEXTS + invalid)
    assert got == {"ids": to_dense(original_tokenizer(TEXTS + INVALID))}


@pytest.mark.parametrize("texts", [[], [""], ["Some text"]])
def test_small_batches_in_the_cpp_runtime(original_tokenizer, saved_model, run_cpp, texts):
    expected = to_dense(original_tokenizer(texts))
    assert run_cpp(saved_model, "serving_default", text=texts) == {"ids": expected}


@pytest.fixture
def outside(tiny_tokenizer, tmp_path):
    """A tokenizer's configuration that names files of this machine."""
    paths = {"vocabulary": str(tmp_path / "v.json"), "merges": str(tmp_path / "m.txt")}
    tiny_tokenizer.save_files(*paths.values())
    config = keras.saving.serialize_keras_object(tiny_tokenizer)
    config["config"] |= paths
    return config


def test_a_saved_tokenizer_reads_no_file_outside(outside, tmp_path):
    """As KerasHub's tokenizers."""
    with pytest.raises(TypeError, match=r"(?s)v\.json'.*safe_mode=False"):  # Keras makes it one
        keras.saving.deserialize_keras_object(outside)
    (tmp_path / "tokenizer.json").write_text(json.dumps(outside))
    with pytest.raises(ValueError, match=r"(?s)v\.json.*safe_mode=False"):
        load_tokenizer(tmp_path)
    found = keras.saving.deserialize_keras_object(outside, safe_mode=False)
    assert found.tokenize("a good film").shape[0] > 0


def test_a_keras_file_reads_no_file_outside(outside, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, 8)
    backbone = gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), 1, 1, 4, 4)
    gpt1_keras.GPT1CausalLM(backbone, preprocessor).save(tmp_path / "a.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(content["config.json"])
    config["config"]["preprocessor"]["config"]["tokenizer"] = outside
    content["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(tmp_path / "b.keras", "w") as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    keras.saving.load_model(tmp_path / "a.keras")
    keras.saving.load_model(tmp_path / "b.keras", safe_mode=False)
    with pytest.raises(TypeError, match=r"(?s)v\.json'.*safe_mode=False"):  # Keras makes it one
        keras.saving.load_model(tmp_path / "b.keras")
