"""Checkpoints to and from Hugging Face's torch model, which gives the same numbers."""

import json

import keras
import keras_hub
import numpy as np
import pytest
import safetensors.numpy
import torch
from transformers import AutoTokenizer, OpenAIGPTLMHeadModel, OpenAIGPTTokenizer

import gpt1_keras
from gpt1_keras.convert import load_hugging_face, save_hugging_face, to_transformers
from tests.helpers.published_checkpoint import NO_DROPOUT
from tests.helpers.small_disk import fill, small_disk

TEXTS = [
    "A good film, and a lovely one!",
    "the Staff were KIND  and\tun-known: Ünïcödé ﬁlm 漢字 don't",
    "",
    "x </w> #1",
]
FILMS = ["a good film, and a lovely one", "a bad film, and a dull one"]


def make_lm(tokenizer, **config):
    """A language model in which no weight is zero or one."""
    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 3, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 128}
    backbone = gpt1_keras.GPT1Backbone(
        tokenizer.vocabulary_size(), **(sizes | {"max_sequence_length": 24} | config)
    )
    random = np.random.default_rng(1)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.2, variable.shape))
    return gpt1_keras.GPT1CausalLM(backbone, gpt1_keras.GPT1CausalLMPreprocessor(tokenizer))


@pytest.fixture
def lm(tiny_tokenizer):
    return make_lm(tiny_tokenizer)


@pytest.fixture
def checkpoint(tmp_path, tiny_tokenizer, make_torch_model):
    """A checkpoint that transformers and the vocabulary's makers wrote, and its torch model."""
    model = make_torch_model(vocab_size=tiny_tokenizer.vocabulary_size() - 3)
    model.save_pretrained(tmp_path)
    tiny_tokenizer.save_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    return tmp_path, model


def assert_outputs_equal(found, expected, atol):
    for ours, theirs in zip(found, expected, strict=True):
        assert np.abs(theirs).max() > 0.5
        np.testing.assert_allclose(ours, theirs, atol=atol, rtol=0)


def edit_weights(folder, edit):
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    safetensors.numpy.save_file(edit(weights), folder / "model.safetensors")


def test_torch_opens_what_is_saved(tmp_path, lm, outputs_of):
    save_hugging_face(lm, tmp_path / "saved")
    model, report = OpenAIGPTLMHeadModel.from_pretrained(
        tmp_path / "saved", output_loading_info=True
    )
    assert not any(report.values()), report
    assert_outputs_equal(outputs_of(lm), outputs_of(model.eval()), 2e-5)


@pytest.mark.slow
def test_torch_opens_what_is_saved_at_full_size(tmp_path, original_tokenizer, outputs_of):
    lm = make_lm(
        original_tokenizer,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
        max_sequence_length=512,
    )
    for block in lm.backbone.blocks:  # kernels of a size that a trained model has
        for layer in (block.attention.qkv, block.attention.output_projection):
            layer.kernel.assign(layer.kernel * 0.3)
        for layer in (block.expand, block.contract):
            layer.kernel.assign(layer.kernel * 0.3)
    save_hugging_face(lm, tmp_path / "saved")
    model = OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "saved").eval()
    ids = np.random.default_rng(0).integers(0, 40481, (1, 512))
    assert_outputs_equal(outputs_of(lm, ids), outputs_of(model, ids), 1e-4)


def test_what_torch_saved(checkpoint, outputs_of):
    folder, model = checkpoint
    lm = load_hugging_face(folder)
    assert lm.preprocessor.sequence_length == 24
    assert lm.preprocessor.tokenizer.normalization == "bert"
    states, logits = outputs_of(lm)
    assert_outputs_equal((states, logits[:, :, :-3]), outputs_of(model), 2e-5)


def test_the_special_rows_of_an_original_checkpoint_are_fresh(checkpoint):
    folder, _ = checkpoint
    lm = load_hugging_face(folder)
    tokenizer = lm.preprocessor.tokenizer
    assert lm.backbone.vocabulary_size == tokenizer.vocabulary_size()
    rows = np.array(lm.backbone.token_embedding.embeddings)[tokenizer.start_token_id :]
    assert rows.shape == (3, 32)
    assert rows.std() == pytest.approx(0.02, rel=0.3)


@pytest.fixture
def far_below(tmp_path, tiny_tokenizer, make_torch_model):
    """A checkpoint without special tokens and dropout, and its torch model."""
    model = make_torch_model(vocab_size=tiny_tokenizer.vocabulary_size() - 3, **NO_DROPOUT)
    model.save_pretrained(tmp_path / "far")
    tiny_tokenizer.save_files(tmp_path / "far/vocab.json", tmp_path / "far/merges.txt")
    return tmp_path / "far", model


def test_a_vocabulary_far_below_zero(far_below, tiny_tokenizer, loss_of, outputs_of):
    """Logits, losses and a step of training: special tokens take no part in any."""
    folder, model = far_below
    lm = load_hugging_face(folder)
    rows = tiny_tokenizer(FILMS).to_list()
    logits = outputs_of(lm)[1]
    np.testing.assert_allclose(logits[:, :, :-3], outputs_of(model)[1], atol=2e-5, rtol=0)
    assert logits[:, :, :-3].max() < -10.0 and np.all(logits[:, :, -3:] == -1e9)
    ids = np.array([rows[0]])
    with torch.no_grad():
        expected = loss_of(model, rows[:1]).item()
    found = lm.score(ids[:, :-1], scoring_mode="loss", target_ids=ids[:, 1:])
    assert np.mean(found) == pytest.approx(expected, abs=1e-4)
    lm.compile(keras.optimizers.SGD(0.05), run_eagerly=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(2):
        loss = loss_of(model, rows)
        assert lm.evaluate(FILMS, verbose=0)[0] == pytest.approx(loss.item(), abs=1e-4)
        lm.train_on_batch(FILMS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    found = np.array(lm.backbone.token_embedding.embeddings)
    expected = model.transformer.tokens_embed.weight.detach().numpy()
    np.testing.assert_allclose(found[:-3], expected, atol=1e-5, rtol=0)
    # A special token is no target either: it weighs nothing.
    special = np.array([[*rows[0], lm.tokenizer.start_token_id]])
    lm.preprocessor = None
    loss, _ = lm.evaluate({"token_ids": special[:, :-1]}, special[:, 1:], verbose=0)
    assert loss == pytest.approx(loss_of(model, rows[:1]).item(), abs=1e-4)


@pytest.mark.parametrize(
    ("sampler", "num_beams", "length"),
    [
        ("greedy", 1, 7),
        pytest.param("greedy", 1, 20, marks=pytest.mark.slow),
        pytest.param(keras_hub.samplers.BeamSampler(num_beams=3), 3, 20, marks=pytest.mark.slow),
    ],
)
def test_texts_of_a_vocabulary_far_below_zero(
    far_below, tiny_tokenizer, sampler, num_beams, length
):
    folder, model = far_below
    ids = tiny_tokenizer(FILMS[1]).numpy()[:3]
    with torch.no_grad():
        expected = model.generate(
            torch.tensor(ids[None]),
            attention_mask=torch.ones([1, 3], dtype=int),
            num_beams=num_beams,
            do_sample=False,
            max_length=length,
            pad_token_id=0,
        )[0].tolist()
    assert len(set(expected[3:])) > 1
    lm = load_hugging_face(folder)
    lm.compile(sampler=sampler, run_eagerly=True)
    found = lm.generate(tiny_tokenizer.detokenize(ids), max_length=length)
    assert found == tiny_tokenizer.detokenize(expected)


def test_untrained_tokens_are_written_where_they_are_needed(far_below, tiny_tokenizer, tmp_path):
    """Not for a language model, as transformers' softmax has no mask."""
    folder, model = far_below
    lm = load_hugging_face(folder)
    save_hugging_face(lm, tmp_path / "lm")
    copy = OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "lm")
    np.testing.assert_array_equal(
        copy.transformer.tokens_embed.weight.detach(),
        model.transformer.tokens_embed.weight.detach(),
    )
    assert len(OpenAIGPTTokenizer.from_pretrained(tmp_path / "lm")) == copy.config.vocab_size
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(lm.backbone, 2, preprocessor=preprocessor)
    save_hugging_face(classifier, tmp_path / "classifier")
    for saved in ("lm", "classifier"):
        backbone = load_hugging_face(tmp_path / saved).backbone
        assert backbone.num_untrained_tokens == 3
        np.testing.assert_array_equal(
            backbone.token_embedding.embeddings, lm.backbone.token_embedding.embeddings
        )


def test_l1_trains_the_special_tokens(far_below, tmp_path):
    """As in the released code, its softmax has them; the preset says so."""
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(far_below[0]), num_classes=2)
    for coefficient, untrained in ((0.0, 3), (0.5, 0)):
        classifier.compile("sgd", lm_coefficient=coefficient, run_eagerly=True)
        classifier.test_on_batch(FILMS, np.array([1, 0]))
        assert classifier.backbone.num_untrained_tokens == 3
        classifier.train_on_batch(FILMS, np.array([1, 0]))
        classifier.backbone.save_to_preset(tmp_path / f"{coefficient}")
        backbone = gpt1_keras.GPT1Backbone.from_preset(str(tmp_path / f"{coefficient}"))
        assert backbone.num_untrained_tokens == untrained
        logits = np.array(gpt1_keras.GPT1CausalLM(backbone)({"token_ids": np.array([[1, 2]])}))
        assert np.all((logits == -1e9).sum(axis=-1) == untrained)


@pytest.mark.parametrize("freeze", ["enable_lora", "trainable"])
def test_special_tokens_take_no_part_where_l1_cannot_train_them(freeze, far_below, tiny_tokenizer):
    """With LoRA or a frozen backbone: their logits of about 0 would stay above all others."""
    folder, model = far_below
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(folder), num_classes=2, dropout=0.0)
    backbone = classifier.backbone
    backbone.enable_lora(2) if freeze == "enable_lora" else setattr(backbone, "trainable", False)
    table = torch.tensor(np.array(backbone.token_embedding.embeddings))
    kernel = torch.tensor(np.array(classifier.head.kernel))
    start, extract = tiny_tokenizer.start_token_id, tiny_tokenizer.extract_token_id
    losses = []
    for ids, label in zip(tiny_tokenizer(FILMS).to_list(), (1, 0)):
        with torch.no_grad():
            embedded = table[torch.tensor([[start, *ids, extract]])]
            states = model.transformer(inputs_embeds=embedded).last_hidden_state[0]
            logits = states[: len(ids)] @ table[:start].T
            l1 = torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="sum")
            l2 = torch.nn.functional.cross_entropy(states[-1] @ kernel, torch.tensor(label))
        losses.append(l2.item() + 0.5 * l1.item() / (len(ids) + 1))  # `<extract>` weighs nothing
    classifier.compile("sgd", lm_coefficient=0.5, run_eagerly=True)
    found = classifier.train_on_batch(FILMS, np.array([1, 0]))[0]
    assert found == pytest.approx(np.mean(losses), abs=1e-4)
    assert backbone.num_untrained_tokens == 3


# With 70 tokens, as with the published 40,478, a set of the special ones' ids begins with the last.
@pytest.mark.parametrize("num_tokens", [70, 74])
def test_a_padding_token_of_its_own(num_tokens, save_with_tokens, tmp_path, outputs_of):
    """`<start>` has its row, which is trained; the other two are not."""
    folder = save_with_tokens(["<pad>"], num_tokens)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": num_tokens}))
    lm = load_hugging_face(folder)
    assert lm.backbone.num_untrained_tokens == 2
    save_hugging_face(lm, tmp_path / "saved")
    model = OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "saved").eval()
    assert (model.config.vocab_size, model.config.pad_token_id) == (num_tokens + 1, num_tokens)
    theirs = OpenAIGPTTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.convert_tokens_to_ids("<start>") == num_tokens
    for copy in (lm, load_hugging_face(tmp_path / "saved")):
        ours = outputs_of(copy)[1][:, :, : num_tokens + 1]
        assert_outputs_equal((ours,), outputs_of(model)[1:], 2e-5)


def test_what_older_versions_saved(checkpoint, outputs_of):
    folder, model = checkpoint

    def age(weights):
        """Without a prefix, and with the head and the masks that were once saved."""
        weights = {name.removeprefix("transformer."): array for name, array in weights.items()}
        weights["lm_head.weight"] = weights["tokens_embed.weight"]
        return weights | {
            f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 24, 24), np.float32)) for i in range(3)
        }

    edit_weights(folder, age)
    states, logits = outputs_of(load_hugging_face(folder))
    assert_outputs_equal((states, logits[:, :, :-3]), outputs_of(model), 2e-5)


def test_half_precision(checkpoint, outputs_of):
    folder, model = checkpoint
    model.half().save_pretrained(folder)
    states, logits = outputs_of(load_hugging_face(folder))
    assert_outputs_equal((states, logits[:, :, :-3]), outputs_of(model.float()), 2e-5)


@pytest.mark.slow
def test_round_trip(tmp_path, lm, outputs_of):
    save_hugging_face(lm, tmp_path / "saved")
    copy = load_hugging_face(tmp_path / "saved")
    assert copy.backbone.get_config() == lm.backbone.get_config() | {
        "name": copy.backbone.name,
        "dtype": copy.backbone.get_config()["dtype"],
    }
    for ours, theirs in zip(outputs_of(copy), outputs_of(lm)):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_kerashub_s_name(tmp_path, lm, tiny_tokenizer, outputs_of):
    """Of all that KerasHub exports: one implementation, and parts beside each other."""
    save_hugging_face(lm, tmp_path / "ours")
    lm.export_to_transformers(tmp_path / "theirs")
    lm.backbone.export_to_transformers(tmp_path / "parts")
    lm.preprocessor.export_to_transformers(tmp_path / "parts")
    lm.preprocessor.tokenizer.export_to_transformers(tmp_path / "tokenizer")
    expected = {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()}
    for name in ("theirs", "parts"):
        assert {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} == expected
    assert len(list((tmp_path / "tokenizer").iterdir())) == 4
    original = gpt1_keras.GPT1Tokenizer.learn(["a a"] * 3, 2, normalization="original")
    with pytest.raises(ValueError, match="normalization='bert'"):
        original.export_to_transformers(tmp_path / "not")
    assert not (tmp_path / "not").exists()


def test_a_classifiers_decoder_can_be_saved(tmp_path, lm, tiny_tokenizer, outputs_of):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(lm.backbone, 2, preprocessor=preprocessor)
    save_hugging_face(classifier, tmp_path / "saved")
    model = OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "saved").eval()
    assert_outputs_equal(outputs_of(lm), outputs_of(model), 2e-5)


@pytest.mark.parametrize("opener", [AutoTokenizer, OpenAIGPTTokenizer])
def test_transformers_opens_the_tokenizer(tmp_path, lm, tiny_tokenizer, opener):
    save_hugging_face(lm, tmp_path / "saved")
    theirs = opener.from_pretrained(tmp_path / "saved")
    assert theirs(TEXTS)["input_ids"] == tiny_tokenizer(TEXTS).to_list()
    assert len(theirs) == tiny_tokenizer.vocabulary_size()
    for id, token in enumerate(tiny_tokenizer.get_vocabulary()):
        assert theirs.convert_tokens_to_ids(token) == id
    framed = theirs("<start>a good film<delimiter>dull<extract>")["input_ids"]
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    good, dull = tiny_tokenizer(["a good film", "dull"]).to_list()
    assert framed == [start, *good, delimiter, *dull, extract]


@pytest.mark.slow
def test_transformers_opens_the_original_vocabulary(tmp_path, original_tokenizer, books_dir):
    save_hugging_face(
        make_lm(original_tokenizer, num_layers=1, hidden_dim=8, intermediate_dim=32),
        tmp_path / "saved",
    )
    theirs = OpenAIGPTTokenizer.from_pretrained(tmp_path / "saved")
    text = next(iter(sorted((books_dir / "valid").iterdir()))).read_text("utf-8")[:20_000]
    lines = text.splitlines() + TEXTS
    assert theirs(lines)["input_ids"] == original_tokenizer(lines).to_list()
    assert theirs.convert_tokens_to_ids("<extract>") == 40480


def test_the_normalization_is_the_users_choice(checkpoint, tmp_path):
    """With the other one it cannot be saved again, as transformers would not split text so."""
    lm = load_hugging_face(checkpoint[0], normalization="original")
    assert lm.preprocessor.tokenizer.normalization == "original"
    with pytest.raises(ValueError, match="'bert'.*'original'"):
        save_hugging_face(lm, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_width_that_the_format_does_not_know(tmp_path, tiny_tokenizer):
    lm = make_lm(tiny_tokenizer, intermediate_dim=64)
    with pytest.raises(ValueError, match="intermediate_dim=64, hidden_dim=32"):
        save_hugging_face(lm, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_a_model_without_preprocessor(tmp_path, lm):
    for preprocessor in (None, lambda texts: texts):
        lm.preprocessor = preprocessor
        with pytest.raises(ValueError, match="preprocessor="):
            save_hugging_face(lm, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_interrupted_save_leaves_the_old_folder(tmp_path, lm, monkeypatch):
    save_hugging_face(lm, tmp_path / "saved")
    before = contents(tmp_path / "saved")

    def interrupt(folder, *_):
        assert (folder / "model.safetensors").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(to_transformers, "_write_tokenizer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_hugging_face(lm, tmp_path / "saved")
    assert contents(tmp_path / "saved") == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_full_disk_leaves_the_old_folder(tmp_path, lm):
    with small_disk(tmp_path / "small", "4m") as folder:
        save_hugging_face(lm, folder / "saved")
        before = contents(folder / "saved")
        fill(folder)
        with pytest.raises(OSError, match="No space left on device: '.*/small/saved'"):
            save_hugging_face(lm, folder / "saved")
        assert contents(folder / "saved") == before
        assert sorted(path.name for path in folder.iterdir()) == ["of others", "saved"]


def test_a_save_replaces_the_old_folder_as_a_whole(tmp_path, lm, tiny_tokenizer):
    save_hugging_face(lm, tmp_path / "saved")
    (tmp_path / "saved" / "of_before").touch()
    save_hugging_face(make_lm(tiny_tokenizer, num_layers=1), tmp_path / "saved")
    assert load_hugging_face(tmp_path / "saved").backbone.num_layers == 1
    assert not (tmp_path / "saved" / "of_before").exists()


@pytest.fixture
def save_with_tokens(tmp_path, tiny_tokenizer, make_torch_model):
    """A function that writes a checkpoint whose tokenizer was given more tokens."""

    def save(tokens, num_tokens=74):
        tokens_of_all, merges = tiny_tokenizer.get_vocabulary(), tiny_tokenizer.vocabulary.merges
        ours = gpt1_keras.GPT1Tokenizer(
            {token: id for id, token in enumerate(tokens_of_all[:num_tokens])},
            [" ".join(merge) for merge in merges[: len(merges) + num_tokens - 74]],
        )
        ours.save_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
        tokenizer = OpenAIGPTTokenizer.from_pretrained(tmp_path)
        tokenizer.add_tokens(tokens)
        tokenizer.save_pretrained(tmp_path)
        make_torch_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
        return tmp_path

    return save


def test_three_tokens_of_other_names(save_with_tokens):
    """They are not those that texts are framed by here."""
    folder = save_with_tokens(["_start_", "_delimiter_", "_classify_"])
    with pytest.raises(ValueError, match=r"\['_start_', .*Expected \['<start>', '<delimiter>'"):
        load_hugging_face(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    older = {"_start_": 74, "_delimiter_": 75, "_classify_": 76}
    (folder / "added_tokens.json").write_text(json.dumps(older))
    with pytest.raises(ValueError, match="'_classify_'"):
        load_hugging_face(folder)
    (folder / "added_tokens.json").unlink()
    with pytest.raises(ValueError, match=r"\[None, None, None\]"):
        load_hugging_face(folder)


def test_three_tokens_of_our_names(save_with_tokens):
    folder = save_with_tokens(["<start>", "<delimiter>", "<extract>"])
    table = safetensors.numpy.load_file(folder / "model.safetensors")
    table = table["transformer.tokens_embed.weight"]
    found = load_hugging_face(folder).backbone.token_embedding.embeddings
    np.testing.assert_array_equal(found, table)
