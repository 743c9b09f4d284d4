"""`hatcast plan`: expected errors of a tracker from counts alone, and the keys that make them small."""
