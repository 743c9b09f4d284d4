"""The policy: every public parameter of a release, read from `hatcast.toml`, checked, and hashed into `policy_id`."""
