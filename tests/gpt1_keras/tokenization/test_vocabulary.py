"""The two files of the original format: reading, refusing and writing."""

import json
import pathlib

import pytest

from gpt1_keras.tokenization.vocabulary import Vocabulary

TOKENS = {"<unk>": 0, "a": 1, "b": 2, "a</w>": 3, "b</w>": 4, "ab": 5, "ab</w>": 6, "abb</w>": 7}
MERGES = ["a b", "a b</w>", "ab b</w>"]


NOT_TWO_SYMBOLS = ["a b b</w>", "a", "a  b", " a b", "a b ", " "]


def without(token):
    """The tokens but one, with ids of their own."""
    return {each: id for id, each in enumerate(each for each in TOKENS if each != token)}


def make_vocabulary(*merges):
    """A vocabulary of the merges' symbols and products, in the order in which they come."""
    tokens = ["<unk>"]
    for merge in merges:
        tokens += [*merge.split(" "), merge.replace(" ", "")]
    return Vocabulary({token: id for id, token in enumerate(dict.fromkeys(tokens))}, merges)


def test_dict_and_list():
    vocabulary = Vocabulary(TOKENS, MERGES)
    assert vocabulary.token_to_id == TOKENS
    assert vocabulary.tokens == list(TOKENS)
    assert vocabulary.merges == [("a", "b"), ("a", "b</w>"), ("ab", "b</w>")]
    assert vocabulary.left.tolist() == [1, 1, 5]
    assert vocabulary.right.tolist() == [2, 4, 4]
    assert vocabulary.product.tolist() == [5, 6, 7]


def test_tokens_come_in_the_order_of_their_ids():
    assert Vocabulary({"a": 2, "<unk>": 1, "b": 0}, []).tokens == ["b", "<unk>", "a"]


def test_no_merges():
    vocabulary = Vocabulary({"<unk>": 0, "a": 1}, [])
    assert [len(vocabulary.left), len(vocabulary.right), len(vocabulary.product)] == [0, 0, 0]
    assert vocabulary.merges_are_ordered


def test_dict_and_list_stay_unchanged():
    tokens, merges = dict(TOKENS), ["#version: 0.2", *MERGES]
    Vocabulary(tokens, merges)
    assert (tokens, merges) == (TOKENS, ["#version: 0.2", *MERGES])


@pytest.mark.parametrize("as_path", [str, pathlib.Path])
@pytest.mark.parametrize("header", ["#version: 0.2\n", "#version: 0.1 - by someone\n", ""])
@pytest.mark.parametrize("end", ["\n", "", "\n\n"])
def test_files(tmp_path, as_path, header, end):
    tokens, merges = tmp_path / "tokens.json", tmp_path / "merges.txt"
    tokens.write_text(json.dumps(TOKENS))
    merges.write_text(header + "\n".join(MERGES) + end)
    vocabulary = Vocabulary(as_path(tokens), as_path(merges))
    assert vocabulary.token_to_id == TOKENS
    assert [" ".join(merge) for merge in vocabulary.merges] == MERGES


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\x0c", "\u00a0", "\u3000", "😀", "#"])
def test_any_character_except_the_space_and_the_newline(tmp_path, character):
    vocabulary = make_vocabulary(f"{character} x", f"{character}x {character}</w>")
    paths = tmp_path / "tokens.json", tmp_path / "merges.txt"
    vocabulary.save(*paths)
    read = Vocabulary(*paths)
    assert (read.token_to_id, read.merges) == (vocabulary.token_to_id, vocabulary.merges)


def test_original_files_are_written_as_they_were(original_files, tmp_path):
    tokens, merges = tmp_path / "tokens.json", tmp_path / "merges.txt"
    vocabulary = Vocabulary(*original_files)
    vocabulary.save(tokens, merges)
    original_tokens, original_merges = map(pathlib.Path, original_files)
    assert json.loads(tokens.read_bytes()) == json.loads(original_tokens.read_bytes())
    assert merges.read_bytes() == original_merges.read_bytes()
    read = Vocabulary(tokens, merges)
    assert (read.token_to_id, read.merges) == (vocabulary.token_to_id, vocabulary.merges)


def test_the_original_files_have_the_published_order(original_files):
    vocabulary = Vocabulary(*original_files)
    assert len(vocabulary.tokens) == 40478
    assert vocabulary.token_to_id["<unk>"] == 0
    assert vocabulary.product.tolist() == list(range(477, 40477))  # in the order of the ranks
    assert vocabulary.token_to_id["\n</w>"] == 40477
    assert vocabulary.merges_are_ordered


@pytest.mark.parametrize(
    "merges, ordered",
    [
        (["a b", "ab c"], True),
        (["ab c", "a b"], False),
        (["c ab", "a b"], False),
        (["a b", "b c", "a bc", "ab c"], True),  # the same product twice, and never used
        (["a b", "ab c", "b c", "a bc", "abc d"], True),  # twice, then used
        (["a b", "ab c", "abc d", "b c", "a bc"], False),  # made again after its use
        (["a b", "ab c", "d abc", "b c", "a bc"], False),
        (["a a", "aa a", "a aa"], True),
        (["a a", "aa a", "a aa", "aaa a"], True),
        (["a a", "aa a", "aaa a", "a aa"], False),
    ],
)
def test_merges_are_ordered(merges, ordered):
    assert make_vocabulary(*merges).merges_are_ordered is ordered


@pytest.mark.parametrize(
    ("tokens", "merges", "noun"),
    [
        # Ids with gaps, repeats, or a wrong start.
        ({"<unk>": 1, "a": 2, "b": 3}, [], "from 1 to 3"),
        ({"<unk>": 0, "a": 1, "b": 3}, [], "from 0 to 3"),
        ({"<unk>": 0, "a": 1, "b": 1}, [], "from 0 to 1"),
        ({"<unk>": 0, "a": -1, "b": 1}, [], "from -1 to 1"),
        ({}, [], "'<unk>'"),
        ({"a": 0, "<UNK>": 1}, [], "'<unk>'"),
        (["<unk>", "a"], [], "list"),  # without ids
        ({"<unk>", "a"}, [], "set"),
        (7, [], "int"),
        # Merges of other than two symbols, of tokens that are missing, or across words.
        *((TOKENS, ["a b", merge], f"Merge 1.*{merge!r}") for merge in NOT_TWO_SYMBOLS),
        *(
            (without(token), ["a b</w>"], f"merge 0.*'{token}'")
            for token in ("a", "b</w>", "ab</w>")
        ),
        (TOKENS | {"a</w>b": 8}, ["a b", "a</w> b"], "Merge 1.*'a</w>'"),
    ],
)
def test_what_does_not_fit(tokens, merges, noun):
    with pytest.raises(ValueError, match=noun):
        Vocabulary(tokens, merges)


@pytest.mark.parametrize(
    ("content", "noun"),
    [
        *((content, "JSON") for content in (b"", b"{", b"#version: 0.2\na b\n", b'{"a": 0,}')),
        (b'{"\xff": 0}', "JSON"),
        (b"[]", "list"),
        (b'"a"', "str"),
        (b"null", "NoneType"),
        (b'{"<unk>": 0, "a": 1, "b": 3}', "from 0 to 3"),
        *((b'{"<unk>": 0, "a": %s}' % id, "0 to 1") for id in (b'"1"', b"null", b"[1]", b"1.5")),
    ],
)
def test_a_file_of_tokens_that_is_damaged(tmp_path, content, noun):
    (tmp_path / "tokens.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"(?s)tokens\.json.*{noun}"):
        Vocabulary(tmp_path / "tokens.json", [])


def test_a_file_of_merges_that_is_damaged(tmp_path):
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\na b b</w>\n")
    with pytest.raises(ValueError, match=r"merges\.txt.*Merge 1.*'a b b</w>'"):
        Vocabulary(TOKENS, tmp_path / "merges.txt")


@pytest.mark.parametrize("missing", ["tokens.json", "merges.txt"])
def test_missing_file(tmp_path, missing):
    Vocabulary(TOKENS, MERGES).save(tmp_path / "tokens.json", tmp_path / "merges.txt")
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing):
        Vocabulary(tmp_path / "tokens.json", tmp_path / "merges.txt")
    with pytest.raises(FileNotFoundError, match="vocabulary"):  # a folder
        Vocabulary(tmp_path, MERGES)
