"""Operations whose gradients are written by hand, to save memory and time in training."""
