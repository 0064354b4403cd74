"""Eager or lazy: what each scheme of coalescing costs, and which queries had better have which."""
