"""The report: one page that needs nothing but itself.

drawing   shapes and axes as SVG                lives      who spoke when
progress  promises, lag and revisions           one_site   some minutes of one site, as each tells them
plan_tree the plans, and what is known of them  page       all of it, with the numbers
"""

from recension.demo.report.page import page

__all__ = ["page"]
