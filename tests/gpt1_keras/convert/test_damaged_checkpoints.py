"""Checkpoints that are damaged, or of other models: refused in words that name what is wrong."""

import functools
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import gpt1_keras
from gpt1_keras.convert import load_hugging_face, load_openai
from tests.helpers.published_checkpoint import write_released


def without(name):
    return lambda folder: (folder / name).unlink()


def written(name, content):
    content = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(content)


def cut(name, kept):
    def cut(folder):
        content = (folder / name).read_bytes()
        end = int(len(content) * kept) if isinstance(kept, float) else kept
        (folder / name).write_bytes(content[:end])

    return cut


def in_json(name, change):
    def edit(folder):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(change(content)))

    return edit


def config(**settings):
    return in_json("config.json", lambda content: content | settings)


def arrays(change):
    def edit(folder):
        path = folder / "model.safetensors"
        safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)

    return edit


def npy(name, change):
    def edit(folder):
        np.save(folder / name, change(np.load(folder / name)), allow_pickle=True)

    return edit


def npy_header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def vocabulary_of_others(folder):
    other = gpt1_keras.GPT1Tokenizer.learn(["quite another text"] * 3, num_merges=5)
    other.save_files(folder / "vocab.json", folder / "merges.txt")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory, tiny_tokenizer, make_torch_model):
    """The folder of a format's checkpoint."""
    size = tiny_tokenizer.vocabulary_size() - 3
    transformers = tmp_path_factory.mktemp("transformers")
    make_torch_model(vocab_size=size).save_pretrained(transformers)
    tiny_tokenizer.save_files(transformers / "vocab.json", transformers / "merges.txt")
    openai = tmp_path_factory.mktemp("openai")
    model = make_torch_model(vocab_size=size, n_embd=128, n_head=2, n_layer=2)
    write_released(openai, tiny_tokenizer, model)
    return {load_hugging_face: transformers, load_openai: openai}


OF_TRANSFORMERS = [
    *((without(name), name) for name in ("config.json", "model.safetensors")),
    *((without(name), name) for name in ("vocab.json", "merges.txt")),
    *((cut("model.safetensors", kept), "model.safetensors is d") for kept in (0, 4, 100, 0.5, -1)),
    *((written("config.json", content), "config.json") for content in ("{", "[]", "{}")),
    (config(afn="relu"), "afn"),
    (config(layer_norm_epsilon=1e-3), "layer_norm_epsilon"),
    (config(n_layer=2), "3 blocks.* 2"),
    (config(n_layer=10**9), "3 blocks.* 1000000000"),
    (config(n_embd=10**9, n_head=1), r"\(74, 32\)"),
    (config(n_positions=10**9), r"\(24, 32\)"),
    *((config(n_layer=value), "n_layer") for value in (0, -1, True, "3", 1e9)),
    (vocabulary_of_others, "74 token embeddings"),
    (
        arrays(lambda arrays: {n: a for n, a in arrays.items() if "h.1.mlp.c_fc.bias" not in n}),
        "h.1.mlp.c_fc.bias",
    ),
    *(
        (arrays(lambda arrays, name=name, array=array: arrays | {name: array}), noun)
        for name, array, noun in (
            (
                "transformer.h.1.attn.c_proj.weight",
                np.zeros((32, 16), np.float32),
                r"\(32, 16\).*\(32, 32\)",
            ),
            ("lm_head.weight", np.ones((74, 32), np.float32), "lm_head.weight"),
            ("h.0.attn.c_attn.lora_A", np.ones(2, np.float32), "h.0.attn.c_attn.lora_A"),
            ("transformer.h.1.ln_1.bias", np.full(32, np.nan, np.float32), "32 weights of 32"),
        )
    ),
]
OF_OPENAI = [
    *((without(name), name) for name in ("params_0.npy", "params_9.npy", "params_shapes.json")),
    *((without(name), name) for name in ("encoder_bpe_40000.json", "vocab_40000.bpe")),
    *((cut("params_4.npy", kept), "params_4.npy") for kept in (0, 50, -1)),
    (npy("params_9.npy", lambda array: array[:-1]), "params_shapes.json lists 26 arrays"),
    (npy("params_0.npy", lambda _: np.array([{"a": 1}], object)), "Python objects"),
    (npy("params_9.npy", lambda array: np.append(array[:-1], np.inf)), "1 weights of 128"),
    *((written("params_shapes.json", text), "params_shapes.json") for text in ("[", "{}", "[]")),
    *(
        (written("params_shapes.json", json.dumps([shape] * 14)), "params_shapes.json must list")
        for shape in ([10**12] * 4, ["1"], [[2]], 3, [-1, 2], [0])
    ),
    *(
        (written("params_4.npy", content), "params_4.npy is damaged")
        for content in (
            npy_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n"),
            npy_header(b"(" * 9000),
            npy_header(b"{'descr': '<U4', 'fortran_order': False, 'shape': (0,), }\n"),
            b"PK\x05\x06" + bytes(18),
        )
    ),
    (
        in_json("encoder_bpe_40000.json", lambda tokens: tokens | {"one more": len(tokens)}),
        "74 token embeddings.* 78 tokens",
    ),
]
CASES = [
    *((load_hugging_face, damage, noun) for damage, noun in OF_TRANSFORMERS),
    *((functools.partial(load_openai, normalization="bert"), *case) for case in OF_OPENAI),
]


@pytest.mark.parametrize(("load", "damage", "noun"), CASES)
def test_what_is_wrong_is_named(folder_of, load, damage, noun, tmp_path, time_limit):
    """Before a model of the size that the files claim is made."""
    source = folder_of[getattr(load, "func", load)]
    folder = shutil.copytree(source, tmp_path / "checkpoint")
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=noun):
        load(folder)
