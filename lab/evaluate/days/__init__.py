"""`hatcast evaluate --daily-limit`: replay recorded days through the release code, and score the releases."""
