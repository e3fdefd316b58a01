"""The `original` normalization in the graph, against the Python pipeline, which spaCy's tests show.

Words, ids, hostile input, and the tables that it ships.
"""

import base64
import itertools
import json
import os
import unicodedata

import pytest
import tensorflow as tf

import gpt1_keras
from benchmarks.harness.texts import book_paragraphs, data_set_texts
from benchmarks.peers.python_pipeline import (
    RULES_FILE,
    PipelineTokenizer,
    PythonPipeline,
    SpacyTokenizer,
    text_standardize,
)
from gpt1_keras import GPT1Tokenizer
from gpt1_keras.tokenization.graph_ops import join_rows
from gpt1_keras.tokenization.normalization.original import (
    MAX_STEPS,
    OriginalNormalizer,
    read_tables,
)
from tests.helpers import make_original_tables
from tests.helpers.original_texts import compare, fuzz_texts, mojibake_texts


@pytest.fixture(scope="module")
def split():
    """Splits texts in a graph: from list of str or bytes to list of lists of str."""
    normalizer = OriginalNormalizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def words(texts):
        return join_rows(*normalizer.split(texts))

    def split(texts):
        found = words(tf.constant(texts, tf.string)).to_list()
        return [[word.decode() for word in text] for text in found]

    split(["a"])  # makes the graph, which no test's time counts
    return split


@pytest.fixture(scope="module")
def pipeline():
    """The Python pipeline: from str to list of str."""
    return PythonPipeline()


@pytest.fixture(scope="module")
def tokenizer(original_files):
    """The tokenizer that the published weights were trained with."""
    return GPT1Tokenizer(*original_files, normalization="original")


@pytest.fixture(scope="module")
def reference(original_files):
    """The Python pipeline and Hugging Face's byte-pair encoding: from str to list of ids."""
    return PipelineTokenizer(os.path.dirname(original_files[0]))


# Words

TEXTS = [
    "",
    " \n\t ",
    "I don't know; Mr. Brown's U.S.A. trip cost $5.50 (in May. 2018)...",
    "C'mon, it's 10am!! \"Let's go\", she said -- 'twas late...",
    "a\n\nb \r\n c\u2028d\x85e\x0cf\xa0g\u3000h\u200bi",
    "naïve CAFÉ – “don’t” … ´ ﬁne ＡＢＣ １２ \ufeff",
    "www.foo.com. x@y.org, http://x.io/a?b=c 1.2.3.4 10.0.0.1 172.16.0.1 172.15.0.1 u@10.0.0.1",
    "a:b:c a=b<c>d one.Two.Three 2^3^4 x...y z..",
    "☺hi☺there☺ 5km² 10°C. 858m. US$5 5US$ ''If ``so'' :::: '''",
    "&eacute; &EACUTE; &amp;amp;amp; &#233; &#xE9; &#128; &#0; &#x110000; &#99999999999; &nosuch;",
    "&amp; here\n<b>&amp;</b>\n&amp; there",
    "\x1b[31mred\x1b[0m\x00 a\x01b\x7f",
    "CÃ¦sar donâ€™t Ã  la Ã©tÃ© ÃƒÂ©",
    "Madame de Rênal's rÃ´le; Ð¿Ñ€Ð¸Ð²ÐµÑ‚, â€œquotedâ€\ufffd",
    "e\u0301 A\u030a o\u0302\u0323 \u1100\u1161\u11a8 \uac00\u11a8 क\u093c a\u0301\u0301",
    "ΟΔΟΣ ΣΑΣ Σ İI ISTANBUL ÌÍĨĮ ẞ ǅ",
    "\ufffd x\ufffdy 漢字 😀😀 ॐ",
]


# Texts of spaCy 2.0.18's own tests of its English tokenizer, with the expected tokens: those of
# spacy/tests/lang/en and spacy/tests/tokenizer. Spaces separate tokens; `|` is a line end.
TOKENS = {
    "don't giggle": "do n't giggle",
    "i said don't!": "i said do n't !",
    "`ain't": "` ai n't",
    "\"isn't": "\" is n't",
    "can't!": "ca n't !",
    "Robin's": "Robin 's",
    "Alexis's": "Alexis 's",
    "schools'": "schools '",
    "'em": "'em",
    "nothin'": "nothin'",
    "there'll": "there 'll",
    "Ain't": "Ai n't",
    "They'd": "They 'd",
    "Ill": "Ill",
    "well": "well",
    "``We've": "`` We 've",
    "couldn't)": "could n't )",
    "e.g.": "e.g.",
    "Jan.": "Jan.",
    "Inc.": "Inc.",
    "It's mediocre i.e. bad.": "It 's mediocre i.e. bad .",
    "1am": "1 am",
    "12a.m.": "12 a.m.",
    "(can)": "( can )",
    "(can't?)": "( ca n't ? )",
    "us.": "us .",
    "(U.S.": "( U.S.",
    "(U.S.?)": "( U.S. ? )",
    "best-known": "best - known",
    "0.1-13.5": "0.1 - 13.5",
    "103.27-300": "103.27 - 300",
    "Hello.World": "Hello . World",
    "one,two": "one , two",
    "best...Known": "best ... Known",
    "No decent--let alone well-bred--people.": "No decent -- let alone well - bred -- people .",
    "((": "( (",
    "<": "<",
    "[Hello": "[ Hello",
    "Hello*": "Hello *",
    "{`Hello": "{ ` Hello",
    "Hello)'": "Hello ) '",
    "[[[Hello": "[ [ [ Hello",
    "Hello}}}": "Hello } } }",
    "'The": "' The",
    "Hello''": "Hello ''",
    "`(Hello)'": "` ( Hello ) '",
    "(And a 6a.m. run through Washington Park).": "( And a 6 a.m. run through Washington Park ) .",
    "The U.S. Army likes Shock and Awe.": "The U.S. Army likes Shock and Awe .",
    "U.N. regulations are not a part": "U.N. regulations are not a part",
    "“Isn't it?”": "“ Is n't it ? ”",
    "I'd rather have a walk\", Ms. Comble": "I 'd rather have a walk \" , Ms. Comble",
    "'Me too!', Mr. P. Delaware cried.": "' Me too ! ' , Mr. P. Delaware cried .",
    "They ran about 10km.": "They ran about 10 km .",
    "10,000": "10,000",
    "Tom (D., Ill.)!": "Tom ( D. , Ill. ) !",
    "NASDAQ:GOOG": "NASDAQ : GOOG",
    "hello123@example.com": "hello123@example.com",
    "(www.red-stars.com)": "( www.red-stars.com )",
    "mailto:foo.bar@baz.com:": "mailto:foo.bar@baz.com :",
    '"http://foo.com/blah_(wikipedia)#cite-1>': '" http://foo.com/blah_(wikipedia)#cite-1 >',
    "http://142.42.1.1:8080/": "http://142.42.1.1:8080/",
    "lorem \n ipsum": "lorem | ipsum",
    ":'(": ":'(",
    "o.O": "o.O",
    "example:)": "example : )",
    "can you still dunk?🍕🍔😵LOL": "can you still dunk? 🍕 🍔 😵 LOL",
    "i💙you": "i 💙 you",
}


def test_the_pipeline_splits_as_spacy_did(split, pipeline):
    """And so does the graph."""
    spacy = SpacyTokenizer()
    found = {text: " ".join(spacy(text)).replace("\n ", "|") for text in TOKENS}
    assert found == TOKENS
    for url in ("http://10.1.1.1", "http://224.1.1.1", "http://a.b-.co", "///a"):
        assert not spacy._is_url(url)
    assert split(list(TOKENS)) == [pipeline(text) for text in TOKENS]


def test_telling_texts(split, pipeline):
    for text, words in zip(TEXTS, split(TEXTS), strict=True):
        assert words == pipeline(text)


def test_a_line_end_is_a_word(split):
    assert split(["\n one \n\n\t two\r\n\r\nthree \n"]) == [["one", "\n", "two", "\n", "three"]]


@pytest.mark.parametrize("between", ["a", " ", ".", "A1"])
def test_every_code_point(split, pipeline, between):
    """All that Unicode 14 assigns below the CJK characters, and what ftfy replaces above them."""
    codes = [*range(0x3400), *range(0xF900, 0x10000), *range(0x1D400, 0x1D800)]
    codes = [code for code in codes if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    codes.remove(0x2C2F)  # newer than the Unicode of the library that TensorFlow lower-cases with
    for start in range(0, len(codes), 4096):
        texts = [f"{between}{chr(code)}{between}" for code in codes[start : start + 4096]]
        for text, words in zip(texts, split(texts), strict=True):
            assert words == pipeline(text), ascii(text)


def test_letters_with_marks(split, pipeline):
    """Decomposed letters of Latin, Greek and Cyrillic, and Hangul syllables."""
    letters = [chr(code) for code in [*range(0xC0, 0x500), *range(0x1E00, 0x1F00), 0xAC00, 0xD7A3]]
    texts = [unicodedata.normalize("NFD", f"x{letter}y") for letter in letters]
    assert split(texts) == [pipeline(text) for text in texts]


def test_mojibake(split, pipeline):
    texts = list(mojibake_texts(600, seed=1))
    assert split(texts) == [pipeline(text) for text in texts]


@pytest.mark.parametrize(
    "invalid",
    [b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xff\xfe"],
    ids=bytes.hex,
)
def test_invalid_bytes_are_replacement_characters(split, pipeline, invalid):
    texts = [invalid, b"a" + invalid, invalid + b"b", b"fi" + invalid + b"lm", b"it's " + invalid]
    expected = [pipeline(text.decode("utf-8", "replace")) for text in texts]
    assert split(texts) == expected


# Hostile input takes linear time; what is nested too deeply stays as it is.

LENGTH = 50_000
HOSTILE = {
    "one letter": "a",
    "one accented letter": "é",
    "dots": ".",
    "suffixes and infixes": "a:b.C",
    "addresses": "1.2.3.",
    "users": "@a.bc",
    "references": "&eacute;",
    "references to punctuation": "&amp; ",
    "nested references": "&amp;amp;amp; ",
    "large numbers": "&#99999999999999999999;",
    "starts of references": "&#x ",
    "tags": "<&lt;",
    "escapes": "\x1b[31",
    "line ends": "\r\n",
    "mojibake": "Ã©",
    "mojibake of mojibake": "ÃƒÂ©",
    "parts of mojibake": "漢Ã©",
    "punctuation": "!-/",
    "controls": "\x00\x01\x02",
    "Hangul": "\u1100\u1161\u11a8",
}


# What takes more than linear time does not end soon enough; the graph is made before.
LIMITED = pytest.mark.usefixtures("split", "time_limit")


@LIMITED
@pytest.mark.parametrize("name", HOSTILE)
def test_long_input(split, pipeline, name):
    piece = HOSTILE[name]
    text = piece * (LENGTH // len(piece))
    assert len(split([text, "a", text[1:]])) == 3
    text = text[:500]  # what takes the pipeline much longer than linear time, too
    assert split([text, "a", text[1:]]) == [pipeline(text), ["a"], pipeline(text[1:])]


@LIMITED
def test_marks_on_one_character(split):
    assert split(["e" + "\u0301" * LENGTH]) == [["é" + "\u0301" * (LENGTH - 1)]]


@LIMITED
@pytest.mark.parametrize("count", [2, 2 * MAX_STEPS - 1, 2 * MAX_STEPS])
def test_prefixes_and_suffixes_up_to_the_bound(split, pipeline, count):
    texts = [":" * count, "a" + ":" * (count // 2), ":" * (count // 2) + "a"]
    assert split(texts) == [pipeline(text) for text in texts]


@LIMITED
def test_prefixes_and_suffixes_beyond_the_bound(split):
    """What is left stays one token, and nothing is lost."""
    (words,) = split([":" * LENGTH])
    left = LENGTH - 2 * MAX_STEPS
    assert words == [":"] * MAX_STEPS + [":" * left] + [":"] * MAX_STEPS


@LIMITED
def test_references_beyond_the_bound_of_rounds(split):
    assert split(["&" + "amp;" * 8]) == [["&"]]
    assert split(["&" + "amp;" * 10]) == [["&", "amp", ";", "amp", ";"]]


# Ids: equal everywhere, and errors for misuse

ID_TEXTS = [
    "I don't know; Mr. Brown's U.S.A. trip cost $5.50 (in May. 2018)...",
    "",
    "naïve CAFÉ – “don’t”\n&eacute; rÃ´le",
    "word" * 40 + " antidisestablishmentarianism",
    "ISTANBUL I İ Iı J̀ Į̃ Ì Í Ĩ ΣΑΣ",
]
ID_INVALID = [b"fi\xfflm isn't", b"\xe2\x82 it's", b"a\xed\xa0\x80b \xc0\x80", b"\0a\0."]
NEWLINE_ID = 40477


@pytest.fixture(scope="module")
def saved_model(tokenizer, save_graph):
    """The path of a SavedModel with one signature: text to ids, padded with -1."""
    return save_graph(tokenizer, lambda text: {"ids": tokenizer(text).to_tensor(-1)})


@pytest.fixture(scope="module")
def expected(reference):
    """The ids of all texts, from the Python pipeline."""
    return [
        reference(text)
        for text in [*ID_TEXTS, *(text.decode("utf-8", "replace") for text in ID_INVALID)]
    ]


def padded(rows):
    width = max(map(len, rows))
    return [row + [-1] * (width - len(row)) for row in rows]


def test_ids(tokenizer, expected):
    assert tokenizer([*ID_TEXTS, *ID_INVALID]).to_list() == expected
    assert tokenizer(ID_TEXTS[0]).numpy().tolist() == expected[0]
    assert tokenizer(tf.zeros([0], tf.string)).to_list() == []


def test_a_line_end_is_the_last_id_of_the_vocabulary(tokenizer):
    assert tokenizer.line_end_id == NEWLINE_ID
    assert tokenizer.id_to_token(NEWLINE_ID) == "\n</w>"
    ids = tokenizer("Some text.\n\nSome more").numpy().tolist()
    assert ids.index(NEWLINE_ID) == 3
    assert tokenizer.detokenize(ids) == "some text . \n some more"


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "tr_TR.UTF-8", "lt_LT.UTF-8"])
def test_saved_model_in_the_cpp_runtime(saved_model, expected, run_cpp, monkeypatch, locale):
    """In a Turkish process, too, where the lower case of `I` is another letter."""
    monkeypatch.setenv("LC_ALL", locale)
    invalid = [{"b64": base64.b64encode(text).decode()} for text in ID_INVALID]
    got = run_cpp(saved_model, "serving_default", text=ID_TEXTS + invalid)
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
    with pytest.raises(ValueError, match=f"normalization={saved!r}.*{received!r}"):
        GPT1Tokenizer.from_preset(str(tmp_path), normalization=received)


@BOTH
def test_a_model_with_a_preprocessor_of_the_other_normalization(make_lm, tmp_path, saved, received):
    make_lm(saved).save_to_preset(tmp_path)
    other = make_lm(received).preprocessor
    with pytest.raises(ValueError, match=f"normalization={received!r}.*{saved!r}"):
        gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path), preprocessor=other)
    fresh = gpt1_keras.GPT1CausalLM.from_preset(
        str(tmp_path), load_weights=False, preprocessor=other
    )
    assert fresh.preprocessor.tokenizer.normalization == received


@pytest.mark.slow
def test_learned_words_are_those_of_the_normalization():
    texts = ["They don't.", "We don't."] * 3
    tokenizer = GPT1Tokenizer.learn(texts, num_merges=30, normalization="original")
    words = {token for token in tokenizer.get_vocabulary() if token.endswith("</w>")}
    assert {"they</w>", "do</w>", "n't</w>", "\n</w>", ".</w>"} <= words
    assert not any("do" in word and "'" in word for word in words)
    assert tokenizer.detokenize(tokenizer("\n".join(texts[:2]))) == "they do n't . \n we do n't ."


# The tables, and the script that makes them


@pytest.mark.slow
def test_shipped_tables_are_what_the_packages_do():
    """Made again from spaCy's rules and the installed ftfy, but for newer versions of Unicode."""
    rules = make_original_tables.SpacyRules(**json.loads(RULES_FILE.read_text(encoding="utf-8")))
    made, shipped = make_original_tables.make_tables(rules), read_tables()
    if made["unicode"] != shipped["unicode"]:
        pytest.skip(f"This Python has Unicode {made['unicode']}; the tables {shipped['unicode']}")
    assert set(made) == set(shipped)
    for name in made:
        assert made[name] == shipped[name], name


def test_the_tables_hold_what_the_vocabulary_shows():
    """The published vocabulary has `may.`, `c'mon` and `this'll`, and no `prof.`."""
    exceptions = read_tables()["exceptions"]
    assert exceptions["May."] == ["May."]
    assert not {"C'mon", "This'll", "Prof."} & set(exceptions)


def test_clean_up_is_the_pipelines():
    texts = ["a--b ~~!?c\\\\d++e", " x\n\n \ty [z] {_} ", "— – ― … ´", "\x0c\u3000a\xa0 b\u2003"]
    for text in texts:
        assert make_original_tables.standardize(text) == text_standardize(text)


def test_a_wheel_that_is_not_the_published_one(tmp_path, monkeypatch, capsys):
    with pytest.raises(FileNotFoundError, match="spacy-2.0.18"):
        make_original_tables.find_wheels(tmp_path)
    monkeypatch.setattr("sys.argv", ["make_original_tables", str(tmp_path)])
    assert make_original_tables.main() == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: The wheel") and captured.err.count("\n") == 1
    for name in make_original_tables.SOURCES:
        (tmp_path / name).write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ValueError, match="SHA-256"):
        make_original_tables.find_wheels(tmp_path)
