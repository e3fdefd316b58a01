"""The peers of served exports, behind a plain FastAPI endpoint.

    python -m benchmarks.peers.fastapi_app torch-float32 --size paper --tokenizer DIR --port 8000

It answers POST /predict {"texts": [...]} with labels and scores, and GET / once it is ready.
Without a port it only makes the model's files.
"""

import argparse
import pathlib

from benchmarks.common.setting import SIZES
from benchmarks.peers.classifiers import LABELS, PEERS, peer_scores


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.fastapi_app")
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--size", choices=SIZES, default="paper")
    parser.add_argument("--tokenizer", required=True, help="folder of both files of the original")
    parser.add_argument("--folder", help="of a runtime's models, which are made if missing")
    parser.add_argument("--calibration", help="texts, one a line; for OpenVINO in int8")
    parser.add_argument("--port", type=int, help="default: make the model, serve nothing")
    options = parser.parse_args()
    texts = []
    if options.calibration:
        texts = pathlib.Path(options.calibration).read_text(encoding="utf-8").splitlines()
    scores_of = peer_scores(options.name, options.size, options.tokenizer, options.folder, texts)
    if options.port is not None:
        _serve(scores_of, options.port)


def _serve(scores_of, port):
    """Answers requests until it is stopped."""
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/")
    def ready():
        return "ready"

    @app.post("/predict")
    def predict(request: dict[str, list[str]]):  # not async, so FastAPI runs it in its threads
        scores = scores_of(request["texts"])
        labels = [LABELS[number] for number in scores.argmax(-1).tolist()]
        return {"labels": labels, "scores": scores.tolist()}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
