"""Configuration: `hatcast.toml` decoded, its template, and the meaning of every key."""
