"""The report: one page that needs nothing but itself.

drawing   shapes and axes as SVG            timelines   who spoke when, and what they say of one site
progress  promises, lag and revisions       plan_tree   the plans, with what is known of each step
page      all of it, with the numbers
"""

from recension.demo.report.page import page

__all__ = ["page"]
