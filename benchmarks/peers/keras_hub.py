"""KerasHub's GPT-2, of the same size as ours."""

from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.pretraining_steps import (
    compile_stock,
    fit_in_turns,
    peak_memory,
    random_ids,
    use_precision,
)


def train(turns, precision, mode, size, batch, length, steps):
    """Pre-trains a language model on random ids."""
    import keras_hub

    import_memory = peak_memory()
    use_precision(precision)
    model = keras_hub.models.GPT2CausalLM(
        keras_hub.models.GPT2Backbone(**SIZES[size], dropout=0.1), preprocessor=None
    )
    compile_stock(model, mode, weighted_metrics=None)  # its metric would take time
    ids = random_ids(size, batch, length + 1, steps)
    fit_in_turns(turns, model, ids, padding_mask=True)
    return {"import_memory": import_memory, "peak_memory": peak_memory()}
