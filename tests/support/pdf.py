"""A PDF by hand, its parts as they lie in the file."""

from __future__ import annotations

import zlib


def pdf(text: str, *, packed: bool = False) -> bytes:
    """A PDF of one page with a text, `packed` as most are."""
    drawn = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    packing = b"/Filter/FlateDecode" if packed else b""
    drawn = zlib.compress(drawn) if packed else drawn
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R"
    parts = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page + b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d%s>>stream\n%s\nendstream" % (len(drawn), packing, drawn),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    data, places = b"%PDF-1.4\n", list[int]()
    for number, part in enumerate(parts, start=1):
        places.append(len(data))
        data += b"%d 0 obj%sendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(parts) + 1)
    end = b"trailer<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, len(data))
    return data + head + table + end
