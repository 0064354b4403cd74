"""Where operators keep what they must remember: indexes that change a part at the cost of that part.

One word for each way to let go: `expire(t)` drops what ends at ``t`` or before, `forget_before(t)` what lies
before ``t``, `remove` what is named.
"""
