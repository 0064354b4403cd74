"""How queries are written: a thin fluent layer over the plan."""
