"""Settings and turns of the two sides that fine-tune alternately."""

BATCH_SIZE = 32
LEARNING_RATE = 6.25e-5
CLIP_NORM = 1.0
WEIGHT_DECAY = 0.01
IDS_FILE, PRESET, HUGGING_FACE = "ids.npz", "preset", "hugging_face"  # what is prepared


class BatchTurns:
    """Makes a turn of every `batches` batches.

    Args:
        turns: `Turns`.
        count: number of turns.
        batches: batches in a turn.
    """

    def __init__(self, turns, count, batches):
        self._turns, self._batches, self._done = turns, batches, 0
        self.steps = count * batches

    def begin(self):
        """Waits for the first turn, before the first batch."""
        self._turns.begin()

    def batch_ended(self):
        """Ends the turn, and waits for the next, if that was its last batch."""
        self._done += 1
        if self._done % self._batches == 0:
            self._turns.end()
            if self._done < self.steps:
                self._turns.begin()
