"""The exported model folder: manifest, files, integrity, and the demo that is one of them."""
