"""Events, histories, columnar batches, files: what every other layer stands on."""
