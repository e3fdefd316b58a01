"""The shipped bert-style table, against the installed `tokenizers`."""

import numpy as np
import pytest
from tokenizers import normalizers

from gpt1_keras.tokenization.normalization import bert
from tests.helpers import make_bert_table


@pytest.mark.slow
def test_shipped_table_is_what_tokenizers_does():
    expected = make_bert_table.build()
    shipped = bert.read_bert_table()
    assert shipped.isolated.tolist() == expected["isolated"].tolist()
    stays = expected["entries"] == 0
    stays[bert.HANGUL] = False  # which the table's file lacks
    replacements = np.where(stays, "itself", np.array(shipped.replacements)[shipped.entries])
    made = np.where(stays, "itself", expected["replacements"][expected["entries"]])
    hangul = [normalizers.NFD().normalize_str(chr(code)) for code in bert.HANGUL]
    made[bert.HANGUL] = hangul
    different = [f"U+{code:04X}" for code in np.flatnonzero(replacements != made)]
    assert not different, f"{len(different)} code points differ: {different[:10]}"
    assert ((shipped.entries == 0) == stays).all()
