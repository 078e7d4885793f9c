"""Which runs to train next, and how far more of them would bring the error."""
