"""What an answer must be: decoded exactly, validated, and sent back with what is wrong."""
