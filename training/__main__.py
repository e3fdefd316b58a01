"""Lists the programs that make and measure models, or runs one: `python -m training NAME`."""

from gpt1_keras.programs import run

if __name__ == "__main__":
    run("python -m training", "training")
