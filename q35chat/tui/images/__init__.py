"""Pictures in a terminal: protocols, painting, small copies."""
