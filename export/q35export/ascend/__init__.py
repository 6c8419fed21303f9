"""The target `ascend-310p`: graphs, operators, reference executor and conversion."""
