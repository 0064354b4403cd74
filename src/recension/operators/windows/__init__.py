"""Windows on a fixed grid: tumbling and hopping."""
