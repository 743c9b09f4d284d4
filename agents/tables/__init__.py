"""Published records as tables and files. The tables are those of `hatcast export`, of `-o FILE` and of the map's API.

records    the columns of each kind of record, and the short table of each
columns    tables of records, or of other results: columns, rows, several kinds in one table
arrow      records as Arrow tables
lines      records as lines of CSV, and as GeoJSON features
files      files of records by format, which get their name when they are complete
"""
