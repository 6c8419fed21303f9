"""Attacks with counts: by hand `python -m tests.campaigns.NAME`, in a short form with the tests.

Each prints one line a finding and one line of counts at the end, and ends with 1 where it found
anything.
"""
