#!/usr/bin/env bash
# Runs on the machine with the GPU, from the repository's root, with what pack.sh packed.
#     bash benchmarks/gpu/run.sh PACK OUT step [OPTIONS of benchmarks.gpu.step]
#     bash benchmarks/gpu/run.sh PACK OUT pretrain [OPTIONS of training.pretrain]
# A pre-training is ended after SECONDS_OF_A_PIECE; the same command goes on from there. After each
# piece, OUT gets the run's history.json and the weights in float16, in parts under 16 MiB.
set -euo pipefail
pack=$1 out=$2 what=$3
shift 3
work=${WORK:-/tmp/gpt1_keras_gpu}
run=${RUN:-$work/run}
export KERAS_BACKEND=jax PYTHONPATH=$work/site JAX_COMPILATION_CACHE_DIR=$work/compiled
if [ ! -e "$work/ready" ]; then
    mkdir -p "$work/corpus"
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$work/site" \
        "$pack"/wheels/*.whl
    tar --directory "$work/corpus" --extract --xz --file "$pack/corpus.tar.xz"
    touch "$work/ready"
fi
mkdir -p "$out"
if [ "$what" = step ]; then
    python3 -m benchmarks.gpu.step "$@" 2>&1 | tee "$out/step.txt"
    exit
fi
timeout --signal=TERM "${SECONDS_OF_A_PIECE:-480}" python3 -m training.pretrain \
    --corpus "$work/corpus" --output "$run" "$@" 2>&1 | tee "$out/pretrain.txt" || true
python3 -m benchmarks.gpu.weights take "$run" "$work/corpus" "$work/weights.npz"
split --bytes=15900K "$work/weights.npz" "$out/weights.npz."
cp "$run/history.json" "$out"
