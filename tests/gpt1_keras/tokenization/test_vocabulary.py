"""The two files of the original format: reading, refusing and writing."""

import json
import pathlib

import pytest

from gpt1_keras.tokenization.vocabulary import Vocabulary

TOKENS = {"<unk>": 0, "a": 1, "b": 2, "a</w>": 3, "b</w>": 4, "ab": 5, "ab</w>": 6, "abb</w>": 7}
MERGES = ["a b", "a b</w>", "ab b</w>"]


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


@pytest.mark.parametrize("missing, what", [("tokens.json", "vocabulary"), ("merges.txt", "merges")])
def test_missing_file(tmp_path, missing, what):
    Vocabulary(TOKENS, MERGES).save(tmp_path / "tokens.json", tmp_path / "merges.txt")
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError, match=f"{what} file .*{missing}.* does not exist"):
        Vocabulary(tmp_path / "tokens.json", tmp_path / "merges.txt")


def test_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="vocabulary file .* does not exist"):
        Vocabulary(tmp_path, MERGES)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"#version: 0.2\na b\n", b'{"a": 0,}', b'{"\xff": 0}']
)
def test_not_json(tmp_path, content):
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokens\.json is not JSON: "):
        Vocabulary(path, MERGES)


@pytest.mark.parametrize(
    "content, received", [("[]", "list"), ('"a"', "str"), ("null", "NoneType")]
)
def test_json_of_another_kind(tmp_path, content, received):
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"tokens\.json must hold an object.*: {received}"):
        Vocabulary(path, MERGES)


@pytest.mark.parametrize(
    "ids, message",
    [
        ([1, 2, 3], "3 tokens needs the ids 0 to 2, .* from 1 to 3"),
        ([0, 1, 3], "3 tokens needs the ids 0 to 2, .* from 0 to 3"),
        ([0, 1, 1], "3 tokens needs the ids 0 to 2, .* from 0 to 1"),
        ([0, -1, 1], "3 tokens needs the ids 0 to 2, .* from -1 to 1"),
    ],
)
@pytest.mark.parametrize("from_file", [False, True])
def test_ids_with_gaps_or_repeats(tmp_path, from_file, ids, message):
    tokens = dict(zip(["<unk>", "a", "b"], ids))
    if from_file:
        (tmp_path / "tokens.json").write_text(json.dumps(tokens))
        tokens = tmp_path / "tokens.json"
    with pytest.raises(ValueError, match=message):
        Vocabulary(tokens, [])


@pytest.mark.parametrize("id", ["1", None, [1], 1.5])
def test_file_with_ids_that_are_no_integers(tmp_path, id):
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"<unk>": 0, "a": id}))
    with pytest.raises(ValueError, match="2 tokens needs the ids 0 to 1"):
        Vocabulary(path, [])


@pytest.mark.parametrize("tokens", [{}, {"a": 0, "<UNK>": 1}])
def test_no_unknown_token(tokens):
    with pytest.raises(ValueError, match="needs the token '<unk>'; it has none"):
        Vocabulary(tokens, [])


@pytest.mark.parametrize("merge", ["a b b</w>", "a", "a  b", " a b", "a b ", " "])
def test_merge_of_other_than_two_symbols(merge):
    with pytest.raises(ValueError, match=rf"Merge 1 must be two symbols.*: {merge!r}"):
        Vocabulary(TOKENS, ["a b", merge])


def test_merge_of_three_symbols_in_a_file(tmp_path):
    path = tmp_path / "merges.txt"
    path.write_text("#version: 0.2\na b\na b b</w>\n")
    with pytest.raises(ValueError, match="Merge 1 must be two symbols.*: 'a b b</w>'"):
        Vocabulary(TOKENS, path)


@pytest.mark.parametrize("missing", ["a", "b</w>", "ab</w>"])
def test_merge_of_tokens_that_are_missing(missing):
    tokens = [token for token in TOKENS if token != missing]
    message = f"merge 0 joins 'a' and 'b</w>', and the vocabulary has no token '{missing}'"
    with pytest.raises(ValueError, match=message):
        Vocabulary({token: id for id, token in enumerate(tokens)}, ["a b</w>"])


def test_merge_across_words():
    tokens = TOKENS | {"a</w>b": 8}
    with pytest.raises(ValueError, match="Merge 1 joins 'a</w>' and 'b', but 'a</w>' ends a word"):
        Vocabulary(tokens, ["a b", "a</w> b"])


@pytest.mark.parametrize("tokens", [["<unk>", "a"], {"<unk>", "a"}, 7])
def test_tokens_without_ids(tokens):
    with pytest.raises(
        ValueError, match=f"a mapping from token to id. Received: a {type(tokens).__name__}"
    ):
        Vocabulary(tokens, [])
