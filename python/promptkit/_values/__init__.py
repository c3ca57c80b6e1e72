"""Frozen values: what is configured, asked, sent, answered and observed."""
