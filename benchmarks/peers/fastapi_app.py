"""The peer of `benchmarks.serving`: Hugging Face's torch model behind a plain FastAPI endpoint.

    python -m benchmarks.peers.fastapi_app --size paper --tokenizer DIR --port 8000

It has random weights, answers POST /predict {"texts": [...]} with labels and scores, and GET / once
it is ready.
"""

import argparse

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import OpenAIGPTForSequenceClassification, OpenAIGPTTokenizer

from benchmarks.common.setting import SIZES, cores, hugging_face_config

LABELS = ["negative", "positive"]


class Texts(BaseModel):
    texts: list[str]


def make_app(size, tokenizer):
    """The application.

    Args:
        size: dict like those in `SIZES`.
        tokenizer: Hugging Face tokenizer with a padding token.
    """
    torch.set_num_threads(cores())
    config = hugging_face_config(size)
    config.num_labels = len(LABELS)
    config.pad_token_id = tokenizer.pad_token_id
    model = OpenAIGPTForSequenceClassification(config).eval()
    app = FastAPI()

    @app.get("/")
    def ready():
        return "ready"

    @app.post("/predict")
    def predict(request: Texts):  # not async, so FastAPI runs it in its pool of threads
        inputs = tokenizer(
            request.texts,
            padding=True,
            truncation=True,
            max_length=size["max_sequence_length"],
            return_tensors="pt",
        )
        with torch.inference_mode():
            scores = model(**inputs).logits.softmax(-1)
        labels = [LABELS[number] for number in scores.argmax(-1).tolist()]
        return {"labels": labels, "scores": scores.tolist()}

    return app


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.fastapi_app")
    parser.add_argument("--size", choices=SIZES, default="paper")
    parser.add_argument("--tokenizer", required=True, help="folder of both files of the original")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    tokenizer = OpenAIGPTTokenizer(
        f"{options.tokenizer}/encoder_bpe_40000.json", f"{options.tokenizer}/vocab_40000.bpe"
    )
    tokenizer.pad_token = tokenizer.unk_token
    app = make_app({**SIZES[options.size], "vocabulary_size": len(tokenizer)}, tokenizer)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
