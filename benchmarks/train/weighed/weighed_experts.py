"""The mixture of experts of examples/moe, weighed as `weighed` does; it lies beside this file as `experts.py`."""

from experts import ByteExperts
from weighed import Scales


class WeighedExperts(Scales, ByteExperts):
    pass
