"""The reference of hatcast.toml: what each key means, and docs/configuration.md made of it."""
