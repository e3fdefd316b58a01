"""`fit` and `predict` on columns of pandas and of Hugging Face's `datasets`, as on lists."""

import datasets
import keras
import numpy as np
import pandas as pd
import pytest

import gpt1_keras
from tests.helpers.eager import eagerly

TEXTS = ["a good film", "a bad film", "schön", "öde"] * 2
OTHERS = ["it is good", "it is dull"] * 4
LABELS = ["yes", "no"] * 4
FRAME = pd.DataFrame({"premise": TEXTS, "hypothesis": OTHERS, "label": LABELS})
DATA = datasets.Dataset.from_pandas(FRAME)


@pytest.fixture
def outputs(tiny_backbone, tiny_tokenizer):
    """What a classifier of one text or of pairs predicts after an update on some data."""

    def outputs(fields, x, y):
        keras.utils.set_random_seed(0)
        classifier = gpt1_keras.GPT1TextClassifier(
            tiny_backbone,
            class_names=["no", "yes"],
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(
                tiny_tokenizer, sequence_length=32, fields=fields
            ),
        )
        before = classifier.get_weights()
        classifier.fit(x, y, epochs=1, shuffle=False, verbose=0)
        found = classifier.predict(x, verbose=0)
        classifier.set_weights(before)
        return found

    return outputs


@pytest.mark.slow
def test_columns_are_taken_as_lists(outputs):
    with eagerly():
        one = outputs(("text",), TEXTS, LABELS)
        for x, y in [
            (FRAME.premise, FRAME.label),
            (FRAME.premise.astype("category"), FRAME.label.astype("category")),
            (FRAME.premise.astype("string[pyarrow]"), FRAME.label.astype("string")),
            (DATA["premise"], DATA["label"]),
        ]:
            np.testing.assert_allclose(outputs(("text",), x, y), one, atol=1e-6)
        fields = ("premise", "hypothesis")
        pairs = outputs(fields, (TEXTS, OTHERS), LABELS)
        for x, y in [
            (FRAME[[*fields]], FRAME.label),
            (FRAME, FRAME["label"]),
            ((FRAME.premise, FRAME.hypothesis), FRAME.label),
            ((DATA["premise"], DATA["hypothesis"]), DATA["label"]),
            ({name: DATA[name] for name in fields}, DATA["label"]),
        ]:
            np.testing.assert_allclose(outputs(fields, x, y), pairs, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (FRAME[["hypothesis"]], r"the columns \('text',\). Received: \['hypothesis'\]"),
        (FRAME.premise.where(FRAME.premise != "schön"), "Received: nan at index 2"),
        (DATA, r"Expected a string, or a list or array of strings. Received: Dataset\("),
    ],
)
def test_what_is_no_column_of_texts_is_refused(outputs, x, message):
    with eagerly(), pytest.raises(ValueError, match=message):
        outputs(("text",), x, LABELS)
