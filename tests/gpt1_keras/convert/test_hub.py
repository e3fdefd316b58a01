"""Published checkpoints by their handles, from a server that speaks the hub's protocol."""

import json

import keras
import keras_hub
import numpy as np
import pytest
import safetensors.numpy

import gpt1_keras
from gpt1_keras.convert import published_weights
from gpt1_keras.presets import find_preset, load_task, load_tokenizer
from tests.helpers.hub_server import running_hub
from tests.helpers.published_checkpoint import HANDLE, NAME


def whole_files(cache):
    """The files of a cache that a program may take for whole."""
    return {path.name for path in cache.rglob("snapshots/*/*") if path.exists()}


@pytest.mark.parametrize(
    ("task_cls", "arguments"),
    [
        (gpt1_keras.GPT1CausalLM, {}),
        (gpt1_keras.GPT1TextClassifier, {"num_classes": 2}),
        (gpt1_keras.GPT1TextSimilarity, {"score_range": (0, 5)}),
        (gpt1_keras.GPT1MultipleChoice, {}),
    ],
)
def test_every_task_in_one_line(hub, published, outputs_of, task_cls, arguments):
    task = task_cls.from_preset(HANDLE, **arguments)
    assert type(task) is task_cls
    ids = np.random.default_rng(0).integers(0, 70, (2, 24))
    states = keras.ops.convert_to_numpy(task.backbone({"token_ids": ids}))
    np.testing.assert_allclose(states, outputs_of(published[1], ids)[0], atol=2e-5, rtol=0)
    assert task.preprocessor.sequence_length == 24
    tokenizer = task.preprocessor.tokenizer
    assert tokenizer.normalization == "bert"
    assert hub.asked_for() <= {
        *("config.json", "README.md", "vocab.json", "merges.txt", "tokenizer.json"),
        "model.safetensors",
    }
    # The special tokens have fresh embeddings, so all ids are embedded.
    assert task.backbone.vocabulary_size == tokenizer.vocabulary_size()


def test_backbone_tokenizer_and_preprocessors(hub, tiny_tokenizer, capsys):
    published_weights._say.cache_clear()
    tokenizer = gpt1_keras.GPT1Tokenizer.from_preset(HANDLE)
    assert "is read with normalization='bert', as transformers does" in capsys.readouterr().err
    assert tokenizer.fingerprint == tiny_tokenizer.fingerprint
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor.from_preset(HANDLE, fields=("a", "b"))
    assert preprocessor.fields == ("a", "b")
    lm_preprocessor = gpt1_keras.GPT1CausalLMPreprocessor.from_preset(HANDLE, sequence_length=8)
    assert lm_preprocessor.sequence_length == 8
    fresh = gpt1_keras.GPT1Backbone.from_preset(HANDLE, load_weights=False, dropout=0.0)
    assert fresh.dropout == 0.0
    # None of these needs the weights.
    assert "model.safetensors" not in hub.asked_for()
    backbone = gpt1_keras.GPT1Backbone.from_preset(HANDLE, dtype="bfloat16")
    assert backbone.dtype_policy.name == "bfloat16"
    rows = np.array(keras.ops.cast(backbone.token_embedding.embeddings, "float32"))
    assert np.abs(rows[:-3] - np.array(fresh.token_embedding.embeddings)[:-3]).max() > 0.1
    assert hub.asked_for() >= {"model.safetensors"}


def test_the_normalization_is_the_users_choice(hub):
    """Of all that have a tokenizer."""
    for made in (
        gpt1_keras.GPT1TextClassifier.from_preset(HANDLE, num_classes=2, normalization="original"),
        gpt1_keras.GPT1TextClassifierPreprocessor.from_preset(HANDLE, normalization="original"),
    ):
        assert getattr(made, "preprocessor", made).tokenizer.normalization == "original"
    tokenizer = gpt1_keras.GPT1Tokenizer.from_preset(HANDLE, normalization="original")
    assert tokenizer.normalization == "original"
    with pytest.raises(ValueError, match="'new'"):
        gpt1_keras.GPT1CausalLM.from_preset(HANDLE, normalization="new")
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor.from_preset(HANDLE)
    with pytest.raises(ValueError, match="both"):
        gpt1_keras.GPT1CausalLM.from_preset(
            HANDLE, normalization="original", preprocessor=preprocessor
        )
    with pytest.raises(ValueError, match="preprocessor"):
        keras_hub.models.CausalLM.from_preset(HANDLE, normalization="bert", preprocessor=None)


@pytest.mark.slow
def test_a_preset_keeps_its_normalization():
    lm = gpt1_keras.GPT1CausalLM.from_preset("gpt1_tiny_books", normalization="bert")
    assert lm.preprocessor.sequence_length == 256
    with pytest.raises(ValueError, match="'bert'.*'original'"):
        gpt1_keras.GPT1CausalLM.from_preset("gpt1_tiny_books", normalization="original")


def test_kerashub_s_own_classes_find_ours(hub):
    lm = keras_hub.models.CausalLM.from_preset(HANDLE)
    assert isinstance(lm, gpt1_keras.GPT1CausalLM)
    classifier = keras_hub.models.TextClassifier.from_preset(HANDLE, num_classes=3)
    assert isinstance(classifier, gpt1_keras.GPT1TextClassifier)
    assert classifier.num_classes == 3
    assert isinstance(keras_hub.models.Backbone.from_preset(HANDLE), gpt1_keras.GPT1Backbone)
    tokenizer = keras_hub.tokenizers.Tokenizer.from_preset(HANDLE)
    assert isinstance(tokenizer, gpt1_keras.GPT1Tokenizer)


@pytest.mark.slow
def test_wherever_a_preset_is_named(hub, tiny_tokenizer):
    folder = find_preset(HANDLE)
    assert (folder / "model.safetensors").is_file()
    for named in (HANDLE, folder, str(folder)):
        assert type(load_task(named)) is gpt1_keras.GPT1CausalLM
        assert load_tokenizer(named).fingerprint == tiny_tokenizer.fingerprint
    assert load_tokenizer(HANDLE, "original").normalization == "original"
    with pytest.raises(ValueError, match="GPT1CausalLM.*GPT1TextClassifier"):
        load_task(HANDLE, gpt1_keras.GPT1TextClassifier)


def test_a_preprocessor_of_another_vocabulary(hub, tiny_tokenizer):
    tokens = tiny_tokenizer.vocabulary.tokens
    other = {token: id for id, token in enumerate([tokens[0], *tokens[:0:-1]])}
    tokenizer = gpt1_keras.GPT1Tokenizer(
        other, [" ".join(m) for m in tiny_tokenizer.vocabulary.merges]
    )
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer, 24)
    with pytest.raises(ValueError, match="vocabulary"):
        gpt1_keras.GPT1CausalLM.from_preset(HANDLE, preprocessor=preprocessor)


def test_nothing_is_fetched_unless_asked_for(hub, published):
    gpt1_keras.GPT1CausalLM.from_preset(str(published[0]))
    gpt1_keras.GPT1Tokenizer.from_preset("gpt1_tiny_books")
    find_preset("gpt1_tiny_books")
    with pytest.raises(FileNotFoundError, match="hf://, kaggle://, modelscope://"):
        find_preset(NAME)
    assert hub.requests == []


def test_what_was_downloaded_needs_no_network(hub):
    del hub.repositories[NAME]["README.md"]  # which the cache then knows to be missing
    load_task(HANDLE)
    hub.server_close()
    assert type(load_task(HANDLE)) is gpt1_keras.GPT1CausalLM


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        # huggingface_hub compares sizes, where the hub says them.
        (lambda content: content[:-8], "Consistency check failed"),
        (lambda content: content[:-8] + b"12345678", "removed from the cache"),
        (lambda content: None, r"Could not download model.safetensors of hf://\S+: [^\n]+"),
    ],
    ids=["too short", "wrong hash", "cut"],
)
def test_a_damaged_download(hub, published, tmp_path, damaged, message):
    content = hub.repositories[NAME]["model.safetensors"]
    hub.damaged["model.safetensors"] = damaged(content)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        gpt1_keras.GPT1CausalLM.from_preset(HANDLE)
    assert "\n" not in str(caught.value)
    assert "model.safetensors" in str(caught.value)
    assert "model.safetensors" not in whole_files(tmp_path)
    assert not list(tmp_path.rglob("*.incomplete"))
    hub.damaged.clear()
    assert isinstance(load_task(HANDLE), gpt1_keras.GPT1CausalLM)


def test_a_small_file_with_a_wrong_hash(hub, tmp_path):
    content = hub.repositories[NAME]["merges.txt"]
    hub.damaged["merges.txt"] = content.replace(b"a", b"b")
    with pytest.raises(ValueError, match="merges.txt of hf://.*removed"):
        load_tokenizer(HANDLE)
    assert "merges.txt" not in whole_files(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "merges.txt", "model.safetensors"])
def test_a_missing_file(hub, name):
    del hub.repositories[NAME][name]
    with pytest.raises(FileNotFoundError, match=name):
        gpt1_keras.GPT1CausalLM.from_preset(HANDLE)


def test_pickled_weights_are_refused_in_words(published, tmp_path):
    for name in ("config.json", "vocab.json", "merges.txt", "pytorch_model.bin"):
        (tmp_path / name).write_bytes((published[0] / name).read_bytes())
    with pytest.raises(FileNotFoundError, match="model.safetensors.*pytorch_model.bin"):
        gpt1_keras.GPT1Backbone.from_preset(str(tmp_path))


@pytest.mark.parametrize("load", [load_task, load_tokenizer, gpt1_keras.GPT1Backbone.from_preset])
def test_no_network(hub, tmp_path, load):
    hub.server_close()
    with pytest.raises(OSError, match="config.json of hf://"):
        load(HANDLE)
    assert not whole_files(tmp_path)


def test_no_such_repository(hub):
    with pytest.raises(OSError, match="Repository Not Found") as caught:
        load_task("hf://nobody/nothing")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="handles"):
        load_task("hf://a/b/c/d")


def test_a_damaged_configuration(hub):
    hub.repositories[NAME]["config.json"] = b"{"
    with pytest.raises(ValueError, match="config.json"):
        load_task(HANDLE)


def test_weights_in_several_files(hub, published, tmp_path):
    """As transformers writes them above a size."""
    weights = safetensors.numpy.load_file(published[0] / "model.safetensors")
    files = hub.repositories[NAME]
    del files["model.safetensors"]
    names = sorted(weights)
    halves = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, half in halves.items():
        files[file] = safetensors.numpy.save({name: weights[name] for name in half})
    index = {"weight_map": {name: file for file, half in halves.items() for name in half}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    lm = load_task(HANDLE)
    np.testing.assert_array_equal(
        np.array(lm.backbone.token_embedding.embeddings)[:-3], weights["tokens_embed.weight"]
    )
    index["weight_map"]["h.0.ln_1.bias"] = "../model.safetensors"
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    with running_hub(tmp_path / "other") as other:
        other.repositories = hub.repositories
        with pytest.raises(ValueError, match="'../model.safetensors'"):
            load_task(HANDLE)
