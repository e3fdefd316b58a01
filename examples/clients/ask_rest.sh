#!/bin/sh
# Asks a classifier over REST with curl: all outputs of a text, then classes and scores.
#
#     sh ask_rest.sh http://localhost:8501 sst2
set -eu
model="$1/v1/models/$2"

curl -sS --fail-with-body "$model" # its versions and their states
echo

curl -sS --fail-with-body "$model:predict" \
    -d '{"instances": ["a joy to watch", "a waste of time"]}'
echo

curl -sS --fail-with-body "$model:classify" \
    -d '{"signature_name": "classify", "examples": [{"text": "a joy to watch"}]}'
echo
