"""State machines without I/O: a state and an input give a state and what to do."""
