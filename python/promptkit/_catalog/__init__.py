"""From the text of files to definitions or faults, without reading anything."""
