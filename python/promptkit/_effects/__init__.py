"""Everything that waits, reads, locks or talks. It carries out what the pure parts decide."""
