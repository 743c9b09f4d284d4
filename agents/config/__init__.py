"""Configuration: the `hatcast.toml` decoder, its template, and the meaning of every key."""
