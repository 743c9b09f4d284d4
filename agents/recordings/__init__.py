"""Recordings on disk: plain, gzip and Parquet files, pipes, and topic dumps."""
