"""The limit that costs are compared with equals torch's own count; and the picture."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import OpenAIGPTModel

from benchmarks.harness.matrix_product import LIMIT, least_flops
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import table
from benchmarks.peers.hugging_face import model_config
from benchmarks.plot_costs import plot_costs


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


@pytest.mark.parametrize("is_served", [False, True])
def test_the_picture_has_all_curves(is_served, tmp_path):
    ours = "gpt1_keras, float32"
    header = ["texts", "tokens each", LIMIT, ours, f"{ours}, before", "Hugging Face, float32"]
    rows = [["1", "16", "1", "2", "2", "3"], ["1", "32", "2", "3", "3", "4"]]
    rows.append(["8", "32", "1.5", "2", "2", "3"])
    reports = {"costs": table(header, rows, labels=2)}
    if is_served:
        names = [LIMIT, ours, f"{ours}, REST", f"{ours}, not merged"]
        names += ["Hugging Face, float32, FastAPI"]
        rows = [[clients, name, "10"] for clients in "18" for name in names]
        rows.append(["8", "OpenVINO, float32, FastAPI", "0.0"])
        alone = table(["one text", "p50, ms"], [[ours, "3"]])
        served = table(["clients", "what", "requests/s"], rows, labels=2)
        reports["serving"] = f"{alone}\n\n{served}"
    plot_costs("a machine", reports, tmp_path / "costs.svg")
    picture = (tmp_path / "costs.svg").read_text()
    for text in (ours, "Hugging Face, float32", "limit", "tokens of one text"):
        assert text in picture
    assert ("clients" in picture) == is_served
    for text in ("before", "REST", "not merged"):
        assert text not in picture
