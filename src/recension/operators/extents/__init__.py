"""Window extents: the readings that a sliding window holds, and what they say, coalesced."""
