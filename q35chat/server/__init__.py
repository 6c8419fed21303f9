"""The loaded model as a server, by the protocols that editors and scripts speak.

Requests come in, the one engine answers them in turn. Knows no command line and keeps no chat.
"""
