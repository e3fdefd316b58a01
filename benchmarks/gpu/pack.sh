#!/usr/bin/env bash
# Packs what a machine with a GPU needs that has JAX, but neither a network nor TensorFlow.
#     bash benchmarks/gpu/pack.sh CORPUS PACK [PYTHON_VERSION]
# CORPUS is what training.corpus wrote. PACK gets wheels/ and corpus.tar.xz, 60 MB at most.
set -euo pipefail
corpus=$1 pack=$2 version=${3:-3.12}
missing="keras keras-hub namex optree cyclopts docstring-parser rich-rst"

mkdir -p "$pack/wheels"
for name in $missing; do
    installed=$(python -m pip show "$name" | sed -n 's/^Version: //p')
    python -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --dest "$pack/wheels" "$name==$installed"
done
tar --directory "$corpus" --create . | xz -9 --threads=0 > "$pack/corpus.tar.xz"
megabytes=$(du --summarize --apparent-size --block-size=MB "$pack" | cut --fields=1)
echo "$pack: $megabytes"
[ "${megabytes%MB}" -le 60 ] || { echo "More than 60 MB: take a smaller corpus." >&2; exit 1; }
