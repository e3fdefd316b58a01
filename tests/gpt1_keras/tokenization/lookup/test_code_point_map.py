"""The map of code points, against str.translate."""

import tensorflow as tf

from gpt1_keras.tokenization.lookup import CodePointMap

REPLACEMENTS = {"a": "", "b": "bb", "漢": "x", "\U0010ffff": "long text"}


def test_replaces_what_translate_replaces():
    texts = ["", "a", "abc", "漢b漢", "aa", "\U0010ffff\U0010fffe"]
    codes = CodePointMap.from_mapping(REPLACEMENTS)(tf.strings.unicode_decode(texts, "UTF-8"))
    replaced = [text.decode() for text in tf.strings.unicode_encode(codes, "UTF-8").numpy()]
    assert replaced == [text.translate(str.maketrans(REPLACEMENTS)) for text in texts]


def test_no_texts():
    codes = tf.strings.unicode_decode(tf.zeros([0], tf.string), "UTF-8")
    assert CodePointMap.from_mapping(REPLACEMENTS)(codes).to_list() == []
