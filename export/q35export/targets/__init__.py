"""What differs between the places a graph runs: operators, dtypes, opset. One file each."""
