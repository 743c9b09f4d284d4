"""`hatcast evaluate --daily-limit`: replay recorded days through the real release code, and score what is published."""
