"""Named mutants: the product with one promise broken, and the tests that must see it. Run by `scripts/mutants`."""
