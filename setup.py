"""Packaging: `pip install .` installs gpt1_keras, training, serving, and the folder examples."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "gpt1_keras/version.py").read_text())[1]

setup(
    name="gpt1-keras",
    version=VERSION,
    description="GPT-1 for TensorFlow and Keras: pre-train, fine-tune, and serve on raw text",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["gpt1_keras*", "training*", "serving*"]),
        "gpt1_keras_examples",
    ],
    # Among all that is installed, a package named examples might be anyone's.
    package_dir={"gpt1_keras_examples": "examples"},
    package_data={
        "gpt1_keras": [
            "py.typed",
            "*.pyi",
            "*/*.pyi",
            "tokenization/normalization/*.npz",
            "tokenization/normalization/original_tables.json",
            "tokenization/normalization/NOTICE",
            "presets/*/*",
            "presets/*/assets/*/*",
        ],
        "serving": [
            "py.typed",
            "*/*.pyi",
            "deploy/*",
            "deploy/grafana/*",
            "prediction/*.html",
            "prediction/*.css",
            "prediction/*.js",
            "server/page/*.html",
            "server/page/*.css",
            "server/page/*.js",
        ],
        "training": ["deploy/*"],
        "gpt1_keras_examples": ["*.ipynb", "clients/*", "data/*", "on_device/*"],
    },
    entry_points={"console_scripts": ["gpt1 = gpt1_keras.programs:main"]},
    install_requires=[
        "tensorflow>=2.21,<2.22",
        "keras>=3.15,<3.16",  # private names of both: gpt1_keras/upstream.py
        "keras-nlp>=0.32,<0.33",  # the name that installs KerasHub
        "tensorflow-datasets>=4.9.10",
        "importlib_resources",  # tensorflow-datasets imports it without asking for it
        "tensorflow-serving-api>=2.21,<2.22",
        "grpcio-health-checking",
        "prometheus-client",
        "safetensors",
        "h11>=0.16,<0.17",
        "huggingface_hub>=2.4,<3",  # what its errors are, and how its cache names files
        "pyarrow",  # which tensorflow-datasets brings too
        "python-calamine>=0.9,<1",
        "xlsxwriter>=3.2,<4",
        "pyyaml",
        "scikit-learn>=1.7",
        "scipy",
        "tokenizers",
        "tensorboard",
        "rich",  # which Keras brings too
        "cyclopts>=5.5,<6",
        "lazy-loader>=0.5,<1",
        "tqdm",
        "matplotlib",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        "beam": ["apache-beam"],
        # Strings in without TensorFlow: KerasHub batches them with Grain.
        "jax": ["jax", "grain>=0.2.18,<0.3"],
        # Quantized .tflite files. It brings LiteRT itself, which runs them: ai-edge-litert.
        "device": ["litert-quantizer>=0.11"],
        # `gpt1 finetune --search`.
        "search": ["optuna>=5,<6"],
        # The peers that tests and benchmarks compare with. This version of torch has a CPU build.
        "bench": [
            "torch==2.13.0",
            "transformers>=5",
            "accelerate>=1.15,<2",  # transformers' Trainer needs it
            "fastapi",
            "uvicorn",
            "onnx",
            "onnxruntime",
            "onnxscript",
            "openvino>=2026,<2027",
            "nncf>=3,<4",
            "psutil",
        ],
        # Coverage-guided fuzzing; on Linux and macOS.
        "fuzz": ["atheris>=3,<4"],
        "test": [
            "torch==2.13.0",
            "captum>=0.9,<0.10",  # integrated gradients, to compare ours with
            "transformers>=5",
            "jax",
            "grain>=0.2.18,<0.3",  # KerasHub's test harness imports it
            "pandas",
            "openpyxl",
            "datasets>=5,<6",
            "apache-beam",
            "axe-playwright-python>=0.1.8,<0.2",  # accessibility, with playwright
            "check-jsonschema",
            "grafana-foundation-sdk",
            "hypothesis>=6,<7",
            "ipykernel",
            "kubernetes-validate",
            "litert-quantizer>=0.11",
            "nbclient",
            "optuna>=5,<6",
            "pdoc>=16",
            "playwright>=1.65,<2",  # drives a Chromium of the machine's; it downloads none itself
            "promql-parser",
            "psutil",
            "pytest",
            "pytest-examples",
            "pytest-xdist",
            "ftfy==6.3.1",
            "regex==2026.11.15",
            "ruff",
            "mypy",
        ],
    },
)
