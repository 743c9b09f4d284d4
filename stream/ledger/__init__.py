"""The ledger of a domain: what may be charged, and what is stored of it, as pure decisions on rows."""
