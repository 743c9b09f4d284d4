"""`hatcast survey`: compute the figures of `stream/survey` from recordings of any size, in bounded memory."""
