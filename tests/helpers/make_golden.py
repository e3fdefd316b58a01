"""Writes golden.json of test_golden.py: logits and a continuation of Hugging Face's torch model.

    python tests/helpers/make_golden.py

The weights come from a formula, so they need not be stored; test_golden.py has the formula too.
"""

import json
import pathlib

import numpy as np
import torch
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

CONFIG = {"vocab_size": 29, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
IDS = [[3, 14, 15, 9, 26, 5], [2, 7, 18, 28, 1, 8]]
LENGTH = 16
SMALLEST_MARGIN = 0.01


def main():
    model = OpenAIGPTLMHeadModel(OpenAIGPTConfig(**CONFIG)).eval()
    with torch.no_grad():
        for number, (name, parameter) in enumerate(model.named_parameters()):
            index = np.arange(parameter.numel(), dtype=np.float64)
            values = 0.4 * np.sin(index**2 + number).reshape(parameter.shape)
            is_gamma = ".ln_" in name and name.endswith("weight")
            parameter.copy_(torch.tensor(values + is_gamma))
        logits = model(torch.tensor(IDS)).logits.double().numpy()
        continuation = [list(row) for row in IDS]
        while len(continuation[0]) < LENGTH:
            last = model(torch.tensor(continuation)).logits[:, -1]
            best, second = last.topk(2).values.T
            assert torch.all(best - second > SMALLEST_MARGIN), "too close to tell"
            for row, choice in zip(continuation, last.argmax(-1).tolist()):
                row.append(choice)
    golden = {
        "config": CONFIG,
        "ids": IDS,
        "logits": logits.round(6).tolist(),
        "continuation": continuation,
    }
    path = pathlib.Path(__file__).parents[1] / "gpt1_keras/models/golden.json"
    path.write_text(json.dumps(golden) + "\n")
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
