"""What is in a .tflite file, its quantizations, and what cannot be converted."""

import pathlib

import keras
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

import gpt1_keras
from serving.tflite import QUANTIZATIONS, convert, read_metadata
from serving.tflite import __main__ as command
from serving.tflite.converter import quantize_weights
from serving.tflite_metadata import pack, unpack

CONTEXT, MAX_BYTES, SEQUENCE_LENGTH = 64, 200, 40


def as_object(path):
    content = pathlib.Path(path).read_bytes()
    return schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))


def op_names(path):
    model = as_object(path)
    names = {number: name for name, number in vars(schema.BuiltinOperator).items()}
    return {
        names[max(code.builtinCode, code.deprecatedBuiltinCode)] for code in model.operatorCodes
    }


def test_only_built_in_ops(single):
    names = op_names(single[1])
    assert "CUSTOM" not in names and "EMBEDDING_LOOKUP" in names


def test_metadata(single, tiny_tokenizer):
    assert read_metadata(single[1]) == {
        "task": "GPT1TextClassifier",
        "class_names": ["negative", "neutral", "positive"],
        "score_range": None,
        "temperature": 1.5,
        "sure_threshold": 0.6,
        "num_choices": None,
        "fields": ["text"],
        "outputs": ["blank", "is_sure", "num_tokens", "scores", "truncated"],
        "max_bytes": {"text": MAX_BYTES},
        "sequence_length": SEQUENCE_LENGTH,
        "tokenizer": "GPT1Tokenizer",
        "tokenizer_fingerprint": tiny_tokenizer.fingerprint,
        "normalization": "bert",
        "vocabulary_size": tiny_tokenizer.vocabulary_size(),
        "vocabulary": None,
        "dtype": "float32",
        "weights": "float32",
        "gpt1_keras": gpt1_keras.__version__,
        "tensorflow": tf.__version__,
    }


def test_large_constants_lie_aligned_after_the_flatbuffer(single):
    content = pathlib.Path(single[1]).read_bytes()
    buffers = as_object(single[1]).buffers
    large = [(each.offset, each.size) for each in buffers if each.offset]
    assert len(large) > 10 and not any(offset % 16 for offset, _ in large)
    assert max(map(sum, large)) <= len(content)
    inside = [len(each.data) for each in buffers if each.data is not None]
    assert max(inside) < min(size for _, size in large)
    assert pack(unpack(content)) == content


@pytest.mark.parametrize("quantization", [name for name in QUANTIZATIONS if name != "none"])
def test_quantizations(single, assert_answers, interpret, tmp_path, quantization):
    model, path = single
    content = pathlib.Path(path).read_bytes()
    small = tmp_path / "small.tflite"
    quantized = quantize_weights(content, quantization)
    small.write_bytes(pack(unpack(quantized)))
    assert small.stat().st_size < len(quantized) < len(content)
    assert read_metadata(small) == read_metadata(path)
    assert "CUSTOM" not in op_names(small)
    tolerance = {"float16": 0.01, "int8": 0.1, "int4": 0.6}[quantization]
    texts = ["a good film", "", "the Staff were KIND, and a film", b"a g\xffood\xc3 film"]
    assert_answers(model, small, [texts], interpret, tolerance=tolerance)


@pytest.mark.slow
def test_a_context_below_the_default_length(single, tmp_path):
    """The file then takes as many tokens as the model."""
    path = convert(single[0], tmp_path / "model.tflite", MAX_BYTES)
    assert read_metadata(path)["sequence_length"] == CONTEXT


# --- what cannot be converted ---


@pytest.mark.parametrize(
    ("arguments", "noun"),
    [
        ({"sequence_length": 0}, "sequence_length"),
        ({"sequence_length": CONTEXT + 1}, "sequence_length"),
        ({"sequence_length": 2}, "room"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": [64, 64]}, r"max_bytes .* \['text'\]"),
        ({"num_choices": 2}, "choices"),
        ({"quantize": "int3"}, "int3"),
    ],
)
def test_arguments_that_do_not_fit(single, tmp_path, arguments, noun):
    with pytest.raises(ValueError, match=noun):
        convert(single[0], tmp_path / "model.tflite", **{"sequence_length": 40, **arguments})


@pytest.mark.parametrize("number", [None, 0])
def test_a_number_of_choices(make_task, tmp_path, number):
    chooser = make_task(gpt1_keras.GPT1MultipleChoice)
    with pytest.raises(ValueError, match="num_choices"):
        convert(chooser, tmp_path / "m.tflite", sequence_length=40, num_choices=number)


def no_task(single, make_task, tokenizer):
    return single.backbone


def of_another_backbone(single, make_task, tokenizer):
    backbone = gpt1_keras.LSTMBackbone(tokenizer.vocabulary_size(), 8, 8)
    return gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor=single.preprocessor)


def without_preprocessor(single, make_task, tokenizer):
    return gpt1_keras.GPT1CausalLM(single.backbone)


def quantized_already(single, make_task, tokenizer):
    model = make_task(gpt1_keras.GPT1CausalLM)
    model.backbone.blocks[0].expand.quantize("int8")  # as model.quantize does to each layer
    return model


def of_another_normalization(single, make_task, tokenizer):
    original = gpt1_keras.GPT1Tokenizer({"<unk>": 0, "a</w>": 1}, [])
    model = make_task(gpt1_keras.GPT1CausalLM, original)
    original.normalization = "original"
    return model


@pytest.mark.parametrize(
    ("make", "noun"),
    [
        (no_task, "GPT1Backbone"),
        (of_another_backbone, "LSTMBackbone"),
        (without_preprocessor, "preprocessor"),
        (quantized_already, "quantized"),
        (of_another_normalization, "normalization"),
    ],
)
def test_models_that_do_not_run_on_a_device(
    single, make_task, tiny_tokenizer, tmp_path, make, noun
):
    with pytest.raises(ValueError, match=noun):
        convert(
            make(single[0], make_task, tiny_tokenizer),
            tmp_path / "model.tflite",
            sequence_length=40,
        )


@pytest.mark.slow
def test_an_op_that_would_need_flex(make_task, tmp_path):
    model = make_task(gpt1_keras.GPT1TextClassifier, num_classes=2, activation=keras.ops.erfinv)
    with pytest.raises(ValueError, match="Erfinv"):
        convert(model, tmp_path / "model.tflite", MAX_BYTES, SEQUENCE_LENGTH)
    assert not list(tmp_path.iterdir())


def test_metadata_of_other_files(tmp_path):
    (tmp_path / "a.tflite").write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not a .tflite file"):
        read_metadata(tmp_path / "a.tflite")
    empty = flatbuffer_utils.convert_object_to_bytearray(schema.ModelT())
    (tmp_path / "b.tflite").write_bytes(empty)
    with pytest.raises(ValueError, match="has no metadata named 'gpt1_keras'"):
        read_metadata(tmp_path / "b.tflite")


def test_the_command_with_a_bad_model(single, tmp_path, capsys):
    single[0].backbone.save_to_preset(tmp_path / "backbone")
    for preset in ("nothing", "backbone"):
        arguments = ["--model", str(tmp_path / preset), "--output", str(tmp_path / "m.tflite")]
        assert command.main(arguments) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: {tmp_path / preset} is not a preset")
        assert error.count("\n") == 1
    assert not (tmp_path / "m.tflite").exists()
