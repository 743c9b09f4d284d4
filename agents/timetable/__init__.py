"""Static GTFS: lines, routes and stops of a timetable, from its zip file.    [gtfs.org, Schedule]

`tables` reads the zip, `network` has the simplified routes and the stops with the routes that serve them, for the map,
and `speeds` the scheduled speed of each cell, for a tracker.
"""
