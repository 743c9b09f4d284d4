"""Kind `tree`: the binary tree of Dwork, Naor, Pitassi and Rothblum (2010) and Chan, Shi and Song (2011).

A running sum after t slots is the sum of as many noisy nodes as the binary number t has ones. A node is used only if it
is the left child of its parent. So a user in one slot moves at most floor(log2 n) + 1 nodes, and a user in every slot
half as many a slot: the sensitivity is the exact maximum over the declared participation. State: O(log n) numbers.

Proof: `_prefixes`; nodes and sensitivity: `_digits`.
"""

from hatcast.stream.continual._digits import Digits
from hatcast.stream.continual._interface import Setting
from hatcast.stream.continual._prefixes import PrefixNoise


def tree(setting: Setting) -> PrefixNoise:
    """Return the binary tree mechanism of a setting."""
    return PrefixNoise("tree", setting, Digits(setting.slots, 2, setting.slots.bit_length(), balanced=False))
