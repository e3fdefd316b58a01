"""Serves a peer's classifier behind a plain FastAPI endpoint, to compare with our server.

It answers POST /predict {"texts": [...]} with labels and scores, and GET / once it is ready.
"""

from benchmarks.harness.measured_models import LABELS
from benchmarks.peers.classifiers import load_classifier


def serve(turns, peer, port, **setting):
    """Answers requests until the worker is stopped."""
    import uvicorn
    from fastapi import FastAPI

    scores_of = load_classifier(peer, **setting)
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
