"""What the hidden states of an export's `embed` are worth, beside tf-idf, and what they cost.

    python -m benchmarks.embeddings --data-dir DIR --exports DIR
    python -m benchmarks.embeddings --data-dir DIR --exports DIR --cost

The model that ships is exported with `--embed`, and its signature embeds, in TensorFlow's C++
runtime, sentences of SST-2, whose labels their nearest neighbours tell, and pairs of STS-B, whose
similarity is their cosine. It was pre-trained alone: no objective ever drew similar texts together.

With --cost it measures a classifier's exports with each option instead: size, memory of a server
after its warm-up, and the latency of a sentence, alternating. The machine must be idle. What is in
the folder `--exports` already is used as it is.
"""

import argparse
import pathlib
import shlex
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_datasets as tfds
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize

import gpt1_keras
from benchmarks.common.setting import describe, table
from benchmarks.serving import serving
from gpt1_keras.tasks.calibration import Calibration
from serving.export import export
from serving.export.export_options import POOLINGS, Embedding
from serving.server.models.servable import Servable

_BATCH_SIZE = 64
_WORDS = 20
_TFIDF = "tf-idf of words"


def main():
    options = _parser().parse_args()
    folder = pathlib.Path(options.exports)
    command = shlex.join(["python", "-m", "benchmarks.embeddings", *sys.argv[1:]])
    print(f"{describe()}. `{command}`\n", flush=True)
    print(_costs(options, folder) if options.cost else _quality(options, folder))


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embeddings",
        description="What the hidden states of an export are worth, and what they cost.",
    )
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2 and STS-B")
    parser.add_argument("--exports", required=True, help="folder of the exports, made if missing")
    parser.add_argument(
        "--preset", default="gpt1_tiny_books", help="a language model (default: gpt1_tiny_books)"
    )
    parser.add_argument(
        "--neighbours", type=int, default=15, help="that tell a label (default: 15)"
    )
    parser.add_argument(
        "--known", type=int, default=10_000, help="labelled sentences (default: 10000)"
    )
    parser.add_argument("--cost", action="store_true", help="measure size, memory and latency")
    parser.add_argument(
        "--repetitions", type=int, default=100, help="of a sentence, with --cost (default: 100)"
    )
    return parser


def _quality(options, folder):
    """The table of SST-2's accuracy and STS-B's correlation."""
    known, asked = (_columns("glue/sst2", split, options) for split in ("train", "validation"))
    chosen = np.random.default_rng(0).permutation(len(known["label"]))[: options.known]
    known = {name: column[chosen] for name, column in known.items()}
    pairs = _columns("glue/stsb", "validation", options)
    texts = [known["sentence"], asked["sentence"], pairs["sentence1"], pairs["sentence2"]]
    rows = []
    for name, vectors in _all_vectors(texts, options, folder):
        of_known, of_asked, first, second = vectors
        classifier = KNeighborsClassifier(options.neighbours, metric="cosine")
        found = classifier.fit(of_known, known["label"]).predict(of_asked)
        cosines = np.asarray(normalize(first).multiply(normalize(second)).sum(axis=1)).ravel()
        correlation = spearmanr(cosines, pairs["label"]).statistic
        accuracy = np.mean(found == asked["label"])
        rows.append([name, f"{100 * accuracy:.1f}", f"{100 * correlation:.1f}"])
    header = ["", f"SST-2, {options.neighbours} nearest of {len(chosen):,}", "STS-B, Spearman"]
    return table(header, rows)


def _columns(name, split, options):
    data = tfds.load(name, split=split, data_dir=options.data_dir, download=False, batch_size=-1)
    return dict(tfds.as_numpy(data))


def _all_vectors(texts, options, folder):
    """Yields names and the sparse vectors of each column of texts."""
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(np.concatenate([texts[0], *texts[2:]]))
    yield _TFIDF, [vectorizer.transform(column) for column in texts]
    for pooling in ("last", "mean"):
        path = folder / pooling
        if not path.exists():
            model = gpt1_keras.GPT1CausalLM.from_preset(options.preset)
            export(model, path, embedding=Embedding(pooling))
        servable = Servable(pooling, 1, path / "1")
        vectors = [_embed(servable, column) for column in texts]
        yield f"{pooling} hidden state", [csr_matrix(each) for each in vectors]
        # All lie in one direction, mostly, which says nothing.
        for_words, for_pairs = vectors[0].mean(axis=0), np.mean(vectors[2:], axis=(0, 1))
        centres = (for_words, for_words, for_pairs, for_pairs)
        centred = [csr_matrix(each - centre) for each, centre in zip(vectors, centres)]
        yield f"{pooling} hidden state, centred", centred


def _embed(servable, texts):
    """float `[texts, hidden_dim]`; texts of like length share a request."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = [
        servable.predict("embed", {"text": tf.make_tensor_proto(texts[batch])})["embedding"]
        for batch in np.array_split(order, -(-len(order) // _BATCH_SIZE))
    ]
    return np.concatenate(vectors)[np.argsort(order)]


def _costs(options, folder):
    """The table of what each option costs."""
    paths = _cost_exports(options, folder)
    with ThreadPoolExecutor() as pool:
        memory = dict(zip(paths, pool.map(_server_memory, paths.values())))
    sentences = _columns("glue/sst2", "validation", options)["sentence"]
    text = next(each for each in sentences if len(each.split()) == _WORDS)
    protos = {"text": tf.make_tensor_proto([text])}
    runs = []
    for name, path in paths.items():
        servable = Servable(name, 1, path / "1")
        runs += [
            (name, signature, servable)
            for signature in ("serving_default", "embed")
            if signature in servable.signature_defs
        ]
    seconds = {(name, signature): [] for name, signature, _ in runs}
    for _ in range(options.repetitions):
        for name, signature, servable in runs:
            started = time.perf_counter()
            servable.predict(signature, protos)
            seconds[name, signature].append(time.perf_counter() - started)
    rows = []
    for name, path in paths.items():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
        p50 = [
            f"{1e3 * statistics.median(seconds[name, signature]):.2f}"
            if (name, signature) in seconds
            else ""
            for signature in ("serving_default", "embed")
        ]
        rows.append([name, f"{size:.2f}", f"{memory[name]:.0f}", *p50])
    return table(["export", "MB", "server, MB", "an answer, p50 ms", "`embed`, p50 ms"], rows)


def _server_memory(path):
    """MB of a server that has answered its warm-up requests."""
    with serving(path) as (process, *_):
        return psutil.Process(process.pid).memory_info().rss / 1e6


def _cost_exports(options, folder):
    """The base paths of a classifier's exports, by what they were made with."""
    paths = {"no option": folder / "plain", "calibrated, `is_sure`": folder / "sure"}
    paths |= {f"`--embed {pooling}`": folder / f"embed_{pooling}" for pooling in POOLINGS}
    missing = [path for path in paths.values() if not path.exists()]
    if missing:
        from_preset = gpt1_keras.GPT1TextClassifier.from_preset
        model = from_preset(options.preset, num_classes=2)
    for path in missing:
        pooling = path.name.removeprefix("embed_")
        embedding = Embedding(pooling) if pooling in POOLINGS else None
        model.calibration = Calibration(1.5, 0.9) if path.name == "sure" else Calibration()
        export(model, path, embedding=embedding)
    return paths


if __name__ == "__main__":
    main()
