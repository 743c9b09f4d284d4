"""Configuration: `hatcast.toml`, its decoder and its template."""
