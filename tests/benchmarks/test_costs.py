"""The limit that costs are compared with, beside torch's own count; and the picture."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import OpenAIGPTModel

from benchmarks import costs, int8_serving
from benchmarks.common.limit import least_flops
from benchmarks.common.setting import SIZES, hugging_face_config, table
from benchmarks.plot_costs import plot_costs


def counted_flops(size, tokens):
    config = hugging_face_config(size)
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


@pytest.mark.parametrize("is_served", [False, True])
def test_the_picture_has_all_curves(is_served, tmp_path):
    header = ["texts", "tokens each", costs.LIMIT, "gpt1_keras, float32", "Hugging Face, float32"]
    rows = [["1", "16", "1", "2", "3"], ["1", "32", "2", "3", "4"], ["8", "32", "1.5", "2", "3"]]
    reports = {"costs": table(header, rows, labels=2)}
    if is_served:
        names = [int8_serving.LIMIT, "gpt1_keras, float32", "Hugging Face, float32, FastAPI"]
        rows = [[clients, name, "10"] for clients in "18" for name in names]
        rows.append(["8", "OpenVINO, float32, FastAPI", "0.0"])
        alone = table(["one text", "p50, ms"], [["gpt1_keras, float32", "3"]])
        served = table(["clients", "what", "requests/s"], rows, labels=2)
        reports["int8_serving"] = f"{alone}\n\n{served}"
    plot_costs("a machine", reports, tmp_path / "costs.svg")
    picture = (tmp_path / "costs.svg").read_text()
    for text in ("gpt1_keras, float32", "Hugging Face, float32", "limit", "tokens of one text"):
        assert text in picture
    assert ("clients" in picture) == is_served
