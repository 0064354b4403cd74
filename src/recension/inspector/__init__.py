"""The inspector: a page that shows a recording, on the loopback or as one file."""
