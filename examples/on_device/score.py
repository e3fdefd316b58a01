"""Answers texts with a .tflite file of any task, one line of JSON for each example.

python score.py sst2.tflite "a joy to watch" "a waste of time"
python score.py rte.tflite "a premise" "a hypothesis"
python score.py race.tflite "the context" "the question" "a choice" "another" "a third"

Each answer is as `serving.tflite.TextModel` returns it.
"""

import json
import sys

from serving.tflite import TextModel

if len(sys.argv) < 3:
    sys.exit(__doc__)
model, texts = TextModel(sys.argv[1]), sys.argv[2:]
fields = len(model.metadata["fields"])
if model.metadata["num_choices"]:
    examples = [[*texts[: fields - 1], texts[fields - 1 :]]]
else:
    examples = [texts[first : first + fields] for first in range(0, len(texts), fields)]
for example in examples:
    print(json.dumps(model(*example), ensure_ascii=False))
