"""Prometheus metrics: declarations, counting (`meters`) and the HTTP server; failure logs of loops."""
