"""From a request to everything that a run needs. Pure: reading input files is done between two steps."""
