"""Fine-tuned `OpenAIGPTForSequenceClassification`: our logits equal the torch model's."""

import json

import keras
import numpy as np
import pytest
import safetensors.numpy
import torch
from transformers import (
    AutoTokenizer,
    OpenAIGPTConfig,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTTokenizer,
    pipeline,
)

import gpt1_keras
from gpt1_keras.convert import LastTokenPreprocessor, save_hugging_face
from gpt1_keras.presets import load_task
from serving.tflite.converter import convert

TEXTS = [
    "a good film",
    "the staff were kind, and a lovely film is a good one " * 3,  # longer than the context
    "a dull film 漢字",  # ends in what the vocabulary does not know
    "漢",
    "x",
]
NAMES = {0: "bad", 1: "fair", 2: "good"}


@pytest.fixture(scope="module")
def save_classifier(tmp_path_factory, tiny_tokenizer):
    """A function that writes a random classifier as `transformers` 5 does; returns it too."""

    def save(padding, files=(), **config):
        folder = tmp_path_factory.mktemp("classifier")
        tiny_tokenizer.save_files(folder / "vocab.json", folder / "merges.txt")
        tokenizer = OpenAIGPTTokenizer.from_pretrained(folder)
        for name in ("vocab.json", "merges.txt"):
            if name not in files:  # transformers 5 writes tokenizer.json alone
                (folder / name).unlink()
        if padding is not None:
            tokenizer.add_special_tokens({"pad_token": padding})
        tokenizer.save_pretrained(folder)
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 24, "id2label": NAMES}
        torch.manual_seed(0)
        model = OpenAIGPTForSequenceClassification(
            OpenAIGPTConfig(
                vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **(sizes | config)
            )
        ).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder)
        return folder, model

    return save


def logits_of(folder, model, texts):
    """The torch model's, with the tokenizer of the folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    has_padding = tokenizer.pad_token is not None
    batches = [texts] if has_padding else [[text] for text in texts]
    logits = []
    with torch.no_grad():
        for batch in batches:
            inputs = tokenizer(
                batch, padding=has_padding, truncation=True, max_length=24, return_tensors="pt"
            )
            logits.append(model(**inputs).logits.numpy())
    return np.concatenate(logits)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["[PAD]", "<unk>", None])
def test_the_logits_are_torch_s(save_classifier, padding):
    """Whatever pads: a token of its own, one that texts may end in, or nothing."""
    folder, model = save_classifier(padding)
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(folder))
    assert classifier.class_names == list(NAMES.values())
    expected = logits_of(folder, model, TEXTS)
    assert expected.std(axis=0).min() > 0.1
    found = classifier.predict([*TEXTS, ""], verbose=0)
    np.testing.assert_allclose(found[:-1], expected, atol=2e-5, rtol=0)
    # In batches of one as well, by the path that exports take. A text without tokens has logits
    # of its own too; torch's depend on the texts beside it.
    for text, logits in (TEXTS[1], found[1]), ("", found[-1]):
        outputs = classifier.predict_outputs(classifier.preprocessor([text]))
        np.testing.assert_allclose(outputs, logits[None], atol=2e-5, rtol=0)


@pytest.mark.slow
def test_it_is_what_the_checkpoint_holds(save_classifier, tmp_path):
    folder, model = save_classifier("[PAD]")
    classifier = load_task(folder)
    assert type(classifier) is gpt1_keras.GPT1TextClassifier
    classifier.save_to_preset(tmp_path / "preset")
    copy = load_task(tmp_path / "preset")
    assert isinstance(copy.preprocessor, LastTokenPreprocessor)
    expected = logits_of(folder, model, TEXTS)
    np.testing.assert_allclose(copy.predict(TEXTS, verbose=0), expected, atol=2e-5)


@pytest.mark.slow
def test_classify_is_the_pipeline_s(save_classifier):
    folder, _ = save_classifier("[PAD]")
    answers = load_task(folder).classify(TEXTS)
    pipe = pipeline("text-classification", str(folder))
    for answer, expected in zip(answers, pipe(TEXTS, truncation=True, max_length=24)):
        assert answer["label"] == expected["label"]
        assert answer["score"] == pytest.approx(expected["score"], abs=1e-5)


def test_back_to_transformers(save_classifier, tmp_path):
    folder, model = save_classifier("[PAD]")
    classifier = load_task(folder)
    classifier.export_to_transformers(tmp_path / "exported")
    copy, report = OpenAIGPTForSequenceClassification.from_pretrained(
        tmp_path / "exported", output_loading_info=True
    )
    assert not any(report.values()), report
    assert copy.config.id2label == NAMES
    expected = logits_of(folder, model, TEXTS)
    found = logits_of(tmp_path / "exported", copy.eval(), TEXTS)
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=0)
    classifier.head.bias.assign([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="bias of up to 1"):
        save_hugging_face(classifier, tmp_path / "not")


def test_a_fresh_head_on_its_backbone(save_classifier):
    folder, model = save_classifier("[PAD]", files=("vocab.json", "merges.txt"))
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(folder), num_classes=5)
    assert classifier.num_classes == 5
    assert isinstance(classifier.preprocessor, LastTokenPreprocessor)
    similarity = gpt1_keras.GPT1TextSimilarity.from_preset(str(folder), num_classes=2)
    assert type(similarity.preprocessor) is gpt1_keras.GPT1TextSimilarityPreprocessor
    expected = model.score.weight.detach().numpy()
    assert not np.array_equal(np.array(classifier.head.kernel).T[:3], expected)


def test_without_its_weights(save_classifier):
    folder, model = save_classifier("[PAD]")
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(folder), load_weights=False)
    assert classifier.class_names == list(NAMES.values())
    expected = model.score.weight.detach().numpy()
    assert not np.array_equal(np.array(classifier.head.kernel).T, expected)


def test_default_names(save_classifier):
    """Of two classes, which transformers leaves out of config.json."""
    folder, model = save_classifier("<unk>", id2label=None)
    assert "id2label" not in json.loads((folder / "config.json").read_text())
    assert load_task(folder).class_names == ["LABEL_0", "LABEL_1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "regression"}, "regression with 3"),
        ({"problem_type": "multi_label_classification"}, "multi_label_classification"),
        ({"id2label": {"0": "score"}}, "with 1 labels"),
        ({"id2label": {"0": "bad", "2": "good"}}, "labels from 0"),
        ({"id2label": {"0": "bad", "1": "good"}}, r"\(32, 3\).*\(32, 2\)"),
        ({"architectures": ["OpenAIGPTDoubleHeadsModel"]}, "OpenAIGPTDoubleHeadsModel"),
    ],
)
def test_another_head(save_classifier, changes, message):
    folder, _ = save_classifier("[PAD]")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ValueError, match=message):
        load_task(folder)


def test_a_checkpoint_without_its_head(save_classifier):
    folder, _ = save_classifier("[PAD]")
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    del weights["score.weight"]
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match="score.weight"):
        load_task(folder)


def test_devices_refuse_it_in_words(save_classifier, tmp_path):
    """Their graph frames texts as the paper does."""
    folder, _ = save_classifier("[PAD]")
    with pytest.raises(ValueError, match="LastTokenPreprocessor"):
        convert(load_task(folder), tmp_path / "model.tflite")


def test_what_the_preprocessor_refuses(tiny_tokenizer):
    with pytest.raises(ValueError, match="fields"):
        LastTokenPreprocessor(tiny_tokenizer, fields=("premise", "hypothesis"))
    with pytest.raises(ValueError, match="pad_token_id"):
        LastTokenPreprocessor(tiny_tokenizer, pad_token_id=-1)
    preprocessor = LastTokenPreprocessor(tiny_tokenizer, 16, pad_token_id=5)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(preprocessor))
    assert copy.pad_token_id == 5
