"""Do a stream's answers ever contradict each other? The bank-transfer test of internal consistency.

Money moves between accounts; transfers arrive out of order. Whatever has arrived, every transfer takes from
one account what it gives to another, so the balances must sum to 0 at every instant, in every state of the
output, however late the rest comes. Systems that answer early from inconsistent parts fail this test.

    python examples/bank.py             1,000,000 transfers
    python examples/bank.py 10000       fewer
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

import recension as rc

BATCH = 20_000
LATENESS = 5_000

transfers = rc.source("transfers", {"payer": "int64", "payee": "int64", "amount": "int64"})
# A transfer counts from the moment it happens, for ever.
paid = transfers.inserts()
debits = paid.select(account=rc.col("payer"), amount=-rc.col("amount"))
credits = paid.select(account=rc.col("payee"), amount=rc.col("amount"))
balances = debits.union(credits).group_by("account").agg(balance=rc.sum("amount"), speculate="eager")
query = balances.agg(total=rc.sum("balance"), speculate="eager")


def arrivals(size: int) -> pa.Table:
    """Transfers, one a tick, 20 % of them late by up to 5,000 ticks; a CTI now and then."""
    rng = np.random.default_rng(1)
    at = np.arange(size)
    arrival = at + np.where(rng.random(size) < 0.2, rng.integers(0, LATENESS, size), 0)
    order = np.argsort(arrival, kind="stable")
    return pa.table(
        {
            "_kind": np.full(size, "insert"),
            "_vs": at[order],
            "_ve": at[order] + 1,
            "payer": rng.integers(0, 100, size),
            "payee": rng.integers(0, 100, size),
            "amount": rng.integers(1, 1_000, size),
        }
    )


def check(size: int) -> tuple[int, int]:
    """Run the query; how many output states were looked at, and how many showed a total other than 0."""
    table = arrivals(size)
    session = rc.session(balances=balances, total=query)
    states = wrong = 0
    for start in range(0, size, BATCH):
        session.push("transfers", table.slice(start, BATCH))
        session.advance("transfers", max(0, start + BATCH - LATENESS))
        wrong += _wrong(session.read("total"))
        session.read("balances")
        states += 1
    session.close()
    return states + 1, wrong + _wrong(session.read("total"))


def _wrong(output: rc.Result) -> int:
    """Any total that is shown and is not 0, even for a moment, counts."""
    totals = output.batch().payload.column("total").drop_null().to_numpy()
    return int((totals != 0).sum())


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    began = time.perf_counter()
    states, wrong = check(size)
    print(f"{size:,} transfers, {states} output states looked at, totals other than 0: {wrong}")
    print(f"{time.perf_counter() - began:.1f} s")
