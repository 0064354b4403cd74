"""One session on several cores: shards of its queries in processes of this machine."""
