"""Dialects: bytes to values and values to bytes, without any input or output of their own."""
