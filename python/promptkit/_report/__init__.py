"""What ``promptkit report`` shows: from the lines of a trace to the text of one page. Pure."""
