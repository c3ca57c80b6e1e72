"""What events say, as spans and metrics by the GenAI semantic conventions."""
