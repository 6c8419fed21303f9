"""`converter_lite` for machines that have only the Python package: same options, same last line.

Runs as a process of its own, because the package holds the GIL and writes to descriptors 1 and 2,
and as a file, because the Python that has the package may not have this program.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module


def main() -> int:
    """Convert as the command line says; the exit code."""
    parser = argparse.ArgumentParser()
    for option in ("fmk", "optimize", "saveType", "modelFile", "outputFile", "configFile"):
        parser.add_argument(f"--{option}", required=True)
    wanted = parser.parse_args()
    lite = import_module("mindspore_lite")
    converter = lite.Converter()
    converter.optimize = wanted.optimize
    converter.save_type = getattr(lite.ModelType, wanted.saveType)
    converter.convert(
        fmk_type=getattr(lite.FmkType, wanted.fmk),
        model_file=wanted.modelFile,
        output_file=wanted.outputFile,
        config_file=wanted.configFile,
    )
    sys.stdout.write("CONVERT RESULT SUCCESS:0\n")
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are not for the package
    sys.exit(main())
