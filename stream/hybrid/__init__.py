"""The hybrid model: some devices do not trust the operator.    [H]"""
