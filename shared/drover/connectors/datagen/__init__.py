"""DatagenSource: generated rows, the same in every run."""
