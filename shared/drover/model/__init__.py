"""Values that every layer shares; standard library only."""
