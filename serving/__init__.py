"""Programs that export, serve and query models: `python -m serving.NAME --help`."""

from gpt1_keras.quiet import is_program_starting, silence_imports

if is_program_starting():
    silence_imports()
