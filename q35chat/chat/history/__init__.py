"""The turns of a conversation as a tree, and how they are kept while they come."""
