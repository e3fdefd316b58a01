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


def load_tokenizer(folder):
    """Hugging Face's tokenizer of the original files, with a padding token."""
    tokenizer = OpenAIGPTTokenizer(f"{folder}/encoder_bpe_40000.json", f"{folder}/vocab_40000.bpe")
    tokenizer.pad_token = tokenizer.unk_token
    return tokenizer


def serve(scores_of, port):
    """Answers requests until it is stopped.

    Args:
        scores_of: from texts to their scores, float `[texts, classes]`, an array or a tensor.
        port: where to listen.
    """
    app = FastAPI()

    @app.get("/")
    def ready():
        return "ready"

    @app.post("/predict")
    def predict(request: Texts):  # not async, so FastAPI runs it in its pool of threads
        scores = scores_of(request.texts)
        labels = [LABELS[number] for number in scores.argmax(-1).tolist()]
        return {"labels": labels, "scores": scores.tolist()}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def torch_scores(size, tokenizer, dtype="float32"):
    """A function from texts to the scores of torch's model.

    Args:
        size: dict like those in `SIZES`.
        tokenizer: Hugging Face tokenizer with a padding token.
        dtype: name of the torch dtype of weights and activations.
    """
    torch.set_num_threads(cores())
    config = hugging_face_config(size)
    config.num_labels = len(LABELS)
    config.pad_token_id = tokenizer.pad_token_id
    model = OpenAIGPTForSequenceClassification(config).eval().to(getattr(torch, dtype))

    def scores_of(texts):
        inputs = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=size["max_sequence_length"],
            return_tensors="pt",
        )
        with torch.inference_mode():
            return model(**inputs).logits.float().softmax(-1)

    return scores_of


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.fastapi_app")
    parser.add_argument("--size", choices=SIZES, default="paper")
    parser.add_argument("--tokenizer", required=True, help="folder of both files of the original")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    size = {**SIZES[options.size], "vocabulary_size": len(tokenizer)}
    serve(torch_scores(size, tokenizer, options.dtype), options.port)


if __name__ == "__main__":
    main()
