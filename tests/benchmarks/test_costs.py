"""The limit that costs are compared with equals torch's own count."""

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import OpenAIGPTModel

from benchmarks.harness.matrix_product import least_flops
from benchmarks.harness.measured_models import SIZES
from benchmarks.peers.hugging_face import model_config


def counted_flops(size, tokens):
    config = model_config(size)
    config._attn_implementation = "eager"
    model = OpenAIGPTModel(config).eval()
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, tokens, dtype=torch.int64))
    return counter.get_total_flops()


def test_one_token_takes_all_products():
    assert least_flops(SIZES["micro"], 1) == counted_flops(SIZES["micro"], 1)


def test_what_the_last_token_does_not_need_is_not_counted():
    size, tokens = SIZES["micro"], 32
    width, wide = size["hidden_dim"], size["intermediate_dim"]
    hidden = 4 * width * tokens * (tokens - 1) // 2  # by the causal mask, of each block
    of_last = 4 * width * (tokens * (tokens + 1) // 2 - tokens)  # the other queries
    of_last += 2 * (tokens - 1) * (2 * width**2 + 2 * width * wide)
    expected = counted_flops(size, tokens) - size["num_layers"] * hidden - of_last
    assert least_flops(size, tokens) == expected
