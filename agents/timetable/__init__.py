"""Static GTFS: lines, routes and stops of a timetable, from its zip file.    [gtfs.org, Schedule]

`tables` reads the zip, `lines` has the lines that trips follow, for lists of cells, and `network` the simplified routes
and the stops with the routes that serve them, for the map.
"""
