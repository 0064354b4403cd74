"""Eager or lazy: what each scheme of coalescing costs, and which scheme each query should have."""
