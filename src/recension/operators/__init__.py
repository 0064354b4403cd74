"""How operators are done: one physical operator per file, columnar, incremental, restartable."""
