"""Snapshot aggregates: one result per group and maximal interval in which its events do not change."""
