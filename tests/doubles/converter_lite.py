"""The program `converter_lite`: has the tests' process convert, which has imported what it takes.

It imports next to nothing itself, for it is started hundreds of times.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    read = ("FAKE_", "ASCEND_CUSTOM_OPP_PATH", "KEEP_ORIGIN_DTYPE")
    fakes = {name: value for name, value in os.environ.items() if name.startswith(read)}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        asked = [os.getcwd(), sys.argv[2:], fakes]  # noqa: PTH109 - pathlib takes long to import
        server.sendall(json.dumps(asked).encode())
        server.shutdown(socket.SHUT_WR)
        code, out, err = json.loads(server.makefile(encoding="utf-8").read())
    sys.stdout.write(out)
    sys.stderr.write(err)
    sys.exit(code)
