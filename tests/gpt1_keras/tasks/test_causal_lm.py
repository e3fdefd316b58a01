"""The language model: next tokens and generation equal Hugging Face's torch model's."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers import OpenAIGPTLMHeadModel

import gpt1_keras
from serving.export.generation_options import GenerationOptions

PROMPTS = ["a good film, and", "the"]
LENGTH = 20


@pytest.fixture(scope="module")
def lm(tiny_tokenizer):
    """A greedy model of weights that make it write many different tokens.

    All tests share it and its compiled functions; those that compile it anew take `compiled_anew`.
    """
    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 128}
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), max_sequence_length=64, **sizes
    )
    random = np.random.default_rng(5)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.6, variable.shape))
    table = backbone.token_embedding.embeddings
    table.assign(3.0 * keras.ops.normalize(table, axis=1))
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=LENGTH)
    lm = gpt1_keras.GPT1CausalLM(backbone, preprocessor)
    lm.compile(sampler="greedy", jit_compile=False)
    return lm


@pytest.fixture
def compiled_anew(lm):
    """A function that compiles `lm`, which is greedy again after the test."""
    yield lambda **arguments: lm.compile(**arguments)
    lm.compile(sampler="greedy", jit_compile=False)


@pytest.fixture(scope="module")
def torch_lm(lm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hugging_face")
    gpt1_keras.convert.save_hugging_face(lm, folder)
    return OpenAIGPTLMHeadModel.from_pretrained(folder).eval()


def continue_with_torch(torch_lm, ids, length=LENGTH):
    ids = torch.tensor([ids])
    with torch.no_grad():
        found = torch_lm.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_length=length,
            pad_token_id=0,
            eos_token_id=None,
        )
    return found[0].tolist()


def generate_ids(lm, prompts, **arguments):
    """What `generate` has before it turns ids into text: ids and mask, as lists."""
    inputs = lm.preprocessor.generate_preprocess(prompts)
    outputs = lm.make_generate_function()(inputs, **arguments)
    return {name: np.array(value).tolist() for name, value in outputs.items()}


@pytest.mark.slow
def test_greedy_generation_is_hugging_faces(lm, torch_lm, tiny_tokenizer):
    batch = generate_ids(lm, PROMPTS)
    for prompt, generated in zip(PROMPTS, batch["token_ids"]):
        ids = tiny_tokenizer(prompt).numpy().tolist()
        expected = continue_with_torch(torch_lm, ids)
        assert len(set(expected[len(ids) :])) > 3
        assert generated == expected
        assert generate_ids(lm, [prompt])["token_ids"] == [expected]
        text = tiny_tokenizer.detokenize([i for i in expected if i < tiny_tokenizer.start_token_id])
        assert lm.generate(prompt) == text
        assert lm.generate([prompt]) == [text]
    assert batch["padding_mask"] == [[1] * LENGTH] * 2


@pytest.mark.slow
def test_greedy_generation_under_xla(lm, compiled_anew, torch_lm, tiny_tokenizer):
    compiled_anew(sampler="greedy", jit_compile=True)
    generated = generate_ids(lm, PROMPTS)["token_ids"]
    prompts = tiny_tokenizer(PROMPTS).to_list()
    assert generated == [continue_with_torch(torch_lm, prompt) for prompt in prompts]


@pytest.mark.slow
def test_generation_with_a_max_length(lm, torch_lm, tiny_tokenizer):
    ids = tiny_tokenizer(PROMPTS[0]).numpy().tolist()
    for length in (len(ids), 64):
        expected = continue_with_torch(torch_lm, ids, length) if length > len(ids) else ids
        found = lm.generate(PROMPTS[0], max_length=length)
        specials = tiny_tokenizer.special_token_ids
        assert found == tiny_tokenizer.detokenize([id for id in expected if id not in specials])
    with pytest.raises(ValueError, match="64"):
        lm.generate(PROMPTS[0], max_length=65)


def test_logits_are_those_of_the_tied_embedding(lm):
    ids = {"token_ids": np.random.default_rng(0).integers(0, 70, (2, 9))}
    states = np.array(lm.backbone(ids))
    expected = states @ np.array(lm.backbone.token_embedding.embeddings).T
    np.testing.assert_allclose(lm(ids), expected, atol=1e-4)
    assert lm.count_params() == lm.backbone.count_params()


@pytest.mark.parametrize("chunks", [[12], [5, 4, 3], [1] * 12])
def test_the_cache_changes_nothing(lm, chunks):
    ids = np.random.default_rng(0).integers(0, 70, (2, 12))
    expected = np.array(lm({"token_ids": ids}))
    # Longer than needed, and with junk where nothing has been written yet.
    cache = np.random.default_rng(1).normal(size=(2, 2, 2, 2, 15, 16)).astype("float32")
    position = 0
    for chunk in chunks:
        part = ids[:, position : position + chunk]
        logits, states, cache = lm.call_with_cache(part, cache, position)
        np.testing.assert_allclose(
            logits, expected[:, position : position + chunk], atol=2e-5, rtol=0
        )
        assert states.shape == (2, chunk, 32)
        position += chunk


def test_stop_tokens(lm, tiny_tokenizer):
    plain = generate_ids(lm, PROMPTS)["token_ids"]
    lengths = [len(ids) for ids in tiny_tokenizer(PROMPTS).to_list()]
    stop = plain[1][lengths[1] + 4]  # in the midst of the second continuation
    stopped = generate_ids(lm, PROMPTS, stop_token_ids=(stop,))
    for row, length in enumerate(lengths):
        after = plain[row][length:]
        end = length + after.index(stop) + 1 if stop in after else LENGTH
        assert stopped["token_ids"][row][:end] == plain[row][:end]
        assert stopped["padding_mask"][row] == [1] * end + [0] * (LENGTH - end)
    assert 0 in stopped["padding_mask"][1]


def test_a_stop_token_in_the_prompt_does_not_stop(lm, tiny_tokenizer):
    plain = generate_ids(lm, PROMPTS[:1])["token_ids"][0]
    ids = tiny_tokenizer(PROMPTS[0]).numpy().tolist()
    stop = next(id for id in ids if id not in plain[len(ids) :])
    stopped = generate_ids(lm, PROMPTS[:1], stop_token_ids=(stop,))
    assert stopped == {"token_ids": [plain], "padding_mask": [[1] * LENGTH]}


def test_stop_tokens_end_the_text(lm, tiny_tokenizer):
    ids = generate_ids(lm, PROMPTS[1:])["token_ids"][0]
    length = len(tiny_tokenizer(PROMPTS[1]))
    stop = ids[length + 3]
    end = length + ids[length:].index(stop) + 1
    text = tiny_tokenizer.detokenize([id for id in ids[:end] if id < tiny_tokenizer.start_token_id])
    assert lm.generate(PROMPTS[1], stop_token_ids=[stop]) == text


def test_strip_prompt(lm, tiny_tokenizer):
    ids = generate_ids(lm, PROMPTS)["token_ids"]
    lengths = [len(prompt) for prompt in tiny_tokenizer(PROMPTS).to_list()]
    expected = [
        tiny_tokenizer.detokenize([id for id in row[length:] if id < tiny_tokenizer.start_token_id])
        for row, length in zip(ids, lengths)
    ]
    assert lm.generate(PROMPTS, strip_prompt=True) == expected


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["top_k", "top_p", "contrastive", "beam"])
def test_kerashubs_samplers(lm, compiled_anew, sampler):
    compiled_anew(sampler=sampler, jit_compile=False)
    ids = generate_ids(lm, PROMPTS)["token_ids"]
    for generated, prompt in zip(ids, lm.preprocessor.tokenizer(PROMPTS).to_list()):
        assert generated[: len(prompt)] == prompt
        assert len(set(generated[len(prompt) :])) > 2


def test_the_default_sampler_is_that_of_exports(lm, compiled_anew):
    compiled_anew()
    options = GenerationOptions()
    assert isinstance(lm.sampler, keras_hub.samplers.TopKSampler)
    assert (lm.sampler.k, lm.sampler.temperature) == (
        min(options.top_k, lm.backbone.vocabulary_size),
        options.temperature,
    )
    assert options.top_p == 1.0


@pytest.mark.slow
def test_beams_are_no_worse_than_greedy(lm, compiled_anew, tiny_tokenizer):
    def log_probability(ids, prompt):
        logits = np.array(lm({"token_ids": np.array([ids])}), np.float64)[0]
        terms = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        return sum(terms[i - 1, ids[i]] for i in range(prompt, len(ids)))

    prompt = len(tiny_tokenizer(PROMPTS[0]))
    greedy = generate_ids(lm, PROMPTS[:1])["token_ids"][0]
    compiled_anew(sampler="beam", jit_compile=False)
    beam = generate_ids(lm, PROMPTS[:1])["token_ids"][0]
    assert log_probability(beam, prompt) >= log_probability(greedy, prompt)


def test_generation_from_a_dataset(lm):
    data = tf.data.Dataset.from_tensor_slices(PROMPTS).batch(1)
    assert lm.generate(data) == lm.generate(PROMPTS)


def test_preprocessing_gives_each_positions_next_token(lm, tiny_tokenizer):
    ids = tiny_tokenizer(PROMPTS).to_list()
    x, y, weights = lm.preprocessor(PROMPTS, sequence_length=4)
    for row, tokens in enumerate(ids):
        padded = tokens[:5] + [0] * (5 - len(tokens[:5]))
        assert x["token_ids"][row].numpy().tolist() == padded[:-1]
        assert y[row].numpy().tolist() == padded[1:]
        real = [int(i + 1 < len(tokens)) for i in range(4)]
        assert weights[row].numpy().tolist() == real


@pytest.mark.slow
def test_fit_on_strings_lowers_the_loss(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        dropout=0.0,
    )
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=12)
    lm = gpt1_keras.GPT1CausalLM(backbone, preprocessor)
    optimizer = gpt1_keras.optimizer.pretraining_optimizer(3e-2, warmup_steps=2)
    lm.compile(optimizer, run_eagerly=True)
    texts = ["a good film, and a lovely one", "a bad film, and a dull one"] * 4
    losses = lm.fit(texts, batch_size=4, epochs=4, verbose=0).history["loss"]
    assert losses[0] == pytest.approx(np.log(77), rel=0.1)  # the mean over next tokens
    assert losses[-1] < 0.8 * losses[0]
    assert int(optimizer.iterations) == optimizer._learning_rate.total_steps == 8


def test_the_defaults_are_the_papers(tiny_backbone, tiny_tokenizer):
    lm = gpt1_keras.GPT1CausalLM(tiny_backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer))
    assert lm.optimizer.get_config()["learning_rate"]["class_name"] == "PretrainingSchedule"
    assert lm.preprocessor.sequence_length == 64  # the context


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_int8_with_a_preprocessor():
    keras.utils.set_random_seed(0)
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(["some of the words"], num_merges=9, min_frequency=1)
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer, sequence_length=8)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 128}
    backbone = gpt1_keras.GPT1Backbone(77, **sizes)  # more ids than the tokenizer has
    lm = gpt1_keras.GPT1CausalLM(backbone, preprocessor)
    lm.compile(sampler="greedy", jit_compile=False, run_eagerly=True)
    before = lm.predict_on_batch(["some words"])
    lm.quantize("int8")
    after = lm.predict_on_batch(["some words"])
    assert not np.array_equal(after, before)
    assert np.corrcoef(after.ravel(), before.ravel())[0, 1] > 0.99
    lm.run_eagerly = False
    assert lm.generate("some words").startswith("some words")


def test_mixed_bfloat16(lm, tiny_tokenizer):
    config = {**lm.backbone.get_config(), "dtype": "mixed_bfloat16"}
    backbone = gpt1_keras.GPT1Backbone.from_config(config)
    backbone.set_weights(lm.backbone.get_weights())
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=LENGTH)
    mixed = gpt1_keras.GPT1CausalLM(backbone, preprocessor)
    mixed.compile(sampler="greedy", jit_compile=False)
    assert mixed.generate(PROMPTS)[1].startswith("the")
    ids = {"token_ids": np.random.default_rng(0).integers(0, 70, (2, 9))}
    logits = keras.ops.convert_to_numpy(keras.ops.cast(mixed(ids), "float32"))
    assert np.corrcoef(logits.ravel(), np.array(lm(ids)).ravel())[0, 1] > 0.99


@pytest.mark.slow
def test_padding_is_no_stop_token(lm, compiled_anew, tiny_tokenizer):
    """`<unk>` has the id 0, which also fills what is not written yet."""
    for sampler in ("greedy", "beam"):
        compiled_anew(sampler=sampler, jit_compile=False)
        plain = generate_ids(lm, PROMPTS)
        assert not np.any(np.array(plain["token_ids"]) == 0)
        assert generate_ids(lm, PROMPTS, stop_token_ids=(0,)) == plain
    table = lm.backbone.token_embedding.embeddings
    before = np.array(table)
    table.assign(np.roll(before, -plain["token_ids"][0][-1], axis=0))  # it writes 0 too
    try:
        ids = generate_ids(lm, PROMPTS[:1])["token_ids"][0]
        length = len(tiny_tokenizer(PROMPTS[0]))
        end = length + ids[length:].index(0) + 1 if 0 in ids[length:] else LENGTH
        stopped = generate_ids(lm, PROMPTS[:1], stop_token_ids=(0,))
        assert stopped["padding_mask"] == [[1] * end + [0] * (LENGTH - end)]
    finally:
        table.assign(before)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["greedy", "beam", "contrastive"])
def test_a_text_does_not_depend_on_those_beside_it(lm, compiled_anew, sampler):
    """Nor on how long these are, nor on when they end."""
    prompts = [*PROMPTS, "a bad film, and a dull one"]
    compiled_anew(sampler=sampler, jit_compile=False)
    together = generate_ids(lm, prompts)["token_ids"]
    alone = [generate_ids(lm, [prompt])["token_ids"][0] for prompt in prompts]
    assert together == alone
    stop = (together[0][-3], together[1][-8])
    stopped = generate_ids(lm, prompts, stop_token_ids=stop)
    assert 0 in np.array(stopped["padding_mask"])
    for prompt, ids, mask in zip(prompts, stopped["token_ids"], stopped["padding_mask"]):
        found = generate_ids(lm, [prompt], stop_token_ids=stop)
        assert found["padding_mask"] == [mask]
        assert np.array(found["token_ids"][0])[: sum(mask)].tolist() == ids[: sum(mask)]
