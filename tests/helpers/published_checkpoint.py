"""Random checkpoints in the layouts and at the level of the published weights of GPT-1."""

import json

import numpy as np
import safetensors.numpy
import torch
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

NAME = "openai-community/openai-gpt"
HANDLE = f"hf://{NAME}"
# config.json of the published repository; sizes are the model's.
CONFIG = {
    "afn": "gelu",
    "architectures": ["OpenAIGPTLMHeadModel"],
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "openai-gpt",
    "n_special": 0,
    "predict_special_tokens": True,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}
NO_DROPOUT = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
_SIZES = ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head", *NO_DROPOUT]


def published_level_model(**config):
    """Makes a torch model whose logits all lie near -30, and no weight of which is 0 or 1.

    All tokens' embeddings have a part in common, and the last LayerNorm's bias has the opposite
    one. Next to such logits, those of new rows near 0 would take all of the probability.
    """
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 2, "n_positions": 24} | config
    model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(**sizes)).eval()
    width = sizes["n_embd"]
    with torch.no_grad():
        for parameter in model.parameters():
            # Sums over a wider layer's inputs are as large.
            parameter.add_(torch.randn_like(parameter) * 0.2 * (32 / width) ** 0.5)
        table = model.transformer.tokens_embed.weight
        common = torch.nn.functional.normalize(torch.randn(width), dim=0)
        table.sub_(torch.outer(table @ common, common))
        table.copy_(3.0 * (torch.nn.functional.normalize(table, dim=1) - common))
        model.transformer.h[-1].ln_2.bias.add_(10.0 * common)
        model.transformer.positions_embed.weight.mul_(5.0)  # or a text repeats one token
    return model


def _arrays(model):
    return {name: parameter.numpy() for name, parameter in model.transformer.state_dict().items()}


def write_published(folder, tokenizer, model):
    """Writes the files of the repository, with the weights of a torch model."""
    weights, sizes = _arrays(model), model.config
    mask = np.tril(np.ones((1, 1, sizes.n_positions, sizes.n_positions), np.float32))
    weights |= {f"h.{i}.attn.bias": mask for i in range(sizes.n_layer)}
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = CONFIG | {name: getattr(sizes, name) for name in _SIZES}
    config["n_ctx"] = sizes.n_positions
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save_files(folder / "vocab.json", folder / "merges.txt")
    assert (folder / "merges.txt").read_text().startswith("#version: 0.2\n")
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": {"dropout": None, "vocab": {}, "merges": []}})
    )
    (folder / "tokenizer_config.json").write_text(f'{{"model_max_length": {sizes.n_positions}}}')
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
    """Writes the files that OpenAI released, from a torch model."""
    weights = _arrays(model)
    arrays = [weights["positions_embed.weight"], weights["tokens_embed.weight"]]
    for i in range(model.config.n_layer):
        for name in _RELEASED_ORDER:
            array = weights[f"h.{i}.{name}"]
            arrays.append(array[None] if array.ndim == 2 else array)
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", part)
    shapes = [list(array.shape) for array in arrays]
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    tokenizer.save_files(folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")
