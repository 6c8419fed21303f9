"""What is on this machine and what is missing: small probes that never raise.

Knows how to look; what a user is told first and how it is drawn is up to the command.
"""
