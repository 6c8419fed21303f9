"""Makes quantisation cost less: the residual stream is turned, and rounding feeds its error on.

Nothing here knows how a bundle is written. `rotation` gives weights that compute the same in
another basis, `feedback` rounds one matrix, `layers` runs one layer at a time, `calibrate` goes
through a checkpoint.
"""
