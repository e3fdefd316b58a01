"""Operations with custom gradients, which save memory and time in training."""
