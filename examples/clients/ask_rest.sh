#!/bin/sh
# Asks a model over REST with curl, by its task.
#
#     sh ask_rest.sh http://localhost:8501 sst2                  # texts: outputs, then all classes
#     sh ask_rest.sh http://localhost:8501 mnli pairs
#     sh ask_rest.sh http://localhost:8501 race choices
#     sh ask_rest.sh http://localhost:8501 books generate
#     sh ask_rest.sh http://localhost:8501 sst2/labels/canary    # or sst2/versions/2
set -eu
model="$1/v1/models/$2"

ask() {
    curl -sS --fail-with-body "$@"
    echo
}

ask "$model" # its versions and their states
case "${3:-texts}" in
texts)
    ask "$model:predict" -d '{"instances": ["a joy to watch", "a waste of time"]}'
    ask "$model:classify" \
        -d '{"signature_name": "classify", "examples": [{"text": "a joy to watch"}]}'
    ;;
pairs)
    ask "$model:predict" -d '{"instances": [{"premise": "It rains.", "hypothesis": "It is wet."}]}'
    ;;
choices)
    ask "$model:predict" -d '{"instances": [{"context": "Anna fed the cat.",
        "question": "Who ate?", "choices": ["the cat", "the dog"]}]}'
    ;;
generate)
    ask "$model:predict" -d '{"signature_name": "generate", "inputs": {
        "text": ["the road was long and", "she opened the door"], "length": [20],
        "temperature": [0.8], "top_k": [40], "top_p": [1.0], "seed": [0], "stop": [["."]]}}'
    ;;
esac
