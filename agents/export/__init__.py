"""Export of published records to Parquet files, one a local date, for DuckDB and other tools.

folder     the files of an export, and how far each topic was read
run        the committed records of a topic from an offset on
"""
