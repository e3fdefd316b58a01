"""Programs that export, serve and query models: `gpt1 --help` lists them."""

from gpt1_keras.quiet import is_program_starting, silence_imports

if is_program_starting():
    silence_imports()
