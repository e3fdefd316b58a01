"""The shipped bert-style table, against the installed `tokenizers`."""

import pathlib

import numpy as np

from gpt1_keras.tokenization.normalization import bert, build_bert_table


def test_shipped_table_is_what_tokenizers_does():
    path = pathlib.Path(bert.__file__).with_name(bert.TABLE_FILE)
    expected = build_bert_table.build()
    with np.load(path, allow_pickle=False) as arrays:
        shipped = {
            name: arrays[f"{name}_pages"][arrays[f"{name}_page_of"]].reshape(-1)
            for name in expected
        }
    for name, values in expected.items():
        different = [f"U+{code:04X}" for code in np.flatnonzero(shipped[name] != values)]
        assert not different, f"{name} differs at {len(different)} code points: {different[:10]}"
