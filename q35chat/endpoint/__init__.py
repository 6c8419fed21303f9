"""Somebody else's server as the model of a chat, by OpenAI's protocol: found out about, asked,
measured, and never trusted."""
