"""`make peers`: what people would pick instead, over the same files, each in an environment of its own."""
