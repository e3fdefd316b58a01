"""GPT1Backbone: its size, what each position sees, and Keras's features."""

import keras
import numpy as np
import pytest

import gpt1_keras

IDS = np.random.default_rng(0).integers(0, 70, (2, 20))


@pytest.fixture
def backbone(tiny_backbone):
    """A decoder where no weight is zero or one, and attention is far from uniform."""
    random = np.random.default_rng(1)
    for variable in tiny_backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    return tiny_backbone


def states(backbone, ids):
    return keras.ops.convert_to_numpy(backbone({"token_ids": np.array(ids)}))


@pytest.mark.slow
def test_the_paper_has_so_many_parameters():
    backbone = gpt1_keras.GPT1Backbone(vocabulary_size=40478)
    assert backbone.count_params() == 116_534_784
    assert sum(block.count_params() for block in backbone.blocks) == 85_054_464
    assert backbone.token_embedding.count_params() == 31_087_104
    assert backbone.embedding.positions.count_params() == 393_216


def test_initial_weights_are_the_papers():
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        500, num_layers=1, num_heads=4, hidden_dim=128, intermediate_dim=512
    )
    for variable in backbone.weights:
        value = keras.ops.convert_to_numpy(variable)
        if value.ndim == 2:
            assert value.mean() == pytest.approx(0.0, abs=0.001), variable.path
            assert value.std() == pytest.approx(0.02, rel=0.02), variable.path
        else:
            assert np.all(value == (1.0 if variable.name == "gamma" else 0.0)), variable.path


def test_no_position_sees_those_to_its_right(backbone):
    reference = states(backbone, IDS)
    for position in (0, 7, 19):
        changed = IDS.copy()
        changed[:, position] = (changed[:, position] + 1) % 70
        change = np.abs(states(backbone, changed) - reference).max(axis=(0, 2))
        np.testing.assert_allclose(change[:position], 0.0, atol=1e-6)
        assert np.all(change[position:] > 1e-3)


@pytest.mark.parametrize("way", ["config", "preset", "file"])
def test_round_trips(backbone, tmp_path, way):
    if way == "config":
        copy = gpt1_keras.GPT1Backbone.from_config(backbone.get_config())
        copy.set_weights(backbone.get_weights())
    elif way == "preset":
        backbone.save_to_preset(tmp_path)
        copy = gpt1_keras.GPT1Backbone.from_preset(str(tmp_path))
    else:
        backbone.save(tmp_path / "backbone.keras")
        copy = keras.saving.load_model(tmp_path / "backbone.keras")
    assert isinstance(copy, gpt1_keras.GPT1Backbone)
    assert copy.get_config() == backbone.get_config()
    np.testing.assert_array_equal(states(copy, IDS), states(backbone, IDS))


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("backbone_cls", [gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def test_tokens_that_were_never_trained_have_no_logits(backbone_cls):
    sizes = {"hidden_dim": 8, "dropout": 0.0, "num_untrained_tokens": 2}
    if backbone_cls is gpt1_keras.GPT1Backbone:
        sizes |= {"num_layers": 1, "num_heads": 1, "intermediate_dim": 8}
    backbone = backbone_cls(20, **sizes)
    copy = backbone_cls.from_config(backbone.get_config())
    assert copy.num_untrained_tokens == 2
    copy.num_untrained_tokens = 0
    lm = gpt1_keras.GPT1CausalLM(copy)
    inputs = {"token_ids": IDS % 20, "padding_mask": np.ones_like(IDS)}
    expected = np.array(lm(inputs))
    copy.num_untrained_tokens = 2
    logits = np.array(lm(inputs))
    np.testing.assert_array_equal(logits[:, :, :18], expected[:, :, :18])
    half = gpt1_keras.GPT1CausalLM(backbone_cls(20, **sizes, dtype="mixed_float16"))
    clone = keras.models.clone_model(lm)
    lm.quantize("int8")
    assert copy.token_embedding.quantization_mode == "int8"
    for found in (logits, clone(inputs), lm(inputs), half(inputs)):
        found = keras.ops.convert_to_numpy(keras.ops.cast(found, "float32"))
        assert np.all(np.isfinite(found)) and np.all(found[:, :, 18:] <= -59_000.0)
        assert np.abs(found[:, :, :18]).max() < 1.0
    for wrong in (-1, 20, True, 1.0, "1"):
        with pytest.raises(ValueError, match="num_untrained_tokens"):
            backbone_cls(20, **sizes | {"num_untrained_tokens": wrong})


def test_an_input_longer_than_the_context(backbone):
    assert states(backbone, np.ones((1, 64), int)).shape == (1, 64, 32)
    with pytest.raises(ValueError, match=r"\(1, 65\)"):
        backbone({"token_ids": np.ones((1, 65), int)})
    with pytest.raises(ValueError, match=r"\(1, 65\)"):
        backbone.predict({"token_ids": np.ones((1, 65), int)}, verbose=0)


def test_lora_trains_nothing_but_itself(backbone):
    # Keras leaves the bias of a layer that it adapts trainable.
    backbone.enable_lora(2)
    names = ("qkv/lora_kernel_a", "qkv/lora_kernel_b", "qkv/bias")
    assert len(backbone.trainable_variables) == 3 * 2
    assert all(variable.path.endswith(names) for variable in backbone.trainable_variables)

    before = {variable.path: np.array(variable) for variable in backbone.weights}
    reference = states(backbone, IDS)
    backbone.compile(keras.optimizers.SGD(1.0), "mean_squared_error", run_eagerly=True)
    backbone.fit({"token_ids": IDS}, np.ones((2, 20, 32)), epochs=2, verbose=0)
    for variable in backbone.weights:
        is_trained = not np.array_equal(before[variable.path], np.array(variable))
        assert is_trained == variable.path.endswith(names), variable.path
    assert np.abs(states(backbone, IDS) - reference).max() > 1e-3


def test_mixed_bfloat16(backbone):
    config = {**backbone.get_config(), "dtype": "mixed_bfloat16"}
    mixed = gpt1_keras.GPT1Backbone.from_config(config)
    mixed.set_weights(backbone.get_weights())
    assert {variable.dtype for variable in mixed.weights} == {"float32"}
    outputs = mixed({"token_ids": IDS})
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    outputs = keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))
    np.testing.assert_allclose(outputs, states(backbone, IDS), atol=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("activations", ["float", "int8"])
def test_int8(backbone, activations):
    """In training, quantized layers compute the same.

    Layer normalisation in training differs in its last digit from that in inference. Between two
    integers, that decides which one an activation is rounded to: such a row differs by as much as
    rounding. So the same digits are required of float activations.
    """
    config = {
        "float": keras.quantizers.Int8QuantizationConfig(activation_quantizer=None),
        "int8": None,  # Keras's default: weights and activations
    }
    copy = gpt1_keras.GPT1Backbone.from_config({**backbone.get_config(), "dropout": 0.0})
    copy.set_weights(backbone.get_weights())
    copy.quantize("int8", config[activations])
    assert keras.backend.standardize_dtype(copy.blocks[0].expand.kernel.dtype) == "int8"
    quantized, reference = states(copy, IDS), states(backbone, IDS)
    assert not np.array_equal(quantized, reference)
    np.testing.assert_allclose(quantized, reference, atol=0.15)
    training = copy({"token_ids": IDS}, training=True)
    np.testing.assert_allclose(training, reference, atol=0.15)
    if activations == "float":
        np.testing.assert_allclose(training, quantized, atol=1e-4)


NUMBERS = [0, -1, True, "3", 3.0, None]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("hidden_dim", number) for number in NUMBERS),
        ("max_sequence_length", 0.1),
        ("vocabulary_size", "9"),
        ("dropout", 512),
    ],
)
@pytest.mark.parametrize("cls", [gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def test_sizes_that_are_refused(cls, name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        cls(**{name: value})


@pytest.mark.parametrize("number", NUMBERS)
def test_less_than_a_layer(number):
    with pytest.raises(ValueError, match=f"num_layers={number!r}"):
        gpt1_keras.GPT1Backbone(num_layers=number)


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="num_heads=5, hidden_dim=32"):
        gpt1_keras.GPT1Backbone(77, num_layers=1, num_heads=5, hidden_dim=32, intermediate_dim=64)


def test_arguments_by_position_as_gpt2_has_them():
    backbone = gpt1_keras.GPT1Backbone(9, 1, 2, 8, 8, 0.5, 16)
    assert (backbone.dropout, backbone.max_sequence_length) == (0.5, 16)
    backbone = gpt1_keras.LSTMBackbone(9, 8, 8, 0.5, 16)
    assert (backbone.dropout, backbone.max_sequence_length) == (0.5, 16)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def test_the_spec_of_outputs_without_a_mask(cls):
    backbone = cls(9, hidden_dim=24)
    ids = keras.KerasTensor((None, 5), "int32")
    assert backbone.compute_output_spec({"token_ids": ids}).shape == (None, 5, 24)
    with pytest.raises(ValueError, match="'token_ids'"):
        backbone.compute_output_spec({"ids": ids})
