"""The pure core of hatcast: readings, clocks and noise in, releases out; no clock, chance or I/O of its own."""
