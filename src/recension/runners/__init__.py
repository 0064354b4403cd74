"""Where queries run: here, on the local engine; under `spark`, on Spark."""
