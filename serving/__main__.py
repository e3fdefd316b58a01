"""Lists the programs that export, serve and query models, or runs one: `python -m serving NAME`."""

from gpt1_keras.programs import run

if __name__ == "__main__":
    run("python -m serving", "serving")
