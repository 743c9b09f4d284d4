"""Export of published records to Parquet files, one a local date, for DuckDB and other tools."""
