"""A random checkpoint in the layout of the published repository of GPT-1."""

import json

import numpy as np
import safetensors.numpy

NAME = "openai-community/openai-gpt"
HANDLE = f"hf://{NAME}"
# config.json of the published repository, with smaller sizes.
CONFIG = {
    "afn": "gelu",
    "architectures": ["OpenAIGPTLMHeadModel"],
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "openai-gpt",
    "n_ctx": 24,
    "n_embd": 32,
    "n_head": 2,
    "n_layer": 2,
    "n_positions": 24,
    "n_special": 0,
    "predict_special_tokens": True,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}


def write_published(folder, tokenizer, model):
    """Writes the files of the repository, with the weights of a torch model of 2 blocks."""
    weights = {
        name: parameter.numpy() for name, parameter in model.transformer.state_dict().items()
    }
    mask = np.tril(np.ones((1, 1, 24, 24), np.float32))
    weights |= {f"h.{i}.attn.bias": mask for i in range(2)}
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = CONFIG | {"vocab_size": len(weights["tokens_embed.weight"])}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save_files(folder / "vocab.json", folder / "merges.txt")
    assert (folder / "merges.txt").read_text().startswith("#version: 0.2\n")
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": {"dropout": None, "vocab": {}, "merges": []}})
    )
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 24}')
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n\n# OpenAI GPT 1\n")
    for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "rust_model.ot"):
        (folder / name).write_bytes(b"never read")


_RELEASED_ORDER = [
    "attn.c_attn.weight",
    "attn.c_attn.bias",
    "attn.c_proj.weight",
    "attn.c_proj.bias",
    "ln_1.weight",
    "ln_1.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
    "ln_2.weight",
    "ln_2.bias",
]


def write_released(folder, tokenizer, model):
    """Writes the files that OpenAI released, from a torch model of two blocks."""
    weights = {
        name: parameter.numpy() for name, parameter in model.transformer.state_dict().items()
    }
    arrays = [weights["positions_embed.weight"], weights["tokens_embed.weight"]]
    for i in range(2):
        for name in _RELEASED_ORDER:
            array = weights[f"h.{i}.{name}"]
            arrays.append(array[None] if array.ndim == 2 else array)
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", part)
    shapes = [list(array.shape) for array in arrays]
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    tokenizer.save_files(folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")
