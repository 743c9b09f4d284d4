"""`hatcast survey`: recordings of any size to the figures of `stream/survey`, in bounded memory."""
