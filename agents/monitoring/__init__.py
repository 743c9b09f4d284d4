"""Samples for Prometheus: what they are called (`declared`), how they are counted (`meters`), where they are served."""
