"""What a store refuses."""


class Unproven(Exception):
    """This Redis may have lost releases: nothing is committed before it is proven."""
