"""Quantizes weights with LiteRT's quantizer."""

import contextlib
import io
import logging
from typing import Any

from serving.tflite.device_backbone import LOGITS
from serving.tflite.tflite_options import QUANTIZATIONS


def check_quantization(name: str) -> None:
    """Raises ValueError for an unknown name, ImportError where the quantizer is missing."""
    if name not in QUANTIZATIONS:
        raise ValueError(f"Unknown quantization {name!r}; expected one of {list(QUANTIZATIONS)}.")
    if name != "none":
        _import_quantizer()


def quantize_weights(content: bytes, name: str) -> bytes:
    """Quantizes a model.

    Args:
        content: the content of a .tflite file in float32.
        name: one of `QUANTIZATIONS`. With `float16`, weights have half the size, and computations
            are in float32. With `int8` and `int4`, a matrix has one scale for each row, and LiteRT
            quantizes its input to int8 at run time. `int4` keeps the token embeddings in int8.

    Returns:
        The content of the quantized file.
    """
    if name == "none":
        return content
    quantizer = _import_quantizer()
    from litert_quantizer import qtyping, recipe_manager
    from litert_quantizer.algorithm_manager import AlgorithmName

    products = qtyping.TFLOperationName.FULLY_CONNECTED
    embeddings = qtyping.TFLOperationName.EMBEDDING_LOOKUP
    recipe = recipe_manager.RecipeManager()
    if name == "float16":
        for operation in (products, embeddings):
            recipe.add_weight_only_config(
                ".*", operation, num_bits=16, algorithm_key=AlgorithmName.FLOAT_CASTING
            )
    else:
        if name == "int4":
            # Clips each row where the mean squared error is least: OCTAV (Sakr et al., 2022).
            recipe.add_dynamic_config(".*", products, num_bits=4, algorithm_key=AlgorithmName.OCTAV)
        else:
            recipe.add_dynamic_config(".*", products, num_bits=8)
        recipe.add_dynamic_config(f".*{LOGITS}.*", products, num_bits=8)
        recipe.add_dynamic_config(".*", embeddings, num_bits=8)
    engine = quantizer.Quantizer(content, recipe.get_quantization_recipe())
    # The quantizer warns of each weight that several signatures share, and shows progress bars even
    # if it is told not to.
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            result = engine.quantize(enable_progress_bar=False, enable_progress_report=False)
    finally:
        logging.disable(logging.NOTSET)
    return bytes(result.quantized_model)


def _import_quantizer() -> Any:
    try:
        from litert_quantizer import quantizer
    except ImportError as error:
        raise ImportError(
            "Quantization needs LiteRT's quantizer: pip install 'gpt1-keras[device]'."
        ) from error
    return quantizer
