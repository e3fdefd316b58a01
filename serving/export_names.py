"""The names of an export's files and signatures, for the code that writes and that reads them."""

# Files in an export's folder.
SAVED_MODEL_FILE = "saved_model.pb"
EXTRA_FOLDER = "assets.extra"  # TensorFlow's folder for further files of a SavedModel
METADATA_FILE = f"{EXTRA_FOLDER}/gpt1_keras.json"
README_FILE = f"{EXTRA_FOLDER}/README.md"
WARMUP_FILE = f"{EXTRA_FOLDER}/tf_serving_warmup_requests"

# Signatures of a SavedModel. TensorFlow Serving knows the first three by these names.
DEFAULT_SIGNATURE = "serving_default"
CLASSIFY = "classify"
REGRESS = "regress"
EXPLAIN = "explain"
SCORE = "score"
GENERATE = "generate"
EMBED = "embed"

# Signatures of SavedModels and .tflite files alike, and of .tflite files alone.
TOKENIZE = "tokenize"
TOKENS = "tokens"
TEXT = "text"

# The one input of signatures that take tf.Examples.
EXAMPLES_INPUT = "inputs"
