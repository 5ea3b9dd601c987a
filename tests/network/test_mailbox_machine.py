"""Mailbox and ledger as a state machine, against plain lists: what came over each edge last, and sums."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.testing import assert_array_equal

from p2pkm.core.messages import DenseMessages, SparseMessages, Tables
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork

UNREAD = object()  # a table that nobody may read any more
SEEDS = st.integers(0, 2**32 - 1)


class Exchanges(RuleBasedStateMachine):
    """Random exchanges on a random graph; `twin` holds the last table over every edge, `sent` four sums of each."""

    @initialize(n=st.integers(1, 7), share=st.sampled_from((0.0, 0.5, 1.0)), seed=SEEDS)
    def begin(self, n, share, seed):
        links = np.argwhere(np.triu(np.random.default_rng(seed).random((n, n)) < share, 1))
        topology = Topology.from_links(n, np.column_stack((links, np.ones(len(links)))))
        self.placement = place(topology, 0, 1)
        self.network, self.inbox = LocalNetwork(self.placement), None
        e = len(topology.indices)
        self.n, self.source, self.mirror = n, topology.sources, self.placement.mirror
        self.active, self.sent, self.refused = np.ones(e, bool), np.zeros((e, 4), int), np.zeros(n, int)
        self.open()

    @rule()
    def open(self):
        self.network.open()
        self.twin, self.fresh, self.inbox = [None] * len(self.source), None, None

    @rule(seed=SEEDS, wire=st.booleans(), narrow=st.booleans(), malformed=st.booleans(), header=st.integers(0, 1))
    def exchange(self, seed, wire, narrow, malformed, header):
        rng = np.random.default_rng(seed)
        r, w = rng.integers(0, 4), header + rng.integers(1, 3)
        values, rows = rng.normal(size=(self.n, r, w)), rng.integers(-1, r + 1, self.n)
        edges = rng.random(len(self.source)) < 0.6 if narrow else None
        bits = rng.integers(0, 9, self.n) if wire else None
        bad = (rng.random(self.n) < 0.3) & (rows >= 0) if malformed else None
        self.inbox = self.network.exchange(DenseMessages(values.copy(), rows, edges, header, malformed=bad, wire=bits))
        self.fresh = np.zeros(len(self.source), bool)
        for e, u in enumerate(self.source):
            if rows[u] < 0 or not self.active[e] or (edges is not None and not edges[e]):
                continue
            size = 8 * (w - header) * rows[u]
            self.sent[e] += 1, rows[u], size, bits[u] if wire else size
            if malformed and bad[u]:
                self.refused[u] += 1
                continue
            came = self.mirror[e]
            self.fresh[came], self.twin[came] = True, values[u, : rows[u]]
        if edges is not None:  # receivers may read what came in this exchange alone
            self.twin = [table if new else UNREAD for table, new in zip(self.twin, self.fresh, strict=True)]

    @rule(seed=SEEDS, wire=st.booleans())
    def deliver(self, seed, wire):
        rng = np.random.default_rng(seed)
        who = np.flatnonzero(rng.random(self.n) < 0.5)
        rows = rng.integers(0, 3, len(who))
        tables = Tables(rng.normal(size=(rows.sum(), 2)), np.cumsum(rows) - rows, rows)
        edges = np.flatnonzero(np.isin(self.source, who) & (rng.random(len(self.source)) < 0.7))
        bits = rng.integers(0, 9, len(who)) if wire else None
        came = self.network.deliver(SparseMessages(who, tables, edges, wire=bits))
        wanted = {}
        for e in edges[self.active[edges]]:
            at = np.searchsorted(who, self.source[e])
            wanted[int(self.mirror[e])] = tables.values[tables.starts[at] : tables.starts[at] + rows[at]]
            self.sent[e] += 1, rows[at], 16 * rows[at], bits[at] if wire else 16 * rows[at]
        assert came.edges.tolist() == sorted(wanted)
        for e, start, count in zip(
            *map(np.ndarray.tolist, (came.edges, came.tables.starts, came.tables.rows)), strict=True
        ):
            assert_array_equal(came.tables.values[start : start + count], wanted[e])

    @rule(seed=SEEDS)
    def cut(self, seed):
        on = np.random.default_rng(seed).random(len(self.source)) < 0.7
        self.active = on & on[self.mirror]
        self.network.set_active_edges(self.active)
        self.twin = [table if use else None for table, use in zip(self.twin, self.active, strict=True)]
        self.inbox = None  # valid until the next exchange

    @precondition(lambda self: self.fresh is not None)
    @rule()
    def resume(self):
        kept, other = self.network.snapshot(), LocalNetwork(self.placement)
        other.open()
        if not self.active.all():
            other.set_active_edges(self.active)
        found = other.restore(kept)
        self.inbox = found if self.inbox is not None else None
        self.network = other

    @invariant()
    def receives_what_was_sent(self):
        if getattr(self, "inbox", None) is None:
            return
        assert_array_equal(self.inbox.fresh, self.fresh)
        for slot, table in zip(self.inbox.slots, self.twin, strict=True):
            if table is UNREAD:
                continue
            assert (slot < 0) == (table is None)
            if table is None:
                continue
            assert self.inbox.rows[slot] == len(table)
            width = table.shape[1]
            assert_array_equal(self.inbox.tables[slot, : len(table), :width], table)

    @invariant()
    def counts_what_was_sent(self):
        if not hasattr(self, "sent"):
            return
        ledger = self.network.ledger
        assert_array_equal(ledger.edges.reshape(-1, 4), self.sent)
        assert ledger.totals == (self.sent[:, 0].sum(), self.sent[:, 2].sum())
        assert ledger.wire_total == self.sent[:, 3].sum()
        assert_array_equal(ledger.refused, self.refused)


TestExchanges = pytest.mark.hypothesis(Exchanges.TestCase)
TestExchanges.settings = settings(stateful_step_count=20, deadline=None)
