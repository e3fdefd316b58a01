"""A compressed preset: half the size, checksums, and the same model."""

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest

import gpt1_keras
from tests.helpers.small_disk import small_disk
from training.compress_preset import main


@pytest.fixture
def preset(tiny_backbone, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(
        tiny_backbone, class_names=["bad", "good"], preprocessor=preprocessor
    )
    classifier.save_to_preset(str(tmp_path / "preset"))
    return tmp_path / "preset"


def test_the_weights_are_rounded_to_half_their_size(preset, tmp_path, capsys):
    output = tmp_path / "published"
    assert main(["--preset", str(preset), "--output", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    files = {path.relative_to(preset) for path in preset.rglob("*")}
    assert {path.relative_to(output) for path in output.rglob("*")} == files
    whole = gpt1_keras.GPT1TextClassifier.from_preset(str(preset))
    published = gpt1_keras.GPT1TextClassifier.from_preset(str(output))
    assert published.class_names == ["bad", "good"]
    for found, expected in zip(published.get_weights(), whole.get_weights(), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected.astype("float16").astype(found.dtype))


def test_fewer_bits(preset, tmp_path):
    sizes = {}
    for bits in "10", "3":
        output = tmp_path / bits
        arguments = ["--preset", str(preset), "--output", str(output), "--fraction-bits", bits]
        assert main(arguments) == 0
        sizes[bits] = (output / "model.weights.h5").stat().st_size
    assert sizes["3"] < sizes["10"]
    whole = gpt1_keras.GPT1TextClassifier.from_preset(str(preset))
    published = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "3"))
    for found, expected in zip(published.get_weights(), whole.get_weights(), strict=True):
        if found.ndim < 2:
            np.testing.assert_array_equal(found, expected.astype("float16").astype(found.dtype))
            continue
        # float8_e4m3fn has the same bits of a fraction, and this scale avoids its subnormals.
        scaled = (expected * 2.0**7).astype(ml_dtypes.float8_e4m3fn).astype("float32") / 2.0**7
        is_normal = np.abs(expected) > 2.0**-13
        np.testing.assert_array_equal(found[is_normal], scaled[is_normal])


@pytest.mark.parametrize("bits", ["0", "11"])
def test_bits_that_float16_has_not(bits, preset, tmp_path, capsys):
    output = tmp_path / "out"
    arguments = ["--preset", str(preset), "--output", str(output), "--fraction-bits", bits]
    assert main(arguments) == 1
    expected = f"fraction_bits must be from 1 to 10. Received: {bits}."
    assert expected in capsys.readouterr().err and not output.exists()


@pytest.mark.parametrize("name", ["model.weights.h5", "task.weights.h5"])
def test_every_array_has_a_checksum(name, preset, tmp_path):
    main(["--preset", str(preset), "--output", str(tmp_path / "published")])
    items = []
    with h5py.File(tmp_path / "published" / name) as file:
        file.visititems(lambda _, item: items.append(item))
        arrays = [item for item in items if isinstance(item, h5py.Dataset)]
        # HDF5 has none for scalars, of which there is the count of updates.
        assert arrays and all(array.fletcher32 for array in arrays if array.ndim)


def test_a_weight_out_of_range(tiny_backbone, tmp_path, capsys):
    tiny_backbone.token_embedding.embeddings.assign_add(
        keras.ops.full_like(tiny_backbone.token_embedding.embeddings, 1e5)
    )
    tiny_backbone.save_to_preset(str(tmp_path / "preset"))
    output = tmp_path / "published"
    assert main(["--preset", str(tmp_path / "preset"), "--output", str(output)]) == 1
    assert "has weights out of float16's range" in capsys.readouterr().err
    assert not output.exists()


def test_no_preset(tmp_path, capsys):
    assert main(["--preset", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    assert "is not a preset: neither one that ships" in capsys.readouterr().err


def test_a_full_disk(preset, tmp_path, capsys):
    with small_disk(tmp_path / "small", "64k") as folder:
        assert main(["--preset", str(preset), "--output", str(folder / "out")]) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ") and "No space left on device" in error
        assert error.count("\n") == 1
        assert not list(folder.iterdir())
