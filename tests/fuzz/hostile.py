"""Values that are sound or nearly so, and that somebody once did not expect."""

from __future__ import annotations

from typing import Final

NUMBERS: Final = (0, 1, -1, 2, 7, 8, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1)
_DEEP: Final = (b"[" * 300 + b"]" * 300, b"[" * 3000, b'{"a":' * 150 + b"1" + b"}" * 150)
JSON_VALUES: Final = (
    *b"null true tru 1e999 -0 9223372036854775808 0.1e-400 NaN -Infinity 01 0x1 1.5 [] {} [[[[1]]]]".split(),
    *(b'[1,"a",null]', b'{"a":{"b":[]}}', b'"\\ud800"', b'"\\u0000"', b'"\xff\xfe"', b'"\\"', b"", b"1" * 40),
    *(b'"2024-01-01T00:00:00Z"', b'"2024-99-01"', b'"9999999999999999999"', b'"' + b"y" * 5000 + b'"'),
    *_DEEP,
)
JSON_NAMES: Final = (
    *b'"_kind" "_vs" "_ve" "_new_ve" "_count" "_batch" "_seq" "_x" "" "word" word "a.b"'.split(),
    *(b'"\\ud800"', b'"\xff"', b'"\\u0000"', b'"' + b"n" * 3000 + b'"', b'"\n"'),
)
CSV_CELLS: Final = (
    *b"1e999 nan NULL =cmd() 9223372036854775808 2024-13-01 0001-01-01 007 - true cti retract close".split(),
    *(b"", b'""', b'"', b'"""', b'"a""b"', b'a"b', b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"\r", b"\n", b",", b",,,,", b'"\n"', b"1" * 400, b"z" * 5000, b"2024-01-01 00:00:00+25:00"),
)
LINE_ENDS: Final = (b"\r", b"\r\n", b"\n\n", b"\x00\n", b" \n", b"\x0b", b"\xe2\x80\xa8")
