"""What moves between shards: routes, packets, and the clocks that tell one shard of the rows of all."""
