"""A .tflite file answers as its Keras model does, for every task and in both LiteRT runtimes."""

import pathlib

import numpy as np
import pytest
import scipy.special

import gpt1_keras
from serving.tflite import TextModel, convert, read_metadata
from serving.tflite import __main__ as command
from serving.tflite.converter import quantize_weights
from serving.tflite_metadata import unpack

MAX_BYTES, SEQUENCE_LENGTH = 200, 40
TEXTS = ["a good film", "", "the Staff were KIND, and a film", b"a g\xffood\xc3 film", b"\xfe"]
TEXTS += ["good " * 15, "good " * 16, "kind staff " * 2, "good bad " * 20, "a" * MAX_BYTES]
PAIRS = [TEXTS, ["a bad one", "a bad one", "", "a bad one", "", "dull " * 18, "one", *TEXTS[:3]]]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["interpret", "compile_model"])
def test_a_classifier_of_texts(single, assert_answers, request, runtime):
    assert_answers(*single, [TEXTS], request.getfixturevalue(runtime))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["interpret", "compile_model"])
def test_texts_of_any_length(single, assert_answers, request, runtime):
    """One after the other, longer and shorter: the same graph reads them all."""
    numbers = np.random.default_rng(0).permutation(SEQUENCE_LENGTH + 2)
    texts = [("a " * number)[:MAX_BYTES] for number in numbers]
    assert_answers(*single, [texts], request.getfixturevalue(runtime))


@pytest.mark.slow
def test_similarity_through_the_command(make_task, assert_answers, interpret, tmp_path, capsys):
    """Both orders of the texts are read; and there is a range of scores."""
    model = make_task(gpt1_keras.GPT1TextSimilarity, score_range=(0, 5))
    model.save_to_preset(tmp_path / "preset")
    output = tmp_path / "new" / "model.tflite"
    arguments = ["--model", str(tmp_path / "preset"), "--output", str(output)]
    arguments += [f"--max-bytes={MAX_BYTES}", f"--sequence-length={SEQUENCE_LENGTH}"]
    assert command.main(arguments) == 0
    assert f"{output}: {output.stat().st_size / 1e6:.1f} MB\n" in capsys.readouterr().out
    assert_answers(model, output, PAIRS, interpret)
    answer = TextModel(output)(PAIRS[0][0], PAIRS[1][0])
    expected = model.classify(([PAIRS[0][0]], [PAIRS[1][0]]))
    assert answer["score"] == pytest.approx(expected[0]["score"], abs=1e-4)
    metadata = read_metadata(output)
    assert (metadata["score_range"], metadata["class_names"]) == ([0, 5], None)


STORIES = {
    "context": ["a good film and a lovely one", "a dull film", "good " * 40, "a", "bad", ""],
    "question": ["the staff were?", "a film", "", "lovely " * 12, "", ""],
    "choices": [
        ["kind", "bad and dull staff", "lovely"],
        ["good", "a film", ""],
        ["one", "", ""],
        ["one two three four five six", "good " * 11, "x"],  # 12 would fill all bytes
        [b"\xff", "a", "b"],
        ["", "kind", "lovely"],
    ],
}
SIZES = {"context": 200, "question": 100, "choices": 60}
TREE = ("token_ids", "positions", "branches", "extract_indices")


@pytest.fixture(scope="module")
def chooser(make_task, tmp_path_factory):
    confidence = {"temperature": 2.0, "sure_threshold": 0.5}
    model = make_task(gpt1_keras.GPT1MultipleChoice, num_layers=2, **confidence)
    path = tmp_path_factory.mktemp("choices") / "model.tflite"
    return model, convert(model, path, list(SIZES.values()), SEQUENCE_LENGTH, num_choices=3)


def story_inputs(as_input, number):
    row = {field: STORIES[field][number] for field in SIZES}
    choices = [as_input(choice, SIZES["choices"]) for choice in row.pop("choices")]
    texts = {field: as_input(text, SIZES[field]) for field, text in row.items()}
    return {**texts, "choices": np.stack(choices)}


@pytest.mark.slow
def test_choices(chooser, as_input, interpret):
    """Context and question are read once, choices that are absent not at all."""
    model, path = chooser
    choose, tokenize, choose_tokens = (interpret(path, n) for n in ("text", "tokenize", "tokens"))
    choices = np.array(STORIES["choices"], dtype=object)
    texts = {**STORIES, "choices": choices}
    tensors = model.preprocessor.as_tensors(texts)
    trees, cut = model.preprocessor.transform(list(tensors.values()))
    trees = model.preprocessor.pad(trees)
    expected = scipy.special.softmax(model(trees) / 2.0, axis=-1)
    trees = {name: np.array(tensor) for name, tensor in trees.items()}
    counts = (trees["branches"] >= 0).sum(axis=1)
    for number, count in enumerate(counts):
        inputs = story_inputs(as_input, number)
        tree, answers = tokenize(**inputs), choose(**inputs)
        for name in TREE:
            length = 3 if name == "extract_indices" else count
            assert tree[name][0, :length].tolist() == trees[name][number, :length].tolist()
        for outputs in (tree, answers):
            assert outputs["num_tokens"].tolist() == [count]
            assert outputs["truncated"].tolist() == [int(cut[number])]
            assert outputs["blank"].tolist() == [int(number in (4, 5))]
        of_tokens = choose_tokens(**{name: tree[name] for name in TREE})
        for found in (answers["scores"], of_tokens["scores"]):
            np.testing.assert_allclose(found, expected[number], atol=1e-4, rtol=0)
            assert np.all((found == 0) == (trees["extract_indices"][number] < 0))
        for found in (answers["is_sure"], of_tokens["is_sure"]):
            assert found.tolist() == [int(expected[number].max() >= 0.5)]
    metadata = read_metadata(path)
    assert (metadata["num_choices"], metadata["max_bytes"]) == (3, SIZES)


@pytest.mark.slow
def test_choices_as_strings(chooser):
    """TextModel answers as the Keras model does, also with fewer choices than the file has."""
    model, path = chooser
    choose, texts = TextModel(path), ("a good film", "the staff were?")
    for choices in (["kind", "bad and dull staff", "lovely"], ["bad", "kind"], ["", "bad"]):
        answer = choose(*texts, choices)
        [expected] = model.classify(([texts[0]], [texts[1]], [choices]))
        scores = answer.pop("scores")
        np.testing.assert_allclose(scores, expected.pop("scores"), atol=1e-4)
        for name in ("label", "choice", "is_sure"):
            assert answer[name] == expected[name]
    for wrong in ([], ["a", ""], ["a"] * 4, "abc"):
        with pytest.raises(ValueError, match="choices"):
            choose(*texts, wrong)


@pytest.mark.slow
def test_absent_choices(chooser, as_input, interpret):
    """Scores keep their indices, and only the last choices are absent; without any, all are 0."""
    choose, inputs = interpret(chooser[1], "text"), story_inputs(as_input, 5)
    scores = choose(**inputs)["scores"]
    moved = {**inputs, "choices": inputs["choices"][[1, 0, 2]]}
    np.testing.assert_allclose(choose(**moved)["scores"], scores[[1, 0, 2]], atol=1e-6)
    none = {**inputs, "choices": 0 * inputs["choices"]}
    assert choose(**none)["scores"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_the_next_tokens(make_task, as_input, interpret, tmp_path):
    """Reading a prompt, then token after token, is the same as reading the whole text."""
    model = make_task(gpt1_keras.GPT1CausalLM, num_layers=2)
    model.backbone.num_untrained_tokens = 1  # `<extract>`
    path = convert(model, tmp_path / "model.tflite", MAX_BYTES, SEQUENCE_LENGTH)
    read, go_on = interpret(path, "text"), interpret(path, "tokens")
    for prompt in ("the staff", "good bad film " * 3):
        outputs = read(text=as_input(prompt))
        ids = model.preprocessor.tokenizer(prompt).numpy().tolist()
        assert outputs["num_tokens"].tolist() == [len(ids)]
        assert outputs["truncated"].tolist() == [0]
        for _ in range(3):
            expected = model({"token_ids": np.array([ids])})[0, -1]
            np.testing.assert_allclose(outputs["logits"], expected, atol=1e-4)
            ids.append(int(outputs["logits"].argmax()))
            position = np.array([len(ids) - 1], np.int32)
            token = np.array(ids[-1:], np.int32)
            outputs = go_on(token_ids=token, num_tokens=position, cache=outputs["cache"])
        # An id that the model does not have, and a position past its end, are errors.
        for token, position in ((-1, 3), (10_000, 3), (1, SEQUENCE_LENGTH)):
            with pytest.raises((RuntimeError, ValueError)):
                go_on(
                    token_ids=np.array([token], np.int32),
                    num_tokens=np.array([position], np.int32),
                    cache=outputs["cache"],
                )
    answer = TextModel(path)("the staff")
    expected = scipy.special.softmax(read(text=as_input("the staff"))["logits"])
    best = model.preprocessor.tokenizer.id_to_token(int(expected.argmax()))
    assert (answer["label"], len(answer["scores"])) == (best, 10)
    assert answer["score"] == pytest.approx(expected.max(), abs=1e-6)
    with pytest.raises(ValueError, match="token"):
        TextModel(path)("")
    # The token embeddings are there once, for look-ups and for logits.
    content = pathlib.Path(path).read_bytes()
    buffers = [len(each.data) for each in unpack(content).buffers if each.data is not None]
    assert buffers.count(model.preprocessor.tokenizer.vocabulary_size() * 32 * 4) == 1
    in_8_bits = quantize_weights(content, "int8")
    assert len(quantize_weights(content, "int4")) < len(in_8_bits) < len(content)
    assert read_metadata(path)["vocabulary"] == model.preprocessor.tokenizer.get_vocabulary()
    outputs = interpret(path, "tokenize")(text=as_input("good bad " * 22))
    assert outputs["num_tokens"].tolist() == [SEQUENCE_LENGTH]
    assert outputs["truncated"].tolist() == [1]
    # A prompt without a token has nothing to continue from.
    assert read(text=as_input(""))["num_tokens"].tolist() == [0]
