"""Published records as tables and files. The tables are those of `hatcast export`, of `-o FILE` and of the map's API.

records    the columns of each kind of record
columns    tables of records: columns, rows, several kinds in one table
arrow      records as Arrow tables
csv        records as lines of CSV
geojson    records as GeoJSON features
figures    rows of results that are not records, such as those of `hatcast evaluate`
formats    the formats of files
files      files that get their name when they are complete
"""
